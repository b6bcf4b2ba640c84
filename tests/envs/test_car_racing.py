"""CarRacing side by side with Gymnasium's CarRacing-v3: tracks, driving, rewards, pictures."""

import math

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium.bridges.to_gymnasium import register
from sensorium.envs import CarRacing, make
from sensorium.envs.car_racing import lay_track
from sensorium.errors import ConfigError
from sensorium.perturbations import Shuffle

WORLD = CarRacing()
LAY, START, STEP = jax.jit(lay_track), jax.jit(WORLD.start_on), jax.jit(WORLD.advance)


class Recorded:
    """A generator of uniform numbers that remembers what it drew."""

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)
        self.drawn = []

    def uniform(self, low, high):
        self.drawn.append(self._rng.random())
        return low + (high - low) * self.drawn[-1]


def theirs(seed):
    """Gymnasium's world on the track of a seed, and the 12 x 2 numbers that made it."""
    pytest.importorskip("Box2D", reason="CarRacing-v3 needs gymnasium[box2d]")
    env = gymnasium.make("CarRacing-v3").unwrapped
    env.reset(seed=seed)
    env._np_random = recorded = Recorded(seed)
    frame, _ = env.reset()
    return env, frame, np.array(recorded.drawn).reshape(-1, 12, 2)[-1]


def ours(drawn):
    track, closed = LAY(*jnp.asarray(drawn.T, jnp.float32))
    assert closed
    return track, *START(track)


def pedals(env, rng):
    """A driver that follows the road, fast and carelessly."""
    track, place = np.array(env.track), np.array(env.car.hull.position)
    nearest = np.argmin(((track[:, 2:] - place) ** 2).sum(1))
    ahead = track[(nearest + 6) % len(track), 2:] - place
    error = math.atan2(-ahead[0], ahead[1]) - env.car.hull.angle
    error = (error + math.pi) % (2 * math.pi) - math.pi
    speed = np.hypot(*env.car.hull.linearVelocity)
    brake = 0.9 * (rng.random() < 0.05)
    return np.array([np.clip(-1.5 * error + 0.5 * rng.normal(), -1, 1), 0.4 * (speed < 45), brake])


def to_ours(action):
    return jnp.array([action[0], 2 * action[1] - 1, 2 * action[2] - 1], jnp.float32)


@pytest.mark.parametrize("seed", range(6))
def test_the_same_numbers_make_the_same_track(seed):
    env, _, drawn = theirs(seed)
    track, *_ = ours(drawn)
    expected = np.array(env.track)
    size = len(expected)
    assert int(track.size) == size
    np.testing.assert_allclose(track.middle[:size], expected[:, 2:], atol=2e-3)
    turned = np.asarray(track.heading[:size]) - expected[:, 1]
    np.testing.assert_allclose(np.cos(turned), 1, atol=1e-6)
    curbs = sum(
        tuple(np.array(colour)) in ((255, 255, 255), (255, 0, 0)) for _, colour in env.road_poly
    )
    assert int(jnp.sum(track.curb[:size] != 0)) == curbs


def test_tracks_that_do_not_close_are_told_apart():
    pytest.importorskip("Box2D", reason="CarRacing-v3 needs gymnasium[box2d]")
    env = gymnasium.make("CarRacing-v3").unwrapped
    env.reset(seed=0)
    closed = []
    for seed in range(60):
        env._np_random, env.road_poly = Recorded(seed), []
        expected = env._create_track()
        drawn = np.array(env._np_random.drawn).reshape(12, 2)
        closed.append(bool(LAY(*jnp.asarray(drawn.T, jnp.float32))[1]))
        assert closed[-1] == expected
    assert 1 <= closed.count(False) < 15


