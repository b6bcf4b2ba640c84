"""Entities of Gymnasium environments: how they are asked for, what is absent, and runs with them."""

import contextlib
import dataclasses
import json
import re

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import example, given
from hypothesis import strategies as st

from sensorium.bridges.observations import EntityObservation
from sensorium.bridges.open_env import EnvName, open_env
from sensorium.bridges.spaces import EntityBox
from sensorium.bridges.wrappers import PerturbObservation
from sensorium.errors import ConfigError, SensoriumError, UnknownNameError, WorldError
from sensorium.evaluation import evaluate
from sensorium.perturbations import (
    Drop,
    Duplicate,
    NoiseChannels,
    OneOf,
    Reshuffle,
    Shuffle,
    Silence,
    compose,
)
from sensorium.policies import AttentionNeuronConfig, FeedForwardConfig
from sensorium.recipes import RECIPES, Recipe
from sensorium.rollout import HostEngine, check_world_name, make_world
from sensorium.world_names import with_options

ROWS = "gym:tests.host_worlds:Rows-v0"
PRESENCE = f"{ROWS}?observe=entities&presence=0"
NAN = f"{ROWS}?show=nan&observe=entities"
MASK = f"{ROWS}?show=mask&observe=entities&mask=there"


def test_a_matrix_is_asked_about_and_both_answers_are_given():
    with pytest.raises(ConfigError) as refused:
        make_world(ROWS)
    sentence = str(refused.value)
    assert "observes a matrix of 4 x 3" in sentence
    (entities, flat) = re.search(r"append (\S+) if .* or (\S+) for 12", sentence).groups()
    assert make_world(ROWS + entities).observation_spec == (4, 3)
    assert make_world(ROWS + flat).observation_spec == 12
    with pytest.raises(ConfigError, match=r"append &observe=entities if .*&observe=flat for 27"):
        make_world(f"{ROWS}?count=9")
    with pytest.raises(ConfigError, match=r"6 x 7: .* an image in grey needs a third axis"):
        make_world("gym:tests.host_worlds:Grid-v0")


def test_column_nan_and_mask_give_the_same_entities():
    shown = []
    for name in (PRESENCE, NAN, MASK):
        env = open_env(name.removeprefix("gym:"))
        assert isinstance(env.observation_space, EntityBox)
        rows = [env.reset(seed=3)[0]] + [env.step(0)[0] for _ in range(6)]
        assert all(env.observation_space.contains(row) for row in rows)
        shown.append(np.stack(rows))
        env.close()
    column, nan, mask = shown
    assert column.dtype == np.float32
    assert column.shape == (7, 4, 3)
    absent = np.isnan(column).any(axis=2)
    assert absent.any()
    assert (absent == np.isnan(column).all(axis=2)).all()
    np.testing.assert_array_equal(column, nan)
    np.testing.assert_array_equal(column, mask)


@pytest.mark.parametrize("name", [PRESENCE, NAN, MASK, f"{ROWS}?observe=flat"])
def test_experts_receive_what_the_environment_shows(name):
    world = make_world(name)
    env, own = (
        world.opener()(),
        gymnasium.make(
            "tests.host_worlds:Rows-v0", disable_env_checker=True, **EnvName.parse(name).settings
        ),
    )
    ours = np.stack([env.reset(seed=seed)[0] for seed in range(3)])
    theirs = [own.reset(seed=seed)[0] for seed in range(3)]
    each = world.to_each_own_observation(ours)
    together = world.to_own_observations(ours)
    for place, shown in enumerate(theirs):
        if name == MASK:
            there = shown["there"].astype(bool)
            np.testing.assert_array_equal(each[place]["there"], shown["there"])
            np.testing.assert_array_equal(each[place]["things"][there], shown["things"][there])
            assert not each[place]["things"][~there].any()
            np.testing.assert_array_equal(together["things"][place], each[place]["things"])
            assert world.own_observation_space.contains(each[place])
        else:
            np.testing.assert_array_equal(each[place], shown)
            np.testing.assert_array_equal(together[place], shown)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("observe=entites", "no way to observe 'entites'; did you mean 'entities'"),
        ("observe=5", "no way to observe '5'; there are 'entities', 'flat'"),
        ("", "behind [?] stand options of the form name=value"),
        ("observe", "behind [?] stand options of the form name=value, joined by &, not 'observe'"),
        ("observe=flat&", "not ''"),
        ("observe=flat&observe=flat", "the option observe is there twice"),
        ("presence=0", "presence and mask go with observe=entities"),
        ("observe=flat&mask=there", "presence and mask go with observe=entities"),
        ("observe=entities&presence=3", "presence=3 is none of the 3 features"),
        ("observe=entities&presence=-1", "counted from 0, not -1"),
        ("observe=entities&presence=x", "counted from 0, not 'x'"),
        (
            "observe=entities&mask=there",
            "mask=there is for a Dict of a matrix and 'there', not for",
        ),
        ("show=mask&observe=entities&mask=here", "mask=here is for a Dict"),
        ("show=mask&observe=entities", "Entities are the rows of a Box"),
        ("observe=entities&colour=red", "cannot open .* unexpected keyword argument 'colour'"),
        ('observe=entities&config={"a": 1', "is no JSON"),
        ("observe=entities&render_mode=human", "render_mode is chosen by"),
    ],
)
def test_options_that_cannot_be_used_are_one_sentence(options, sentence):
    with pytest.raises((ConfigError, UnknownNameError), match=sentence):
        make_world(f"{ROWS}?{options}")


