"""AttentionNeuron for scalar sensors and entities (AN section 3.2, eq. 1 and 2).

Each sensor feeds its reading and the previous action to a small LSTM of its own, all with the same
weights; attention with fixed queries and keys from these LSTMs pools the readings into a code of length M:

    K = LSTM([oᵢ, a]) W_k,    Q = table W_q,    m = tanh(tanh(Q Kᵀ / √D) o)

Features come first and sensors or queries last: the paper's K is `keys.T`, its Q `queries.T`.

The code is a sum over sensors, so it depends neither on their order nor on their number. An entity is a
sensor of F features: `o` then has F columns, as of the paper's patches, and the code is M x F numbers in a
row. A row of NaN is absent and adds nothing.

| here | paper |
|---|---|
| `num_queries` | M |
| sensors | N |
| `message_size` | d_q, the width of queries and keys |
| `query_weight`, `key_weight` | W_q, W_k |

Departures: none in the plain layer. `nonlinear_keys` adds the switch of NLA; `code_scale` is the factor
by which the paper scales the code of doubled sensors (0.5 for two copies); `block_size` bounds memory.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.errors import ConfigError
from sensorium.layers.blockwise import sum_over_blocks
from sensorium.layers.nonlinear_keys import NonlinearKeys, PublishedNonlinearKeys
from sensorium.layers.positional import positional_table
from sensorium.layers.sensor_lstm import SensorLSTM, SensorMemory, of_present, split_absent
from sensorium.types import Action, Attention, Code, Key, PyTree, Sensors


class Pooled(NamedTuple):
    """What a pooling layer returns: the code, the sensors' new memory, and the attention."""

    code: Code
    memory: SensorMemory
    attention: Attention


def attend(queries: Float[Array, "D M"], keys: Float[Array, "D N"], scale: bool) -> Attention:
    """Compute attention weights `tanh(Q Kᵀ)`, divided by √D inside the tanh if `scale` (AN eq. 2)."""
    scores = queries.T @ keys
    return jnp.tanh(scores / keys.shape[0] ** 0.5 if scale else scores)


