"""A visitor's world, without the web: every control does what it says."""

import contextlib
import json

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorium.demo.messages import Controls, Message, parse, unpack
from sensorium.demo.senses import EMPTY, FROM_NOISE, Wires
from sensorium.errors import ConfigError, SensoriumError, UnknownNameError
from sensorium.policies import AttentionNeuronConfig


def say(session, do, value=None):
    return session.act(Message(do, 1, value))


def look(session):
    header, arrays = unpack(session.frame())
    return header | arrays


def test_a_shuffle_is_survived_by_the_agent_and_not_by_its_rival(sit):
    """The paper's claim, in the middle of an episode, for several orders."""
    gains = []
    for wiring in range(1, 9):
        session = sit(seed=1)
        session.advance(300)
        before = look(session)
        say(session, "set", {"wiring": wiring})
        session.advance(700)
        after = look(session)
        gains.append([after[who]["total"] - before[who]["total"] for who in ("lead", "rival")])
    lead, rival = np.array(gains).T
    assert lead.min() > 600, gains  # of 700 steps
    assert np.median(rival) < 200, gains


def test_shuffled_patches_are_survived_by_the_agent_and_not_by_its_rival(sit):
    """In CarRacing: a road in pieces, and the score of who hears the patches in any order."""
    session = sit("carracing-pi", wiring=3, seed=2)
    assert session.about()["rival"] == "carracing-cnn"
    session.advance(400)
    after = look(session)
    assert after["lead"]["total"] > 300
    assert after["rival"]["total"] < 150
    own = sit("carracing-pi", seed=2)
    own.advance(400)
    assert look(own)["rival"]["total"] > 300


def test_empty_places_are_as_if_they_were_not_there():
    """65 places of which 7 are taken give the code of 7 places."""
    policy = AttentionNeuronConfig().build(5, 1, jax.random.key(0))
    wires = Wires(policy, 5)
    drawn = wires.draw(Controls(agent="x", noise=2, wiring=5), 0)
    assert (drawn.source[7:] == EMPTY).all()
    assert sorted(drawn.source[:7]) == [FROM_NOISE, FROM_NOISE, 0, 1, 2, 3, 4]
    wide, narrow = policy.initial_carry(65), policy.initial_carry(7)
    blank = policy.initial_carry(65)

    @jax.jit
    def both(key, wide, narrow):
        arrived = wires.arrive(key, drawn, jax.random.normal(key, (5,)))
        _, wide, inside = policy.step(arrived, wires.settle(blank, wide, drawn))
        _, narrow, inside_narrow = policy.step(arrived[:7], narrow)
        return wide, narrow, inside.code, inside_narrow.code

    for step in range(20):
        wide, narrow, code, code_narrow = both(jax.random.key(step), wide, narrow)
        np.testing.assert_allclose(code, code_narrow, atol=1e-5)
    assert np.abs(code).max() > 0.1


def test_a_place_that_is_taken_anew_remembers_nothing(sit):
    session = sit(noise=3)
    session.advance(50)
    say(session, "set", {"noise": 0})
    session.advance(1)
    carry = session._stage._players[0].carry
    memory = np.asarray(carry.memory.hidden)
    assert np.abs(memory[:, :5]).min(axis=0).max() > 0
    session.advance(1)
    say(session, "set", {"noise": 1})
    session.advance(1)
    fresh = np.asarray(session._stage._players[0].carry.memory.hidden)[:, 5]
    assert not np.allclose(fresh, memory[:, 5])


def test_noise_and_copies_come_and_go(sit):
    session = sit()
    for changes, count, noisy in (
        ({"noise": 50}, 55, 50),
        ({"noise": 10, "copies": 3}, 25, 10),
        ({"noise": 0, "copies": 1}, 5, 0),
    ):
        say(session, "set", changes)
        session.advance(1)
        seen = look(session)
        assert seen["source"].shape == (count,)
        assert (seen["source"] == -1).sum() == noisy
        assert seen["attention"].shape == (count, 32)
        assert seen["level"].shape == (count,)


