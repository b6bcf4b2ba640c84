"""The sensor identity loss, an auxiliary loss: predict from the features of each sensor which one it is.

The probe that predicts it is thrown away after training.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sensorium.layers import Linear
from sensorium.policies import Policy
from sensorium.types import Key, ObservationSpec, Scalar, num_sensors_of


class Probed(NamedTuple):
    """A policy, and the probe that predicts which of its sensors is which: both are trained."""

    policy: Policy
    probe: Linear
    """From the features of a sensor to which one it is; the last class is noise."""


def with_probe(
    policy: Policy, received: ObservationSpec, sensors: ObservationSpec, key: Key
) -> Probed:
    """Return a policy with a new probe of the features of its sensors.

    Args:
        policy: The policy.
        received: What it receives: N channels, or the shape of entities or images.
        sensors: What the world shows: images have no sensors.
        key: Random key.
    """
    features = policy.sensor_features(policy.initial_carry(received))
    classes = (num_sensors_of(sensors) or 0) + 1
    return Probed(policy, Linear(features.shape[0], classes, key=key))


def identity_loss(
    probe: Linear, features: Float[Array, "H N"], sensor_of_channel: Int[Array, " N"]
) -> Scalar:
    """Compute the cross-entropy of predicting from a channel's features which sensor it carries."""
    scores = probe.weight @ features + probe.bias[:, None]
    classes = jnp.where(sensor_of_channel < 0, scores.shape[0] - 1, sensor_of_channel)
    log_shares = jax.nn.log_softmax(scores, axis=0)
    return -jnp.mean(jnp.take_along_axis(log_shares, classes[None, :], axis=0))
