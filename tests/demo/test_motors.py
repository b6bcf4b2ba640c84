"""Wires from the outputs of an agent to its motors: swapped, reversed and cut while it acts."""

import contextlib
import dataclasses
import shutil

import jax
import numpy as np
import pytest

from sensorium import recipes, zoo
from sensorium.demo.actors import AgentCatalog
from sensorium.demo.messages import Controls, Message, unpack
from sensorium.demo.motor_wires import WireMotors
from sensorium.demo.session import Session
from sensorium.errors import ConfigError
from sensorium.perturbations import check_perturbation
from sensorium.rollout import make_world
from sensorium.zoo import Agent

BODY = "thrusters-motors"
SWAPPED = (1, 0, 2, 3, 4, 5, 7, 6)


def wire(session, **changes):
    return session.handle(Message("set", 1, changes))


def look(session):
    header, arrays = unpack(session.frame())
    return header | arrays


def jets(pose):
    """The thrust of each motor."""
    return pose[5:].reshape(-1, 5)[:, 4]


def check_body(session):
    """Return action and command of a step; the body does what the command says."""
    session.advance(1)
    seen = look(session)
    np.testing.assert_allclose(jets(seen["pose"]), seen["command"] / 127, atol=0.005)
    return seen["action"].astype(int), seen["command"].astype(int)


def test_wires_are_swapped_reversed_and_cut_while_the_agent_acts(start):
    session = start(BODY)
    session.advance(5)
    action, command = check_body(session)
    np.testing.assert_array_equal(command, action)
    wire(session, motors=SWAPPED)
    action, command = check_body(session)
    np.testing.assert_array_equal(command[list(SWAPPED)], action)
    wire(session, motors_reversed=(0, 3))
    sign = np.array([-1, 1, 1, -1, 1, 1, 1, 1])  # of the wires, which lead to other motors
    action, command = check_body(session)
    np.testing.assert_array_equal(command[list(SWAPPED)], sign * action)
    wire(session, motors_cut=(7,))
    sign[7] = 0
    action, command = check_body(session)
    assert action[7] != 0
    np.testing.assert_array_equal(command[list(SWAPPED)], sign * action)
    wire(session, motors=(), motors_reversed=(), motors_cut=())
    action, command = check_body(session)
    np.testing.assert_array_equal(command, action)


def test_an_agent_with_motor_neurons_goes_on_after_a_rewiring(start):
    """New wires and signs in the step in which the target jumps."""
    late = []
    for seed in range(1, 9):
        session = start(BODY, seed=seed)
        session.advance(100)
        wire(session, motors=(3, 0, 7, 1, 6, 2, 5, 4), motors_reversed=(0, 2, 3, 6))
        session.advance(50)
        before = look(session)["agent"]["total"]
        session.advance(50)
        late.append(look(session)["agent"]["total"] - before)
    assert np.median(late) > 45, late  # of 50 steps


@pytest.fixture
def rivals(tmp_path, monkeypatch):
    """A zoo with a feed-forward agent of the same world, untrained."""
    recipe = recipes.find("thrusters-fnn")
    Agent(recipe.draw_policy(jax.random.key(0)), recipe, {}).save(
        tmp_path / "thrusters-fnn.safetensors"
    )
    for name in (BODY, "arm-motors"):
        for file in zoo.zoo_directory().glob(f"{name}.*"):
            shutil.copy(file, tmp_path)
    monkeypatch.setenv("SENSORIUM_ZOO", str(tmp_path))
    return AgentCatalog({name: name for name in zoo.names()})


def test_a_feed_forward_agent_is_behind_the_same_wires(rivals):
    reversed_ = tuple(range(8))
    with contextlib.ExitStack() as open_sessions:
        pair = [
            open_sessions.enter_context(contextlib.closing(Session(rivals, controls)))
            for controls in (Controls(BODY), Controls(BODY, motors_reversed=reversed_))
        ]
        assert pair[0].about()["baseline"] == "thrusters-fnn"
        thrusts = []
        for session in pair:
            session.advance(1)
            thrusts.append(jets(look(session)["baseline_pose"]))
        assert np.abs(thrusts[0]).max() > 0
        np.testing.assert_allclose(thrusts[1], -thrusts[0], atol=1e-6)


def test_wires_stay_when_another_agent_of_the_same_world_is_chosen(rivals):
    wires = dict(motors=SWAPPED, motors_reversed=(2,), motors_cut=(5,))
    session = Session(rivals, Controls(BODY, **wires))
    session = wire(session, agent="thrusters-fnn")
    about = session.about()
    assert (about["agent"], about["baseline"]) == ("thrusters-fnn", None)
    assert about["fixed_outputs"]
    assert {name: getattr(session.controls, name) for name in wires} == wires
    session.advance(1)
    seen = look(session)
    assert "digest" not in seen
    assert seen["command"][5] == 0 != seen["action"][5]
    session = wire(session, agent="arm-motors")
    assert (session.controls.motors, session.controls.motors_cut) == ((), ())
    session = wire(session, agent=BODY, motors=SWAPPED)  # a link
    assert session.controls.motors == SWAPPED
    session.close()


