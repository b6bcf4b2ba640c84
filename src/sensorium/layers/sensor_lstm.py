"""The small LSTM that every sensor carries, with weights shared by all of them (AN section 4).

A sensor gives one number; or a row of F features, if it is an entity. Then a row of NaN is an absent entity,
whose memory is blank.

Arrays have features first and sensors last, (H, N): with `vmap(..., in_axes=-1, out_axes=-1)` a whole
batch is then one plain matrix product, and everything else runs over contiguous memory.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sensorium.layers.lstm import LSTMWeights, advance
from sensorium.types import Action, Key, Order, Sensors


class SensorMemory(NamedTuple):
    """The recurrent state of each of the N sensors."""

    hidden: Float[Array, "H N"]
    cell: Float[Array, "H N"]

    def reordered(self, order: Order) -> "SensorMemory":
        """Return the memory after its sensors moved: place `i` now holds what `order[i]` held."""
        return SensorMemory(self.hidden[:, order], self.cell[:, order])


def split_absent(observation: Sensors) -> tuple[Sensors, Bool[Array, " N"] | None]:
    """Return readings, zeros in rows that are absent, and which are present; None for scalars: all are."""
    if observation.ndim == 1:
        return observation, None
    present = ~jnp.isnan(observation).any(axis=1)
    return jnp.where(present[:, None], observation, 0.0), present


def of_present(columns: Float[Array, "*rows N"], present: Bool[Array, " N"] | None) -> Array:
    """Return columns with zeros for absent sensors; `present` as from `split_absent`."""
    return columns if present is None else jnp.where(present, columns, 0.0)


class SensorLSTM(LSTMWeights):
    """One LSTM step for every sensor: its own reading and the previous action in, features out."""

    def __init__(
        self,
        num_actions: int,
        hidden_size: int,
        *,
        num_features: int = 1,
        with_change: bool = False,
        key: Key,
    ):
        """Draw weights.

        Args:
            num_actions: Numbers that every sensor receives beside its reading.
            hidden_size: H.
            num_features: F, the numbers of a reading.
            with_change: Whether each receives the change of its reading, too.
            key: Random key.
        """
        super().__init__(num_features * (1 + with_change) + num_actions, hidden_size, key=key)

    def initial_memory(self, num_sensors: int) -> SensorMemory:
        """Make blank memory for `num_sensors` sensors."""
        blank = jnp.zeros((self.hidden_size, num_sensors), self.weight_hh.dtype)
        return SensorMemory(hidden=blank, cell=blank)

    def __call__(
        self,
        observation: Sensors,
        previous_action: Action,
        memory: SensorMemory,
        change: Sensors | None = None,
        present: Bool[Array, " N"] | None = None,
    ) -> SensorMemory:
        """Advance every sensor by one step.

        Args:
            observation: One reading a sensor, without NaN: see `split_absent`.
            previous_action: What the agent did last, the same for all sensors.
            memory: State of the sensors before this step.
            change: Of the readings since the step before, if there are weights for it.
            present: Which sensors are there; None for all. The state of the others is blank.

        Returns:
            The state after it; `hidden` is the output of the LSTMs.
        """
        own = self.weight_ih[:, : self.weight_ih.shape[1] - len(previous_action)]
        weight_action = self.weight_ih[:, own.shape[1] :]
        num_features = 1 if observation.ndim == 1 else observation.shape[1]
        received = _received(own[:, :num_features], observation)
        if change is not None:
            received = received + _received(own[:, num_features:], change)
        gates = (
            received
            + self.weight_hh @ memory.hidden
            + (weight_action @ previous_action + self.bias_ih + self.bias_hh)[:, None]
        )
        hidden, cell = advance(gates, memory.cell)
        return SensorMemory(of_present(hidden, present), of_present(cell, present))


def _received(weight: Float[Array, "gates F"], readings: Sensors) -> Float[Array, "gates N"]:
    """Compute what readings add to the gates of each sensor."""
    return weight * readings[None, :] if readings.ndim == 1 else weight @ readings.T
