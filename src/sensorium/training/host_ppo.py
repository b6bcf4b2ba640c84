"""What PPO in worlds on the host has in common, whoever learns: settings, optimizers, environments."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.pool import PoolVectorEnv
from sensorium.rollout import HostEngine
from sensorium.training.lanes import Lanes
from sensorium.training.policy_gradient import exploration_at
from sensorium.training.trainer import DrawPolicy, Metrics, Trainer, TrainerConfig
from sensorium.types import Key, Scalar


@dataclasses.dataclass(frozen=True)
class HostPpoConfig(TrainerConfig):
    """Settings of PPO (Schulman et al. 2017) in a world on the host."""

    rollouts: int = 64
    """Environments side by side."""
    horizon: int = 64
    """Steps of each in a round, which then is learned from."""
    rounds: int = 32
    """In a generation."""
    total_rounds: int = 640
    """Over how many rounds the learning rates fall to zero, and exploration to its last."""
    epochs: int = 10
    """How often each round is learned from."""
    learning_rate: float = 3e-4
    """Of the agent, at the start."""
    critic_learning_rate: float = 1e-3
    """Of the critic, at the start."""
    critic_sizes: tuple[int, ...] = (128, 128)
    """Hidden layers of the critic."""
    discount: float = 0.99
    """γ, for each step of the world."""
    trace_decay: float = 0.9
    """λ of generalised advantage estimation."""
    clip_range: float = 0.2
    """ε: how far an update may move the probability of an action."""
    exploration: float = 0.3
    """Standard deviation of the noise on actions, at the start."""
    last_exploration: float = 0.1
    """The same at the end. It falls by the same factor each round: left to the gradient it falls too soon."""
    hold_exploration: int = 4
    """Steps for which the same noise is added to the actions."""
    gradient_clip: float = 0.5
    """Largest norm of a gradient."""


class HostPpo(Trainer):
    """PPO in one world on the host.

    Each generation starts its environments anew, so a run resumes bit for bit from what is learned.
    """

    def __init__(
        self,
        config: HostPpoConfig,
        draw: DrawPolicy,
        engine: HostEngine,
        world: HostWorld,
        updates: int,
    ):
        """Set up.

        Args:
            config: The settings.
            draw: Draws an agent.
            engine: Runs the world.
            world: What happens there to the senses of who acts.
            updates: In an epoch.
        """
        self.config = config
        self.draw = draw
        self.engine = engine
        self.world = world
        falling = config.total_rounds * config.epochs * updates
        self._optimizer, self._critic_optimizer = (
            optax.chain(
                optax.clip_by_global_norm(config.gradient_clip),
                optax.adam(optax.linear_schedule(rate, 0.0, falling), eps=1e-5),
            )
            for rate in (config.learning_rate, config.critic_learning_rate)
        )
        self._pool: PoolVectorEnv | None = None

    def _lanes(self, key: Key) -> Lanes:
        """Environments for a generation; their processes are kept from one to the next."""
        config = self.config
        if self._pool is None:
            self._pool = self.engine.open_pool(config.rollouts)
        return Lanes(self._pool, self.world, config.discount, config.hold_exploration, key)

    def _exploration(self, rounds: Int[Array, ""]) -> Scalar:
        """Logarithm of the standard deviation of actions."""
        config = self.config
        done = rounds / config.total_rounds
        return exploration_at(config.exploration, config.last_exploration, done)


def mean_of(figures: list[dict[str, Any]]) -> dict[str, Any]:
    """Of figures of updates, or of rounds."""
    return jax.tree.map(lambda *values: jnp.mean(jnp.stack(values)), *figures)


def summed_up(lanes: Lanes, figures: list[dict[str, Any]]) -> Metrics:
    """What a generation says of itself: returns of the episodes that ended, and figures of its rounds."""
    returns = jnp.asarray(lanes.returns or [jnp.nan])
    reached = {"best": jnp.max(returns), "mean": jnp.mean(returns)}
    return Metrics(lanes.env_steps, reached | mean_of(figures))
