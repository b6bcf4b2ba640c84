"""The network that turns features into the outputs of a policy: linear layers with a tanh between them."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.layers import Linear
from sensorium.policies.action_distributions import Outputs
from sensorium.types import Key


class Controller(eqx.Module):
    """Linear layers with a tanh after each but the last."""

    layers: tuple[Linear, ...]

    def __init__(self, sizes: tuple[int, ...], *, key: Key):
        """Draw a network; `sizes` are inputs, hidden layers and outputs."""
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(
            Linear(inputs, outputs, key=layer_key)
            for inputs, outputs, layer_key in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )

    def __call__(self, inputs: Float[Array, " inputs"]) -> Outputs:
        """Apply all layers."""
        for layer in self.layers[:-1]:
            inputs = jnp.tanh(layer(inputs))
        return self.layers[-1](inputs)


def draw_output(
    num_features: int, num_hidden: int | None, num_outputs: int, *, key: Key
) -> Linear | Controller:
    """Draw what makes outputs: a layer, or with `num_hidden` units two."""
    if num_hidden is None:
        return Linear(num_features, num_outputs, key=key)
    return Controller((num_features, num_hidden, num_outputs), key=key)
