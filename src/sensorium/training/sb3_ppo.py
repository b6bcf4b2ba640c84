"""PPO of Stable-Baselines3: feed-forward and convolutional policies for the reward alone.

Proximal policy optimisation (Schulman et al. 2017) with state-dependent exploration (Raffin et al. 2021); it
reaches 2,700 on the ant soonest on two cores (docs/experiments.md). The model is kept as arrays, and each
generation starts its environments and random numbers anew, so that a run resumes bit for bit.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.sb3 import check_explorable, import_sb3, network_of, to_policy
from sensorium.bridges.sb3_envs import to_vec_env
from sensorium.bridges.spaces import action_map
from sensorium.bridges.to_gymnasium import WorldVectorEnv
from sensorium.bridges.training_envs import for_training
from sensorium.envs import Environment
from sensorium.errors import ConfigError
from sensorium.policies import Policy, PolicyConfig, as_population
from sensorium.rollout import HostEngine, by_kind
from sensorium.training.trainer import Metrics, Trainer, TrainerConfig, TrainingContext
from sensorium.types import Key


@dataclasses.dataclass(frozen=True)
class Sb3PpoConfig(TrainerConfig):
    """Settings of PPO of Stable-Baselines3."""

    may_be_zero = ("jostled_steps",)

    num_envs: int = 16
    """Environments side by side."""
    num_steps: int = 256
    """Steps of the policy in each environment in an iteration; the updates follow."""
    num_iterations: int = 12
    """In a generation."""
    num_minibatches: int = 8
    """Into which these steps are divided, for an update each."""
    num_epochs: int = 10
    """Passes over the steps of an iteration."""
    learning_rate: float = 3e-4
    """At the start; it falls to zero along a line."""
    discount: float = 0.99
    """γ, for each step of the policy."""
    gae_lambda: float = 0.9
    """λ of generalised advantage estimation."""
    clip_epsilon: float = 0.4
    """ε: how far an update may move the probability of an action."""
    action_std: float = 0.37
    """First standard deviation of actions."""
    hold_noise: int = 4
    """Steps that a direction of exploration is kept."""
    first_action: tuple[float, ...] = ()
    """Added to the actions of the untrained policy, which are small; zeros by default."""
    action_repeat: int = 1
    """Steps of the world for each of the policy's, in training; of worlds on the device only."""
    jerk_penalty: float = 1.0
    """Taken from the reward of a step, times the mean squared change of the actions.

    Without it the ant learns to switch its motors between their extremes; students of such an expert
    do not walk. Of worlds on the host only."""
    jostled_steps: int = 0
    """For up to so many steps, at the start of an episode and again later, motors get random actions or those
    of other motors, so that an expert learns to go on from there. Of worlds on the host only."""
    jostled_every: int = 250
    """Steps between, from half to twice as many."""

    def build(self, context: TrainingContext) -> "Sb3Ppo":
        """Set up the trainer.

        Raises:
            MissingExtraError: Stable-Baselines3 is not installed.
            ConfigError: The policy is no such network, it has a start, or settings do not fit.
        """
        world, config = context.engine.world, context.config
        network_of(config)
        if context.start is not None:
            raise ConfigError(
                "PPO of Stable-Baselines3 begins with random weights, not from a start."
            )
        if self.num_envs * self.num_steps % self.num_minibatches:
            raise ConfigError(
                f"{self.num_envs} environments x {self.num_steps} steps do not divide into "
                f"{self.num_minibatches} minibatches."
            )
        if self.first_action and len(self.first_action) != world.num_actions:
            raise ConfigError(
                f"first_action needs {world.num_actions} numbers, got {len(self.first_action)}."
            )
        by_kind(world, lambda device: None, check_explorable)
        if world.on_host and self.action_repeat != 1:
            raise ConfigError("action_repeat is for worlds on the device; set it to 1.")
        for name in ("jerk_penalty", "jostled_steps"):
            if not world.on_host and getattr(self, name):
                raise ConfigError(f"{name} is for worlds on the host; set it to 0.")
        return Sb3Ppo(self, context, config)


class Sb3PpoState(NamedTuple):
    """The model of Stable-Baselines3 as arrays, by the names of PyTorch."""

    network: dict[str, Array]
    """Parameters of actor and critic."""
    moments: dict[str, Array]
    """Of Adam, for each parameter in turn."""
    reward_moments: Array
    """Mean, variance and count of discounted returns, by which rewards are scaled."""
    iterations: Int[Array, ""]
    key: Key


