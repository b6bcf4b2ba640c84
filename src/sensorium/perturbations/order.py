"""Sensors that arrive in another order."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from sensorium.errors import check_counts
from sensorium.perturbations.perturbation import Perturbation, check_sensors
from sensorium.types import Key, ObservationSpec, Order, Sensors


@dataclasses.dataclass(frozen=True)
class Shuffle(Perturbation):
    """A random order, drawn at the start of each episode."""

    def output_spec(self, spec: ObservationSpec) -> ObservationSpec:
        """Return `spec`, unchanged; ConfigError if it is of images."""
        check_sensors(self, spec)
        return spec

    def init(self, key: Key, spec: ObservationSpec) -> Order:
        """Draw the order of this episode."""
        return jax.random.permutation(key, check_sensors(self, spec))

    def apply(self, key: Key, state: Order, observation: Sensors) -> tuple[Array, Order]:
        """Put the sensors in that order."""
        del key
        return observation[state], state

    def sensor_of_channel(self, state: Order, spec: ObservationSpec) -> Order:
        """Return the order of this episode."""
        del spec
        return state

    def __str__(self) -> str:
        return "shuffled"


class ReshuffleState(NamedTuple):
    """The order now, and for how many steps it has held."""

    order: Order
    age: Array


@dataclasses.dataclass(frozen=True)
class Reshuffle(Perturbation):
    """A new random order every `every` steps, in mid-episode.

    Only the readings move: the recurrent state of a place then belongs to another sensor.
    """

    every: int = 25

    def __post_init__(self) -> None:
        check_counts(1, "Reshuffle", every=self.every)

    def output_spec(self, spec: ObservationSpec) -> ObservationSpec:
        """Return `spec`, unchanged; ConfigError if it is of images."""
        check_sensors(self, spec)
        return spec

    def init(self, key: Key, spec: ObservationSpec) -> ReshuffleState:
        """Draw the first order."""
        return ReshuffleState(
            jax.random.permutation(key, check_sensors(self, spec)), jnp.zeros((), jnp.int32)
        )

    def apply(
        self, key: Key, state: ReshuffleState, observation: Sensors
    ) -> tuple[Array, ReshuffleState]:
        """Draw a new order if the present one is `every` steps old, and use it."""
        expired = state.age == self.every
        fresh = jax.random.permutation(key, state.order.shape[0])
        order = jnp.where(expired, fresh, state.order)
        age = jnp.where(expired, 0, state.age) + 1
        return observation[order], ReshuffleState(order, age)

    def sensor_of_channel(self, state: ReshuffleState, spec: ObservationSpec) -> Order:
        """Return the present order."""
        del spec
        return state.order

    def within(self, steps: int) -> Perturbation:
        """Return `Shuffle` if the order does not change within `steps`."""
        return self if self.every < steps else Shuffle()

    def __str__(self) -> str:
        return f"reshuffled every {self.every}"
