"""Worlds that the demo knows nothing of: shown as they draw themselves, or by their sensors alone."""

import dataclasses
import logging
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium import envs, recipes, registry
from sensorium.demo.actors import AgentCatalog
from sensorium.demo.messages import Controls, Message, unpack
from sensorium.demo.session import Session
from sensorium.errors import ConfigError, SensoriumError
from sensorium.evaluation import evaluate
from sensorium.policies import ConvolutionalConfig, Reading, VisionAttentionNeuronConfig
from sensorium.rollout import make_world
from sensorium.zoo import Agent

SMALL_VISION = VisionAttentionNeuronConfig(num_queries=16, top=4, hidden_rows=0)


@pytest.fixture
def start_in(tmp_path):
    """Begin sessions of untrained agents in any world, and close them at the end."""
    sessions = []

    def begin(env, recipe="cartpole-pi", **changes):
        recipe = dataclasses.replace(recipes.find(recipe), env=env, **changes)
        Agent(recipe.draw_policy(jax.random.key(0)), recipe, {}).save(tmp_path / "mine.safetensors")
        catalog = AgentCatalog({"mine": str(tmp_path / "mine.safetensors")})
        sessions.append(Session(catalog, Controls(agent="mine")))
        return sessions[-1]

    yield begin
    for session in sessions:
        session.close()


def look(session):
    header, arrays = unpack(session.frame())
    return header | arrays


def test_a_gymnasium_environment_is_shown_as_it_draws_itself(start_in):
    session = start_in("gym:tests.host_worlds:Walk-v0")
    about = session.about()
    assert about["drawing"] == "rendered"
    assert about["rate"] == 30  # frames a second, as it says itself
    assert about["sensors"] == ["sensor 0", "sensor 1"]
    for time in range(4):
        seen = look(session)
        assert seen["view"].shape == (8, 8, 3)
        assert (seen["view"] == time).all()
        session.advance(1)
    session.handle(Message("set", 1, {"wiring": 3, "noise": 5, "copies": 2}))
    session.advance(1)
    assert look(session)["channel"].shape == (9,)


@pytest.mark.parametrize("name", ["Mute", "Undrawable"])
def test_of_one_that_cannot_draw_itself_the_sensors_are_shown(start_in, name, caplog):
    with caplog.at_level(logging.WARNING, "sensorium.demo"):
        session = start_in(f"gym:tests.host_worlds:{name}-v0")
    assert session.about()["drawing"] == "none"
    session.advance(2)
    seen = look(session)
    assert "view" not in seen
    assert seen["level"].any()
    assert ("no graphics library" in caplog.text) == (name == "Undrawable")


def test_large_images_are_sent_smaller(start_in):
    pytest.importorskip("pygame", reason="Gymnasium draws its worlds with pygame")
    session = start_in("gym:Pendulum-v1")
    session.advance(5)
    view = look(session)["view"]
    assert view.shape == (320, 320, 3)
    assert view.std() > 20
    other = start_in("gym:MountainCarContinuous-v0")
    assert look(other)["view"].shape == (213, 320, 3)


class Own(envs.CartPoleSwingUpHarder):
    """A world that somebody has added: it draws itself, and says a few facts."""

    id = "Own"
    drawing = ""
    failure = "hit the wall"
    steps_per_second = 25
    solved_return = math.inf
    sensor_names = ("a", "b", "c", "d", "e")
    can_be_pushed = False


class Unseen(envs.Environment):
    """One that says no more than it must."""

    id = "Unseen"
    num_sensors = 2
    num_actions = 1
    max_steps = 4
    default_params = None

    class State(NamedTuple):
        time: jax.Array

    def reset_env(self, key, params):
        state = self.State(jnp.zeros((), jnp.int32))
        return self.observe(state), state

    def step_env(self, key, state, action, params):
        state = self.State(state.time + 1)
        return self.observe(state), state, action[0], state.time > 2, {}

    def observe(self, state):
        return jnp.stack([state.time.astype(jnp.float32), jnp.ones(())])


def test_a_world_of_ones_own_is_shown_by_what_it_says(start_in, monkeypatch):
    for world in (Own, Unseen):
        monkeypatch.setitem(registry._parts, world.id, world)
    session = start_in("Own")
    before = look(session)["view"]
    session.advance(20)
    after = look(session)["view"]
    about = session.about()
    assert about["drawing"] == "rendered"
    assert (about["rate"], about["failure"], about["solved"]) == (25, "hit the wall", None)
    assert (about["sensors"], about["can_be_pushed"]) == (["a", "b", "c", "d", "e"], False)
    assert before.shape == (213, 320, 3)
    assert np.abs(after.astype(int) - before).max() > 100


def test_a_world_that_says_no_more_than_it_must_is_shown_and_scored(start_in, monkeypatch):
    monkeypatch.setitem(registry._parts, Unseen.id, Unseen)
    session = start_in("Unseen")
    about = session.about()
    assert (about["drawing"], about["sensors"]) == ("none", ["sensor 0", "sensor 1"])
    session.handle(Message("push", 1, 1.0))
    session.handle(Message("set", 1, {"noise": 2, "wiring": 3}))
    session.advance(9)
    seen = look(session)
    assert "view" not in seen
    assert seen["agent"] == {"total": seen["agent"]["total"], "time": 3, "ended": "failed"}
    agent = session._actors.agent
    assert evaluate(agent.policy, "Unseen", episodes=4).summary.solved is None
    assert make_world("Unseen").scored_episodes == 1000