def test_options_belong_to_environments_of_gymnasium():
    with pytest.raises(UnknownNameError, match=r"did you mean 'gym:CartPole-v1\?observe=flat'"):
        make_world("CartPole-v1?observe=flat")
    with pytest.raises(ConfigError, match="Entities are the rows"):
        make_world("gym:CartPole-v1?observe=entities")
    assert make_world("gym:CartPole-v1?observe=flat&max_episode_steps=7").max_steps == 7
    with pytest.raises(UnknownNameError, match="no way to observe"):
        check_world_name("gym:CartPole-v1?observe=rows")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.from_regex(r"[a-z][a-z_]{0,5}", fullmatch=True), VALUES, min_size=1))
@example({"config": {"a": "b&c=d?e", "n": [1.5, None]}})
def test_options_are_read_as_they_were_written(settings):
    for ours in ("observe", "presence", "mask", "render_mode"):
        settings.pop(ours, None)
    text = "&".join(f"{key}={json.dumps(value)}" for key, value in settings.items())
    name = f"Any-v0?observe=entities{'&' if text else ''}{text}"
    parsed = EnvName.parse(name)
    assert (parsed.id, parsed.layout.observe, parsed.settings) == ("Any-v0", "entities", settings)
    changes = {"a": "b&c=d", "variant": "text"}
    changed = dataclasses.replace(parsed, settings=settings | changes)
    assert EnvName.parse(with_options(name, **changes)) == changed


@given(st.text(max_size=20))
def test_no_options_are_a_traceback(text):
    with contextlib.suppress(SensoriumError):
        EnvName.parse(f"Any-v0?{text}")


def test_options_are_kept_in_a_recipe():
    name = f'{ROWS}?observe=entities&presence=0&count=7&show="presence"'
    recipe = dataclasses.replace(RECIPES["cartpole-pi"], env=name)
    again = Recipe.from_json(json.loads(json.dumps(recipe.to_json())))
    assert again == recipe
    assert again.make_world().observation_spec == (7, 3)
    assert again.outline().num_features == 3


@pytest.fixture(scope="module")
def agent():
    config = AttentionNeuronConfig(code_feedback=True, with_change=True)
    return config.build((4, 3), (3,), jax.random.key(0))


@pytest.mark.parametrize(
    "perturbation",
    [Shuffle(), Reshuffle(2), compose(Shuffle(), Drop(1)), Silence(1), NoiseChannels(2)],
    ids=str,
)
def test_perturbations_act_on_rows_in_every_engine(agent, perturbation):
    keys = jax.random.split(jax.random.key(0), 3)
    with HostEngine(make_world(PRESENCE, perturbation), workers=0) as engine:
        episodes = engine.run_episodes(agent, keys)
    assert np.isfinite(episodes.total).all()
    env = PerturbObservation(open_env(PRESENCE.removeprefix("gym:")), perturbation)
    shown, _ = env.reset(seed=1)
    count = perturbation.output_spec((4, 3))[0]
    assert shown.shape == env.observation_space.shape == (count, 3)
    assert env.observation_space.contains(shown)


