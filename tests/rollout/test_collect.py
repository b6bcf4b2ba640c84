"""Collectors: transitions are those of a plain loop, whatever acts, on the device and on the host."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium.envs import Perturbed
from sensorium.perturbations import Identity, NoiseChannels, Shuffle, compose
from sensorium.policies import AttentionNeuronConfig
from sensorium.rollout import Behaviour, DeviceEngine, HostEngine, make_world, open_collector
from tests.probes import FollowWorld
from tests.training.spot_world import WORLD as SPOT

WALK = "gym:tests.host_worlds:Walk-v0"
AGENT = AttentionNeuronConfig(num_queries=4, message_size=4)


class Plain(Behaviour):
    """A policy without exploration, which records all that it is shown."""

    policy: Any

    def initial_carry(self, world):
        return self.policy.initial_carry(world.observation_spec)

    def act(self, moment, carry):
        action, after, _ = self.policy.step(moment.observation, carry)
        record = (moment.observation, moment.unperturbed, moment.sensor_of_channel, action)
        return action, after, record


class Bright(Behaviour):
    """Acts on an image as bright as it is."""

    def initial_carry(self, world):
        return ()

    def act(self, moment, carry):
        action = jnp.full(2, moment.unperturbed.astype(jnp.float32).mean() / 255)
        return action, carry, moment.unperturbed


@dataclasses.dataclass(frozen=True)
class Ends(FollowWorld):
    """Ends after as many steps as its first reading says, from 3 to 12."""

    def step_env(self, key, state, action, params):
        observation, state, reward, _, info = super().step_env(key, state, action, params)
        over = state.time >= 3 + jnp.floor(4.5 * (state.readings[0] + 1)).astype(jnp.int32)
        return observation, state, reward, over, info

    def move(self, key, readings):
        return readings


def collector_of(engine, count, **options):
    return open_collector(engine, count, jax.random.key(1), **options)


def behaviour_of(world):
    return Plain(AGENT.build(world.observation_spec, world.actions, jax.random.key(0)))


def check_chains(segment, behaviour, blank):
    """The carry, the flags and the sums fit each other from step to step."""
    steps = segment.transitions
    observation, _, _, action = steps.record
    act = eqx.filter_jit(type(behaviour.policy).step)
    for lane in range(steps.alive.shape[1]):
        carry = jax.tree.map(lambda leaf, lane=lane: leaf[lane], segment.memory.carry)
        time = earned = 0.0
        for step in range(len(steps.alive)):
            if steps.started[step, lane]:
                carry, time, earned = blank, 0, 0.0
            elif step == 0:
                time, earned = steps.time[0, lane], steps.earned[0, lane]
            if steps.alive[step, lane]:
                assert steps.time[step, lane] == time
                np.testing.assert_allclose(steps.earned[step, lane], earned, atol=1e-4)
                expected, carry, _ = act(
                    behaviour.policy, jnp.asarray(observation[step, lane]), carry
                )
                np.testing.assert_allclose(action[step, lane], expected, atol=1e-5)
            time, earned = time + 1, earned + steps.reward[step, lane]


@pytest.mark.parametrize("name", ["device", "host"])
def test_transitions_are_those_of_a_plain_loop(name):
    perturbation = compose(NoiseChannels(1), Shuffle())
    world = Perturbed(Ends(), perturbation) if name == "device" else make_world(WALK, perturbation)
    engine = DeviceEngine(world) if name == "device" else HostEngine(world, workers=0)
    with engine:
        behaviour = behaviour_of(world)
        collector = collector_of(engine, 4)
        segments = [collector.collect(behaviour, 16, jax.random.key(step)) for step in range(3)]
    sensors, blank = world.raw_observation_spec, behaviour.initial_carry(world)
    for segment in segments:
        steps = segment.transitions
        check_chains(segment, behaviour, blank)
        observation, unperturbed, sources, _ = steps.record
        for place in np.ndindex(16, 4):  # what arrives is what the world showed, in another order
            real = sources[place] >= 0
            assert sorted(sources[place][real]) == list(range(sensors))
            np.testing.assert_array_equal(
                observation[place][real], unperturbed[place][sources[place][real]]
            )
        np.testing.assert_array_equal(steps.view, unperturbed)
        done = steps.terminated | steps.truncated
        goes_on = ~done[:-1] & steps.alive[1:] & ~steps.started[1:]
        np.testing.assert_array_equal(steps.next_view[:-1][goes_on], steps.view[1:][goes_on])
    assert collector.env_steps == sum(int(each.transitions.alive.sum()) for each in segments)
    assert any((each.transitions.terminated).any() for each in segments)
    assert len(collector.returns) > 3


def test_what_ends_is_shown_to_the_end():
    """The view after an end is that of the final observation, not of the next episode."""
    world = make_world(WALK)
    with HostEngine(world, workers=0) as engine:
        behaviour = behaviour_of(world)
        collector = collector_of(engine, 3, cut_first=False)
        steps = collector.collect(behaviour, 20, jax.random.key(0)).transitions
    ended = np.argwhere(steps.terminated[:-1])
    assert len(ended)
    for step, lane in ended:
        assert steps.started[step + 1, lane]
        away = np.abs(steps.next_view[step, lane] - steps.view[step, lane])
        assert (away < 3).all()  # one step of the walk
        assert not np.array_equal(steps.next_view[step, lane], steps.view[step + 1, lane])


def test_a_lane_on_the_device_idles_after_an_end_and_starts_anew():
    world = Ends()
    collector = collector_of(DeviceEngine(world), 6, cut_first=False)
    behaviour = behaviour_of(world)
    first, second = (
        collector.collect(behaviour, 8, jax.random.key(step)).transitions for step in range(2)
    )
    ended = first.terminated.any(axis=0)
    assert 0 < ended.sum() < 6
    for lane in np.flatnonzero(ended):
        end = int(np.argmax(first.terminated[:, lane]))
        assert first.alive[: end + 1, lane].all()
        assert not first.alive[end + 1 :, lane].any()
        assert not first.reward[end + 1 :, lane].any()
    np.testing.assert_array_equal(second.started[0], ended)
    assert (second.time[0][ended] == 0).all()
    assert (second.time[0][~ended] == 8).all()


@pytest.mark.parametrize("name", ["device", "host"])
def test_the_first_episodes_are_cut_short_at_random(name):
    world = FollowWorld() if name == "device" else make_world("gym:Pendulum-v1")
    engine = DeviceEngine(world) if name == "device" else HostEngine(world, workers=0)
    length = world.max_steps // 4
    with engine:
        collector, behaviour = collector_of(engine, 8), behaviour_of(world)
        starts = [
            collector.collect(behaviour, length, jax.random.key(step)).transitions.started
            for step in range(4)
        ]
    assert starts[0][0].all()
    again = np.concatenate([starts[0][1:], *starts[1:]]).any(axis=0)
    assert again.mean() > 0.5  # three of four, on average


@pytest.mark.parametrize("name", ["device", "host"])
def test_the_same_keys_collect_the_same(name):
    collected = []
    for _ in range(2):
        world = Perturbed(Ends(), Shuffle()) if name == "device" else make_world(WALK, Shuffle())
        engine = DeviceEngine(world) if name == "device" else HostEngine(world, workers=0)
        with engine:
            collector = collector_of(engine, 4)
            collected.append(
                [collector.collect(behaviour_of(world), 8, jax.random.key(2)) for _ in range(2)]
            )
    for one, other in zip(*map(jax.tree.leaves, collected), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["device", "host"])
def test_images_stay_bytes(name):
    world = SPOT if name == "device" else make_world("gym:tests.host_worlds:Shades-v0")
    engine = DeviceEngine(world) if name == "device" else HostEngine(world, workers=0)
    with engine:
        collector = collector_of(engine, 2)
        segment = collector.collect(Bright(), 5, jax.random.key(0))
    images = segment.transitions.record
    assert images.dtype == np.uint8
    assert images.shape == (5, 2, *world.raw_observation_spec)
    truth = segment.transitions.view.shape[-1]
    assert truth == (2 if name == "device" else 0)  # an environment tells no more than it shows


def test_a_perturbation_of_actions_acts_on_what_the_world_gets():
    @dataclasses.dataclass(frozen=True)
    class Reverse(Identity):
        perturbs_actions = True

        def perturb_action(self, key, state, action):
            return -action, state

    rewards = []
    for perturbation in (Identity(), Reverse()):
        world = Perturbed(FollowWorld(), perturbation)
        collector = collector_of(DeviceEngine(world), 4)
        steps = collector.collect(behaviour_of(FollowWorld()), 6, jax.random.key(0)).transitions
        reading, action = steps.view[..., 0], steps.record[-1][..., 0]
        sign = -1 if perturbation.perturbs_actions else 1
        np.testing.assert_allclose(steps.reward, -np.abs(reading - sign * action), atol=1e-5)
        rewards.append(steps.reward)
    assert not np.allclose(*rewards)
