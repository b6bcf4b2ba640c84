"""The two usual ways to pool a set, as baselines for AttentionNeuron: Deep Sets and Set Transformer.

Both give each sensor the same LSTM as AttentionNeuron and differ only in how the set is pooled, so that a
comparison at equal size compares the pooling. A sensor's features are its LSTM output and its reading, one
number or those of an entity. Entities whose row is NaN are absent: they add nothing to a sum, and no seed
attends to them.

- Deep Sets (Zaheer et al. 2017, theorem 2): `m = tanh(W Σᵢ tanh(V [hᵢ, oᵢ]))`.
- Set Transformer (Lee et al. 2019, PMA, eq. 11): learned seeds attend to the sensors with a softmax in
  several heads; what they gather is concatenated and mapped to the code. Left out: the layer norms and
  the feed-forward block after the attention, which would double the parameters.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.errors import ConfigError
from sensorium.layers.attention_neuron import Pooled
from sensorium.layers.sensor_lstm import SensorLSTM, SensorMemory, of_present, split_absent
from sensorium.types import Action, Key, Sensors

_LEAST = -1e30  # a score that no softmax sees, and whose differences are finite


def _features(hidden: Float[Array, "H N"], readings: Sensors) -> Float[Array, "features N"]:
    return jnp.concatenate([hidden, jnp.atleast_2d(readings.T)])


def _linear(key: Key, num_outputs: int, num_inputs: int) -> Float[Array, "outputs inputs"]:
    return jax.random.normal(key, (num_outputs, num_inputs)) / num_inputs**0.5


class DeepSets(eqx.Module):
    """Sum of the outputs of a small network for each sensor, then one layer."""

    lstm: SensorLSTM
    sensor_weight: Float[Array, "D features"]
    sensor_bias: Float[Array, " D"]
    code_weight: Float[Array, "M D"]
    code_bias: Float[Array, " M"]

    def __init__(
        self,
        num_actions: int,
        *,
        code_size: int = 11,
        hidden_size: int = 8,
        message_size: int = 24,
        num_features: int = 1,
        key: Key,
    ):
        """Draw a layer: M = `code_size`, H = `hidden_size`, D = `message_size`, F = `num_features`."""
        key_lstm, key_sensor, key_code = jax.random.split(key, 3)
        self.lstm = SensorLSTM(num_actions, hidden_size, num_features=num_features, key=key_lstm)
        self.sensor_weight = _linear(key_sensor, message_size, hidden_size + num_features)
        self.sensor_bias = jnp.zeros(message_size)
        self.code_weight = _linear(key_code, code_size, message_size)
        self.code_bias = jnp.zeros(code_size)

    def initial_memory(self, num_sensors: int) -> SensorMemory:
        """Make blank memory for `num_sensors` sensors."""
        return self.lstm.initial_memory(num_sensors)

    def __call__(
        self,
        observation: Sensors,
        previous_action: Action,
        memory: SensorMemory,
        code_scale: float = 1.0,
    ) -> Pooled:
        """Take one step, as `AttentionNeuron.__call__`, with equal attention to every sensor."""
        readings, present = split_absent(observation)
        memory = self.lstm(readings, previous_action, memory, None, present)
        features = _features(memory.hidden, readings)
        messages = jnp.tanh(self.sensor_weight @ features + self.sensor_bias[:, None])
        total = code_scale * jnp.sum(of_present(messages, present), axis=1)
        code = jnp.tanh(self.code_weight @ total + self.code_bias)
        attention = of_present(jnp.ones((1, observation.shape[0]), code.dtype), present)
        return Pooled(code, memory, attention)


class SetTransformer(eqx.Module):
    """Pooling by multihead attention from learned seeds, then one layer."""

    lstm: SensorLSTM
    seeds: Float[Array, "S D"]
    key_weight: Float[Array, "D features"]
    value_weight: Float[Array, "D features"]
    code_weight: Float[Array, "M gathered"]
    code_bias: Float[Array, " M"]
    num_heads: int = eqx.field(static=True)

    def __init__(
        self,
        num_actions: int,
        *,
        code_size: int = 11,
        hidden_size: int = 8,
        message_size: int = 12,
        num_seeds: int = 2,
        num_heads: int = 4,
        num_features: int = 1,
        key: Key,
    ):
        """Draw a layer: M = `code_size`, H = `hidden_size`, D = `message_size`, S = `num_seeds`.

        F = `num_features`.

        Raises:
            ConfigError: `num_heads` does not divide `message_size`.
        """
        if message_size % num_heads:
            raise ConfigError(
                f"SetTransformer needs num_heads to divide message_size, "
                f"got {num_heads} and {message_size}."
            )
        key_lstm, key_seeds, key_key, key_value, key_code = jax.random.split(key, 5)
        self.lstm = SensorLSTM(num_actions, hidden_size, num_features=num_features, key=key_lstm)
        self.seeds = jax.random.normal(key_seeds, (num_seeds, message_size))
        self.key_weight = _linear(key_key, message_size, hidden_size + num_features)
        self.value_weight = _linear(key_value, message_size, hidden_size + num_features)
        self.code_weight = _linear(key_code, code_size, num_seeds * message_size)
        self.code_bias = jnp.zeros(code_size)
        self.num_heads = num_heads

    def initial_memory(self, num_sensors: int) -> SensorMemory:
        """Make blank memory for `num_sensors` sensors."""
        return self.lstm.initial_memory(num_sensors)

    def __call__(
        self,
        observation: Sensors,
        previous_action: Action,
        memory: SensorMemory,
        code_scale: float = 1.0,
    ) -> Pooled:
        """Take one step; attention has one row for each seed and head.

        `code_scale` has no effect: a softmax does not grow with the number of sensors.
        """
        del code_scale
        readings, present = split_absent(observation)
        memory = self.lstm(readings, previous_action, memory, None, present)
        features = _features(memory.hidden, readings)
        num_seeds, message_size = self.seeds.shape
        head_size = message_size // self.num_heads

        def heads(rows: Float[Array, "D columns"]) -> Float[Array, "heads D//heads columns"]:
            return rows.reshape(self.num_heads, head_size, rows.shape[1])

        scores = jnp.einsum("hds,hdn->hsn", heads(self.seeds.T), heads(self.key_weight @ features))
        if present is not None:
            scores = jnp.where(present, scores, _LEAST)
        # Once more, as all scores are alike where none is present
        attention = of_present(jax.nn.softmax(scores / head_size**0.5, axis=-1), present)
        gathered = jnp.einsum("hsn,hdn->shd", attention, heads(self.value_weight @ features))
        code = jnp.tanh(self.code_weight @ gathered.reshape(-1) + self.code_bias)
        return Pooled(code, memory, attention.reshape(num_seeds * self.num_heads, -1))
