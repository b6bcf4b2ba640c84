"""Shared parts of PPO and coaching: act with noise, estimate advantages by a critic, learn in epochs.

The critic reads the true state where the world offers it, and the features of the policy where it does not;
beside that, the time and the return so far. It is thrown away after training.

Each generation starts its episodes anew, so that a run resumes bit for bit from the state of the learner.
"""

import abc
import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sensorium.envs import World
from sensorium.rollout import Behaviour, Segment, Transitions, open_collector
from sensorium.training.critic import Discounter, RewardScale, critic_estimates, critic_inputs
from sensorium.training.learner import Optimizer, falling, geometric, mean_figures
from sensorium.training.trainer import Metrics, Trainer, TrainerConfig, TrainingContext
from sensorium.types import Key, Scalar

_CRITIC_LEARNING_RATE = 1e-3  # at the start; it falls as the policy's does
_MAX_GRAD_NORM = 0.5


@dataclasses.dataclass(frozen=True)
class ActorCriticConfig(TrainerConfig):
    """Settings that PPO and coaching share."""

    num_envs: int = 64
    """Episodes side by side."""
    num_steps: int = 64
    """Steps of each in an iteration; the updates follow."""
    num_iterations: int = 32
    """In a generation."""
    num_epochs: int = 10
    """Passes over the steps of an iteration."""
    num_minibatches: int = 8
    """Into which these steps are divided, for an update each; of PPO whole episodes are."""
    learning_rate: float = 3e-4
    """Of the policy, at the start; it falls to zero along a line."""
    critic_sizes: tuple[int, ...] = (128, 128)
    """Hidden layers of the critic."""
    discount: float = 0.99
    """γ, for each step of the world."""
    gae_lambda: float = 0.9
    """λ of generalised advantage estimation."""
    clip_epsilon: float = 0.4
    """ε: how far an update may move the probability of an action."""
    action_std: float = 0.3
    """Standard deviation of the noise on continuous actions, before they are squashed, at the start."""
    last_action_std: float = 0.1
    """The same at the end. It falls by the same factor each iteration: left to the gradient it falls too
    soon."""
    temperature: float = 1.0
    """Of discrete actions: logits are divided by it when one is drawn. A student of an expert may act well by
    its largest logit only."""
    hold_noise: int = 4
    """Steps for which the same noise is added."""


class Estimates(NamedTuple):
    """What the critic estimates for the steps of a segment."""

    scale: RewardScale
    """Of rewards, after the segment."""
    inputs: Float[Any, "T B F"]
    """Of the critic."""
    advantages: Float[Any, "T B"]
    targets: Float[Any, "T B"]
    """Of the critic."""
    explained: Scalar
    """Share of the variance of the targets that the critic explains; 1 is all."""


class ActorCritic(Trainer):
    """Collects and learns in turns; the state has `critic`, `scale`, `iterations` and `key`."""

    def __init__(self, config: Any, context: TrainingContext, world: World) -> None:
        """Set up.

        Args:
            config: An `ActorCriticConfig`.
            context: Of the training.
            world: The world to act in.
        """
        self.config, self.draw, self.engine, self.world = (
            config,
            context.draw,
            context.engine,
            world,
        )
        self.compiled_for = config, world, context.generations
        self._iterations = context.generations * config.num_iterations
        updates = self._iterations * config.num_epochs * config.num_minibatches
        self._optimizer, self._critic_optimizer = (
            Optimizer(falling(rate, updates), _MAX_GRAD_NORM, eps=1e-5)
            for rate in (config.learning_rate, _CRITIC_LEARNING_RATE)
        )

    @abc.abstractmethod
    def _behaviour(self, state: Any, spread: Scalar) -> Behaviour:
        """Return what acts in the next segment."""

    @abc.abstractmethod
    def _learn(
        self, state: Any, segment: Segment, discounter: Discounter, spread: Scalar, key: Key
    ) -> tuple[Any, dict[str, Scalar]]:
        """Learn from one segment in epochs."""

    def step(self, state: Any) -> tuple[Any, Metrics]:
        """Collect and learn, `num_iterations` times."""
        config = self.config
        key, key_generation = jax.random.split(state.key)
        state = state._replace(key=key)
        key_lanes, key_iterations = jax.random.split(key_generation)
        collector = open_collector(self.engine, config.num_envs, key_lanes, world=self.world)
        discounter = Discounter(config.discount, config.num_envs)
        figures = []
        for number in range(config.num_iterations):
            key_collect, key_learn = jax.random.split(jax.random.fold_in(key_iterations, number))
            spread = self._spread(state.iterations / self._iterations)
            behaviour = self._behaviour(state, spread)
            segment = collector.collect(behaviour, config.num_steps, key_collect)
            state, figure = self._learn(state, segment, discounter, spread, key_learn)
            steps = segment.transitions
            reward = np.asarray(steps.reward)[np.asarray(steps.alive)].mean()
            figures.append(figure | {"spread": spread, "reward": reward})
        return state, Metrics.of([collector], mean_figures(figures))

    def _spread(self, progress: Scalar) -> Scalar:
        """Return how far drawn actions are from the outputs: see `ActionDistribution.draw`."""
        config = self.config
        if isinstance(self.world.actions, int):
            return geometric(config.action_std, config.last_action_std, progress)
        return jnp.asarray(config.temperature)

    def _estimate(self, state: Any, steps: Transitions, discounter: Discounter) -> Estimates:
        """Estimate advantages of the steps of a segment, and targets of the critic."""
        scale = discounter.update(state.scale, steps)
        inputs, following = critic_inputs(steps, self.world.max_steps, scale)
        return Estimates(
            scale,
            inputs,
            *critic_estimates(
                state.critic.model,
                inputs,
                following,
                steps.reward / np.float32(scale.deviation),
                steps,
                self.config.discount,
                self.config.gae_lambda,
            ),
        )


def clipped_objective(
    log_ratio: Float[Array, "*B"], advantages: Float[Array, "*B"], epsilon: float
) -> tuple[Float[Array, "*B"], Float[Array, "*B"]]:
    """Compute the clipped objective of PPO for each step (Schulman et al. 2017, eq. 7).

    Args:
        log_ratio: Logarithm of how much likelier actions are now than when they were drawn.
        advantages: How much better they were than expected.
        epsilon: ε: ratios of probabilities beyond 1 ± ε gain no more.

    Returns:
        The objective, and an estimate of the divergence of the two policies, both of each step.
    """
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - epsilon, 1 + epsilon)
    return jnp.minimum(ratio * advantages, clipped * advantages), ratio - 1 - log_ratio
