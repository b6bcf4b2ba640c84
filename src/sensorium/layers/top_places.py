"""The places with most votes, and how they would move if votes changed.

Which places win is a matter of sorting, whose gradient is zero. Going back, this uses that of SoftSort
(Prillo & Eisenschlos 2020, eq. 4) in its place: the i-th best is a mean over all places, weighted by how near
their votes come to the i-th highest. Going forward, the winners are exact.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_TEMPERATURE = 0.5  # of the softmax over differences of log votes


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def top_places(
    votes: Float[Array, " patches"], places: Float[Array, "patches 2"], count: int
) -> Float[Array, "count 2"]:
    """The places with most votes, the best first.

    Args:
        votes: Positive numbers.
        places: Row and column of each.
        count: How many to choose.
    """
    return places[jax.lax.top_k(votes, count)[1]]


def _forth(
    votes: Float[Array, " patches"], places: Float[Array, "patches 2"], count: int
) -> tuple[Float[Array, "count 2"], tuple[Array, Array]]:
    return top_places(votes, places, count), (votes, places)


def _back(
    count: int, kept: tuple[Array, Array], gradient: Float[Array, "count 2"]
) -> tuple[Array, Array]:
    votes, places = kept

    def softly(votes: Array) -> Array:
        logs = jnp.log(votes + 1e-6)
        best = jax.lax.top_k(logs, count)[0]
        return jax.nn.softmax(-jnp.abs(best[:, None] - logs) / _TEMPERATURE, -1) @ places

    return jax.vjp(softly, votes)[1](gradient)[0], jnp.zeros_like(places)


top_places.defvjp(_forth, _back)
