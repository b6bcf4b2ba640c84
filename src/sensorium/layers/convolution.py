"""A convolution over an image."""

from collections.abc import Sequence

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
            num_inputs: Channels of the image.
            num_outputs: Channels of the result.
            size: Pixels of the window, each way.
            stride: Pixels from each window to the next.
            key: Random key.
        """
        shape = (num_outputs, num_inputs, size, size)
        self.weight = jax.random.normal(key, shape) * (2 / (num_inputs * size**2)) ** 0.5
        self.bias = jnp.zeros(num_outputs)
        self.stride = stride

    def __call__(self, image: Float[Array, "H W inputs"]) -> Float[Array, "rows columns outputs"]:
        """Apply the layer to one image."""
        # On a CPU, XLA takes five times as long for the gradient of a convolution as for that of a product
        in_blocks = self.weight.shape[-1] % self.stride == 0
        by_product = in_blocks and jax.default_backend() == "cpu"
        convolve = convolve_by_product if by_product else _convolve
        return convolve(image, self.weight, self.stride) + self.bias[None, None]


def convolved(
    convolutions: Sequence[Convolution], image: Float[Array, "H W inputs"]
) -> Float[Array, " features"]:
    """Apply convolutions with a ReLU after each; channel by channel, as PyTorch has it."""
    for convolution in convolutions:
        image = jax.nn.relu(convolution(image))
    return jnp.moveaxis(image, -1, 0).reshape(-1)


def _convolve(image: Array, weight: Array, stride: int) -> Array:
    """Convolve as XLA does it."""
    convolved = jax.lax.conv_general_dilated(
        image[None],
        weight,
        (stride, stride),
        "VALID",
        dimension_numbers=("NHWC", "OIHW", "NHWC"),
    )
    return convolved[0]


def convolve_by_product(
    image: Array, weight: Array, stride: int, precision: str | None = None
) -> Array:
    """Convolve by a product of matrices, of JAX's `precision`: a window is blocks of `stride` pixels."""
    outputs, inputs, size, _ = weight.shape
    blocks = size // stride
    rows, columns = ((length - size) // stride + 1 for length in image.shape[:2])
    high, wide = rows + blocks - 1, columns + blocks - 1
    grid = image[: high * stride, : wide * stride].reshape(high, stride, wide, stride, inputs)
    grid = jnp.moveaxis(grid, 1, 2).reshape(high, wide, -1)
    windows = jnp.concatenate(
        [
            grid[row : row + rows, column : column + columns]
            for row in range(blocks)
            for column in range(blocks)
        ],
        -1,
    )
    parts = weight.reshape(outputs, inputs, blocks, stride, blocks, stride)
    parts = parts.transpose(2, 4, 3, 5, 1, 0).reshape(-1, outputs)
    return jnp.matmul(windows, parts, precision=precision)