def test_what_an_agent_finds_out_is_shown(start):
    session = start(BODY)
    assert not session.about()["fixed_outputs"]
    assert session.about()["motors"] == [f"motor {number}" for number in range(1, 9)]
    session.advance(1)
    assert not look(session)["digest"].any()
    session.advance(60)
    digest = look(session)["digest"]
    assert digest.shape == (8, 5)
    assert np.abs(digest).max() == 127
    state = session._episode._states[0].state
    connected = np.asarray(state.wrench).any(1)
    size = np.abs(digest.astype(int)).max(1)
    assert size[connected].min() > size[~connected].max()


def test_what_motors_know_of_sensors_stays_when_inputs_are_added(start):
    """Of anonymous sensors: two channels of each, the second after all of the first."""
    session = start("thrusters-motors-unnamed")
    session.advance(30)
    before = np.asarray(session._episode._states[0].carry.motors.digest)
    wire(session, noise=2)
    after = np.asarray(session._episode._states[0].carry.motors.digest)
    assert after.shape == (14, 8)
    np.testing.assert_array_equal(after[[0, 1, 2, 3, 4, 7, 8, 9, 10, 11]], before)
    assert not after[[5, 6, 12, 13]].any()
    session.advance(1)
    assert look(session)["digest"].shape == (8, 14)
    wire(session, noise=0)
    session.advance(1)
    assert look(session)["digest"].shape == (8, 10)


def test_any_world_of_numbers_has_wires(start, tmp_path):
    """CartPole, whose single wire can be reversed, and a world on the host; agents have no motor neurons."""
    session = start(motors_reversed=(0,))
    assert session.about()["motors"] == ["force"]
    session.advance(1)
    seen = look(session)
    assert seen["command"][0] == -seen["action"][0] != 0
    assert "digest" not in seen
    recipe = dataclasses.replace(recipes.find("cartpole-pi"), env="gym:tests.host_worlds:Walk-v0")
    Agent(recipe.draw_policy(jax.random.key(0)), recipe, {}).save(tmp_path / "walk.safetensors")
    catalog, totals = AgentCatalog({"walk": str(tmp_path / "walk.safetensors")}), {}
    for motors, cut in (((), ()), ((1, 0), ()), ((1, 0), (0, 1))):
        with contextlib.closing(Session(catalog, Controls("walk"))) as host:
            wire(host, motors=motors, motors_cut=cut)
            host.advance(1)
            seen = look(host)
            expected = [0, 0] if cut else seen["action"][list(motors) or [0, 1]].tolist()
            assert seen["command"].tolist() == expected
            totals[motors, cut] = seen["agent"]["total"]
    assert len(set(totals.values())) == 3


def test_images_have_wires_too(start):
    session = start("carracing-pi", motors_cut=(0,))
    assert session.about()["motors"] == ["steering", "gas", "brake"]
    session.advance(3)
    seen = look(session)
    assert seen["command"][0] == 0 != seen["action"][0]
    np.testing.assert_array_equal(seen["command"][1:], seen["action"][1:])


def test_wires_that_do_not_fit_are_refused_and_change_nothing(start, tmp_path):
    session = start(BODY)
    before = session.controls
    for changes, sentence in (
        ({"motors": (0, 1)}, "each of the motors 0 to 7"),
        ({"motors": (0, 0, 1, 2, 3, 4, 5, 6)}, "each of the motors 0 to 7"),
        ({"motors_reversed": (8,)}, "outputs 0 to 7, no output 8"),
        ({"motors_cut": (99,)}, "outputs 0 to 7, no output 99"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            wire(session, **changes)
        assert session.controls == before
    recipe = dataclasses.replace(
        recipes.find("cartpole-pi"), env="gym:tests.host_worlds:Choices-v0"
    )
    Agent(recipe.draw_policy(jax.random.key(0)), recipe, {}).save(tmp_path / "a.safetensors")
    catalog = AgentCatalog({"choices": str(tmp_path / "a.safetensors")})
    with contextlib.closing(Session(catalog, Controls("choices"))) as choices:
        assert choices.about()["motors"] == []
        with pytest.raises(ConfigError, match="choices"):
            wire(choices, motors_cut=(0,))
        choices.advance(1)
        seen = look(choices)
        np.testing.assert_array_equal(seen["command"], seen["action"])


def test_wires_keep_the_contract_of_perturbations():
    check_perturbation(WireMotors(3))
    check_perturbation(WireMotors(3), (12, 12, 3))
    assert not WireMotors(0).perturbs_actions


def test_motors_are_named_only_where_actions_are_numbers():
    assert len(make_world("Thrusters").motor_names) == 8
    assert make_world("gym:tests.host_worlds:Choices-v0").motor_names == ()
