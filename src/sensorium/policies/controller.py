"""The network that turns a code into actions: tanh layers, tanh or clipped output."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.layers import Linear
from sensorium.types import Action, Key


class Controller(eqx.Module):
    """Linear layers with a tanh after each, the last one included, so actions lie in [-1, 1]."""

    layers: tuple[Linear, ...]
    clipped: bool = eqx.field(static=True)
    """Whether the last layer is cut off at -1 and 1 instead of passing through a tanh."""

    def __init__(self, sizes: tuple[int, ...], *, clipped: bool = False, key: Key):
        """Draw a network; `sizes` are inputs, hidden layers and outputs."""
        self.clipped = clipped
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(
            Linear(inputs, outputs, key=layer_key)
            for inputs, outputs, layer_key in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )

    def __call__(self, inputs: Float[Array, " inputs"]) -> Action:
        """Apply all layers."""
        for layer in self.layers[:-1]:
            inputs = jnp.tanh(layer(inputs))
        outputs = self.layers[-1](inputs)
        return jnp.clip(outputs, -1.0, 1.0) if self.clipped else jnp.tanh(outputs)
