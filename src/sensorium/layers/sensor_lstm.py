"""The small LSTM that every sensor carries, with weights shared by all of them (AN section 3.1).

Laid out as PyTorch's LSTMCell, so that the authors' vectors load as they are: gates stacked in the
order input, forget, cell, output, and two biases, both added. The second bias is redundant but counts
in the published number of parameters.

Arrays have features first and sensors last, (H, N): with `vmap(..., in_axes=-1, out_axes=-1)` a whole
batch is then one plain matrix product, and everything else runs over contiguous memory.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.types import Action, Key, Observation, Order


class SensorMemory(NamedTuple):
    """What each of the N sensors remembers."""

    hidden: Float[Array, "H N"]
    cell: Float[Array, "H N"]

    def reordered(self, order: Order) -> "SensorMemory":
        """The memory after its sensors moved: place `i` now holds what `order[i]` held."""
        return SensorMemory(self.hidden[:, order], self.cell[:, order])


class SensorLSTM(eqx.Module):
    """One LSTM step for every sensor: its own reading and the previous action in, features out."""

    weight_ih: Float[Array, "gates inputs"]
    weight_hh: Float[Array, "gates H"]
    bias_ih: Float[Array, " gates"]
    bias_hh: Float[Array, " gates"]

    def __init__(self, num_actions: int, hidden_size: int, *, key: Key):
        """Draw weights of variance 1/fan-in, biases zero, and a forget gate that starts open."""
        key_ih, key_hh = jax.random.split(key)
        inputs = 1 + num_actions
        self.weight_ih = jax.random.normal(key_ih, (4 * hidden_size, inputs)) / inputs**0.5
        self.weight_hh = (
            jax.random.normal(key_hh, (4 * hidden_size, hidden_size)) / hidden_size**0.5
        )
        self.bias_ih = jnp.zeros(4 * hidden_size).at[hidden_size : 2 * hidden_size].set(1.0)
        self.bias_hh = jnp.zeros(4 * hidden_size)

    @property
    def hidden_size(self) -> int:
        """H, the width of what a sensor remembers and says."""
        return self.weight_hh.shape[1]

    def initial_memory(self, num_sensors: int) -> SensorMemory:
        """Blank memory for `num_sensors` sensors."""
        blank = jnp.zeros((self.hidden_size, num_sensors), self.weight_hh.dtype)
        return SensorMemory(hidden=blank, cell=blank)

    def __call__(
        self, observation: Observation, previous_action: Action, memory: SensorMemory
    ) -> SensorMemory:
        """Advance every sensor by one step.

        Args:
            observation: One reading a sensor.
            previous_action: What the agent did last, the same for all sensors.
            memory: State of the sensors before this step.

        Returns:
            The state after it; `hidden` is what the sensors say.
        """
        weight_reading, weight_action = self.weight_ih[:, 0], self.weight_ih[:, 1:]
        gates = (
            weight_reading[:, None] * observation[None, :]
            + self.weight_hh @ memory.hidden
            + (weight_action @ previous_action + self.bias_ih + self.bias_hh)[:, None]
        )
        input_gate, forget_gate, candidate, output_gate = jnp.split(gates, 4)
        cell = jax.nn.sigmoid(forget_gate) * memory.cell + jax.nn.sigmoid(input_gate) * jnp.tanh(
            candidate
        )
        return SensorMemory(hidden=jax.nn.sigmoid(output_gate) * jnp.tanh(cell), cell=cell)
