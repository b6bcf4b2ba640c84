"""A session without the network: every control does what it says."""

import contextlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorium import recipes
from sensorium.demo.actors import AgentCatalog
from sensorium.demo.messages import Controls, Message, parse, unpack
from sensorium.demo.rewiring import FROM_NOISE, ImageRewiring, SensorRewiring
from sensorium.demo.session import Session
from sensorium.errors import ConfigError, SensoriumError, UnknownNameError
from sensorium.policies import AttentionNeuronConfig
from sensorium.recipes import Recipe, Stage
from sensorium.training import DaggerConfig
from sensorium.types import shape_of, with_num_sensors
from sensorium.zoo import Agent


def send(session, do, value=None):
    return session.handle(Message(do, 1, value))


def look(session):
    header, arrays = unpack(session.frame())
    return header | arrays


def test_the_agent_keeps_its_return_after_a_shuffle_and_the_baseline_does_not(start):
    """The paper's claim, in the middle of an episode, for several orders."""
    gains = []
    for wiring in range(1, 9):
        session = start(seed=1)
        session.advance(300)
        before = look(session)
        send(session, "set", {"wiring": wiring})
        session.advance(700)
        after = look(session)
        gains.append(
            [after[name]["total"] - before[name]["total"] for name in ("agent", "baseline")]
        )
    agent, baseline = np.array(gains).T
    assert agent.min() > 600, gains  # of 700 steps
    assert np.median(baseline) < 200, gains


def test_the_agent_drives_with_shuffled_patches_and_the_baseline_does_not(start):
    session = start("carracing-pi", wiring=3, seed=2)
    assert session.about()["baseline"] == "carracing-cnn"
    session.advance(400)
    after = look(session)
    assert after["agent"]["total"] > 300
    assert after["baseline"]["total"] < 150
    own = start("carracing-pi", seed=2)
    own.advance(400)
    assert look(own)["baseline"]["total"] > 300


@pytest.mark.parametrize("spec", [5, (5, 3)])
def test_unused_inputs_are_as_if_they_were_not_there(spec):
    """65 inputs of which 7 are used give the code of 7 inputs."""
    policy = AttentionNeuronConfig().build(spec, 1, jax.random.key(0))
    rewiring = SensorRewiring(policy, spec)
    rewired = rewiring.rewire(Controls(agent="x", noise=2, wiring=5), 0)
    assert rewiring.inputs(rewired) == with_num_sensors(spec, 65)
    assert sorted(rewiring.source(rewired)) == [FROM_NOISE, FROM_NOISE, 0, 1, 2, 3, 4]
    blank = wide = policy.initial_carry(with_num_sensors(spec, 65))
    narrow = policy.initial_carry(with_num_sensors(spec, 7))

    @jax.jit
    def both(key, wide, narrow):
        observation = jax.random.normal(key, shape_of(spec))
        if spec != 5:
            observation = observation.at[3].set(jnp.nan)  # an absent one
        arrived = rewired.apply(key, observation)
        _, wide, trace = policy.step(arrived, rewiring.clear_unused(blank, wide, rewired))
        _, narrow, trace_narrow = policy.step(arrived[:7], narrow)
        return wide, narrow, trace.code, trace_narrow.code

    for step in range(20):
        wide, narrow, code, code_narrow = both(jax.random.key(step), wide, narrow)
        np.testing.assert_allclose(code, code_narrow, atol=1e-5)
    assert np.abs(code).max() > 0.1


