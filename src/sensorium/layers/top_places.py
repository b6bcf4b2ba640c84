"""The most important places, and how they would move if importance changed.

The choice of places is a sort, whose gradient is zero. The backward pass uses that of SoftSort instead
(Prillo & Eisenschlos 2020, eq. 4): the i-th best is a mean over all places, weighted by how near their
importance comes to the i-th highest. The forward pass is exact.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_TEMPERATURE = 0.5  # of the softmax over differences of log importance


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def top_places(
    importance: Float[Array, " patches"], places: Float[Array, "patches 2"], count: int
) -> Float[Array, "count 2"]:
    """Find the most important places, the best first.

    Args:
        importance: Positive numbers.
        places: Row and column of each.
        count: How many to choose.
    """
    return places[jax.lax.top_k(importance, count)[1]]


def _forth(
    importance: Float[Array, " patches"], places: Float[Array, "patches 2"], count: int
) -> tuple[Float[Array, "count 2"], tuple[Array, Array]]:
    return top_places(importance, places, count), (importance, places)


def _back(
    count: int, kept: tuple[Array, Array], gradient: Float[Array, "count 2"]
) -> tuple[Array, Array]:
    importance, places = kept

    def softly(importance: Array) -> Array:
        logs = jnp.log(importance + 1e-6)
        best = jax.lax.top_k(logs, count)[0]
        return jax.nn.softmax(-jnp.abs(best[:, None] - logs) / _TEMPERATURE, -1) @ places

    return jax.vjp(softly, importance)[1](gradient)[0], jnp.zeros_like(places)


top_places.defvjp(_forth, _back)
