"""Exactly what does not depend on the order of the sensors, and what recovers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorium.layers import AttentionNeuron
from sensorium.policies import (
    AttentionNeuronConfig,
    DeepSetsConfig,
    KeyMap,
    SetTransformerConfig,
)
from tests.conftest import run_codes

INVARIANT = {
    "plain": AttentionNeuronConfig(reading_scale=0.2),
    "with bias and scale": AttentionNeuronConfig(bias=True, scale=True, controller_sizes=(8,)),
    "NLA invariant": AttentionNeuronConfig(key_map=KeyMap.NLA_INVARIANT, reading_scale=0.2),
    "code fed back": AttentionNeuronConfig(code_feedback=True, reading_scale=0.2),
    "changes": AttentionNeuronConfig(with_change=True, squash=0.5, reading_scale=0.2),
    "Deep Sets": DeepSetsConfig(),
    "Set Transformer": SetTransformerConfig(),
}
# Sums in another order round differently, and the fed-back action carries that on
TOLERANCE = 1e-3


def _orders(num_sensors):
    return st.permutations(range(num_sensors)).map(np.array)


def draw_readings(seed, steps, num_sensors):
    return np.random.default_rng(seed).normal(size=(steps, num_sensors)).astype(np.float32)


# A few numbers: each is compiled for
sensors_and_order = st.sampled_from([1, 2, 3, 7, 20, 64]).flatmap(
    lambda count: st.tuples(st.just(count), _orders(count))
)


@pytest.mark.parametrize("name", INVARIANT)
@settings(max_examples=20)
@given(case=sensors_and_order, seed=st.integers(0, 2**16))
def test_any_order_of_any_number_gives_the_same_code(name, case, seed):
    num_sensors, order = case
    policy = INVARIANT[name].build(num_sensors, 1, jax.random.key(seed))
    readings = draw_readings(seed, 4, num_sensors)
    codes, actions, _ = run_codes(policy, readings)
    shuffled_codes, shuffled_actions, _ = run_codes(policy, readings[:, order])
    np.testing.assert_allclose(shuffled_codes, codes, atol=TOLERANCE)
    np.testing.assert_allclose(shuffled_actions, actions, atol=TOLERANCE)


@pytest.mark.parametrize("name", INVARIANT)
@settings(max_examples=20)
@given(case=sensors_and_order, seed=st.integers(0, 2**16))
def test_memory_that_moves_along_makes_a_shuffle_in_mid_episode_invisible(name, case, seed):
    num_sensors, order = case
    policy = INVARIANT[name].build(num_sensors, 1, jax.random.key(seed))
    readings = draw_readings(seed, 6, num_sensors)
    codes, _, _ = run_codes(policy, readings)
    _, _, carry = run_codes(policy, readings[:3])
    moved = policy.reordered(carry, jnp.array(order))
    after, _, _ = run_codes(policy, readings[3:][:, order], moved)
    np.testing.assert_allclose(after, codes[3:], atol=TOLERANCE)


def test_memory_left_behind_is_wrong_at_first_and_recovers():
    # With a forget gate of about 0.73 old memories fade: the code comes back within 60 steps. Readings
    # are constant, so what remains of the difference is what is remembered.
    policy = INVARIANT["plain"].build(5, 1, jax.random.key(3))
    readings = jnp.tile(jnp.array([0.5, -1.0, 2.0, 0.1, -0.4]), (300, 1))
    order = jnp.array([3, 0, 4, 1, 2])
    _, _, carry = run_codes(policy, readings)
    left, _, _ = run_codes(policy, readings[:, order], carry)
    moved, _, _ = run_codes(policy, readings[:, order], policy.reordered(carry, order))
    distance = np.abs(np.asarray(left - moved)).max(axis=1)
    assert distance[0] > 0.01  # otherwise memories do not matter and the test is empty
    recovered = int(np.argmax(distance < 1e-3))
    assert 0 < recovered <= 60
    assert (distance[recovered:] < 2e-3).all()


def test_published_nonlinear_keys_depend_on_the_order():
    config = AttentionNeuronConfig(key_map=KeyMap.NLA_PUBLISHED, reading_scale=0.2)
    policy = config.build(5, 1, jax.random.key(0))
    readings = jax.random.normal(jax.random.key(1), (10, 5))
    order = jnp.array([4, 3, 2, 1, 0])
    codes, _, _ = run_codes(policy, readings)
    shuffled, _, _ = run_codes(policy, readings[:, order])
    assert np.abs(np.asarray(codes - shuffled)).max() > 0.01


@settings(max_examples=20)
@given(
    num_sensors=st.sampled_from([1, 3, 20]), copies=st.integers(2, 4), seed=st.integers(0, 2**16)
)
def test_copies_change_nothing_if_the_code_is_scaled(num_sensors, copies, seed):
    policy = INVARIANT["plain"].build(num_sensors, 1, jax.random.key(seed))
    readings = draw_readings(seed, 10, num_sensors)
    codes, _, _ = run_codes(policy, readings)
    copied, _, _ = run_codes(policy.with_code_scale(1 / copies), np.tile(readings, (1, copies)))
    np.testing.assert_allclose(copied, codes, atol=TOLERANCE)


def test_a_hundred_thousand_sensors_in_blocks():
    layer = AttentionNeuron(1, block_size=4096, key=jax.random.key(0))
    count = 100_000
    readings = jax.random.normal(jax.random.key(1), (count,)) / count**0.5
    order = jax.random.permutation(jax.random.key(2), count)
    step = eqx.filter_jit(layer.code)
    code, memory = step(readings, jnp.zeros(1), layer.initial_memory(count))
    shuffled, moved = step(readings[order], jnp.zeros(1), layer.initial_memory(count))
    assert np.abs(np.asarray(code)).max() > 0.1
    np.testing.assert_allclose(shuffled, code, atol=1e-6)
    np.testing.assert_allclose(moved.hidden, memory.hidden[:, order], atol=1e-6)