def test_copies_do_not_change_what_the_agent_does(sit):
    """The sum over sensors is divided by their number (AN section 4.1)."""
    alone, doubled = sit(), sit(copies=2)
    for session in (alone, doubled):
        session.advance(30)
    np.testing.assert_allclose(look(alone)["body"], look(doubled)["body"], atol=1e-3)


def test_the_order_at_the_start_does_not_matter_to_the_agent(sit):
    own, other = sit(), sit(wiring=9)
    for session in (own, other):
        session.advance(100)
    np.testing.assert_allclose(look(own)["body"], look(other)["body"], atol=1e-3)
    assert list(look(own)["source"]) != list(look(other)["source"])
    assert abs(look(own)["rival_body"] - look(other)["rival_body"]).max() > 0.05


def test_a_cut_sensor_is_silent_until_it_is_mended(sit):
    session = sit(wiring=2)
    session.advance(5)
    say(session, "set", {"cut": (1,)})
    session.advance(5)
    seen = look(session)
    assert seen["level"][list(seen["source"]).index(1)] == 0
    say(session, "set", {"cut": ()})
    session.advance(5)
    seen = look(session)
    assert seen["level"][list(seen["source"]).index(1)] != 0


def test_any_wire_can_be_cut(sit):
    """A single channel of noise, or one copy of a sensor: it keeps its number when the order changes."""
    session = sit(wiring=2, noise=4, copies=2)
    noise, copy = session.about()["first_noise"] + 2, 5 + 1
    say(session, "set", {"cut": (copy, noise)})
    for wiring in (2, 3):
        say(session, "set", {"wiring": wiring})
        session.advance(5)
        seen = look(session)
        wires = list(seen["wire"])
        assert {wires[place] for place in np.flatnonzero(seen["level"] == 0)} == {copy, noise}
        assert seen["source"][wires.index(noise)] == FROM_NOISE
        assert seen["source"][wires.index(copy)] == seen["source"][wires.index(1)] == 1
    say(session, "set", {"noise": 1})  # those that are not there now
    say(session, "set", {"noise": 3})
    session.advance(1)
    seen = look(session)
    assert seen["level"][list(seen["wire"]).index(noise)] == 0


