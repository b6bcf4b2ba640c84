"""Bodies that nobody describes: a controller that knows them gets to every target."""

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorium.envs import (
    Arm,
    CartPoleMotors,
    CartPoleSwingUpHarder,
    Perturbed,
    Thrusters,
    make,
)
from sensorium.errors import ConfigError
from sensorium.perturbations import (
    CutMotors,
    Identity,
    LagMotors,
    OneOf,
    ReverseMotors,
    RewireMotors,
    ScaleMotors,
    begin,
    check_perturbation,
    compose,
)

KEYS = jax.random.split(jax.random.key(0), 128)


@pytest.mark.parametrize(
    ("world", "share"),
    [
        (Thrusters(), 0.98),
        (Thrusters(motors=64, least=64), 0.98),
        (Thrusters(motors=12, least=12, one_sided=True, lag=0.6), 0.85),
        (Arm(), 0.97),
        (Arm(motors=16, least=16), 0.97),
    ],
)
def test_a_controller_that_knows_the_body_gets_to_both_targets(world, share):
    rewards, half = np.asarray(world.best_rewards(KEYS)), world.max_steps // 2
    assert set(np.unique(rewards)) == {0.0, 1.0}
    assert rewards[:, half - 10 : half].mean() > share
    assert rewards[:, -10:].mean() > share
    assert rewards[:, half : half + 3].mean() < 0.5  # the target is elsewhere


@pytest.mark.parametrize("world", [Thrusters(), Arm()])
def test_bodies_differ_and_some_motors_are_not_connected(world):
    _, states = jax.vmap(world.reset_env, in_axes=(0, None))(KEYS, world.default_params)
    of_motors = states.wrench if isinstance(world, Thrusters) else states.lengths[..., None]
    live = np.asarray((of_motors != 0).any(-1)).sum(1)
    assert set(live) == set(range(world.least, world.motors + 1))
    assert len(np.unique(np.asarray(of_motors).reshape(len(KEYS), -1), axis=0)) == len(KEYS)


@pytest.mark.parametrize("world", [Thrusters(), Arm()])
def test_the_reward_of_training_has_a_slope_everywhere(world):
    world = world.for_training()

    def total(action, key):
        _, state = world.reset_env(key, world.default_params)
        for _ in range(2):
            _, state, reward, *_ = world.advance(key, state, action)
        return reward

    slope = jax.vmap(jax.grad(total), in_axes=(None, 0))(jnp.zeros(world.motors), KEYS)
    assert np.isfinite(slope).all()
    assert (np.abs(slope).sum(1) > 0).all()


@pytest.mark.parametrize("name", ["Thrusters", "Arm"])
def test_they_are_gymnasium_environments(name):
    env = gymnasium.make(f"sensorium/{name}-v0")
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert env.action_space.shape == (8,)
    for _ in range(make(name).max_steps):
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
    assert (terminated, truncated) == (False, True)


def sent(perturbation, steps, action, key=0):
    """What arrives of the same action in each step of an episode."""
    state, arrived = begin(perturbation, jax.random.key(key), 5, len(action)), []
    for step in range(steps):
        _, state = perturbation.apply(jax.random.key(step), state, jnp.zeros(5))
        done, state = perturbation.perturb_action(jax.random.key(step), state, action)
        arrived.append(done)
    return np.asarray(arrived)


ACTION = jnp.linspace(0.1, 1.0, 10)


@pytest.mark.parametrize(
    "perturbation",
    [
        *(RewireMotors(), RewireMotors(3, signed=True), ReverseMotors(2), ScaleMotors(0.3)),
        *(CutMotors(), LagMotors(), OneOf((LagMotors(0.9), compose(CutMotors(), LagMotors())))),
    ],
)
def test_motor_perturbations_keep_the_contract(perturbation):
    check_perturbation(perturbation)
    assert perturbation.perturbs_actions
    assert (sent(perturbation, 5, ACTION, 0) == sent(perturbation, 5, ACTION, 0)).all()


@given(
    st.lists(
        st.sampled_from(
            [
                *(RewireMotors(2), RewireMotors(3, signed=True), ReverseMotors(2), Identity()),
                *(ScaleMotors(0.3), OneOf((ReverseMotors(), RewireMotors(signed=True)))),
            ]
        ),
        max_size=3,
    ),
    st.integers(0, 2**16),
)
@settings(max_examples=20)
def test_motors_get_what_an_expert_wants_if_they_are_asked_for_it(parts, seed):
    perturbation = compose(*parts)
    command = jax.random.uniform(jax.random.key(seed), (7,), minval=-0.02, maxval=0.02)
    state = begin(perturbation, jax.random.key(seed), 5, 7)
    for step in range(5):
        key = jax.random.key(step)
        _, state = perturbation.apply(key, state, jnp.zeros(5))
        action = perturbation.wanted_action(state, command)
        arrived, state = perturbation.perturb_action(key, state, action)
        np.testing.assert_allclose(arrived, command, atol=1e-6)


def test_motors_are_rewired_when_it_is_time():
    once, often = sent(RewireMotors(), 9, ACTION), sent(RewireMotors(3, signed=True), 9, ACTION)
    assert (once == once[0]).all()
    assert not (once[0] == ACTION).all()
    np.testing.assert_array_equal(np.sort(once[0]), ACTION)
    np.testing.assert_array_equal(np.sort(np.abs(often)), np.tile(ACTION, (9, 1)))
    changes = [step for step in range(1, 9) if (often[step] != often[step - 1]).any()]
    assert changes == [3, 6]
    assert (often < 0).any()
    assert (often > 0).any()
    assert RewireMotors(100).within(100) == RewireMotors()
    assert RewireMotors(99).within(100) == RewireMotors(99)


