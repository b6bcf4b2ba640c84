"""Each perturbation does what its name says, and says where each channel comes from."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorium.errors import ConfigError
from sensorium.flags import PerturbationFlags
from sensorium.layers import KeyMap
from sensorium.perturbations import (
    Compose,
    Drop,
    Duplicate,
    DuplicateSome,
    Identity,
    NoiseChannels,
    OneOf,
    Reshuffle,
    Shuffle,
    ShufflePatches,
    Silence,
    check_perturbation,
    compose,
)
from sensorium.policies import AttentionNeuronConfig, as_population
from sensorium.recipes import Recipe, Stage
from sensorium.rollout import EngineConfig, open_engine
from sensorium.training import EvolutionConfig

SINGLE = [
    *(Identity(), Shuffle(), Reshuffle(2), Duplicate(3), DuplicateSome(3)),
    *(NoiseChannels(4), Drop(2), Silence(2)),
]
READINGS = jnp.array([1.0, 2.0, 3.0, 4.0, 5.0])


def run(perturbation, steps, key=None):
    key = jax.random.key(0) if key is None else key
    state = perturbation.init(key, 5)
    shown, sources = [], []
    for step in range(steps):
        channels, state = perturbation.apply(jax.random.fold_in(key, step), state, READINGS)
        shown.append(np.asarray(channels))
        sources.append(np.asarray(perturbation.sensor_of_channel(state, 5)))
    return np.stack(shown), np.stack(sources)


@pytest.mark.parametrize("perturbation", SINGLE, ids=str)
def test_contract(perturbation):
    check_perturbation(perturbation)


@settings(max_examples=25, deadline=None)
@given(parts=st.lists(st.sampled_from(SINGLE[1:5]), max_size=3), seed=st.integers(0, 1000))
def test_sources_name_where_every_channel_comes_from(parts, seed):
    perturbation = compose(*parts)
    check_perturbation(perturbation)
    shown, sources = run(perturbation, 5, jax.random.key(seed))
    known = sources >= 0
    np.testing.assert_array_equal(shown[known], np.asarray(READINGS)[sources[known]])


def test_shuffle_holds_for_an_episode_and_differs_between_episodes():
    orders = set()
    for seed in range(10):
        shown, _ = run(Shuffle(), 4, jax.random.key(seed))
        assert (shown == shown[0]).all()
        assert sorted(shown[0]) == [1, 2, 3, 4, 5]
        orders.add(tuple(shown[0]))
    assert len(orders) > 5


def test_reshuffle_changes_only_when_it_is_time():
    shown, _ = run(Reshuffle(3), 30)
    blocks = shown.reshape(10, 3, 5)
    assert (blocks == blocks[:, :1]).all()
    assert len({tuple(block[0]) for block in blocks}) > 5


@pytest.mark.parametrize("steps", [1, 3, 4, 5, 20])
def test_what_is_seen_within_some_steps_is_what_happens_in_them(steps):
    whole = compose(NoiseChannels(1), Reshuffle(4))
    within = whole.within(steps)
    for ours, theirs in zip(run(whole, steps), run(within, steps), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    _, sources = run(within, steps)
    assert ("reshuffled every 4" in str(within)) == (len(np.unique(sources, axis=0)) > 1)


def test_duplicate_repeats_and_asks_for_half_the_code():
    shown, _ = run(Duplicate(2), 1)
    np.testing.assert_array_equal(shown[0], [1, 2, 3, 4, 5] * 2)
    assert Duplicate(2).code_scale == 0.5
    assert compose(Duplicate(2), Shuffle(), Duplicate(2)).code_scale == 0.25


def test_some_have_copies_for_an_episode_and_the_rest_is_absent():
    numbers, copied = set(), set()
    for seed in range(30):
        shown, sources = run(DuplicateSome(3), 3, jax.random.key(seed))
        np.testing.assert_array_equal(shown[:, :5], np.tile([1, 2, 3, 4, 5], (3, 1)))
        more, of = shown[:, 5:], sources[0, 5:]
        number = (of >= 0).sum()
        assert (of[number:] == -1).all()
        np.testing.assert_array_equal(more, np.tile(np.where(of < 0, 0, of + 1), (3, 1)))
        numbers.add(int(number))
        copied |= set(of[:number].tolist())
    assert numbers == {0, 1, 2, 3}
    assert copied == {0, 1, 2, 3, 4}


def test_noise_has_the_sigma_it_says_and_is_new_every_step():
    shown, sources = run(NoiseChannels(50, 0.3), 40)
    noise = shown[:, 5:]
    assert noise.std() == pytest.approx(0.3, rel=0.05)
    assert abs(noise.mean()) < 0.02
    assert (sources[:, 5:] == -1).all()
    assert np.abs(noise[0] - noise[1]).max() > 0.1


def test_drop_keeps_the_rest_in_order():
    shown, _ = run(Drop(2), 3)
    assert shown.shape == (3, 3)
    assert (np.diff(shown[0]) > 0).all()
    assert (shown == shown[0]).all()


def test_silence_keeps_all_channels_and_sets_some_to_zero():
    masks = set()
    for seed in range(10):
        shown, _ = run(Silence(2), 3, jax.random.key(seed))
        assert ((shown == 0).sum(1) == 2).all()
        assert (shown == shown[0]).all()
        np.testing.assert_array_equal(shown[0][shown[0] != 0], np.asarray(READINGS)[shown[0] != 0])
        masks.add(tuple(shown[0] == 0))
    assert len(masks) > 3


def test_compose_applies_the_first_part_first():
    shown, _ = run(Compose((Duplicate(2), NoiseChannels(1))), 1)
    assert shown.shape == (1, 11)
    shown, _ = run(Compose((NoiseChannels(1), Duplicate(2))), 1)
    assert shown.shape == (1, 12)


def test_compose_of_nothing_and_of_one():
    assert compose() == Identity()
    assert compose(Identity(), Shuffle()) == Shuffle()


def test_flags_make_a_perturbation_and_its_name():
    made = PerturbationFlags(drop=1, duplicate=2, noise_channels=5, shuffle=True).build()
    assert str(made) == "1 dropped + doubled + +5 noise channels + shuffled"
    assert made.output_spec(5) == 13
    assert PerturbationFlags().build() == Identity()


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: Reshuffle(0), "every must be at least 1, got 0"),
        (lambda: Duplicate(0), "copies must be at least 1, got 0"),
        (lambda: NoiseChannels(-1), "at least 0"),
        (lambda: NoiseChannels(1, float("nan")), "at least 0"),
        (lambda: Drop(-1), "at least 0, got -1"),
        (lambda: Drop(5).output_spec(5), "would leave none; drop at most 4"),
        (lambda: Silence(-1), "at least 0, got -1"),
        (lambda: Silence(5).output_spec(5), "would leave none; silence at most 4"),
    ],
)
def test_numbers_out_of_range(build, sentence):
    with pytest.raises(ConfigError, match=sentence):
        build()


def test_one_of_several_is_drawn_for_each_episode():
    either = OneOf((Identity(), Shuffle(), compose(NoiseChannels(1), Drop(1))))
    check_perturbation(either)
    init = jax.jit(lambda key: either.init(key, 5))
    apply, sources = (
        jax.jit(either.apply),
        jax.jit(lambda state: either.sensor_of_channel(state, 5)),
    )
    kinds = set()
    for seed in range(30):
        state = init(jax.random.key(seed))
        before = sources(state)
        shown = []
        for step in range(3):
            seen, state = apply(jax.random.key(step), state, np.arange(5.0, dtype=np.float32))
            np.testing.assert_array_equal(sources(state), before)
            shown.append(np.asarray(seen))
        from_world = np.asarray(before) >= 0
        for seen in shown:  # each channel carries what it is said to
            np.testing.assert_array_equal(seen[from_world], np.asarray(before)[from_world])
        if not from_world.all():
            kinds.add("noise")
        else:
            kinds.add("plain" if (shown[0] == np.arange(5)).all() else "shuffled")
    assert kinds == {"plain", "shuffled", "noise"}


UNLIKE = OneOf((Shuffle(), compose(NoiseChannels(5), Shuffle()), Drop(1)))
"""Parts that give 5, 10 and 4 sensors."""


@pytest.mark.parametrize("choice", range(3))
@pytest.mark.parametrize(
    "config",
    [
        AttentionNeuronConfig(),
        AttentionNeuronConfig(bias=True, scale=True, controller_sizes=(4,), code_feedback=True),
        AttentionNeuronConfig(key_map=KeyMap.NLA_INVARIANT),
    ],
    ids=["paper's", "code fed back", "NLA"],
)
def test_channels_that_fill_up_change_nothing_for_attention_neuron(config, choice, key):
    check_perturbation(UNLIKE)
    policy = config.build(UNLIKE.output_spec(5), 2, key)
    _, states = UNLIKE.init(key, 5)
    part, alone_state, state = UNLIKE.parts[choice], states[choice], (jnp.asarray(choice), states)
    width = part.output_spec(5)
    carry, alone_carry = policy.initial_carry(10), policy.initial_carry(width)
    step, apply = eqx.filter_jit(policy.step), jax.jit(UNLIKE.apply)
    for time, readings in enumerate(jax.random.normal(key, (6, 5))):
        key_step = jax.random.fold_in(key, time)
        shown, state = apply(key_step, state, readings)
        alone, alone_state = part.apply(key_step, alone_state, readings)
        np.testing.assert_allclose(shown, np.pad(alone, (0, 10 - width)), atol=1e-6)
        sources = part.sensor_of_channel(alone_state, 5)
        np.testing.assert_array_equal(
            UNLIKE.sensor_of_channel(state, 5), np.pad(sources, (0, 10 - width), constant_values=-1)
        )
        action, carry, trace = step(shown, carry)
        expected, alone_carry, alone_trace = step(alone, alone_carry)
        np.testing.assert_allclose(trace.code, alone_trace.code, atol=1e-5)
        np.testing.assert_allclose(action, expected, atol=1e-5)


@pytest.mark.parametrize("env", ["CartPoleSwingUpHarder", "gym:tests.host_worlds:Walk-v0"])
def test_sensors_of_different_numbers_are_trained_with(env, monkeypatch):
    monkeypatch.setattr("sensorium.envs.CartPoleSwingUpHarder.max_steps", 10)
    parts = OneOf((Shuffle(), compose(NoiseChannels(3), Shuffle()), Drop(1)))
    recipe = Recipe(
        "mixed",
        "Sensors of different numbers.",
        AttentionNeuronConfig(num_queries=4, message_size=4),
        (Stage("evolution", EvolutionConfig(population=4, num_episodes=6), perturbation=parts),),
        env=env,
    )
    assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe
    with open_engine(
        recipe.make_world(), EngineConfig(workers=0 if ":" in env else None)
    ) as engine:
        policy = as_population(recipe.draw_policy(jax.random.key(0)))
        keys = jax.random.split(jax.random.key(1), 6)
        returns = engine.returns(policy, keys)
    assert np.isfinite(returns).all()
    assert len(np.unique(returns)) == 6


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ((), "at least one"),
        ((Identity(), ShufflePatches()), "happens to images"),
    ],
)
def test_one_of_nothing_or_of_unlike_ones_is_an_error(parts, what):
    with pytest.raises(ConfigError, match=what):
        OneOf(parts).init(jax.random.key(0), 5)
