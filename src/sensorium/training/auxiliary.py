"""Auxiliary losses: probes predict what features should hold, and are thrown away after training.

- The sensor identity loss: predict from the features of each sensor which one it is.
- The privileged loss: predict from the memory what an expert knows, such as where a ball is.

The attention loss needs no probe: attention goes to where in an image an expert says that something is.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sensorium.errors import ConfigError
from sensorium.layers import Linear
from sensorium.policies import Policy
from sensorium.types import Key, ObservationSpec, Scalar, num_sensors_of

_LEAST_SHARE = 1e-6  # of the attention, whose logarithm is finite


class Probed(NamedTuple):
    """A policy, and the probe that predicts which of its sensors is which: both are trained."""

    policy: Policy
    probe: Linear
    """From the features of a sensor to which one it is; the last class is noise."""
    privileged: Linear | None = None
    """From the memory to what an expert knows."""


def with_probe(
    policy: Policy,
    received: ObservationSpec,
    sensors: ObservationSpec,
    key: Key,
    num_privileged: int = 0,
) -> Probed:
    """Return a policy with new probes.

    Args:
        policy: The policy.
        received: What it receives: N channels, or the shape of entities or images.
        sensors: What the world shows: images have no sensors.
        key: Random key.
        num_privileged: How many numbers an expert gives beside its action; 0 for none, or if they are not
            to be learned.

    Raises:
        ConfigError: The policy has no memory to predict privileged numbers from.
    """
    carry = policy.initial_carry(received)
    features, memory = policy.sensor_features(carry), policy.memory_features(carry)
    classes = (num_sensors_of(sensors) or 0) + 1
    probe, of_memory = Linear(features.shape[0], classes, key=key), None
    if num_privileged:
        if not memory.size:
            raise ConfigError(
                "privileged_coef asks for a student with an LSTM that reads all its sensors."
            )
        of_memory = Linear(memory.size, num_privileged, key=jax.random.fold_in(key, 1))
    return Probed(policy, probe, of_memory)


def given(count: int, setting: str, attribute: str) -> int:
    """Return how much an expert gives of what a setting asks for; ConfigError if that is nothing."""
    if count:
        return count
    raise ConfigError(
        f"{setting} asks for an expert beside an environment: a function with the attribute `{attribute}`."
    )


def identity_loss(
    probe: Linear, features: Float[Array, "H N"], sensor_of_channel: Int[Array, " N"]
) -> Scalar:
    """Compute the cross-entropy of predicting from a channel's features which sensor it carries."""
    scores = probe.weight @ features + probe.bias[:, None]
    classes = jnp.where(sensor_of_channel < 0, scores.shape[0] - 1, sensor_of_channel)
    log_shares = jax.nn.log_softmax(scores, axis=0)
    return -jnp.mean(jnp.take_along_axis(log_shares, classes[None, :], axis=0))


def privileged_loss(probe: Linear, memory: Float[Array, " H"], known: Float[Array, " F"]) -> Scalar:
    """Compute how far what is predicted is from what is known, on average; NaN is not known."""
    there = ~jnp.isnan(known)
    apart = jnp.abs(probe(memory) - jnp.where(there, known, 0.0))
    return jnp.sum(jnp.where(there, apart, 0.0)) / jnp.maximum(jnp.sum(there), 1)


def attention_loss(
    attention: Float[Array, "M patches"] | None,
    patches: tuple[Int[np.ndarray, "patches 2"], int],
    boxes: Float[Array, "boxes 4"],
) -> Scalar:
    """Compute how little of the attention goes to patches in boxes, each box alike: a cross-entropy.

    Args:
        attention: Of some queries to each patch; whatever has patches has it.
        patches: Row and column of each, and their size in pixels.
        boxes: Top, left, bottom and right of each in pixels; one with NaN is none.
    """
    assert attention is not None
    wanted_in = inside(patches, boxes)
    shares = wanted_in / jnp.maximum(wanted_in.sum(1, keepdims=True), 1)
    wanted = shares.sum(0) / jnp.maximum(wanted_in.any(1).sum(), 1)
    total = attention.sum(0)
    return -jnp.sum(wanted * jnp.log(total / total.sum() + _LEAST_SHARE))


def inside(
    patches: tuple[Int[np.ndarray, "patches 2"], int], boxes: Float[Array, "boxes 4"]
) -> Bool[Array, "boxes patches"]:
    """Return which patches are in each box: their middle is, or is less than half a patch away."""
    top, left, bottom, right = (boxes[:, [side]] for side in range(4))
    corners, size = patches
    row, column = (corners + (size - 1) / 2).T
    margin = size / 2
    rows = (row > top - margin) & (row < bottom + margin)  # nowhere where the box is NaN
    return rows & (column > left - margin) & (column < right + margin)