@pytest.mark.parametrize("recipe", ["cartpole-pi", "cartpole-nla", "cartpole-fnn"])
def test_sensors_are_rewired_by_the_perturbations_of_the_package(recipe):
    """The state that controls write is one that the perturbation could have drawn; and its sources agree."""
    policy = recipes.find(recipe).draw_policy(jax.random.key(0))
    rewiring = SensorRewiring(policy, 5)
    more = {"noise": 3, "copies": 2} if rewiring.any_number else {}
    rewired = rewiring.rewire(Controls(agent="x", wiring=9, cut=(1,), **more), 2)
    assert same_kind(rewired.perturbation.init(jax.random.key(0), 5), rewired.state)
    spec = rewired.perturbation.output_spec(5)
    assert spec == rewiring.inputs(rewired) == len(rewired.channel)
    state = jax.tree.map(jnp.asarray, rewired.state)
    source = np.asarray(rewired.perturbation.sensor_of_channel(state, 5))
    np.testing.assert_array_equal(source[: rewired.used], rewiring.source(rewired))
    shown = np.asarray(rewired.apply(jax.random.key(1), np.arange(1.0, 6.0, dtype=np.float32)))
    expected = np.where(source == 1, 0.0, source + 1.0)
    real = source[: rewired.used] >= 0
    copies = np.asarray(rewired.channel[: rewired.used]) < 5  # of the first copy one is silent
    np.testing.assert_array_equal(
        shown[: rewired.used][real & copies], expected[: rewired.used][real & copies]
    )
    assert not shown[rewired.used :].any()


def test_images_are_rewired_by_the_perturbations_of_the_package():
    policy = recipes.find("carracing-pi").draw_policy(jax.random.key(0))
    rewiring = ImageRewiring(policy, (96, 96, 3))
    rewired = rewiring.rewire(
        Controls(agent="x", wiring=4, occlude=20, background="hills", modify="bars"), 0
    )
    assert same_kind(rewired.perturbation.init(jax.random.key(0), (96, 96, 3)), rewired.state)


@pytest.mark.parametrize(
    "env", ["Entities", "gym:tests.host_worlds:Rows-v0?observe=entities&presence=0"]
)
def test_agents_of_entities_are_shown(env, tmp_path):
    """One bar for each entity, none for an absent one; any order, number and copies, and noise."""
    policy = AttentionNeuronConfig(num_queries=4, hidden_size=4)
    recipe = Recipe("rows", "Of entities.", policy, (Stage("clone", DaggerConfig()),), env)
    Agent(recipe.draw_policy(jax.random.key(0)), recipe, {}).save(tmp_path / "rows.safetensors")
    catalog = AgentCatalog({"rows": str(tmp_path / "rows.safetensors")})
    with contextlib.closing(Session(catalog, Controls(agent="rows"))) as session:
        about = session.about()
        count = len(about["sensors"])
        assert about["any_number"]
        assert about["baseline"] is None
        absent = 0
        for _ in range(5):
            session.advance(1)
            seen = look(session)
            shown = session._episode.snapshots()[0].trace.arrived[:count]
            gone = np.isnan(shown).any(axis=1)
            absent += gone.sum()
            assert not seen["level"][gone].any()
            assert seen["level"][~gone].all()
            assert seen["attention"].shape == (count, 4)
        assert absent
        for changes, used in (
            ({"copies": 2}, 2 * count),
            ({"noise": 3, "wiring": 4}, 2 * count + 3),
            ({"copies": 1, "cut": (1,)}, count + 3),
        ):
            send(session, "set", changes)
            session.advance(1)
            seen = look(session)
            assert len(seen["level"]) == used
            cut = seen["channel"] == 1
            assert cut.any()
            assert not seen["level"][cut].any() or not session.controls.cut


def same_kind(drawn, written):
    """Whether two states have one structure, shapes and dtypes."""
    kinds = [
        jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype.kind), state)
        for state in (drawn, written)
    ]
    return kinds[0] == kinds[1]


def test_an_input_that_is_used_anew_has_a_blank_recurrent_state(start):
    session = start(noise=3)
    session.advance(50)
    send(session, "set", {"noise": 0})
    session.advance(1)
    carry = session._episode._states[0].carry
    memory = np.asarray(carry.memory.hidden)
    assert np.abs(memory[:, :5]).min(axis=0).max() > 0
    session.advance(1)
    send(session, "set", {"noise": 1})
    session.advance(1)
    fresh = np.asarray(session._episode._states[0].carry.memory.hidden)[:, 5]
    assert not np.allclose(fresh, memory[:, 5])


