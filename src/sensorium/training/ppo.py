"""Teachers: agents trained by PPO of Stable-Baselines3, on the host in worker processes, or on the device.

PPO because it is past 2,700 on the ant soonest on two cores; docs/experiments.md has the table.
"""

import dataclasses
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.jerk import PenaliseJerk
from sensorium.bridges.sb3 import check_explorable, import_sb3, network_of, to_policy
from sensorium.bridges.sb3_envs import to_vec_env
from sensorium.bridges.spaces import action_map
from sensorium.bridges.to_gymnasium import WorldVectorEnv
from sensorium.envs import Environment, World
from sensorium.errors import ConfigError, check_counts
from sensorium.policies import ConvolutionalConfig, FeedForwardConfig, Policy, as_population
from sensorium.rollout import Engine, by_kind
from sensorium.training.trainer import Trainer, TrainerConfig, TrainingContext
from sensorium.types import Keys


@dataclasses.dataclass(frozen=True)
class PpoConfig(TrainerConfig):
    """Settings of PPO (Schulman et al. 2017) with state-dependent exploration (Raffin et al. 2021)."""

    total_steps: int = 2_000_000
    """Of the agent, in all environments."""
    environments: int = 16
    """Side by side; on the host in as many processes."""
    rollout: int = 256
    """Steps of the agent in each environment between two rounds of updates."""
    batch: int = 512
    """Steps in an update."""
    epochs: int = 10
    """How often each step is learned from."""
    learning_rate: float = 3e-4
    """At the start; it falls to zero along a line."""
    discount: float = 0.99
    """γ, for each step of the agent."""
    trace_decay: float = 0.9
    """λ of generalised advantage estimation."""
    clip_range: float = 0.4
    """ε: how far an update may move the probability of an action."""
    exploration: float = -1.0
    """Logarithm of the first standard deviation of actions."""
    hold_exploration: int = 4
    """Steps that a direction of exploration is kept."""
    first_action: tuple[float, ...] = ()
    """Added to what the untrained agent does, which is little; zeros by default."""
    action_repeat: int = 1
    """Steps of the world for each of the agent's, in training; of worlds on the device only."""
    jerk_penalty: float = 1.0
    """Taken from the reward of a step, times the mean squared change of the actions.

    Without it the ant learns to flip its motors from one end to the other; students of such a teacher
    do not walk. Of worlds on the host only."""

    def __post_init__(self) -> None:
        check_counts(
            total_steps=self.total_steps,
            environments=self.environments,
            rollout=self.rollout,
            batch=self.batch,
            epochs=self.epochs,
            hold_exploration=self.hold_exploration,
            action_repeat=self.action_repeat,
        )

    def build(self, context: TrainingContext) -> Trainer:
        """ConfigError: its loop is that of Stable-Baselines3, see `train_teacher`."""
        raise ConfigError("PPO of Stable-Baselines3 trains teachers: use `sensorium teach`.")


class Tests(NamedTuple):
    """What decides which model is kept.

    PPO improves an agent that explores: without exploration it may get worse and worse meanwhile.
    """

    engine: Engine
    """Runs the world."""
    keys: Keys
    """Of the episodes."""
    every: int
    """Rounds from one test to the next; there is one at the end in any case."""


@dataclasses.dataclass(frozen=True)
class Teaching:
    """How far the training of a teacher has come."""

    steps: int
    seconds: float
    mean_return: float | None
    """Of the last episodes, with exploration; None before the first has ended."""
    test: float | None
    """Mean return of the last test, without exploration; None before the first."""
    best_test: float | None


def check_teaching(
    config: PpoConfig,
    world: World,
    network: FeedForwardConfig | ConvolutionalConfig,
) -> None:
    """Whether such a teacher can be trained so in that world.

    Raises:
        MissingExtraError: Stable-Baselines3 is not installed.
        ConfigError: Settings do not fit.
    """
    network_of(network)
    jax.eval_shape(
        lambda key: network.build(world.senses, world.num_actions, key), jax.random.key(0)
    )
    by_kind(world, lambda device: None, check_explorable)
    if config.environments * config.rollout % config.batch:
        raise ConfigError(
            f"A batch of {config.batch} does not divide {config.environments} environments x "
            f"{config.rollout} steps."
        )
    if config.first_action and len(config.first_action) != world.num_actions:
        raise ConfigError(
            f"first_action needs {world.num_actions} numbers, got {len(config.first_action)}."
        )
    if world.on_host and config.action_repeat != 1:
        raise ConfigError("action_repeat is for worlds on the device; set it to 1.")
    if not world.on_host and config.jerk_penalty:
        raise ConfigError("jerk_penalty is for worlds on the host; set it to 0.")


