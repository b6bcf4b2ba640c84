"""Sums over sensors in blocks: linear time, bounded memory.

Attention with fixed queries is a sum over sensors, so it can be accumulated.
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
        step: From a block of the inputs to (what is summed, what each column becomes).
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
    num_blocks, rest = divmod(num_columns, block_size)

    def cut(start: Array | int, size: int) -> PyTree:
        return jax.tree.map(
            lambda columns: jax.lax.dynamic_slice_in_dim(columns, start, size, axis=-1), inputs
        )

    def paste(whole: PyTree, start: Array | int, block: PyTree) -> PyTree:
        return jax.tree.map(
            lambda columns, part: jax.lax.dynamic_update_slice_in_dim(
                columns, part, start, axis=-1
            ),
            whole,
            block,
        )

    def accumulate(index: Array, done: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
        total, columns = done
        part, block = step(cut(index * block_size, block_size))
        return total + part, paste(columns, index * block_size, block)

    # The loop writes into its results in place: beyond them, only one block is held
    total_like, block_like = jax.eval_shape(step, cut(0, block_size))
    columns = jax.tree.map(
        lambda like: jnp.zeros((*like.shape[:-1], num_columns), like.dtype), block_like
    )
    start = (jnp.zeros(total_like.shape, total_like.dtype), columns)
    total, columns = jax.lax.fori_loop(0, num_blocks, accumulate, start)
    if rest:
        part, block = step(cut(num_columns - rest, rest))
        total, columns = total + part, paste(columns, num_columns - rest, block)
    return total, columns
