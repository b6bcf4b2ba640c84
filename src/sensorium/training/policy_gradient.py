"""What every PPO here is made of: advantages, Gaussian actions and the clipped objective."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sensorium.types import Scalar


def advantage_estimates(
    rewards: Float[Array, "T R"],
    values: Float[Array, "T R"],
    next_values: Float[Array, "T R"],
    done: Bool[Array, "T R"],
    discount: float,
    trace_decay: float,
) -> Float[Array, "T R"]:
    """Generalised advantage estimation (Schulman et al. 2016, eq. 16).

    Args:
        rewards: Of each step.
        values: Of the states before each step.
        next_values: Of the states after it, zero where the world terminated.
        done: Whether the episode ended there, for whatever reason.
        discount: γ.
        trace_decay: λ.
    """

    def back(later: Array, now: tuple) -> tuple[Array, Array]:
        surprise, done = now
        advantage = surprise + discount * trace_decay * jnp.where(done, 0.0, later)
        return advantage, advantage

    surprises = rewards + discount * next_values - values
    start = jnp.zeros(rewards.shape[1])
    return jax.lax.scan(back, start, (surprises, done), reverse=True)[1]


def exploration_at(first: float, last: float, done: Scalar) -> Scalar:
    """Logarithm of the standard deviation of Gaussian actions, which falls by the same factor each step.

    Args:
        first: The deviation at the start.
        last: At the end, and after it.
        done: How much of the way there is behind: from 0 to 1, or more.
    """
    start, end = math.log(first), math.log(last)
    return start + (end - start) * jnp.minimum(done, 1.0)


def log_probability(
    drawn: Float[Array, "A *R"], mean: Float[Array, "A *R"], exploration: Scalar
) -> Float[Array, "*R"]:
    """Of Gaussian actions, but for a constant.

    Args:
        drawn: The actions.
        mean: What they were drawn around.
        exploration: Logarithm of the standard deviation.
    """
    away = (drawn - mean) * jnp.exp(-exploration)
    return -jnp.sum(0.5 * away**2 + exploration, axis=0)


def clipped_objective(
    log_ratio: Float[Array, "*R"], advantages: Float[Array, "*R"], clip_range: float
) -> tuple[Float[Array, "*R"], Float[Array, "*R"]]:
    """What an agent gains by actions being likelier than they were (Schulman et al. 2017, eq. 7).

    Args:
        log_ratio: How much likelier actions are now, as a logarithm.
        advantages: How much better they were than expected.
        clip_range: ε: no more is gained by moving a probability further.

    Returns:
        The gain, and an estimate of the divergence of the two agents, both of each step.
    """
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - clip_range, 1 + clip_range)
    return jnp.minimum(ratio * advantages, clipped * advantages), ratio - 1 - log_ratio
