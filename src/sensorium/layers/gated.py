"""Gated recurrent units (Cho et al. 2014)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.layers.linear import Linear
from sensorium.types import Key


class Gated(eqx.Module):
    """One such unit of several numbers."""

    gates: Linear
    candidate: Linear

    @property
    def size(self) -> int:
        """How many numbers it remembers."""
        return self.candidate.weight.shape[0]

    def __init__(self, inputs: int, size: int, *, key: Key):
        """Draw weights of a unit that changes slowly at first."""
        keys = jax.random.split(key)
        gates = Linear(inputs + size, 2 * size, key=keys[0])
        slow = gates.bias.at[:size].set(-1.0)
        self.gates = eqx.tree_at(lambda layer: layer.bias, gates, slow)
        self.candidate = Linear(inputs + size, size, key=keys[1])

    def __call__(
        self, inputs: Float[Array, " inputs"], hidden: Float[Array, " H"]
    ) -> Float[Array, " H"]:
        """Return the next state."""
        return gated(self.gates, self.candidate, inputs, hidden)


def gated(gates: Linear, candidate: Linear, inputs: Array, hidden: Array) -> Array:
    """Return the next state of a unit whose layers are given."""
    both = jax.nn.sigmoid(gates(jnp.concatenate([inputs, hidden])))
    update, reset = both[: len(hidden)], both[len(hidden) :]
    new = jnp.tanh(candidate(jnp.concatenate([inputs, reset * hidden])))
    return (1 - update) * hidden + update * new
