"""A perturbation of actions reaches the world in every engine."""

import dataclasses
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sensorium.analysis.traces import trace_episode
from sensorium.bridges.wrappers import PerturbObservation
from sensorium.errors import ConfigError
from sensorium.perturbations import (
    Compose,
    Identity,
    LagMotors,
    NoiseChannels,
    OneOf,
    Shuffle,
    check_perturbation,
)
from sensorium.policies import FeedForwardConfig, as_population
from sensorium.rollout import HostEngine, fused_returns, make_world, run_episodes, run_population

WALK = "gym:tests.host_worlds:Walk-v0"


@dataclasses.dataclass(frozen=True)
class Flip(Identity):
    """Changes the sign of all actions."""

    perturbs_actions = True

    def perturb_action(self, key, state, action):
        return -action, state

    def __str__(self):
        return "flipped"


@dataclasses.dataclass(frozen=True)
class Noisy(Identity):
    """Moves actions by noise, another one each step."""

    scale: float = 0.3
    perturbs_actions = True

    def perturb_action(self, key, state, action):
        noise = self.scale * jax.random.normal(key, action.shape)
        return jnp.clip(action + noise, -1, 1), state


def flipped(policy: Any) -> Any:
    """The policy with actions of the other sign: its last layer is odd."""
    last = lambda p: (p.controller.layers[-1].weight, p.controller.layers[-1].bias)  # noqa: E731
    return eqx.tree_at(last, policy, replace_fn=lambda leaf: -leaf)


def draw(world):
    return FeedForwardConfig().build(world.num_sensors, world.num_actions, jax.random.key(3))


@pytest.fixture
def keys():
    return jax.random.split(jax.random.key(0), 5)


@pytest.mark.parametrize("flip", [Flip(), Compose((Flip(), Identity())), OneOf((Flip(), Flip()))])
def test_on_the_device(flip, keys):
    plain, perturbed = (
        make_world("CartPoleSwingUpHarder"),
        make_world("CartPoleSwingUpHarder", flip),
    )
    policy = draw(plain)
    expected = run_episodes(flipped(policy), plain, keys).total
    assert np.abs(expected - run_episodes(policy, plain, keys).total).max() > 1
    # Not to the last digit: other code is compiled, and poles are chaotic
    np.testing.assert_allclose(run_episodes(policy, perturbed, keys).total, expected, rtol=1e-3)
    np.testing.assert_allclose(
        fused_returns(as_population(policy), perturbed, keys)[0], expected, rtol=2e-2
    )


def test_the_fused_engine_agrees_with_the_readable_one_under_noise(keys):
    world = make_world("CartPoleSwingUpHarder", Compose((Noisy(), Shuffle())))
    policies = as_population(draw(world))
    readable = run_population(policies, world, keys).total
    np.testing.assert_allclose(fused_returns(policies, world, keys), readable, rtol=2e-2)


def test_on_the_host_and_in_traces(keys):
    plain = make_world(WALK)
    policy = draw(plain)
    with HostEngine(plain, workers=0) as engine:
        expected = engine.run_episodes(flipped(policy), keys)
        unflipped = engine.run_episodes(policy, keys)
    with HostEngine(make_world(WALK, Flip()), workers=0) as engine:
        got = engine.run_episodes(policy, keys)
    np.testing.assert_allclose(got.rewards, expected.rewards, atol=1e-5)
    assert np.abs(got.rewards - unflipped.rewards).max() > 1e-3
    trace = trace_episode(policy, plain, Flip(), keys[0], 5)
    np.testing.assert_allclose(trace.reward, expected.rewards[0, :5], atol=1e-5)


@dataclasses.dataclass(frozen=True)
class Untouched(Shuffle):
    """Would fail if an engine called it for actions, though it says that it leaves them alone."""

    def perturb_action(self, key, state, action):
        raise AssertionError("called for nothing")


def test_engines_leave_out_what_does_not_act_on_actions(keys):
    world = make_world("CartPoleSwingUpHarder", Untouched())
    policy = draw(world)
    run_episodes(policy, world, keys[:2])
    fused_returns(as_population(policy), world, keys[:2])
    world = make_world(WALK, Untouched())
    with HostEngine(world, workers=0) as engine:
        engine.run_episodes(draw(world), keys[:2])


class Recorder(gymnasium.Env):
    """Notes what arrives."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, action_space):
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.arrived = action
        return np.zeros(2, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize(
    ("space", "given", "arrives"),
    [
        (spaces.Box(np.float32([-2, 0]), np.float32([2, 4])), np.float32([1, 4]), [-1, 0]),
        (spaces.Box(0, 4, (1,), np.int64), np.array([1]), [3]),
        (spaces.Discrete(2, start=5), 5, 6),
    ],
)
def test_around_any_gymnasium_environment(space, given, arrives):
    env = PerturbObservation(Recorder(space), Flip())
    env.reset(seed=0)
    env.step(given)
    np.testing.assert_allclose(env.unwrapped.arrived, arrives)


def test_around_an_environment_motors_lag_from_rest_in_each_episode():
    env = PerturbObservation(Recorder(spaces.Box(-1, 1, (3,))), LagMotors(0.75))
    for _ in range(2):
        env.reset(seed=0)
        for expected in (0.25, 0.4375):
            env.step(np.ones(3, np.float32))
            np.testing.assert_allclose(env.unwrapped.arrived, [expected] * 3)


def test_action_spaces_that_no_agent_can_act_in_are_refused():
    words = spaces.Text(3)
    with pytest.raises(ConfigError, match="'flipped' perturbs actions of a Box or of choices"):
        PerturbObservation(Recorder(words), Flip())
    PerturbObservation(Recorder(words), Shuffle())  # which leaves them alone


def test_parts_act_from_the_agent_to_the_world_and_the_contract_is_checked():
    @dataclasses.dataclass(frozen=True)
    class Halve(Flip):
        def perturb_action(self, key, state, action):
            return jnp.clip(action, 0, 1) / 2, state

    action = jnp.array([-0.8, 0.4])
    both = Compose((Flip(), Halve()))  # halved first: that part is nearer to the agent
    got, _ = both.perturb_action(jax.random.key(0), both.init(jax.random.key(0), 3), action)
    np.testing.assert_allclose(got, [0.0, -0.2])
    for perturbation in (Flip(), Noisy(), both, Compose((NoiseChannels(2), Noisy()))):
        check_perturbation(perturbation)

    @dataclasses.dataclass(frozen=True)
    class Silent(Flip):
        perturbs_actions = False

    with pytest.raises(ConfigError, match="says that it does not"):
        check_perturbation(Silent())
