"""Sums over sensors in blocks: linear time, bounded memory.

Attention with fixed queries is a sum over sensors, so it can be accumulated. A sensor that pads the last
block reads zero and adds nothing, since its weight multiplies its reading.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.errors import ConfigError
from sensorium.types import PyTree

Total = TypeVar("Total", bound=Float[Array, "..."])


def sum_over_blocks(
    step: Callable[[PyTree], tuple[Total, PyTree]], inputs: PyTree, block_size: int | None
) -> tuple[Total, PyTree]:
    """Apply `step` to blocks of the leading axis; sum its first result, concatenate its second.

    Args:
        step: From a block of the inputs to (what is summed, what each row becomes). Rows of zeros must
            add nothing to the sum.
        inputs: Arrays that share their leading axis, N long.
        block_size: Rows in a block; None, or at least N, for one call without blocks.

    Returns:
        The sum, and the rows in their order.

    Raises:
        ConfigError: `block_size` is not positive.
    """
    if block_size is not None and block_size < 1:
        raise ConfigError(f"block_size must be at least 1, got {block_size}.")
    num_rows = jax.tree.leaves(inputs)[0].shape[0]
    if block_size is None or block_size >= num_rows:
        return step(inputs)
    num_blocks = -(-num_rows // block_size)
    padding = num_blocks * block_size - num_rows

    def to_blocks(rows: Array) -> Array:
        widths = [(0, padding)] + [(0, 0)] * (rows.ndim - 1)
        return jnp.pad(rows, widths).reshape(num_blocks, block_size, *rows.shape[1:])

    blocks = jax.tree.map(to_blocks, inputs)
    total_shape, _ = jax.eval_shape(step, jax.tree.map(lambda rows: rows[0], blocks))
    zero = jnp.zeros(total_shape.shape, total_shape.dtype)

    def accumulate(total: Total, block: PyTree) -> tuple[Total, PyTree]:
        part, rows = step(block)
        return total + part, rows

    total, rows = jax.lax.scan(accumulate, zero, blocks)
    return total, jax.tree.map(lambda row: row.reshape(-1, *row.shape[2:])[:num_rows], rows)
