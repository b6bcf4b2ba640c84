"""Worlds that the demo knows nothing of: they are shown as they draw themselves, or their senses alone."""

import dataclasses
import logging

import jax
import numpy as np
import pytest

from sensorium import envs, recipes
from sensorium.demo.company import Offer
from sensorium.demo.messages import Controls, Message, unpack
from sensorium.demo.session import Session
from sensorium.policies import ConvolutionalConfig
from sensorium.zoo import Agent


@pytest.fixture
def settle_in(tmp_path):
    """Begin sessions of agents that nobody has trained, in any world; and close them."""
    sessions = []

    def begin(env, recipe="cartpole-pi", **changes):
        recipe = dataclasses.replace(recipes.find(recipe), env=env, **changes)
        Agent(recipe.draw_policy(jax.random.key(0)), recipe, {}).save(tmp_path / "mine.safetensors")
        offer = Offer({"mine": str(tmp_path / "mine.safetensors")})
        sessions.append(Session(offer, Controls(agent="mine")))
        return sessions[-1]

    yield begin
    for session in sessions:
        session.close()


def look(session):
    header, arrays = unpack(session.frame())
    return header | arrays


def test_a_gymnasium_environment_is_shown_as_it_draws_itself(settle_in):
    session = settle_in("gym:tests.host_worlds:Walk-v0")
    about = session.about()
    assert about["kind"] == "drawn"
    assert about["rate"] == 30  # frames a second, as it says itself
    assert about["sensors"] == ["sensor 0", "sensor 1"]
    for time in range(4):
        seen = look(session)
        assert seen["view"].shape == (8, 8, 3)
        assert (seen["view"] == time).all()
        session.advance(1)
    session.act(Message("set", 1, {"wiring": 3, "noise": 5, "copies": 2}))
    session.advance(1)
    assert look(session)["wire"].shape == (9,)


@pytest.mark.parametrize("name", ["Mute", "Undrawable"])
def test_of_one_that_cannot_draw_itself_the_senses_are_shown(settle_in, name, caplog):
    with caplog.at_level(logging.WARNING, "sensorium.demo"):
        session = settle_in(f"gym:tests.host_worlds:{name}-v0")
    assert session.about()["kind"] == "nothing"
    session.advance(2)
    seen = look(session)
    assert "view" not in seen
    assert seen["level"].any()
    assert ("no graphics library" in caplog.text) == (name == "Undrawable")


def test_large_pictures_are_sent_smaller(settle_in):
    pytest.importorskip("pygame", reason="Gymnasium draws its worlds with pygame")
    session = settle_in("gym:Pendulum-v1")
    session.advance(5)
    view = look(session)["view"]
    assert view.shape == (320, 320, 3)
    assert view.std() > 20
    other = settle_in("gym:MountainCarContinuous-v0")
    assert look(other)["view"].shape == (213, 320, 3)


class Own(envs.CartPoleSwingUpHarder):
    """A world that somebody has added: it draws itself."""

    id = "Own"


class Unseen(Own):
    """One that does not."""

    id = "Unseen"
    draw = envs.Environment.draw


def test_a_world_of_ones_own_is_shown_as_it_draws_itself(settle_in, monkeypatch):
    for world in (Own, Unseen):
        monkeypatch.setitem(envs.WORLDS, world.id, world)
    session = settle_in("Own")
    before = look(session)["view"]
    session.advance(20)
    after = look(session)["view"]
    assert session.about()["kind"] == "drawn"
    assert before.shape == (213, 320, 3)
    assert np.abs(after.astype(int) - before).max() > 100
    session = settle_in("Unseen")
    assert session.about()["kind"] == "nothing"
    assert "view" not in look(session)


@pytest.fixture
def cars():
    """Gymnasium's own CarRacing."""
    for library in ("Box2D", "pygame"):
        pytest.importorskip(library, reason="the extra racing is not installed")
    return "gym:CarRacing-v3"


def test_gymnasiums_own_cars_are_seen_by_our_agents(cars, offer, tmp_path):
    """The agent of our CarRacing, in pictures that another simulator has drawn."""
    agent = offer.company("carracing-attention-agent").agent
    recipe = dataclasses.replace(agent.recipe, env=cars)
    Agent(agent.policy, recipe, {}).save(tmp_path / "mine.safetensors")
    session = Session(Offer({"mine": str(tmp_path / "mine.safetensors")}), Controls(agent="mine"))
    assert session.about()["kind"] == "picture"
    session.act(Message("set", 1, {"background": "waves", "modify": "bars", "hidden": (3,)}))
    session.advance(80)
    seen = look(session)
    assert seen["picture"].dtype == seen["arrived"].dtype == np.uint8
    assert not seen["arrived"][10:80, :6].any()  # a bar
    assert seen["looked"].shape == (len(session.about()["corners"]),)
    assert seen["lead"]["total"] > 0
    # Its rival drives an environment of its own
    assert session.about()["rival"] == "carracing-cnn"
    assert seen["rival"]["total"] != seen["lead"]["total"]
    session.close()


def test_an_agent_that_looks_at_no_patches_is_shown_too(cars, settle_in):
    small = ConvolutionalConfig(channels=(2,), windows=(8,), strides=(8,), hidden_sizes=())
    session = settle_in(cars, "carracing-netrand", policy=small)
    assert session.about()["looks"] == "everywhere"
    session.act(Message("shuffle", 1))
    session.advance(2)
    seen = look(session)
    assert "looked" not in seen
    assert not np.array_equal(seen["picture"], seen["arrived"])
