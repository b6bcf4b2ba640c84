"""The layer against numbers worked out by hand, and its parts against their plain forms."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium.errors import ConfigError, ObservationError
from sensorium.layers import (
    AttentionNeuron,
    InvariantNonlinearKeys,
    PublishedNonlinearKeys,
    attend,
    nonlinear_map,
    positional_table,
)

pytestmark = pytest.mark.usefixtures("compiled_as_for_users")


def test_positional_table_is_the_published_one():
    # Row 1 of 4 columns: sin(1), cos(1), sin(1/100), cos(1/100)
    table = positional_table(2, 4)
    assert table.dtype == np.float32
    np.testing.assert_allclose(table[0], [0, 1, 0, 1])
    np.testing.assert_allclose(table[1], [0.841471, 0.540302, 0.0099998, 0.99995], rtol=1e-5)


def test_one_sensor_by_hand():
    # One unit, one query, all weights 1, biases 0, reading 1, no memory:
    # gates = 1, c = sigmoid(1) tanh(1), h = sigmoid(1) tanh(c), query = sin(0) + cos(0) = 1,
    # weight = tanh(h), code = tanh(weight * 1)
    layer = AttentionNeuron(
        1, num_queries=1, hidden_size=1, message_size=1, position_size=2, key=jax.random.key(0)
    )
    parameters, static = eqx.partition(layer, eqx.is_inexact_array)
    layer = eqx.combine(jax.tree.map(jnp.ones_like, parameters), static)
    layer = eqx.tree_at(
        lambda layer: (layer.lstm.bias_ih, layer.lstm.bias_hh), layer, replace_fn=jnp.zeros_like
    )
    pooled = layer(jnp.array([1.0]), jnp.array([0.0]), layer.initial_memory(1))
    sigmoid = 1 / (1 + np.exp(-1))
    cell = sigmoid * np.tanh(1)
    hidden = sigmoid * np.tanh(cell)
    np.testing.assert_allclose(pooled.memory.cell[0, 0], cell, rtol=1e-6)
    np.testing.assert_allclose(pooled.memory.hidden[0, 0], hidden, rtol=1e-6)
    np.testing.assert_allclose(pooled.attention[0, 0], np.tanh(hidden), rtol=1e-6)
    np.testing.assert_allclose(pooled.code[0], np.tanh(np.tanh(hidden)), rtol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("scale", [False, True])
def test_folded_attention_equals_the_formula(key, bias, scale, strict):
    layer = AttentionNeuron(2, bias=bias, scale=scale, key=key)
    if bias:  # biases start at zero, where a forgotten one would not show
        layer = eqx.tree_at(
            lambda layer: (layer.query_bias, layer.key_bias),
            layer,
            replace_fn=lambda leaf: leaf + jnp.linspace(-1.0, 1.0, leaf.size, dtype=jnp.float32),
        )
    hidden = jax.random.normal(key, (8, 7))
    plain = attend(layer.queries(), layer.keys(hidden), scale)
    np.testing.assert_allclose(layer.attention(hidden), plain, atol=2e-6)


def test_nonlinear_map_by_hand():
    # K = 2, q = 0.5: 4 + 4 + 0.5 * 3 = 9.5;  K = -3: 9 - 6 + 0.5 * 2 = 4
    mapped = nonlinear_map(jnp.array([[2.0, -3.0]]), jnp.array([[0.5]]))
    np.testing.assert_allclose(mapped, [[9.5, 4.0]])


def test_published_keys_refuse_another_number_of_sensors(key):
    layer = AttentionNeuron(1, nonlinear_keys=PublishedNonlinearKeys(16, 5, key=key), key=key)
    with pytest.raises(ObservationError, match="tied to 5 sensors but got 6"):
        layer(jnp.ones(6), jnp.zeros(1), layer.initial_memory(6))


@pytest.mark.parametrize("block_size", [1, 7, 64, 1000])
@pytest.mark.parametrize("nonlinear", [False, True])
def test_blocks_give_the_same_code(key, block_size, nonlinear, strict):
    keys = InvariantNonlinearKeys(16, key=key) if nonlinear else None
    layer = AttentionNeuron(1, nonlinear_keys=keys, block_size=block_size, key=key)
    whole = AttentionNeuron(1, nonlinear_keys=keys, key=key)
    readings, action = jax.random.normal(key, (100,)), jnp.array([0.3])
    memory = layer.initial_memory(100)
    for _ in range(3):
        pooled = whole(readings, action, memory)
        code, blocked = layer.code(readings, action, memory)
        np.testing.assert_allclose(code, pooled.code, atol=1e-5)
        np.testing.assert_allclose(blocked.hidden, pooled.memory.hidden, atol=1e-6)
        memory = blocked


def test_published_keys_refuse_blocks(key):
    keys = PublishedNonlinearKeys(16, 5, key=key)
    with pytest.raises(ConfigError, match="use the invariant form"):
        AttentionNeuron(1, nonlinear_keys=keys, block_size=2, key=key)


@pytest.mark.parametrize("name", ["num_queries", "hidden_size", "message_size", "position_size"])
def test_sizes_must_be_positive(key, name):
    with pytest.raises(ConfigError, match=f"{name} of at least 1, got 0"):
        AttentionNeuron(1, **{name: 0}, key=key)


def test_attention_is_what_makes_the_code(key):
    layer = AttentionNeuron(1, key=key)
    readings = jnp.array([0.5, -1.0, 2.0])
    pooled = layer(readings, jnp.zeros(1), layer.initial_memory(3), code_scale=0.5)
    assert pooled.attention.shape == (16, 3)
    np.testing.assert_allclose(pooled.code, jnp.tanh(0.5 * pooled.attention @ readings), atol=1e-6)