def test_motors_are_reversed_scaled_and_cut():
    reversed_ = sent(ReverseMotors(2), 4, ACTION)
    np.testing.assert_array_equal(reversed_, np.outer([1, 1, -1, -1], ACTION))
    scaled = sent(ScaleMotors(0.3), 2, ACTION) / ACTION
    assert (scaled[0] == scaled[1]).all()
    assert ((scaled >= 0.3) & (scaled <= 1)).all()
    cut = sent(CutMotors(0.3, after=1), 3, ACTION)
    assert [(row == 0).sum() for row in cut] == [0, 3, 3]


def test_motors_follow_late():
    late = sent(LagMotors(0.8), 3, ACTION)
    np.testing.assert_allclose(late, np.outer([0.2, 0.36, 0.488], ACTION), rtol=1e-6)
    with pytest.raises(ConfigError, match="from 0 to less than 1"):
        LagMotors(1.0)


def test_lag_of_the_world_and_of_the_perturbation_are_the_same():
    own, late = Thrusters(lag=0.6), Perturbed(Thrusters(), LagMotors(0.6))
    _, one = own.reset_env(KEYS[0], own.default_params)
    _, other = late.reset_env(KEYS[0], late.default_params)
    for action in jax.random.uniform(KEYS[1], (5, 8), minval=-1.0):
        shown, one, *_ = own.step_env(KEYS[0], one, action, own.default_params)
        arrived, other, *_ = late.step_env(KEYS[0], other, action, late.default_params)
        np.testing.assert_allclose(arrived, shown, atol=1e-6)


def test_one_motor_of_the_cart_is_connected_and_drives_it_as_ever():
    world, plain = CartPoleMotors(), CartPoleSwingUpHarder()
    _, states = jax.vmap(world.reset_env, in_axes=(0, None))(KEYS, world.default_params)
    gains = np.asarray(states.gains)
    assert ((gains != 0).sum(1) == 1).all()
    assert set(np.flatnonzero((gains != 0).any(0))) == {0, 1, 2, 3}
    size = np.abs(gains).max(1)
    assert ((size >= 1) & (size <= 2)).all()
    assert (gains < 0).any()
    observation, state = world.reset_env(KEYS[0], world.default_params)
    expected, cart = plain.reset_env(KEYS[0], plain.default_params)
    np.testing.assert_array_equal(observation, expected)
    for push in (0.3, -0.5, 2.0):  # more than 1 is 1
        action = jnp.where(state.gains != 0, push / 2 / state.gains, 0.9)
        observation, state, reward, *_ = world.step(KEYS[1], state, action)
        expected, cart, same, *_ = plain.step(KEYS[1], cart, jnp.array([push / 2]))
        np.testing.assert_allclose(observation, expected, atol=1e-5)
        np.testing.assert_allclose(reward, same, atol=1e-6)


@given(st.integers(0, 2**16), st.floats(-1, 1, width=32))
@settings(max_examples=20)
def test_the_cart_moves_as_an_expert_wants_who_knows_no_motors(seed, force):
    world = CartPoleMotors()
    _, state = world.reset_env(jax.random.key(seed), world.default_params)
    command = world.to_motors(state, jnp.array([force]))
    np.testing.assert_allclose(world.from_motors(state, command), [force], atol=1e-6)
    assert (np.asarray(command) != 0).sum() <= 1


def test_worlds_are_values():
    assert dataclasses.replace(Thrusters(), motors=9) == Thrusters(motors=9) != Thrusters()


def after(world, steps=5):
    """A body that a controller has moved, for a few steps."""
    _, state = world.reset(KEYS[0])
    for step in range(steps):
        action = world.best_action(state)
        _, state, *_ = world.step(KEYS[step], state, action)
    return state


def test_thrusters_are_drawn_where_they_push():
    """The torque of each is that of its force at its place; those that are not connected are not drawn."""
    world = Thrusters()
    state = after(world)
    (x, y), (force_x, force_y, torque) = state.place.T, state.wrench.T
    np.testing.assert_allclose(x * force_y - y * force_x, torque, atol=1e-5)
    pose = np.asarray(world.pose(state))
    motors = pose[5:].reshape(8, 5)
    np.testing.assert_array_equal(pose[:5], [*state.position, state.angle, *state.target])
    np.testing.assert_array_equal(motors[:, 4], state.thrust)
    connected = np.asarray(state.wrench).any(1)
    assert 3 <= connected.sum() < 8
    for is_seen in (True, False):
        pushed = state._replace(thrust=jnp.where(connected == is_seen, 1.0, state.thrust))
        assert (world.draw(pushed) != world.draw(state)).any() == is_seen


def test_an_arm_is_drawn_from_its_shoulder_to_its_hand():
    world = Arm()
    state = after(world)
    joints = np.asarray(world.pose(state))[2:].reshape(8, 4)
    np.testing.assert_allclose(joints[-1, :2], state.hand, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(state.joint)[joints[:, 2].astype(int)], np.arange(8))
    image = world.draw(state)
    assert image.shape == (480, 480, 3)
    row, column = np.rint(240 + 480 / 4.4 * np.asarray(state.hand) * [1, -1]).astype(int)[::-1]
    assert image[row, column, 0] > image[row, column, 2] + 100  # the hand