def train_teacher(
    config: PpoConfig,
    world: World,
    network: FeedForwardConfig | ConvolutionalConfig,
    seed: int,
    keep: Path,
    tests: Tests,
    on_progress: Callable[[Teaching], None],
) -> Policy:
    """Train a teacher.

    Args:
        config: Settings that passed `check_teaching`.
        world: Where; the perturbation of one on the host plays no part.
        network: Whom; the critic has the same hidden layers, and the agent's convolutions.
        seed: Below 2**32. Decides everything but the order in which processes answer, which PPO waits for.
        keep: The model of Stable-Baselines3 with the best test is saved here.
        tests: Of what the agent does without exploration.
        on_progress: Called after each round, and at the end.

    Returns:
        What that model does deterministically, as one of our agents.

    Raises:
        MissingExtraError: Stable-Baselines3 is not installed.
    """
    sb3 = import_sb3()
    name, network_arguments = network_of(network)
    environments = _side_by_side(sb3, world, config)
    started = time.perf_counter()

    class Examiner(sb3.common.callbacks.BaseCallback):
        """Tests from time to time, keeps the best, and reports after each round."""

        rounds = 0
        test: float | None = None
        best_test: float | None = None
        best: Policy

        def _on_rollout_end(self) -> None:
            self.rounds += 1
            if self.rounds % tests.every == 0:
                self._take_test()
            self._report()

        def _on_training_end(self) -> None:
            self._take_test()
            self._report()

        def _take_test(self) -> None:
            policy = to_policy(self.model, network, world.senses, world.num_actions)
            returns = tests.engine.run_population(as_population(policy), tests.keys).total
            mean = float(np.asarray(returns).mean())
            self.test = mean if np.isfinite(mean) else -np.inf
            if self.best_test is None or self.test > self.best_test:
                self.best, self.best_test = policy, self.test
                _save(self.model, keep)

        def _report(self) -> None:
            returns = [episode["r"] for episode in self.model.ep_info_buffer]
            mean = float(np.mean(returns)) if returns else None
            seconds = time.perf_counter() - started
            on_progress(Teaching(self.num_timesteps, seconds, mean, self.test, self.best_test))

        def _on_step(self) -> bool:
            return True

    try:
        model = sb3.PPO(
            name,
            environments,
            n_steps=config.rollout,
            batch_size=config.batch,
            n_epochs=config.epochs,
            learning_rate=lambda left: config.learning_rate * left,
            gamma=config.discount,
            gae_lambda=config.trace_decay,
            clip_range=config.clip_range,
            use_sde=True,
            sde_sample_freq=config.hold_exploration,
            seed=seed,
            device="cpu",
            policy_kwargs=dict(
                log_std_init=config.exploration,
                ortho_init=False,
                **network_arguments,
            ),
        )
        if config.first_action:
            # Its network acts in the units of the world
            first = action_map(environments.action_space).to_env(np.array([config.first_action]))
            bias = model.policy.action_net.bias
            bias.data.copy_(bias.new_tensor(first[0]))
        examiner = Examiner()
        model.learn(config.total_steps, callback=examiner)
        return examiner.best
    finally:
        environments.close()


def _side_by_side(sb3: Any, world: World, config: PpoConfig) -> Any:
    vector = sb3.common.vec_env

    def on_host(host: HostWorld) -> Any:
        sb3.common.utils.th.set_num_threads(1)  # the other cores simulate
        opener = functools.partial(_monitored, host.opener(), config.jerk_penalty)
        return vector.SubprocVecEnv([opener] * config.environments, start_method="spawn")

    def on_device(device: Environment) -> Any:
        many = WorldVectorEnv(device, config.environments)
        return vector.VecMonitor(to_vec_env(many, config.action_repeat))

    worlds = by_kind(world, on_device, on_host)
    # Rewards of about 1: the critic's errors would otherwise drown the agent's gradient
    return vector.VecNormalize(worlds, norm_obs=False, gamma=config.discount, clip_reward=100.0)


def _monitored(opener: Callable[[], Any], jerk_penalty: float) -> Any:
    return PenaliseJerk(import_sb3().common.monitor.Monitor(opener()), jerk_penalty)


def _save(model: Any, keep: Path) -> None:
    keep.parent.mkdir(parents=True, exist_ok=True)
    temporary = keep.with_name(f".{keep.name}.{os.getpid()}.zip")
    model.save(temporary)
    os.replace(temporary, keep)
