"""Trials that tell motors apart: for a few steps each motor vibrates at its own frequency."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sensorium.types import Action

_SHARPNESS = 8.0  # κ
_LARGEST_ERROR = 0.75
_ENOUGH = 0.25  # c: the energy that tells about half


def cosines(
    number: Int[Array, " M"], time: Int[Array, ""], steps: Int[Array, ""]
) -> Float[Array, " M"]:
    """Return vibrations of mean square 1, at right angles to each other and to 1 over `steps` steps.

    They are rows of a discrete cosine transform (Ahmed et al. 1974), the fastest first, as what motors do
    soon shows in speeds.
    """
    quarters = (steps - 1 - number) * ((2 * time + 1) % (4 * steps))
    angle = jnp.pi / 2 * quarters.astype(jnp.float32) / steps.astype(jnp.float32)
    return math.sqrt(2.0) * jnp.cos(angle)


def limited(numbers: Float[Array, "*shape"], largest: float) -> Float[Array, "*shape"]:
    """Return numbers that are never beyond `largest`, and little changed if they are far from it."""
    return largest * jnp.tanh(numbers / largest)


def learnt(
    digest: Float[Array, "2 N M"],
    energy: Float[Array, " M"],
    action: Action,
    change: Float[Array, "2 N"],
) -> tuple[Float[Array, "2 N M"], Float[Array, " M"]]:
    """Learn from a step of a trial: a Kalman filter whose covariance is diagonal.

    Args:
        digest: What a unit of each motor changes in each sensor, and in its change.
        energy: The sum of the squares of the actions that it was learned from.
        action: Of the step; zeros for none.
        change: What followed.

    Returns:
        Both after the step.
    """
    error = limited(change - digest @ action, _LARGEST_ERROR)
    doubt = 1 / (1 + energy / _ENOUGH)
    gain = doubt * action / (_ENOUGH + jnp.sum(doubt * action**2))
    return digest + error[..., None] * gain[None, None], energy + action**2


def matched(
    size: Float[Array, "N M"], liable: Float[Array, "N 1"], rounds: int
) -> Float[Array, "N M"]:
    """Pair each motor with the sensor that it alone moves most.

    Args:
        size: How much each motor moves each sensor.
        liable: How likely each sensor is one that motors move, a logarithm.
        rounds: How often sensors that several motors claim are divided among them.

    Returns:
        Shares of the sensors, which sum to 1 for each motor.
    """
    size = _SHARPNESS * size
    match = jax.nn.log_softmax(size + liable + jax.nn.log_softmax(size, axis=1), axis=0)
    for _ in range(rounds):
        claims = jax.nn.logsumexp(match, axis=1, keepdims=True)
        match = jax.nn.log_softmax(match - jnp.maximum(claims, 0.0), axis=0)
    return jnp.exp(match)
