"""Fixed sinusoidal table that gives each query its own identity (AN section 3.3; Vaswani et al. 2017)."""

import numpy as np
from jaxtyping import Float


def positional_table(num_rows: int, num_columns: int) -> Float[np.ndarray, "rows columns"]:
    """Compute sine in even columns, cosine in odd ones, of `row / 10000 ** (2 * (column // 2) / columns)`.

    Args:
        num_rows: One row a query.
        num_columns: Width of the encoding.

    Returns:
        The float32 table; a constant, never trained.
    """
    row = np.arange(num_rows)[:, None]
    column = np.arange(num_columns)[None, :]
    angle = row / 10_000 ** (2 * (column // 2) / num_columns)
    return np.where(column % 2 == 0, np.sin(angle), np.cos(angle)).astype(np.float32)
