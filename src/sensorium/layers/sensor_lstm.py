"""The small LSTM that every sensor carries, with weights shared by all of them (AN section 4).

Arrays have features first and sensors last, (H, N): with `vmap(..., in_axes=-1, out_axes=-1)` a whole
batch is then one plain matrix product, and everything else runs over contiguous memory.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.layers.lstm import LSTMWeights, advance
from sensorium.types import Action, Key, Observation, Order


class SensorMemory(NamedTuple):
    """The recurrent state of each of the N sensors."""

    hidden: Float[Array, "H N"]
    cell: Float[Array, "H N"]

    def reordered(self, order: Order) -> "SensorMemory":
        """Return the memory after its sensors moved: place `i` now holds what `order[i]` held."""
        return SensorMemory(self.hidden[:, order], self.cell[:, order])


class SensorLSTM(LSTMWeights):
    """One LSTM step for every sensor: its own reading and the previous action in, features out."""

    def __init__(self, num_actions: int, hidden_size: int, *, with_change: bool = False, key: Key):
        """Draw weights.

        Args:
            num_actions: Numbers that every sensor receives beside its reading.
            hidden_size: H.
            with_change: Whether each receives the change of its reading, too.
            key: Random key.
        """
        super().__init__(1 + with_change + num_actions, hidden_size, key=key)

    def initial_memory(self, num_sensors: int) -> SensorMemory:
        """Make blank memory for `num_sensors` sensors."""
        blank = jnp.zeros((self.hidden_size, num_sensors), self.weight_hh.dtype)
        return SensorMemory(hidden=blank, cell=blank)

    def __call__(
        self,
        observation: Observation,
        previous_action: Action,
        memory: SensorMemory,
        change: Observation | None = None,
    ) -> SensorMemory:
        """Advance every sensor by one step.

        Args:
            observation: One reading a sensor.
            previous_action: What the agent did last, the same for all sensors.
            memory: State of the sensors before this step.
            change: Of the readings since the step before, if there are weights for it.

        Returns:
            The state after it; `hidden` is the output of the LSTMs.
        """
        own = self.weight_ih[:, : self.weight_ih.shape[1] - len(previous_action)]
        weight_action = self.weight_ih[:, own.shape[1] :]
        received = own[:, :1] * observation[None, :]
        if change is not None:
            received = received + own[:, 1:] * change[None, :]
        gates = (
            received
            + self.weight_hh @ memory.hidden
            + (weight_action @ previous_action + self.bias_ih + self.bias_hh)[:, None]
        )
        return SensorMemory(*advance(gates, memory.cell))
