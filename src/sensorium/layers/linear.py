"""A linear layer."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.types import Key


class Linear(eqx.Module):
    """`weight @ x + bias`, laid out as in PyTorch: weight (out, in), then bias (out)."""

    weight: Float[Array, "outputs inputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, num_inputs: int, num_outputs: int, *, key: Key):
        """Draw weights of variance 1/inputs; the bias starts at zero."""
        self.weight = jax.random.normal(key, (num_outputs, num_inputs)) / num_inputs**0.5
        self.bias = jnp.zeros(num_outputs)

    def __call__(self, inputs: Float[Array, "*rows inputs"]) -> Float[Array, "*rows outputs"]:
        """Apply the layer to a vector, or to each of many."""
        return inputs @ self.weight.T + self.bias