@pytest.mark.parametrize("seed", [0, 2, 7])
def test_a_careless_driver_earns_the_same_step_by_step(seed):
    # Wheels slip, the car spins and leaves the road; steering reaches its limits
    env, _, drawn = theirs(seed)
    _, _, state = ours(drawn)
    env._render = lambda mode: None
    rng = np.random.default_rng(seed)
    earned, slips = 0.0, 0.0
    for time in range(400):
        action = pedals(env, rng)
        _, reward, ended, _, _ = env.step(action)
        _, state, own, terminated, truncated, _ = STEP(jax.random.key(0), state, to_ours(action))
        assert float(own) == pytest.approx(reward, abs=1e-3), time
        assert (bool(terminated), bool(truncated)) == (ended, False)
        touched = [bool(wheel.tiles) for wheel in env.car.wheels]
        assert state.on_road.tolist() == touched, time
        error = np.hypot(*(np.array(env.car.hull.position) - np.stack(state.car.position)))
        assert error < (0.002 if time < 100 else 0.02), time
        assert float(state.car.steering) == pytest.approx(env.car.wheels[0].joint.angle, abs=2e-3)
        earned, slips = earned + reward, slips + (not all(touched))
    assert earned > 100  # it got somewhere
    assert seed != 2 or slips > 5  # and off the road


def test_pictures_agree():
    agreeing = []
    for seed in (1, 3):
        env, frame, drawn = theirs(seed)
        _, picture, state = ours(drawn)
        rng = np.random.default_rng(seed)
        for time in range(120):
            if time % 4 == 0:
                near = np.abs(frame.astype(int) - np.asarray(picture)).max(-1) <= 8
                agreeing.append((time, near.mean()))
            action = pedals(env, rng)
            frame, *_ = env.step(action)
            picture, state, *_ = STEP(jax.random.key(0), state, to_ours(action))
    times, shares = np.array(agreeing).T
    assert shares[times >= 50].mean() > 0.975
    assert shares[times >= 50].min() > 0.965
    assert shares.min() > 0.92  # from far above, all is edges


def test_an_episode_in_one_program():
    def act(state, key):
        action = jax.random.uniform(key, (3,), minval=-1.0, maxval=1.0)
        _, state, reward, terminated, truncated, _ = WORLD.advance(key, state, action)
        return state, (reward, terminated | truncated)

    def live(key):
        _, state = WORLD.reset_env(key, WORLD.default_params)
        return jax.lax.scan(act, state, jax.random.split(key, 200))[1]

    keys = jax.random.split(jax.random.key(1), 2)
    rewards, _ = jax.jit(jax.vmap(live))(keys)
    alone, _ = jax.jit(live)(keys[1])
    np.testing.assert_allclose(rewards[1], alone, atol=1e-5)
    assert float(rewards[0, 0]) > 0  # the tiles under the car at the start
    assert not np.allclose(rewards[0], rewards[1])


def test_leaving_the_playfield_ends_the_episode():
    _, state = WORLD.reset(jax.random.key(0))
    far = state._replace(car=jax.tree.map(jnp.asarray, state.car._replace(x=jnp.float32(400.0))))
    _, _, reward, terminated, _, _ = STEP(jax.random.key(0), far, jnp.zeros(3))
    assert bool(terminated)
    assert float(reward) == -100


def test_patience_ends_the_episode_of_one_who_stands_still():
    world = CarRacing(patience=20)
    _, state = world.reset(jax.random.key(0))

    def stand(state, _):
        _, state, _, terminated, _, _ = world.advance(
            jax.random.key(0), state, jnp.array([0.0, -1.0, 1.0])
        )
        return state, terminated

    _, ended = jax.jit(lambda state: jax.lax.scan(stand, state, length=40))(state)
    # The first step pays for the tiles that are touched at the start
    assert int(jnp.argmax(ended)) == 1 + 20


def test_it_shows_pictures_and_says_so():
    world = make("CarRacing")
    observation, _ = world.reset(jax.random.key(0))
    assert observation.shape == world.observation_shape == (96, 96, 3)
    assert observation.dtype == jnp.uint8
    with pytest.raises(ConfigError, match=r"pictures of shape \(96, 96, 3\)"):
        _ = world.num_sensors
    with pytest.raises(ConfigError, match="no scalar sensors"):
        _ = make("CarRacing", Shuffle()).num_sensors


def test_gymnasium_knows_it():
    register()
    env = gymnasium.make("sensorium/CarRacing-v0", render_mode="rgb_array")
    observation, _ = env.reset(seed=3)
    assert env.observation_space.contains(observation)
    assert env.step(np.array([0.0, 1.0, -1.0], np.float32))[0].dtype == np.uint8
    assert env.render().shape == (384, 384, 3)
