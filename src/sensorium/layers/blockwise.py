"""Sums over sensors in blocks: linear time, bounded memory.

Attention with fixed queries is a sum over sensors, so it can be accumulated. A sensor that pads the last
block reads zero and adds nothing, since its weight multiplies its reading.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.errors import ConfigError
from sensorium.types import PyTree


def sum_over_blocks(
    step: Callable[[PyTree], tuple[Float[Array, "..."], PyTree]],
    inputs: PyTree,
    block_size: int | None,
) -> tuple[Float[Array, "..."], PyTree]:
    """Apply `step` to blocks of the last axis; sum its first result, concatenate its second.

    Args:
        step: From a block of the inputs to (what is summed, what each column becomes). Columns of zeros
            must add nothing to the sum.
        inputs: Arrays that share their last axis, N long.
        block_size: Columns in a block; None, or at least N, for one call without blocks.

    Returns:
        The sum, and the columns in their order.

    Raises:
        ConfigError: `block_size` is not positive.
    """
    if block_size is not None and block_size < 1:
        raise ConfigError(f"block_size must be at least 1, got {block_size}.")
    num_columns = jax.tree.leaves(inputs)[0].shape[-1]
    if block_size is None or block_size >= num_columns:
        return step(inputs)
    num_blocks = -(-num_columns // block_size)
    padding = num_blocks * block_size - num_columns

    def to_blocks(columns: Array) -> Array:
        padded = jnp.pad(columns, [(0, 0)] * (columns.ndim - 1) + [(0, padding)])
        blocks = padded.reshape(*columns.shape[:-1], num_blocks, block_size)
        return jnp.moveaxis(blocks, -2, 0)

    def from_blocks(blocks: Array) -> Array:
        columns = jnp.moveaxis(blocks, 0, -2)
        return columns.reshape(*columns.shape[:-2], -1)[..., :num_columns]

    blocks = jax.tree.map(to_blocks, inputs)
    total_shape, _ = jax.eval_shape(step, jax.tree.map(lambda block: block[0], blocks))
    zero = jnp.zeros(total_shape.shape, total_shape.dtype)

    def accumulate(total: Float[Array, "..."], block: PyTree) -> tuple[Float[Array, "..."], PyTree]:
        part, columns = step(block)
        return total + part, columns

    total, columns = jax.lax.scan(accumulate, zero, blocks)
    return total, jax.tree.map(from_blocks, columns)
