"""Entities: no order, no absent row and no number of them changes what an agent of entities does."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorium.errors import ConfigError, ObservationError
from sensorium.layers import AttentionNeuron, DeepSets, KeyMap, SetTransformer
from sensorium.perturbations import (
    Drop,
    Duplicate,
    DuplicateSome,
    Identity,
    NoiseChannels,
    OneOf,
    Reshuffle,
    Shuffle,
    Silence,
    check_perturbation,
    compose,
)
from sensorium.policies import (
    AttentionNeuronConfig,
    FeedForwardConfig,
    check_policy,
    num_parameters,
)
from sensorium.types import as_vector
from tests.conftest import policy_step
from tests.properties.test_invariance import INVARIANT

FEATURES = 3
POLICIES = INVARIANT | {"several outputs": AttentionNeuronConfig(controller_sizes=(4,), scale=True)}
PUBLISHED = AttentionNeuronConfig(key_map=KeyMap.NLA_PUBLISHED)
TOLERANCE = 1e-3  # as of the properties of scalar sensors


def run(policy, observations):
    """Actions, codes and attention along a sequence of T x N x F."""
    carry, steps = policy.initial_carry(observations.shape[1:]), []
    for observation in np.asarray(observations):
        action, carry, trace = policy_step(policy, observation, carry)
        steps.append((action, trace.code, trace.attention))
    return [np.stack(each) for each in zip(*steps, strict=True)]


def entities(seed, count, steps=5, absent=0.0):
    random = np.random.default_rng(seed)
    rows = random.normal(size=(steps, count, FEATURES)).astype(np.float32)
    rows[random.random((steps, count)) < absent] = np.nan
    return rows


def same(one, other):
    for a, b in zip(one[:2], other[:2], strict=True):
        np.testing.assert_allclose(a, b, atol=TOLERANCE)


# A few numbers: each is compiled for
counts_and_order = st.sampled_from([1, 2, 5, 12]).flatmap(
    lambda count: st.tuples(st.just(count), st.permutations(range(count)).map(np.array))
)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=15)
@given(case=counts_and_order, seed=st.integers(0, 2**16), absent=st.sampled_from([0.0, 0.4]))
def test_any_order_of_any_number_gives_the_same_actions(name, case, seed, absent):
    count, order = case
    policy = POLICIES[name].build((5, FEATURES), 2, jax.random.key(seed))
    rows = entities(seed, count, absent=absent)
    same(run(policy, rows), run(policy, rows[:, order]))


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**16), count=st.sampled_from([1, 2, 5]), more=st.sampled_from([1, 3, 7])
)
def test_absent_entities_change_nothing(name, seed, count, more):
    policy = POLICIES[name].build((5, FEATURES), 2, jax.random.key(seed))
    rows = entities(seed, count, absent=0.2)
    padded = np.pad(rows, ((0, 0), (0, more), (0, 0)), constant_values=np.nan)
    padded[:, count, 1] = 7.0  # NaN in one feature is enough
    same(run(policy, rows), run(policy, padded))
    attention = run(policy, padded)[2]
    assert not np.asarray(attention)[:, :, count:].any()


@pytest.mark.parametrize("name", POLICIES)
def test_an_entity_that_comes_back_is_a_new_one(name):
    """A memory that outlived an absence would be that of whoever was in this row before."""
    policy = POLICIES[name].build((2, FEATURES), 1, jax.random.key(0))
    before, after = entities(1, 2, steps=3), entities(2, 2, steps=2)
    gap = np.full((1, 2, FEATURES), np.nan, np.float32)
    carry = policy.initial_carry((2, FEATURES))
    for rows in (*before, *gap):
        _, carry, _ = policy_step(policy, rows, carry)
    blank = policy.initial_carry((2, FEATURES))
    jax.tree.map(np.testing.assert_array_equal, carry.memory, blank.memory)
    jax.tree.map(np.testing.assert_array_equal, carry.previous, blank.previous)
    assert np.isfinite(np.asarray(policy_step(policy, after[0], carry)[0])).all()


@pytest.mark.parametrize("name", POLICIES)
def test_gradients_are_finite_whatever_is_absent(name):
    policy = POLICIES[name].build((4, FEATURES), 1, jax.random.key(0))
    rows = entities(0, 4, steps=3, absent=0.5)
    rows[1] = np.nan  # nothing at all

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(policy):
        carry, loss = policy.initial_carry(rows.shape[1:]), 0.0
        for observation in rows:
            action, carry, _ = policy.step(jnp.asarray(observation), carry)
            loss += jnp.sum(action**2)
        return loss

    for leaf in jax.tree.leaves(gradient(policy)):
        assert np.isfinite(np.asarray(leaf)).all()


@pytest.mark.parametrize("name", POLICIES)
def test_the_number_may_change_from_call_to_call(name):
    """Rows that are gone are forgotten, further ones begin blank: as if they had been absent."""
    policy = POLICIES[name].build((5, FEATURES), 1, jax.random.key(0))
    rows = entities(0, 7, steps=4)
    counts = (5, 7, 3, 3)
    carry = policy.initial_carry((counts[0], FEATURES))
    absent = policy.initial_carry((7, FEATURES))
    for observation, count in zip(rows, counts, strict=True):
        action, carry = policy(observation[:count], carry)
        padded = np.where(np.arange(7)[:, None] < count, observation, np.nan)
        expected, absent = policy(padded, absent)
        np.testing.assert_allclose(action, expected, atol=TOLERANCE)


def test_one_feature_is_a_scalar_sensor():
    config = AttentionNeuronConfig(with_change=True, code_feedback=True)
    scalar = config.build(4, 1, jax.random.key(0))
    rows = config.build((4, 1), 1, jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, scalar, rows)
    readings = entities(0, 4)[:, :, 0]
    carry, of_rows = scalar.initial_carry(4), scalar.initial_carry((4, 1))
    for reading in readings:
        action, carry = scalar(reading, carry)
        same_action, of_rows = scalar(reading[:, None], of_rows)
        np.testing.assert_allclose(action, same_action, atol=1e-6)


@pytest.mark.parametrize("kind", [AttentionNeuron, DeepSets, SetTransformer])
def test_parameters_grow_with_the_features_alone(kind):
    layer = kind(2, num_features=FEATURES, key=jax.random.key(0))
    assert layer.lstm.weight_ih.shape[1] == FEATURES + 2
    pooled = layer(jnp.asarray(entities(0, 6)[0]), jnp.zeros(2), layer.initial_memory(6))
    assert pooled.attention.shape[1] == 6
    for count in (1, 50):
        policy = AttentionNeuronConfig().build((count, FEATURES), 1, jax.random.key(0))
        assert num_parameters(policy) == 913 + 32 * 2 + 16 * 2  # of the LSTM, and of the controller


def test_blocks_give_the_same_code():
    layer = AttentionNeuron(1, num_features=FEATURES, block_size=3, key=jax.random.key(0))
    rows, memory = jnp.asarray(entities(0, 8, absent=0.3)[0]), layer.initial_memory(8)
    pooled = layer(rows, jnp.ones(1), memory)
    code, after = layer.code(rows, jnp.ones(1), memory)
    np.testing.assert_allclose(code, pooled.code, atol=1e-6)
    np.testing.assert_allclose(after.hidden, pooled.memory.hidden, atol=1e-6)


def test_nla_as_published_is_tied_to_its_number():
    policy = PUBLISHED.build((4, FEATURES), 1, jax.random.key(0))
    check_policy(policy, (4, FEATURES))
    with pytest.raises(ConfigError, match="takes exactly 4 sensors, got 5"):
        policy.initial_carry((5, FEATURES))
    rows = entities(0, 4)
    one, other = rows.copy(), rows.copy()
    one[:, 2], other[:, 2] = np.nan, [np.nan, 3.0, -1.0]
    same(run(policy, one), run(policy, other))


@pytest.mark.parametrize("name", POLICIES)
def test_contract(name):
    check_policy(POLICIES[name].build((5, FEATURES), 2, jax.random.key(0)), (5, FEATURES))


def test_what_is_no_set_of_entities_is_refused():
    policy = AttentionNeuronConfig().build((5, FEATURES), 1, jax.random.key(0))
    carry = policy.initial_carry((2, FEATURES))
    for wrong in (np.zeros(3), np.zeros((2, 4)), np.zeros((0, 3)), np.zeros((1, 2, 3))):
        with pytest.raises(ObservationError, match=r"one matrix of N rows of 3 feature\(s\), got"):
            policy(wrong, carry)
    with pytest.raises(ObservationError, match="Feature 2 of entity 1 reads inf"):
        policy(np.array([[0, 0, np.nan], [0, 0, np.inf]]), carry)
    with pytest.raises(ConfigError, match="entities of 3 features, not 5 scalar sensor"):
        policy.initial_carry(5)
    with pytest.raises(ConfigError, match="entities of 3 features, not 2 entities of 4 feature"):
        policy.initial_carry((2, 4))
    with pytest.raises(ConfigError, match=r"cannot take 5 entities of 3 .*observe=flat"):
        FeedForwardConfig().build((5, 3), 1, jax.random.key(0))
    with pytest.raises(ConfigError, match="at least one sensor, got 0"):
        AttentionNeuronConfig().build((0, 3), 1, jax.random.key(0))


ON_ROWS = [
    *(Identity(), Shuffle(), Reshuffle(2), Duplicate(3), DuplicateSome(3)),
    *(NoiseChannels(4), Drop(2), Silence(2)),
]


@settings(max_examples=25)
@given(parts=st.lists(st.sampled_from(ON_ROWS), max_size=2), seed=st.integers(0, 1000))
def test_perturbations_move_whole_rows(parts, seed):
    perturbation = compose(*parts)
    check_perturbation(perturbation, (6, FEATURES))
    key, rows = jax.random.key(seed), jnp.asarray(entities(seed, 6, steps=1, absent=0.3)[0])
    state = perturbation.init(key, rows.shape)
    for step in range(3):
        shown, state = perturbation.apply(jax.random.fold_in(key, step), state, rows)
        source = np.asarray(perturbation.sensor_of_channel(state, rows.shape))
        for row, of in zip(np.asarray(shown), source, strict=True):
            silent = Silence(2) in parts and not row.any()
            if of >= 0 and not silent:
                np.testing.assert_array_equal(row, rows[of])


def test_a_choice_of_perturbations_is_filled_up_with_absent_entities():
    perturbation = OneOf((Shuffle(), NoiseChannels(3)))
    check_perturbation(perturbation, (4, FEATURES))
    assert perturbation.output_spec((4, FEATURES)) == (7, FEATURES)
    counts = set()
    for seed in range(8):
        state = perturbation.init(jax.random.key(seed), (4, FEATURES))
        shown, _ = perturbation.apply(jax.random.key(0), state, jnp.ones((4, FEATURES)))
        absent = np.isnan(np.asarray(shown))
        assert (absent.all(axis=1) == absent.any(axis=1)).all()
        counts.add(int((~absent[:, 0]).sum()))
    assert counts == {4, 7}


def test_silent_entities_read_zero_and_absent_ones_stay_absent():
    rows = jnp.asarray([[jnp.nan] * 3] * 4 + [[1.0, 2.0, 3.0]] * 4)
    state = Silence(5).init(jax.random.key(1), rows.shape)
    shown = np.asarray(Silence(5).apply(jax.random.key(0), state, rows)[0])
    assert np.isnan(shown[:4]).all()
    assert set(shown[4:].sum(axis=1)) <= {0.0, 6.0}
    assert (shown[4:] == 0).any()


def test_in_a_row_absent_entities_read_zero():
    assert as_vector(jnp.array([[1.0, jnp.nan], [2.0, 3.0]])).tolist() == [0, 0, 2, 3]
