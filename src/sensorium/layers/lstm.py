"""LSTMs, laid out as PyTorch's LSTMCell, so that the authors' vectors load as they are.

`LSTM` is for a vector; `SensorLSTM` is one for each sensor. The second bias is redundant but counts in the
published number of parameters.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.types import Key


class Memory(NamedTuple):
    """The recurrent state of an LSTM."""

    hidden: Float[Array, " H"]
    cell: Float[Array, " H"]


class LSTMWeights(eqx.Module):
    """Gates stacked in the order input, forget, cell, output; two biases, both added."""

    weight_ih: Float[Array, "gates inputs"]
    weight_hh: Float[Array, "gates H"]
    bias_ih: Float[Array, " gates"]
    bias_hh: Float[Array, " gates"]

    def __init__(self, num_inputs: int, hidden_size: int, *, key: Key):
        """Draw weights of variance 1/fan-in, biases zero, and a forget gate that starts open."""
        key_ih, key_hh = jax.random.split(key)
        gates = 4 * hidden_size
        self.weight_ih = jax.random.normal(key_ih, (gates, num_inputs)) / num_inputs**0.5
        self.weight_hh = jax.random.normal(key_hh, (gates, hidden_size)) / hidden_size**0.5
        self.bias_ih = jnp.zeros(gates).at[hidden_size : 2 * hidden_size].set(1.0)
        self.bias_hh = jnp.zeros(gates)

    @property
    def hidden_size(self) -> int:
        """H, the width of the recurrent state."""
        return self.weight_hh.shape[1]


def advance(
    gates: Float[Array, "gates ..."], cell: Float[Array, "H ..."]
) -> tuple[Float[Array, "H ..."], Float[Array, "H ..."]]:
    """Compute the output and the cell of an LSTM after a step, from the sums that enter its gates."""
    input_gate, forget_gate, candidate, output_gate = jnp.split(gates, 4)
    cell = jax.nn.sigmoid(forget_gate) * cell + jax.nn.sigmoid(input_gate) * jnp.tanh(candidate)
    return jax.nn.sigmoid(output_gate) * jnp.tanh(cell), cell


class LSTM(LSTMWeights):
    """One LSTM for a vector."""

    def __init__(self, num_inputs: int, hidden_size: int, *, key: Key):
        """Draw weights for `num_inputs` numbers."""
        super().__init__(num_inputs, hidden_size, key=key)

    def initial_memory(self) -> Memory:
        """Make blank memory."""
        blank = jnp.zeros(self.hidden_size, self.weight_hh.dtype)
        return Memory(blank, blank)

    def __call__(self, inputs: Float[Array, " inputs"], memory: Memory) -> Memory:
        """Take one step; `hidden` of the new memory is the output."""
        gates = (
            self.weight_ih @ inputs + self.bias_ih + self.weight_hh @ memory.hidden + self.bias_hh
        )
        return Memory(*advance(gates, memory.cell))