class Sb3Ppo(Trainer):
    """PPO of one network in one world."""

    def __init__(
        self,
        config: Sb3PpoConfig,
        context: TrainingContext,
        network: PolicyConfig,
    ):
        """Set up; environments are opened by the first use."""
        self.config, self.engine, self.network = config, context.engine, network
        self._total = context.generations * config.num_iterations
        self._iterations = 0  # before the generation that is under way

    def init(self, key: Key) -> Sb3PpoState:
        """Draw a network as PyTorch does."""
        key, key_model = jax.random.split(key)
        self._model.set_random_seed(_seed(key_model))
        self._model._setup_model()
        if self.config.first_action:
            # The network acts in the units of the world
            action = np.array([self.config.first_action])
            bias = self._model.policy.action_net.bias
            first = action_map(self._model.action_space).to_env(action)
            bias.data.copy_(bias.new_tensor(first[0]))
        unknown = jnp.array([0.0, 1.0, 1e-4])
        return self._state(unknown, jnp.zeros((), jnp.int32), key)

    def step(self, state: Sb3PpoState) -> tuple[Sb3PpoState, Metrics]:
        """Collect and learn, `num_iterations` times, in environments that start anew."""
        self._restore(state)
        key, key_generation = jax.random.split(state.key)
        self._model.set_random_seed(_seed(key_generation))
        self._iterations = int(state.iterations)
        steps = self.config.num_envs * self.config.num_steps * self.config.num_iterations
        self._model.learn(steps)
        scale = self._rewards.ret_rms
        moments = jnp.array([scale.mean, scale.var, scale.count], jnp.float32)
        returns = np.array([episode["r"] for episode in self._model.ep_info_buffer] or [np.nan])
        figures = {"mean": jnp.asarray(returns.mean()), "best": jnp.asarray(returns.max())}
        metrics = Metrics(steps * self.config.action_repeat, figures)
        return self._state(moments, state.iterations + self.config.num_iterations, key), metrics

    def candidates(self, state: Sb3PpoState) -> Policy:
        """Return the network as a policy without exploration."""
        self._restore(state)
        world = self.engine.world
        policy = to_policy(self._model, self.network, world.observation_spec, world.num_actions)
        return as_population(policy)

    def _learning_rate(self, left: float | int) -> float:
        """Compute the learning rate from the share of the generation that is left."""
        done = (self._iterations + (1 - left) * self.config.num_iterations) / self._total
        return self.config.learning_rate * max(1 - done, 0.0)

    @functools.cached_property
    def _rewards(self) -> Any:
        """The environments, with rewards of about 1, so that the critic's errors stay below them."""
        vector = import_sb3().common.vec_env
        return vector.VecNormalize(
            vector.VecMonitor(to_vec_env(self._environments(), self.config.action_repeat)),
            norm_obs=False,
            gamma=self.config.discount,
            clip_reward=100.0,
        )

    def _environments(self) -> Any:
        count = self.config.num_envs

        def on_device(device: Environment) -> Any:
            return WorldVectorEnv(device, count)

        def on_host(host: HostWorld) -> Any:
            assert isinstance(self.engine, HostEngine)
            import_sb3().common.utils.th.set_num_threads(1)  # the other cores simulate
            names = ("jerk_penalty", "jostled_steps", "jostled_every")
            settings = {name: getattr(self.config, name) for name in names}
            return self.engine.open_pool(count, for_training, **settings)

        return by_kind(self.engine.world, on_device, on_host)

    @functools.cached_property
    def _model(self) -> Any:
        config = self.config
        name, arguments = network_of(self.network)
        return import_sb3().PPO(
            name,
            self._rewards,
            n_steps=config.num_steps,
            batch_size=config.num_envs * config.num_steps // config.num_minibatches,
            n_epochs=config.num_epochs,
            learning_rate=self._learning_rate,
            gamma=config.discount,
            gae_lambda=config.gae_lambda,
            clip_range=config.clip_epsilon,
            use_sde=True,
            sde_sample_freq=config.hold_noise,
            device="cpu",
            policy_kwargs=dict(
                log_std_init=math.log(config.action_std), ortho_init=False, **arguments
            ),
        )

    def _state(self, rewards: Array, iterations: Array, key: Key) -> Sb3PpoState:
        """Copy the parameters and moments of the model to arrays."""
        network = {name: _array(value) for name, value in self._model.policy.state_dict().items()}
        optimizer = self._model.policy.optimizer
        moments: dict[str, Array] = {}
        for number, parameter in enumerate(optimizer.param_groups[0]["params"]):
            kept = optimizer.state.get(parameter)
            if kept is None:  # before the first update
                nothing = np.zeros(tuple(parameter.shape), np.float32)
                kept = {"step": np.zeros(()), "exp_avg": nothing, "exp_avg_sq": nothing}
            moments |= {f"{number:02d}.{name}": _array(value) for name, value in kept.items()}
        return Sb3PpoState(network, moments, rewards, iterations, key)

    def _restore(self, state: Sb3PpoState) -> None:
        """Load a state into the model."""
        torch = import_sb3().common.utils.th

        def tensor(array: Array) -> Any:
            return torch.from_numpy(np.array(array))

        policy, scale = self._model.policy, self._rewards.ret_rms
        policy.load_state_dict({name: tensor(value) for name, value in state.network.items()})
        for number, parameter in enumerate(policy.optimizer.param_groups[0]["params"]):
            policy.optimizer.state[parameter] = {
                name: tensor(state.moments[f"{number:02d}.{name}"])
                for name in ("step", "exp_avg", "exp_avg_sq")
            }
        scale.mean, scale.var, scale.count = (float(value) for value in state.reward_moments)


def _array(value: Any) -> Array:
    return jnp.asarray(np.asarray(value), jnp.float32)


def _seed(key: Key) -> int:
    """Derive a seed for PyTorch, NumPy and the environments."""
    return int(jax.random.bits(key)) >> 1