def test_noise_and_copies_come_and_go(start):
    session = start()
    for changes, count, noisy in (
        ({"noise": 50}, 55, 50),
        ({"noise": 10, "copies": 3}, 25, 10),
        ({"noise": 0, "copies": 1}, 5, 0),
    ):
        send(session, "set", changes)
        session.advance(1)
        seen = look(session)
        assert seen["source"].shape == (count,)
        assert (seen["source"] == -1).sum() == noisy
        assert seen["attention"].shape == (count, 32)
        assert seen["level"].shape == (count,)


def test_copies_do_not_change_the_actions(start):
    """The sum over sensors is divided by their number (AN section 4.1)."""
    alone, doubled = start(), start(copies=2)
    for session in (alone, doubled):
        session.advance(30)
    np.testing.assert_allclose(look(alone)["pose"], look(doubled)["pose"], atol=1e-3)


def test_the_order_at_the_start_does_not_matter_to_the_agent(start):
    own, other = start(), start(wiring=9)
    for session in (own, other):
        session.advance(100)
    np.testing.assert_allclose(look(own)["pose"], look(other)["pose"], atol=1e-3)
    assert list(look(own)["source"]) != list(look(other)["source"])
    assert abs(look(own)["baseline_pose"] - look(other)["baseline_pose"]).max() > 0.05


def test_a_silenced_sensor_reads_zero_until_that_is_undone(start):
    session = start(wiring=2)
    session.advance(5)
    send(session, "set", {"cut": (1,)})
    session.advance(5)
    seen = look(session)
    assert seen["level"][list(seen["source"]).index(1)] == 0
    send(session, "set", {"cut": ()})
    session.advance(5)
    seen = look(session)
    assert seen["level"][list(seen["source"]).index(1)] != 0


def test_any_channel_can_be_silenced(start):
    """A single noise channel, or one copy of a sensor: it keeps its number when the order changes."""
    session = start(wiring=2, noise=4, copies=2)
    noise, copy = session.about()["first_noise"] + 2, 5 + 1
    send(session, "set", {"cut": (copy, noise)})
    for wiring in (2, 3):
        send(session, "set", {"wiring": wiring})
        silent = set(range(100))
        for _ in range(3):  # a reading may be zero by chance, but not three in a row
            session.advance(1)
            seen = look(session)
            silent &= set(seen["channel"][seen["level"] == 0].tolist())
        assert silent == {copy, noise}
        channels = list(seen["channel"])
        assert seen["source"][channels.index(noise)] == FROM_NOISE
        assert seen["source"][channels.index(copy)] == seen["source"][channels.index(1)] == 1
    send(session, "set", {"noise": 1})  # the silent one is not there now
    send(session, "set", {"noise": 3})
    session.advance(1)
    seen = look(session)
    assert seen["level"][list(seen["channel"]).index(noise)] == 0


