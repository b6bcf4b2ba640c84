"""The critic of actor-critic methods: an estimate of the value, and the advantages that follow from it."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sensorium.layers import Linear
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
