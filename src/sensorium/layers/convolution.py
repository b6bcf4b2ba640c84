"""A convolution over a picture."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.types import Key


class Convolution(eqx.Module):
    """Weights laid out as in PyTorch: weight (out, in, rows, columns), then bias (out). No padding."""

    weight: Float[Array, "outputs inputs size size"]
    bias: Float[Array, " outputs"]
    stride: int = eqx.field(static=True)

    def __init__(self, num_inputs: int, num_outputs: int, size: int, stride: int, *, key: Key):
        """Draw weights of variance 2/inputs, for a ReLU after it; the bias starts at zero.

        Args:
            num_inputs: Channels of the picture.
            num_outputs: Channels of the result.
            size: Pixels of the window, each way.
            stride: Pixels from each window to the next.
            key: Random key.
        """
        shape = (num_outputs, num_inputs, size, size)
        self.weight = jax.random.normal(key, shape) * (2 / (num_inputs * size**2)) ** 0.5
        self.bias = jnp.zeros(num_outputs)
        self.stride = stride

    def __call__(self, picture: Float[Array, "H W inputs"]) -> Float[Array, "rows columns outputs"]:
        """Apply the layer to one picture."""
        convolved = jax.lax.conv_general_dilated(
            picture[None],
            self.weight,
            (self.stride, self.stride),
            "VALID",
            dimension_numbers=("NHWC", "OIHW", "NHWC"),
        )
        return convolved[0] + self.bias[None, None]