def test_reshuffling_does_not_depend_on_the_frames(start):
    """Every 25 steps, though frames come every 7."""
    session = start(every=25)
    orders = {}
    for _ in range(30):
        session.advance(7)
        seen = look(session)
        if seen["agent"]["ended"]:
            break
        orders.setdefault((seen["agent"]["time"] - 1) // 25, set()).add(tuple(seen["source"]))
    assert len(orders) > 5
    assert all(len(each) == 1 for each in orders.values())
    assert len({order for each in orders.values() for order in each}) > 4


def test_the_same_link_gives_the_same_episode(start):
    controls = dict(seed=6, wiring=3, every=40, noise=4)
    first, second = start(**controls), start(**controls)
    first.advance(90)
    for _ in range(30):
        second.advance(3)
    assert first.frame() == second.frame()


def test_pushing_moves_the_cart(start):
    still, pushed = start(paused=True), start(paused=True)
    send(pushed, "push", 1.0)
    for session in (still, pushed):
        send(session, "step")
        send(session, "step")
    assert look(pushed)["pose"][0] > look(still)["pose"][0] + 0.01
    assert look(pushed)["baseline_pose"][0] > look(still)["baseline_pose"][0] + 0.01


def test_single_steps_need_a_pause(start):
    session = start(paused=True)
    send(session, "step")
    assert look(session)["agent"]["time"] == 1
    send(session, "set", {"paused": False})
    send(session, "step")
    assert look(session)["agent"]["time"] == 1


def test_a_second_has_the_steps_of_the_world(start):
    session = start()
    for _ in range(60):
        session.advance_by(1 / 60)
    assert look(session)["agent"]["time"] == 100


def test_an_episode_is_followed_by_that_of_the_next_seed(start):
    session = start(seed=3)  # lost whatever an agent does
    for _ in range(60):
        session.advance(5)
    seen = look(session)
    assert seen["episode"] == 2
    assert seen["seed"] == session.controls.seed == 4
    send(session, "reset", 3)
    assert look(session)["agent"]["time"] == 0
    assert look(session)["seed"] == 3


def test_what_does_not_fit_is_refused_and_changes_nothing(start):
    session = start()
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
            send(session, "set", changes)
        assert session.controls == before
    session.advance(1)


def test_agents_of_a_fixed_number_of_inputs_take_no_more(start):
    session = start("cartpole-fnn")
    assert session.about()["any_number"] is False
    assert session.about()["baseline"] is None
    with pytest.raises(ConfigError, match="exactly 5"):
        send(session, "set", {"noise": 1})


def test_recurrent_states_are_kept_when_inputs_are_added(start):
    """NLA's keys depend on all sensors: no input may be unused, so the carry is resized."""
    session = start("cartpole-nla")
    session.advance(40)
    before = np.asarray(session._episode._states[0].carry.memory.cell)
    send(session, "set", {"noise": 2})
    after = np.asarray(session._episode._states[0].carry.memory.cell)
    assert after.shape[1] == 7
    np.testing.assert_array_equal(after[:, :5], before)
    assert not after[:, 5:].any()
    session.advance(10)
    assert look(session)["source"].shape == (7,)


def test_another_agent_can_be_chosen(start, catalog):
    session = start(noise=2)
    other = send(session, "set", {"agent": "cartpole-pi"})
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
        "background": st.sampled_from(["", "hills", "upload"]),
        "modify": st.sampled_from(["", "bars"]),
        "variant": st.sampled_from(["", "walls"]),
        "text": st.sampled_from(["", "HELLO"]),
        "motors": st.lists(st.integers(0, 1), max_size=2),
        "motors_reversed": st.lists(st.integers(0, 1), max_size=2),
        "motors_cut": st.lists(st.integers(0, 1), max_size=2),
        "speed": st.sampled_from([0.1, 1, 4]),
        "paused": st.booleans(),
        "agent": st.sampled_from(["nobody", "cartpole-pi-reshuffle"]),
    },
)
MESSAGES = st.one_of(
    st.builds(lambda changes: {"do": "set", "changes": changes}, CHANGES),
    st.sampled_from([{"do": "shuffle"}, {"do": "step"}, {"do": "ping"}]),
    st.builds(lambda seed: {"do": "reset", "seed": seed}, st.integers(0, 2**31 - 1)),
    st.builds(lambda strength: {"do": "push", "strength": strength}, st.floats(-1, 1)),
)


@settings(max_examples=15)
@given(st.lists(st.tuples(MESSAGES, st.integers(0, 9)), max_size=12))
def test_frames_go_on_after_any_messages(catalog, messages):
    from sensorium.demo.session import Session

    session = Session(catalog, Controls(agent="cartpole-pi-reshuffle"))
    for message, steps in messages:
        with contextlib.suppress(SensoriumError):
            session = session.handle(parse(json.dumps(message)))
        session.advance(steps)
        seen = look(session)
        assert np.isfinite(seen["pose"]).all()
        assert len(seen["source"]) == 5 * session.controls.copies + session.controls.noise
