"""Our worlds through Gymnasium, and our perturbations on Gymnasium's."""

import warnings

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from sensorium.bridges.to_gymnasium import register
from sensorium.bridges.wrappers import PerturbObservation
from sensorium.envs import CartPoleSwingUpHarder
from sensorium.errors import ConfigError, ObservationError
from sensorium.perturbations import (
    Duplicate,
    NoiseChannels,
    Reshuffle,
    Shuffle,
    ShufflePatches,
    compose,
)

NAME = "sensorium/CartPoleSwingUpHarder-v0"


@pytest.fixture
def env():
    register()
    env = gymnasium.make(NAME, render_mode="rgb_array")
    yield env
    env.close()


def test_gymnasiums_own_checker_is_content(env):
    with warnings.catch_warnings():
        # It advises bounded observations; a cart that flies off the track has none
        warnings.filterwarnings("ignore", message=".*Box observation space m.*")
        check_env(env.unwrapped)


def test_same_steps_as_the_world_itself(env):
    observation, _ = env.reset(seed=3)
    world, state = CartPoleSwingUpHarder(), env.unwrapped._state
    advance = jax.jit(world.advance)
    actions = np.random.default_rng(0).uniform(-1, 1, (50, 1)).astype(np.float32)
    for action in actions:
        expected, state, reward, terminated, truncated, _ = advance(
            jax.random.key(0), state, action
        )
        observation, our_reward, *ends, _ = env.step(action)
        np.testing.assert_array_equal(observation, expected)
        assert our_reward == float(reward)
        assert ends == [bool(terminated), bool(truncated)]
        if terminated:
            break


def test_seeds_decide_the_start(env):
    first, again, other = (env.reset(seed=seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0
    # Without a seed, episodes differ
    assert np.abs(env.reset()[0] - env.reset()[0]).max() > 0


def test_pictures_show_the_cart_where_it_is(env):
    env.reset(seed=0)
    before = env.render()
    assert before.shape == (400, 600, 3)
    assert before.dtype == np.uint8
    for _ in range(60):
        *_, terminated, _, _ = env.step(np.ones(1, np.float32))
        if terminated:
            break
    assert np.abs(before.astype(int) - env.render()).max() > 50


def test_vector_environments(env):
    vector = gymnasium.make_vec(NAME, num_envs=3, vectorization_mode="sync")
    observations, _ = vector.reset(seed=0)
    assert observations.shape == (3, 5)
    *_, info = vector.step(vector.action_space.sample())
    assert isinstance(info, dict)
    vector.close()


@pytest.mark.parametrize("action", [np.zeros(2), np.array([np.nan]), 0.0])
def test_bad_actions(env, action):
    env.reset(seed=0)
    with pytest.raises(ObservationError, match="must be 1 finite"):
        env.unwrapped.step(action)


def test_no_step_before_a_reset_and_no_unknown_mode(env):
    with pytest.raises(ConfigError, match="Call reset before step"):
        type(env.unwrapped)().step(np.zeros(1))
    with pytest.raises(ConfigError, match="no render mode 'human'"):
        type(env.unwrapped)(render_mode="human")


def test_perturbations_wrap_worlds_of_others():
    perturbation = compose(Duplicate(2), NoiseChannels(3, sigma=0.0), Shuffle())
    env = PerturbObservation(gymnasium.make("Pendulum-v1"), perturbation)
    bare = gymnasium.make("Pendulum-v1")
    assert env.observation_space.shape == (9,)
    shown, _ = env.reset(seed=5)
    true, _ = bare.reset(seed=5)
    order = np.argsort(shown)
    for _ in range(5):
        # Twice each reading and three zeros, in one order for the whole episode
        np.testing.assert_allclose(np.sort(shown), np.sort([*true, *true, 0, 0, 0]), atol=1e-6)
        action = np.array([1.0], np.float32)
        shown, true = env.step(action)[0], bare.step(action)[0]
    again, _ = env.reset(seed=5)
    np.testing.assert_array_equal(np.argsort(again), order)


def test_reshuffling_goes_on_within_an_episode():
    env = PerturbObservation(gymnasium.make("Pendulum-v1"), Reshuffle(1))
    bare = gymnasium.make("Pendulum-v1")
    env.reset(seed=0), bare.reset(seed=0)
    orders = set()
    for _ in range(20):
        action = np.array([0.5], np.float32)
        shown, true = env.step(action)[0], bare.step(action)[0]
        orders.add(tuple(int(np.argmin(np.abs(true - value))) for value in shown))
    assert len(orders) > 2


def test_only_flat_boxes_can_be_perturbed():
    with pytest.raises(ConfigError, match="needs a flat Box"):
        PerturbObservation(gymnasium.make("FrozenLake-v1"), Shuffle())


def test_only_pictures_of_bytes_can_be_perturbed():
    register()
    racing = gymnasium.make("sensorium/CarRacing-v0")
    floats = gymnasium.spaces.Box(0.0, 1.0, (96, 96, 3))
    env = gymnasium.wrappers.TransformObservation(racing, lambda frame: frame / 255, floats)
    with pytest.raises(ConfigError, match=r"needs pictures of uint8; .* float32"):
        PerturbObservation(env, ShufflePatches())
