"""CarRacing side by side with Gymnasium's CarRacing-v3: tracks, driving, rewards, images."""

import importlib.util

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium.bridges.wrappers import PerturbObservation
from sensorium.envs import CarRacing, make
from sensorium.errors import ConfigError
from sensorium.perturbations import SCENES, Background, Shuffle, ShufflePatches, compose
from sensorium.perturbations.patches import to_patches
from tests.perturbations.test_images import is_grass
from tests.racing_twin import LAY, STEP, WORLD, Recorded, drive, open_theirs, ours, theirs

needs_gymnasium = pytest.mark.skipif(
    importlib.util.find_spec("Box2D") is None, reason="CarRacing-v3 needs the extra `racing`"
)


@needs_gymnasium
@pytest.mark.parametrize("seed", range(6))
def test_the_same_numbers_make_the_same_track(seed):
    env, _, drawn = theirs(seed)
    track, closed, *_ = ours(drawn)
    assert closed
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


@needs_gymnasium
def test_tracks_that_do_not_close_are_told_apart():
    env = open_theirs()
    env.reset(seed=0)
    closed = []
    for seed in range(60):
        env._np_random, env.road_poly = Recorded(seed), []
        expected = env._create_track()
        drawn = np.array(env._np_random.drawn).reshape(12, 2)
        closed.append(bool(LAY(*jnp.asarray(drawn.T, jnp.float32))[1]))
        assert closed[-1] == expected
    assert 1 <= closed.count(False) < 15


@needs_gymnasium
@pytest.mark.parametrize("seed", [0, 2, 7])
def test_a_careless_driver_earns_the_same_step_by_step(seed):
    # Wheels slip, the car spins and leaves the road; steering reaches its limits
    steps = list(drive(seed, 400))
    assert len(steps) == 400
    for time, step in enumerate(steps):
        assert step.rewards[0] == pytest.approx(step.rewards[1], abs=1e-3), time
        assert step.ended == (False, False)
        assert step.on_road[0] == step.on_road[1], time
        assert step.apart < (0.002 if time < 100 else 0.02), time
        assert step.steering < 2e-3, time
    assert sum(step.rewards[0] for step in steps) > 100  # it got somewhere
    if seed == 2:
        assert sum(not all(step.on_road[0]) for step in steps) > 5  # and off the road


@needs_gymnasium
def test_images_agree():
    driven = [list(drive(seed, 100, images=True)) for seed in (1, 3)]
    shares = np.array([[step.agreeing for step in steps] for steps in driven])
    same = np.array([[step.same for step in steps] for steps in driven])
    assert shares[:, 50:].mean() > 0.975
    assert shares[:, 50:].min() > 0.965
    assert shares.min() > 0.92  # from far above, all is edges
    assert same[:, 50:].mean() > 0.9  # grass and road have the very same colours


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


def test_it_shows_images_and_says_so():
    world = make("CarRacing")
    observation, _ = world.reset(jax.random.key(0))
    assert observation.shape == world.observation_shape == (96, 96, 3)
    assert observation.dtype == jnp.uint8
    with pytest.raises(ConfigError, match=r"images of shape \(96, 96, 3\)"):
        _ = world.num_sensors
    with pytest.raises(ConfigError, match="no scalar sensors"):
        _ = make("CarRacing", Shuffle()).num_sensors


def test_gymnasium_knows_it():
    env = gymnasium.make("sensorium/CarRacing-v0", render_mode="rgb_array")
    observation, _ = env.reset(seed=3)
    assert env.observation_space.contains(observation)
    assert env.step(np.array([0.0, 1.0, -1.0], np.float32))[0].dtype == np.uint8
    assert env.render().shape == (384, 384, 3)


@needs_gymnasium
def test_perturbations_of_images_wrap_gymnasiums_own_world():
    scene = compose(Background("hills"), ShufflePatches())
    env = PerturbObservation(open_theirs(), scene)
    bare = open_theirs()
    assert env.observation_space == bare.observation_space
    shown, true = env.reset(seed=1)[0], bare.reset(seed=1)[0]
    for _ in range(60):
        action = np.array([0.0, 0.1, 0.0], np.float32)
        shown, true = env.step(action)[0], bare.step(action)[0]
    grass = is_grass(true)
    assert grass.mean() > 0.3
    behind = np.asarray(SCENES["hills"](96, 96))
    expected = np.where(grass[..., None], behind, true)
    patches = [np.asarray(to_patches(jnp.asarray(image), 6)) for image in (shown, expected)]
    assert sorted(p.tobytes() for p in patches[0]) == sorted(p.tobytes() for p in patches[1])
    again = env.reset(seed=1)[0]
    assert (again == env.reset(seed=1)[0]).all()


def test_the_road_in_numbers_is_the_same_world():
    roads = make("CarRacingRoad")
    key = jax.random.key(4)
    numbers, by_road = roads.reset(key)
    _, by_image = WORLD.reset(key)
    assert numbers.shape == roads.observation_shape == (len(roads.sensor_names),)
    actions = jax.random.uniform(jax.random.key(5), (40, 3), minval=-0.5, maxval=0.5)

    def drive(world, state):
        def step(state, action):
            _, state, reward, *_ = world.advance(key, state, action)
            return state, (reward, world.critic_features(state), state.car.x)

        return jax.jit(lambda state: jax.lax.scan(step, state, actions)[1])(state)

    drives = drive(roads, by_road), drive(WORLD, by_image)
    jax.tree.map(lambda *pair: np.testing.assert_allclose(*pair, atol=1e-4), *drives)


def test_the_road_in_numbers_says_where_it_goes():
    world = make("CarRacingRoad")
    numbers, state = world.reset(jax.random.key(4))
    seen = dict(zip(world.sensor_names, map(float, numbers), strict=True))
    assert abs(seen["m to the right of the middle / 10"]) < 0.05
    assert seen["cosine of the heading to the road"] > 0.98
    assert seen["wheels on the road / 4"] == 1
    # The road begins straight, a tile each 3.5 m
    assert seen["m that it goes on, 1 tiles ahead / 30"] == pytest.approx(3.5 / 30, rel=0.1)
    aside = state._replace(car=jax.tree.map(jnp.asarray, state.car._replace(x=state.car.x + 3.0)))
    moved = dict(zip(world.sensor_names, map(float, world.observe(aside)), strict=True))
    right = 3.0 * float(jnp.cos(state.car.angle))
    assert moved["m to the right of the middle / 10"] == pytest.approx(right / 10, abs=0.05)


def test_restless_steering_and_speeding_cost_in_training():
    world, training = make("CarRacingRoad"), make("CarRacingRoad", training=True)
    key = jax.random.key(0)
    _, state = world.reset(key)
    for steer, costs in ((0.0, False), (1.0, True)):
        action = jnp.array([steer, -1.0, -1.0])
        rewards = [float(one.advance(key, state, action)[2]) for one in (world, training)]
        assert (rewards[1] < rewards[0] - 0.05) == costs
    for speed, costs in ((50.0, False), (80.0, True)):
        fast = state._replace(car=state.car._replace(vx=jnp.float32(0), vy=jnp.float32(speed)))
        action = jnp.array([0.0, -1.0, -1.0])
        rewards = [float(one.advance(key, fast, action)[2]) for one in (world, training)]
        assert (rewards[1] < rewards[0] - 0.3) == costs
    with pytest.raises(ConfigError, match="no reward of its own"):
        make("CartPoleSwingUpHarder", training=True)
