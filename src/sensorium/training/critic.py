"""The critic of actor-critic methods: an estimate of the value, and the advantages that follow from it."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sensorium.layers import Linear
from sensorium.policies import Policy
from sensorium.training.trainer import DrawPolicy
from sensorium.types import Key, Scalar


class Critic(eqx.Module):
    """Value of what it reads, most often the true state: tanh layers, then one number."""

    layers: tuple[Linear, ...]

    def __init__(self, sizes: tuple[int, ...], *, key: Key):
        """Draw a critic; `sizes` are the inputs and the hidden layers."""
        keys = jax.random.split(key, len(sizes))
        self.layers = tuple(
            Linear(inputs, outputs, key=layer_key)
            for inputs, outputs, layer_key in zip(sizes, (*sizes[1:], 1), keys, strict=True)
        )

    def __call__(self, inputs: Float[Array, " F"]) -> Scalar:
        """The value."""
        for layer in self.layers[:-1]:
            inputs = jnp.tanh(layer(inputs))
        return self.layers[-1](inputs)[0]


def estimate_advantages(
    rewards: Float[Array, "T B"],
    values: Float[Array, "T B"],
    next_values: Float[Array, "T B"],
    done: Bool[Array, "T B"],
    discount: float,
    gae_lambda: float,
) -> Float[Array, "T B"]:
    """Generalised advantage estimation (Schulman et al. 2016, eq. 16).

    Args:
        rewards: Of each step.
        values: Of the states before each step.
        next_values: Of the states after it, zero where the world terminated.
        done: Whether the episode ended there, for whatever reason.
        discount: γ.
        gae_lambda: λ.
    """

    def back(later: Array, now: tuple) -> tuple[Array, Array]:
        surprise, done = now
        advantage = surprise + discount * gae_lambda * jnp.where(done, 0.0, later)
        return advantage, advantage

    surprises = rewards + discount * next_values - values
    start = jnp.zeros(rewards.shape[1])
    return jax.lax.scan(back, start, (surprises, done), reverse=True)[1]


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
