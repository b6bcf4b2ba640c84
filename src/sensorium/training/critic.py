"""What only trainers know: a critic of true states, and a lesson in telling which sensor is which."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sensorium.layers import Linear
from sensorium.policies import Policy
from sensorium.training.trainer import DrawPolicy
from sensorium.types import Key, Scalar


class Critic(eqx.Module):
    """Value of a true state: tanh layers, then one number."""

    layers: tuple[Linear, ...]

    def __init__(self, sizes: tuple[int, ...], *, key: Key):
        """Draw a critic; `sizes` are the features and the hidden layers."""
        keys = jax.random.split(key, len(sizes))
        self.layers = tuple(
            Linear(inputs, outputs, key=layer_key)
            for inputs, outputs, layer_key in zip(sizes, (*sizes[1:], 1), keys, strict=True)
        )

    def __call__(self, features: Float[Array, " F"]) -> Scalar:
        """The value."""
        for layer in self.layers[:-1]:
            features = jnp.tanh(layer(features))
        return self.layers[-1](features)[0]


class Student(NamedTuple):
    """What a gradient changes where an agent also learns which of its sensors is which."""

    policy: Policy
    probe: Linear
    """From what a sensor says to which one it is; the last class is noise."""


def draw_student(draw: DrawPolicy, num_sensors: int, key_policy: Key, key_probe: Key) -> Student:
    """An agent, and a probe of what its sensors say."""
    policy = draw(key_policy)
    said = policy.sensor_features(policy.initial_carry(num_sensors))
    return Student(policy, Linear(said.shape[0], num_sensors + 1, key=key_probe))


def identity_loss(probe: Linear, said: Float[Array, "H N"], sources: Int[Array, " N"]) -> Scalar:
    """Cross-entropy of telling, from what a sensor says, which one it is."""
    scores = probe.weight @ said + probe.bias[:, None]
    classes = jnp.where(sources < 0, scores.shape[0] - 1, sources)
    log_shares = jax.nn.log_softmax(scores, axis=0)
    return -jnp.mean(jnp.take_along_axis(log_shares, classes[None, :], axis=0))