def test_order_number_and_absent_rows_do_not_change_a_return(agent):
    plain = evaluate(agent, PRESENCE, episodes=5)
    for name, perturbation in (
        (PRESENCE, Shuffle()),
        (NAN, None),
        (MASK, OneOf((Shuffle(), compose(Shuffle(), Shuffle())))),
    ):
        scores = evaluate(agent, name, perturbation, episodes=5)
        np.testing.assert_array_equal(scores.returns, plain.returns)
    assert evaluate(agent, f"{PRESENCE}&count=15", Duplicate(2), episodes=2).episodes == 2
    assert evaluate(agent, f"{PRESENCE}&count=1", episodes=2).episodes == 2


def test_agents_of_scalars_say_what_to_do_about_entities(agent):
    fixed = FeedForwardConfig()
    with pytest.raises(ConfigError, match=r"4 entities of 3 .*observe=flat"):
        fixed.build((4, 3), 3, jax.random.key(0))
    flat = make_world(f"{ROWS}?observe=flat")
    policy = fixed.build(flat.observation_spec, flat.actions, jax.random.key(0))
    assert evaluate(policy, f"{ROWS}?observe=flat", episodes=2).episodes == 2
    with pytest.raises(ConfigError, match=r"4 entities of 3 .*observe=flat"):
        evaluate(policy, PRESENCE, episodes=2)
    with pytest.raises(ConfigError, match="entities of 3 features, not 12 scalar sensor"):
        evaluate(agent, f"{ROWS}?observe=flat", episodes=2)


class Broken(gymnasium.Env):
    """Shows entities, one of which is infinitely far away."""

    def __init__(self):
        self.observation_space = spaces.Box(-1, 1, (2, 2), np.float64)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.array([[np.nan, 1.0], [np.inf, 0.0]]), {}


def test_infinity_is_an_error_and_nan_is_not():
    gymnasium.register("Broken-v0", entry_point=Broken)
    try:
        with pytest.raises(WorldError, match="Broken-v0 reset: the observation holds inf"):
            open_env("Broken-v0?observe=entities").reset(seed=0)
    finally:
        gymnasium.registry.pop("Broken-v0")


def test_a_matrix_is_wrapped_before_it_is_perturbed():
    env = gymnasium.make("tests.host_worlds:Rows-v0", disable_env_checker=True)
    with pytest.raises(ConfigError, match=r"matrix of 4 x 3: wrap it in .*EntityObservation"):
        PerturbObservation(env, Shuffle())
    wrapped = PerturbObservation(EntityObservation(env, presence=0), Shuffle())
    shown, _ = wrapped.reset(seed=0)
    assert jnp.isnan(shown).any()


@pytest.mark.parametrize(
    ("env_id", "counts", "settings"),
    [
        ("highway-v0", (5, 3, 15), {"vehicles_count": 6}),
        ("intersection-v1", (5,), {"initial_vehicle_count": 2, "spawn_probability": 0}),
    ],
)
def test_agents_of_highway_env_take_any_number_of_vehicles(env_id, counts, settings):
    pytest.importorskip("highway_env", reason="highway-env is not installed")
    name = f"gym:highway_env:{env_id}?max_episode_steps=3"

    def of(vehicles):
        observed = {"type": "Kinematics", "vehicles_count": vehicles}
        config = json.dumps({"observation": observed, "simulation_frequency": 5, **settings})
        return f"{name}&observe=entities&presence=0&config={config}"

    world = make_world(of(5))
    assert world.observation_spec[0] == 5
    assert world.max_steps == 3
    config = AttentionNeuronConfig(code_feedback=True, with_change=True)
    policy = config.build(world.observation_spec, world.actions, jax.random.key(0))
    keys = jax.random.split(jax.random.key(0), 2)
    for vehicles in counts:
        totals = []
        for perturbation in (None, Shuffle()):
            with HostEngine(make_world(of(vehicles), perturbation), workers=0, lanes=2) as engine:
                totals.append(engine.run_episodes(policy, keys).total)
        np.testing.assert_allclose(*totals, atol=1e-4)
    with pytest.raises(ConfigError, match=r"observes a matrix of .*&observe=entities"):
        make_world(name)