@pytest.fixture
def cars():
    """Gymnasium's own CarRacing."""
    for library in ("Box2D", "pygame"):
        pytest.importorskip(library, reason="the extra racing is not installed")
    return "gym:CarRacing-v3"


def test_our_agents_drive_gymnasiums_own_car_racing(cars, catalog, tmp_path):
    """The agent of our CarRacing, in images that another simulator has drawn."""
    agent = catalog.actors("carracing-attention-agent").agent
    recipe = dataclasses.replace(agent.recipe, env=cars)
    Agent(agent.policy, recipe, {}).save(tmp_path / "mine.safetensors")
    session = Session(
        AgentCatalog({"mine": str(tmp_path / "mine.safetensors")}), Controls(agent="mine")
    )
    assert session.about()["drawing"] == "image"
    session.handle(Message("set", 1, {"background": "waves", "modify": "bars", "hidden": (3,)}))
    session.advance(80)
    seen = look(session)
    assert seen["image"].dtype == seen["arrived"].dtype == np.uint8
    assert not seen["arrived"][10:80, :6].any()  # a bar
    assert seen["importance"].shape == (len(session.about()["corners"]),)
    assert seen["agent"]["total"] > 0
    # The baseline has an environment of its own
    assert session.about()["baseline"] == "carracing-cnn"
    assert seen["baseline"]["total"] != seen["agent"]["total"]
    session.close()


def test_grey_images_have_patches_but_no_colours(start_in):
    session = start_in("gym:tests.host_worlds:GreyStripes-v0", policy=SMALL_VISION)
    assert not session.about()["in_colour"]
    session.handle(Message("set", 1, {"hidden": (0,), "wiring": 3}))
    session.advance(2)
    seen = look(session)
    assert seen["image"].shape == seen["arrived"].shape == (12, 18, 3)
    assert not np.array_equal(seen["image"], seen["arrived"])
    assert seen["importance"].shape == (6,)
    for changes in ({"background": "waves"}, {"modify": "bars"}):
        with pytest.raises(ConfigError, match="no background or colours"):
            session.handle(Message("set", 2, changes))
    with pytest.raises(ConfigError, match="no variants"):
        session.handle(Message("set", 2, {"variant": "walls"}))


def test_a_visitor_plays_instead_of_the_agent(start_in):
    pytest.importorskip("ale_py", reason="the extra `atari` is not installed")
    policy = VisionAttentionNeuronConfig(
        num_queries=4, message_size=4, reading=Reading.WHOLE, reader_size=4, hidden_rows=0
    )
    session = start_in("gym:ALE/Pong-v5?repeat_action_probability=0", policy=policy)
    assert session.about()["actions"] == ["nothing", "fire", "up", "down", "up fire", "down fire"]
    paddle = {}
    for name, action in (("up", 2), ("down", 3)):
        session.handle(Message("reset", 1, 5))
        session.handle(Message("act", 2, action))
        session.advance(4)
        column = look(session)["image"][16:75, 74, 0]  # nothing but the paddle is ever in there
        paddle[name] = np.flatnonzero(np.abs(column - 87.0) > 20).mean()
    assert paddle["up"] + 20 < paddle["down"]
    session.handle(Message("act", 3, -1))
    session.advance(2)
    with pytest.raises(ConfigError, match="There are 6 actions"):
        session.handle(Message("act", 4, 6))


def test_a_visitor_chooses_how_the_world_looks(start_in):
    pytest.importorskip("vizdoom", reason="the extra `doom` is not installed")
    env = "gym:sensorium/TakeCover-v0?width=160&discrete=true"
    session = start_in(env, policy=SMALL_VISION)
    assert session.about()["variants"] == ["plain", "walls", "floor", "text", "colour", "noise"]
    session.advance(3)
    looks = {"plain": look(session)["image"]}
    own_words = {"variant": "text", "text": ""}
    for name, changes in {
        "walls": {"variant": "walls"},
        "floor": {"variant": "floor", "text": "not shown"},
        "own words": own_words,
        "HELLO": {"variant": "text", "text": "HELLO & GOODBYE?"},
        "noise": {"variant": "noise"},
        "back": {"variant": "", "text": ""},
    }.items():
        session.handle(Message("set", 1, changes))
        assert look(session)["agent"]["time"] == 0  # the same start, anew
        session.advance(3)
        looks[name] = look(session)["image"]
    np.testing.assert_array_equal(looks.pop("back"), looks["plain"])
    names = list(looks)
    for place, name in enumerate(names):
        assert not any(np.array_equal(looks[name], looks[other]) for other in names[:place])
    before = session.controls
    with pytest.raises(SensoriumError, match="no variant of this world 'wals'; did you mean"):
        session.handle(Message("set", 2, {"variant": "wals"}))
    assert session.controls == before
    session.advance(1)


def test_nobody_plays_where_actions_have_no_names(start_in):
    session = start_in("gym:tests.host_worlds:GreyStripes-v0", policy=SMALL_VISION)
    assert session.about()["actions"] == []
    with pytest.raises(ConfigError, match="There are 0 actions"):
        session.handle(Message("act", 1, 0))


def test_an_agent_without_patches_is_shown_too(cars, start_in):
    small = ConvolutionalConfig(channels=(2,), windows=(8,), strides=(8,), hidden_sizes=())
    session = start_in(cars, "carracing-netrand", policy=small)
    assert session.about()["attends"] == "to all pixels"
    session.handle(Message("shuffle", 1))
    session.advance(2)
    seen = look(session)
    assert "importance" not in seen
    assert not np.array_equal(seen["image"], seen["arrived"])
