"""Patch importance: self-attention between the patches of an image (AttentionAgent section 4.2, eq. 1).

The importance of a patch is the sum of the attention that all patches pay to it, down a column of the
attention matrix whose rows are softmaxes:

    A = softmax((X W_q + b_q) (X W_k + b_k)ᵀ / scale),    importance = Σ_i A_i,    X: patches x pixels

Neither X nor A is ever in memory. A patch of 7 pixels every 4 is four neighbouring blocks of 4 x 4 pixels,
so blocks are projected once and the projections added up; rows of A are summed a block at a time.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sensorium.errors import ConfigError
from sensorium.layers.blockwise import sum_over_blocks
from sensorium.layers.linear import Linear
from sensorium.types import Image, Key

ROWS_AT_A_TIME: int | None = 64  # of the attention matrix at a time, which then stays in the cache


class PatchAttention(eqx.Module):
    """The importance of each patch of an image."""

    query: Linear
    key: Linear
    patch_size: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)

    def __init__(
        self,
        *,
        channels: int,
        patch_size: int,
        stride: int,
        message_size: int,
        scale: float,
        key: Key,
    ):
        """Draw the projections.

        Args:
            channels: C of the image.
            patch_size: Pixels each way.
            stride: Pixels from each patch to the next.
            message_size: D, width of queries and keys.
            scale: What the products of queries and keys are divided by.
            key: Random key.

        Raises:
            ConfigError: A size is less than 1.
        """
        if min(patch_size, stride, message_size) < 1:
            raise ConfigError("Patches need a size, a stride and a message size of at least 1.")
        key_query, key_key = jax.random.split(key)
        pixels = patch_size**2 * channels
        self.query = Linear(pixels, message_size, key=key_query)
        self.key = Linear(pixels, message_size, key=key_key)
        self.patch_size, self.stride, self.scale = patch_size, stride, scale

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Count rows and columns of patches in an image.

        Raises:
            ConfigError: The image is smaller than a patch.
        """
        if min(height, width) < self.patch_size:
            raise ConfigError(
                f"An image of {height} x {width} pixels is smaller than a patch of {self.patch_size}."
            )
        rows, columns = ((side - self.patch_size) // self.stride + 1 for side in (height, width))
        return rows, columns

    def centres(self, height: int, width: int) -> Int[np.ndarray, "patches 2"]:
        """Compute row and column of the middle pixel of each patch, row by row."""
        places = np.indices(self.grid(height, width), np.int32).reshape(2, -1).T * self.stride
        return places + self.patch_size // 2

    def __call__(self, image: Image) -> Float[Array, " patches"]:
        """Compute the importance of each patch, row by row; their sum is the number of patches.

        Args:
            image: Bytes, or numbers from 0 to 255.
        """
        projections = self.query, self.key
        weights = jnp.concatenate([projection.weight for projection in projections])
        biases = jnp.concatenate([projection.bias for projection in projections])
        projected = self._project(image.astype(jnp.float32) / 255, weights) + biases
        queries, keys = jnp.split(projected, 2, -1)
        return patch_importance(queries / self.scale, keys)

    def _project(
        self, image: Float[Array, "H W C"], weights: Float[Array, "D pixels"]
    ) -> Float[Array, "patches D"]:
        """Compute the product of all patches with `weights`."""
        height, width, channels = image.shape
        rows, columns = self.grid(height, width)
        stride = self.stride
        cells = -(-self.patch_size // stride)  # blocks that a patch reaches into, each way
        shape = (rows + cells - 1, columns + cells - 1)
        missing = [
            (0, max(0, count * stride - side))
            for count, side in zip(shape, (height, width), strict=True)
        ]
        image = jnp.pad(image, (*missing, (0, 0)))[: shape[0] * stride, : shape[1] * stride]
        blocks = image.reshape(shape[0], stride, shape[1], stride, channels)
        blocks = blocks.transpose(0, 2, 1, 3, 4).reshape(shape[0] * shape[1], -1)
        size = self.patch_size
        kernel = weights.reshape(-1, size, size, channels)
        beyond = (0, cells * stride - size)
        kernel = jnp.pad(kernel, ((0, 0), beyond, beyond, (0, 0)))
        kernel = kernel.reshape(-1, cells, stride, cells, stride, channels)
        kernel = kernel.transpose(2, 4, 5, 1, 3, 0).reshape(blocks.shape[1], -1)
        parts = (blocks @ kernel).reshape(*shape, cells, cells, -1)
        projected = sum(
            parts[i : i + rows, j : j + columns, i, j] for i in range(cells) for j in range(cells)
        )
        return jnp.asarray(projected).reshape(rows * columns, -1)


@jax.custom_vjp
def patch_importance(
    queries: Float[Array, "patches D"], keys: Float[Array, "patches D"]
) -> Float[Array, " patches"]:
    """Sum the columns of the softmax over each row of `queries @ keys.T`, a block of rows at a time."""

    def ask(block: Float[Array, "D rows"]) -> tuple[Array, tuple[()]]:
        weights, total = _softmax(block, keys)
        return weights @ (1 / total), ()

    return sum_over_blocks(ask, queries.T, ROWS_AT_A_TIME)[0]


def _softmax(
    block: Float[Array, "D rows"], keys: Float[Array, "patches D"]
) -> tuple[Float[Array, "patches rows"], Float[Array, " rows"]]:
    """Compute rows of the softmax, each down a column, and what they are to be divided by.

    Down a column, as a CPU takes the largest of many rows side by side faster than along one.
    """
    scores = keys @ block
    weights = jnp.exp(scores - jnp.max(scores, 0))
    return weights, jnp.sum(weights, 0)


def _importance_forth(queries: Array, keys: Array) -> tuple[Array, tuple[Array, Array]]:
    return patch_importance(queries, keys), (queries, keys)


def _importance_back(kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    """Backpropagate through the rows, computed once more; again no whole matrix is held."""
    queries, keys = kept

    def answer(block: Float[Array, "D rows"]) -> tuple[Array, Array]:
        weights, total = _softmax(block, keys)
        mean = gradient @ weights / total
        to_scores = weights * ((gradient[:, None] - mean) / total)
        return to_scores @ block.T, keys.T @ to_scores

    to_keys, to_queries = sum_over_blocks(answer, queries.T, ROWS_AT_A_TIME)
    return to_queries.T, to_keys


patch_importance.defvjp(_importance_forth, _importance_back)
