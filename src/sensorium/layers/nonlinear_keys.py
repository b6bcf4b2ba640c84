"""Nonlinear attention (NLA): a nonlinear map of the keys, in two forms.

The map is `K' = K² + 2K + q |1 + K|`, elementwise on the N x D keys, with `q` made from the queries by
one learned linear map (NLA eq. 3). The forms differ in that map:

- `PublishedNonlinearKeys` maps the M query rows to one row for each of the N sensors. This is the only
  reading that meets the published parameter counts (M·N + N more than the plain layer: 85 for CartPole,
  924 for Ant). It ties the layer to a fixed N, and to the order of the sensors: row `i` of `q` belongs to
  whatever arrives in place `i`, so the layer is *not* permutation-invariant.
- `InvariantNonlinearKeys` makes one row from the M query rows and shares it among all sensors (M + 1
  parameters). It works with any N and keeps the invariance of the plain layer. It is ours.
"""

import abc
import enum

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.errors import ConfigError, ObservationError
from sensorium.types import Key


def nonlinear_map(keys: Float[Array, "..."], summary: Float[Array, "..."]) -> Float[Array, "..."]:
    """Compute `K² + 2K + q |1 + K|`, elementwise.

    Args:
        keys: The keys of the sensors, of any shape.
        summary: `q`, of a shape that broadcasts to that of the keys.

    Returns:
        The mapped keys.
    """
    return keys**2 + 2 * keys + summary * jnp.abs(1 + keys)  # NLA eq. 3


class NonlinearKeys(eqx.Module):
    """A map of the keys, given the queries."""

    @abc.abstractmethod
    def __call__(
        self, queries: Float[Array, "D M"], keys: Float[Array, "D N"]
    ) -> Float[Array, "D N"]:
        """Map the keys of all sensors."""


class PublishedNonlinearKeys(NonlinearKeys):
    """NLA as published: a summary of its own for every place; fixed N, order matters."""

    weight: Float[Array, "N M"]
    bias: Float[Array, " N"]

    def __init__(self, num_queries: int, num_sensors: int, *, key: Key):
        """Draw the linear map from `num_queries` query rows to `num_sensors` sensors."""
        if num_sensors < 1:
            raise ConfigError(
                "Nonlinear keys as published need the number of sensors when they are built; "
                f"got num_sensors={num_sensors}."
            )
        self.weight = jax.random.normal(key, (num_sensors, num_queries)) / num_queries
        self.bias = jnp.zeros(num_sensors)

    def __call__(
        self, queries: Float[Array, "D M"], keys: Float[Array, "D N"]
    ) -> Float[Array, "D N"]:
        """Map the keys; raises ObservationError if N is not the one the layer was built for."""
        if keys.shape[1] != self.weight.shape[0]:
            raise ObservationError(
                f"Nonlinear keys as published are tied to {self.weight.shape[0]} sensors but got "
                f"{keys.shape[1]}; the invariant form takes any number."
            )
        return nonlinear_map(keys, queries @ self.weight.T + self.bias[None, :])


class InvariantNonlinearKeys(NonlinearKeys):
    """Nonlinear keys with one summary of the queries for all sensors; any N, any order."""

    weight: Float[Array, " M"]
    bias: Float[Array, ""]

    def __init__(self, num_queries: int, *, key: Key):
        """Draw the linear map from `num_queries` query rows to one."""
        self.weight = jax.random.normal(key, (num_queries,)) / num_queries
        self.bias = jnp.zeros(())

    def __call__(
        self, queries: Float[Array, "D M"], keys: Float[Array, "D N"]
    ) -> Float[Array, "D N"]:
        """Map the keys of any number of sensors."""
        return nonlinear_map(keys, (queries @ self.weight + self.bias)[:, None])


class KeyMap(enum.StrEnum):
    """How the keys of AttentionNeuron are mapped."""

    LINEAR = "linear"
    """The plain layer."""
    NLA_PUBLISHED = "nla-published"
    """Nonlinear attention as published: fixed number and order of sensors."""
    NLA_INVARIANT = "nla-invariant"
    """Nonlinear attention with one summary for all sensors: any number, any order."""

    def draw(self, num_queries: int, num_sensors: int, key: Key) -> NonlinearKeys | None:
        """Draw a map with random weights; None for the plain layer."""
        match self:
            case KeyMap.NLA_PUBLISHED:
                return PublishedNonlinearKeys(num_queries, num_sensors, key=key)
            case KeyMap.NLA_INVARIANT:
                return InvariantNonlinearKeys(num_queries, key=key)
            case KeyMap.LINEAR:
                return None