class AttentionNeuron(eqx.Module):
    """Permutation-invariant layer from any number of sensors to a code.

    **Guarantee**: reordering the sensors together with their memory leaves the code unchanged up to
    rounding. Reordering the readings but not the memory does not; the code then recovers as the
    LSTMs adapt to what they now receive.
    """

    lstm: SensorLSTM
    query_weight: Float[Array, "D E"]
    query_bias: Float[Array, " D"] | None
    key_weight: Float[Array, "D H"]
    key_bias: Float[Array, " D"] | None
    nonlinear_keys: NonlinearKeys | None
    num_queries: int = eqx.field(static=True)
    scale: bool = eqx.field(static=True)
    block_size: int | None = eqx.field(static=True)

    def __init__(
        self,
        num_actions: int,
        *,
        num_queries: int = 16,
        hidden_size: int = 8,
        message_size: int = 32,
        position_size: int = 8,
        bias: bool = False,
        scale: bool = False,
        nonlinear_keys: NonlinearKeys | None = None,
        block_size: int | None = None,
        with_change: bool = False,
        num_features: int = 1,
        key: Key,
    ):
        """Draw a layer with random weights.

        Args:
            num_actions: A, the length of the previous action that is fed back.
            num_queries: M, the length of the code; of entities M x F.
            hidden_size: H, units of the LSTM of each sensor.
            message_size: D, width of queries and keys.
            position_size: E, width of the positional table.
            bias: Whether the query and key projections have biases.
            scale: Whether scores are divided by √D.
            nonlinear_keys: A nonlinear map of the keys (NLA), or None for the plain layer.
            block_size: Process sensors in blocks of this many, to bound memory; None for all at once.
            with_change: Whether the LSTMs receive the change of the readings, too; the paper's do not.
            num_features: F, the numbers of a reading: 1 for scalar sensors.
            key: Random key.

        Raises:
            ConfigError: A size is not positive, or a block size does not go with keys as published.
        """
        sizes = dict(
            num_actions=num_actions,
            num_queries=num_queries,
            hidden_size=hidden_size,
            message_size=message_size,
            position_size=position_size,
            num_features=num_features,
        )
        for name, size in sizes.items():
            if size < 1:
                raise ConfigError(f"AttentionNeuron needs {name} of at least 1, got {size}.")
        if block_size is not None and isinstance(nonlinear_keys, PublishedNonlinearKeys):
            raise ConfigError(
                "Nonlinear keys as published give every place a summary of its own and cannot be "
                "computed in blocks; use the invariant form."
            )
        key_lstm, key_query, key_key = jax.random.split(key, 3)
        self.lstm = SensorLSTM(
            num_actions,
            hidden_size,
            num_features=num_features,
            with_change=with_change,
            key=key_lstm,
        )
        self.query_weight = (
            jax.random.normal(key_query, (message_size, position_size)) / position_size**0.5
        )
        self.query_bias = jnp.zeros(message_size) if bias else None
        self.key_weight = jax.random.normal(key_key, (message_size, hidden_size)) / hidden_size**0.5
        self.key_bias = jnp.zeros(message_size) if bias else None
        self.nonlinear_keys = nonlinear_keys
        self.num_queries = num_queries
        self.scale = scale
        self.block_size = block_size

    def initial_memory(self, num_sensors: int) -> SensorMemory:
        """Make blank memory for `num_sensors` sensors."""
        return self.lstm.initial_memory(num_sensors)

    def queries(self) -> Float[Array, "D M"]:
        """Compute the M queries: W_q times the positional table."""
        table = positional_table(self.num_queries, self.query_weight.shape[1])
        queries = self.query_weight @ table.T  # AN eq. 2
        return queries if self.query_bias is None else queries + self.query_bias[:, None]

    def keys(self, hidden: Float[Array, "H N"]) -> Float[Array, "D N"]:
        """Compute the keys before any nonlinear map: W_k times the LSTM outputs."""
        keys = self.key_weight @ hidden  # AN eq. 2
        return keys if self.key_bias is None else keys + self.key_bias[:, None]

    def attention(self, hidden: Float[Array, "H N"]) -> Attention:
        """Compute the attention weights of every query to every sensor."""
        queries = self.queries()
        if self.nonlinear_keys is not None:
            keys = self.nonlinear_keys(queries, self.keys(hidden))
            return attend(queries, keys, self.scale)
        # The same as attend(queries, self.keys(hidden)), but with the two projections, which only act
        # on one another, folded into an M x H matrix: a quarter of the work
        scores = (queries.T @ self.key_weight) @ hidden
        if self.key_bias is not None:
            scores = scores + (queries.T @ self.key_bias)[:, None]
        return jnp.tanh(scores / self.key_weight.shape[0] ** 0.5 if self.scale else scores)

    def __call__(
        self,
        observation: Sensors,
        previous_action: Action,
        memory: SensorMemory,
        code_scale: float = 1.0,
        change: Sensors | None = None,
    ) -> Pooled:
        """Take one step of the layer.

        Args:
            observation: Readings of N sensors in any order; a row of NaN is absent.
            previous_action: The action of the step before, zero at the start.
            memory: From `initial_memory`, or from the step before.
            code_scale: Factor on the sum over sensors, before the tanh.
            change: Of the readings since the step before, for a layer `with_change`.

        Returns:
            The code (M, or M x F in a row), the new memory, and the attention weights (M x N).
        """
        readings, present = split_absent(observation)
        change = None if change is None else split_absent(change)[0]
        memory = self.lstm(readings, previous_action, memory, change, present)
        attention = of_present(self.attention(memory.hidden), present)
        code = jnp.tanh(code_scale * (attention @ readings))  # AN eq. 2
        return Pooled(code.reshape(-1), memory, attention)

    def code(
        self,
        observation: Sensors,
        previous_action: Action,
        memory: SensorMemory,
        code_scale: float = 1.0,
    ) -> tuple[Code, SensorMemory]:
        """Take the same step without the attention matrix, in blocks of `block_size` sensors.

        Time is linear in N; beyond inputs and memories, only one block at a time is held.

        Args:
            observation: Readings of N sensors in any order; a row of NaN is absent.
            previous_action: The action of the step before.
            memory: From `initial_memory`, or from the step before.
            code_scale: Factor on the sum over sensors, before the tanh.

        Returns:
            The code (M, or M x F in a row) and the new memory.
        """
        readings, present = split_absent(observation)

        def step(inputs: PyTree) -> tuple[Array, SensorMemory]:
            columns, present, memory = inputs
            memory = self.lstm(columns.T, previous_action, memory, None, present)
            return of_present(self.attention(memory.hidden), present) @ columns.T, memory

        total, memory = sum_over_blocks(step, (readings.T, present, memory), self.block_size)
        return jnp.tanh(code_scale * total).reshape(-1), memory