def test_reshuffling_keeps_its_time_whatever_the_frames(sit):
    """Every 25 steps, though frames come every 7."""
    session = sit(every=25)
    orders = {}
    for _ in range(30):
        session.advance(7)
        seen = look(session)
        if seen["lead"]["ended"]:
            break
        orders.setdefault((seen["lead"]["time"] - 1) // 25, set()).add(tuple(seen["source"]))
    assert len(orders) > 5
    assert all(len(each) == 1 for each in orders.values())
    assert len({order for each in orders.values() for order in each}) > 4


def test_the_same_link_gives_the_same_episode(sit):
    controls = dict(seed=6, wiring=3, every=40, noise=4)
    first, second = sit(**controls), sit(**controls)
    first.advance(90)
    for _ in range(30):
        second.advance(3)
    assert first.frame() == second.frame()


def test_pushing_moves_the_cart(sit):
    still, pushed = sit(paused=True), sit(paused=True)
    say(pushed, "push", 1.0)
    for session in (still, pushed):
        say(session, "step")
        say(session, "step")
    assert look(pushed)["body"][0] > look(still)["body"][0] + 0.01
    assert look(pushed)["rival_body"][0] > look(still)["rival_body"][0] + 0.01


def test_steps_are_for_pauses(sit):
    session = sit(paused=True)
    say(session, "step")
    assert look(session)["lead"]["time"] == 1
    say(session, "set", {"paused": False})
    say(session, "step")
    assert look(session)["lead"]["time"] == 1


def test_time_goes_as_fast_as_it_is_told(sit):
    session = sit()
    for _ in range(60):
        session.advance_by(1 / 60)
    assert look(session)["lead"]["time"] == 100


def test_an_episode_is_followed_by_that_of_the_next_seed(sit):
    session = sit(seed=3)  # lost at once, whatever one does
    for _ in range(60):
        session.advance(5)
    seen = look(session)
    assert seen["episode"] == 2
    assert seen["seed"] == session.controls.seed == 4
    say(session, "reset", 3)
    assert look(session)["lead"]["time"] == 0
    assert look(session)["seed"] == 3


def test_what_does_not_fit_is_refused_and_all_is_as_before(sit):
    session = sit()
    before = session.controls
    for changes, error in (
        ({"cut": (65,)}, ConfigError),
        ({"hidden": (3,)}, ConfigError),
        ({"background": "hills"}, ConfigError),
        ({"modify": "colour"}, ConfigError),
        ({"agent": "cartpole-pie"}, UnknownNameError),
        ({"agent": "../zoo/cartpole-pi.safetensors"}, UnknownNameError),
    ):
        with pytest.raises(error):
            say(session, "set", changes)
        assert session.controls == before
    session.advance(1)


def test_agents_that_know_places_take_no_more_of_them(sit):
    session = sit("cartpole-fnn")
    assert session.about()["any_number"] is False
    assert session.about()["rival"] is None
    with pytest.raises(ConfigError, match="exactly 5"):
        say(session, "set", {"noise": 1})


def test_agents_that_do_not_only_sum_keep_their_memory_when_places_come(sit):
    """NLA's keys depend on all sensors: no place may be empty, so the memory is carried over."""
    session = sit("cartpole-nla")
    session.advance(40)
    before = np.asarray(session._stage._players[0].carry.memory.cell)
    say(session, "set", {"noise": 2})
    after = np.asarray(session._stage._players[0].carry.memory.cell)
    assert after.shape[1] == 7
    np.testing.assert_array_equal(after[:, :5], before)
    assert not after[:, 5:].any()
    session.advance(10)
    assert look(session)["source"].shape == (7,)


def test_another_agent_takes_over(sit, offer):
    session = sit(noise=2)
    other = say(session, "set", {"agent": "cartpole-pi"})
    assert other is not session
    assert other.about()["agent"] == "cartpole-pi"
    assert other.controls.noise == 2
    other.close()


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "seed": st.integers(0, 2**31 - 1),
        "wiring": st.integers(0, 2**31 - 1),
        "every": st.integers(0, 1000),
        "noise": st.integers(0, 50),
        "copies": st.integers(1, 3),
        "cut": st.lists(st.integers(0, 70), max_size=6),
        "hidden": st.lists(st.integers(0, 255), max_size=3),
        "background": st.sampled_from(["", "hills", "dropped"]),
        "modify": st.sampled_from(["", "bars"]),
        "speed": st.sampled_from([0.1, 1, 4]),
        "paused": st.booleans(),
        "agent": st.sampled_from(["nobody", "cartpole-pi-reshuffle-100"]),
    },
)
MESSAGES = st.one_of(
    st.builds(lambda changes: {"do": "set", "changes": changes}, CHANGES),
    st.sampled_from([{"do": "shuffle"}, {"do": "step"}, {"do": "here"}]),
    st.builds(lambda seed: {"do": "reset", "seed": seed}, st.integers(0, 2**31 - 1)),
    st.builds(lambda strength: {"do": "push", "strength": strength}, st.floats(-1, 1)),
)


@settings(max_examples=15)
@given(st.lists(st.tuples(MESSAGES, st.integers(0, 9)), max_size=12))
def test_whatever_visitors_do_frames_go_on(offer, said):
    from sensorium.demo.session import Session

    session = Session(offer, Controls(agent="cartpole-pi-reshuffle-100"))
    for message, steps in said:
        with contextlib.suppress(SensoriumError):
            session = session.act(parse(json.dumps(message)))
        session.advance(steps)
        seen = look(session)
        assert np.isfinite(seen["body"]).all()
        assert len(seen["source"]) == 5 * session.controls.copies + session.controls.noise
