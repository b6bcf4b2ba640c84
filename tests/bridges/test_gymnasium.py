"""Our worlds through Gymnasium, and our perturbations on Gymnasium's."""

import subprocess
import sys
import warnings

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from sensorium.bridges.sb3 import Sb3Agent
from sensorium.bridges.to_gymnasium import WorldEnv, WorldVectorEnv
from sensorium.bridges.wrappers import PerturbObservation
from sensorium.envs import WORLDS, CartPoleSwingUpHarder
from sensorium.errors import ConfigError, ObservationError
from sensorium.gymnasium_ids import MAX_STEPS
from sensorium.perturbations import (
    Duplicate,
    NoiseChannels,
    Reshuffle,
    Shuffle,
    ShufflePatches,
    compose,
)
from sensorium.policies import AttentionNeuronConfig
from tests.probes import ChoosingWorld

NAME = "sensorium/CartPoleSwingUpHarder-v0"


@pytest.fixture
def env():
    env = gymnasium.make(NAME, render_mode="rgb_array")
    yield env
    env.close()


@pytest.mark.parametrize(
    ("imports", "prefix"),
    [
        ("import sensorium, gymnasium", ""),
        ("import gymnasium, sensorium", ""),
        ("import gymnasium", "sensorium:"),
    ],
)
def test_a_new_process_finds_our_worlds(imports, prefix):
    script = (
        f"{imports}; import sys; assert 'jax' not in sys.modules, 'to register must cost little'\n"
        f"for name, steps in {MAX_STEPS}.items():"
        f" assert gymnasium.make(f'{prefix}sensorium/{{name}}-v0').spec.max_episode_steps == steps"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=120)


def test_what_is_registered_are_the_facts_of_the_worlds():
    ours = {
        name: world for name, world in WORLDS.items() if world.__module__.startswith("sensorium")
    }
    assert {name: world.max_steps for name, world in ours.items()} == MAX_STEPS


@pytest.mark.parametrize(
    ("name", "rate"), [("CartPoleSwingUpHarder", 100), ("CarRacing", 50), ("CarRacingRoad", 50)]
)
def test_videos_run_at_the_speed_of_the_world(name, rate):
    env = PerturbObservation(WorldEnv(name), compose())
    assert env.metadata["render_fps"] == rate
    assert WorldEnv().metadata["render_fps"] == 100  # each has its own


def _pendulum():
    return PerturbObservation(gymnasium.make("Pendulum-v1"), Duplicate(2))


@pytest.mark.parametrize(
    "open_env", [WorldEnv, _pendulum, lambda: WorldVectorEnv("CartPoleSwingUpHarder", 2)]
)
def test_observations_are_the_users_own(open_env):
    """They may be written to, and stay as they are when the environment goes on."""
    env = open_env()
    seen = [env.reset(seed=0)[0]]
    for _ in range(3):
        seen.append(env.step(np.full(env.action_space.shape, 0.5, np.float32))[0])
    seen.append(env.reset()[0])
    kept = [each.copy() for each in seen]
    for each in seen:
        assert each.dtype == env.observation_space.dtype
        assert each.shape == env.observation_space.shape
        assert each.flags.writeable
    env.step(np.zeros(env.action_space.shape, np.float32))
    np.testing.assert_array_equal(kept, seen)
    seen[-1][:] = 0.0
    again = env.step(np.zeros(env.action_space.shape, np.float32))[0]
    assert np.isfinite(again).all()
    assert again.any()


def test_actions_of_our_agents_are_the_users_own(key):
    agent = Sb3Agent(AttentionNeuronConfig().build(3, 1, key))
    for readings in (np.ones(3), np.ones((2, 3))):
        assert agent.predict(readings)[0].flags.writeable


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


def test_images_show_the_cart_where_it_is(env):
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


def test_only_images_of_bytes_can_be_perturbed():
    racing = gymnasium.make("sensorium/CarRacing-v0")
    floats = gymnasium.spaces.Box(0.0, 1.0, (96, 96, 3))
    env = gymnasium.wrappers.TransformObservation(racing, lambda frame: frame / 255, floats)
    with pytest.raises(ConfigError, match=r"needs images of uint8; .* float32"):
        PerturbObservation(env, ShufflePatches())


@pytest.mark.parametrize("open_env", [WorldEnv, _pendulum, lambda: WorldVectorEnv("CarRacingRoad")])
@pytest.mark.parametrize("seed", [-1, True])
def test_what_is_no_seed_is_refused(open_env, seed):
    with pytest.raises(ConfigError, match="A seed must be a whole number from 0 on"):
        open_env().reset(seed=seed)


def _noise(env, seed=None, steps=3):
    """What eight channels of noise show from a reset on."""
    action = np.zeros(env.action_space.shape, np.float32)
    shown = [env.reset(seed=seed)[0], *(env.step(action)[0] for _ in range(steps))]
    return np.stack(shown)[..., -8:]


def _noisy():
    return PerturbObservation(gymnasium.make("Pendulum-v1"), NoiseChannels(8))


def test_every_seed_gives_noise_of_its_own():
    env = _noisy()
    seeds = (0, 2**32, 2**40, 2**63, 10**30)
    noises = [_noise(env, seed) for seed in seeds]
    assert len({noise.tobytes() for noise in noises}) == len(seeds)
    for seed, noise in zip(seeds, noises, strict=True):
        np.testing.assert_array_equal(_noise(_noisy(), seed), noise)
    # What follows a seeded episode is decided by the seed as well
    env.reset(seed=0), (other := _noisy()).reset(seed=0)
    later = _noise(env)
    np.testing.assert_array_equal(_noise(other), later)
    assert not (later == noises[0]).any()


def test_without_a_seed_every_environment_has_noise_of_its_own():
    noises = [_noise(_noisy()) for _ in range(3)]
    vector = gymnasium.vector.SyncVectorEnv([_noisy] * 3)
    noises += list(_noise(vector).swapaxes(0, 1))
    assert len({noise.tobytes() for noise in noises}) == 6


def test_a_wrapper_leaves_the_numbers_of_its_environment_alone():
    env, bare = _noisy(), gymnasium.make("Pendulum-v1")
    for each in (env, bare):
        each.unwrapped.np_random = np.random.default_rng(3)
    for _ in range(2):
        np.testing.assert_array_equal(env.reset()[0][:3], bare.reset()[0])


def test_a_wrapper_around_another_draws_something_else():
    env = PerturbObservation(_noisy(), NoiseChannels(8))
    noise = np.stack([env.reset(seed=1)[0], *(env.step([0.0])[0] for _ in range(3))])
    assert not (noise[:, 3:11] == noise[:, 11:]).any()


def test_a_world_of_choices_takes_them_as_gymnasium_does():
    world = ChoosingWorld()
    env = WorldVectorEnv(world, num_envs=3)
    assert env.single_action_space == gymnasium.spaces.MultiDiscrete([2, 2])
    observations, _ = env.reset(seed=0)
    right = (observations > 0).astype(int)
    _, rewards, *_ = env.step(right)
    assert rewards.tolist() == [1, 1, 1]
    _, rewards, *_ = env.step(1 - (env.step(right)[0] > 0))
    assert not rewards.any()
    for wrong in (np.full((3, 2), 2), np.zeros((3, 3), int), np.full((3, 2), np.nan)):
        with pytest.raises(ObservationError, match=r"of shape \(3, 2\)"):
            env.step(wrong)
