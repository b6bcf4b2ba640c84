"""CartPole against a float64 computation written out separately, and the interface of worlds."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium.envs import CartPoleState, CartPoleSwingUpHarder, make
from sensorium.errors import UnknownNameError
from sensorium.perturbations import Shuffle

WORLD = CartPoleSwingUpHarder()


def reference_step(x, x_dot, theta, theta_dot, action):
    """One step in Python floats, in the form of the original's equations."""
    force = 10.0 * min(1.0, max(-1.0, action))
    s, c = math.sin(theta), math.cos(theta)
    x_acc = (-2 * 0.3 * theta_dot**2 * s + 3 * 0.5 * 9.82 * s * c + 4 * force - 4 * 0.1 * x_dot) / (
        4 * 1.0 - 3 * 0.5 * c**2
    )
    t_acc = (
        -3 * 0.3 * theta_dot**2 * s * c + 6 * 1.0 * 9.82 * s + 6 * (force - 0.1 * x_dot) * c
    ) / (4 * 0.6 * 1.0 - 3 * 0.3 * c**2)
    x, theta = x + 0.01 * x_dot, theta + 0.01 * theta_dot
    x_dot, theta_dot = x_dot + 0.01 * x_acc, theta_dot + 0.01 * t_acc
    reward = (math.cos(theta) + 1) / 2 * math.cos(math.pi / 2 * x / 2.4)
    return (x, x_dot, theta, theta_dot), reward, abs(x) > 2.4


def test_a_thousand_steps_agree_step_by_step():
    # Each step of ours is compared with a float64 step from the same state, along 1,000 steps
    step = jax.jit(WORLD.advance)
    rng = np.random.default_rng(0)
    _, state = WORLD.reset(jax.random.key(3))
    for _ in range(1000):
        action = rng.uniform(-1.5, 1.5)
        before = [float(value) for value in state[:4]]
        expected, expected_reward, expected_end = reference_step(*before, action)
        observation, state, reward, terminated, _, _ = step(
            jax.random.key(0), state, jnp.array([action], jnp.float32)
        )
        x, x_dot, theta, theta_dot = expected
        sensors = [x, x_dot, math.cos(theta), math.sin(theta), theta_dot]
        np.testing.assert_allclose([float(v) for v in state[:4]], expected, rtol=2e-6, atol=3e-6)
        np.testing.assert_allclose(observation, sensors, rtol=1e-5, atol=1e-5)
        assert float(reward) == pytest.approx(expected_reward, abs=2e-6)
        assert bool(terminated) == expected_end
        if expected_end:  # put the cart back, and go on
            state = state._replace(position=jnp.float32(0.0), velocity=jnp.float32(0.0))


def _at(position, velocity=0.0, time=0):
    values = (position, velocity, math.pi, 0.0)
    return CartPoleState(*(jnp.float32(value) for value in values), jnp.int32(time))


def test_the_end_of_the_track_terminates_and_pays_its_last_step():
    _, _, reward, terminated, truncated, _ = WORLD.advance(
        jax.random.key(0), _at(2.39, velocity=5.0), jnp.zeros(1)
    )
    assert bool(terminated)
    assert not bool(truncated)
    assert float(reward) == pytest.approx(0.0, abs=0.05)


def test_a_thousand_steps_truncate():
    ends = [
        tuple(
            bool(flag)
            for flag in WORLD.advance(jax.random.key(0), _at(0.0, time=t), jnp.zeros(1))[3:5]
        )
        for t in (998, 999)
    ]
    assert ends == [(False, False), (False, True)]


def test_step_starts_anew_and_keeps_the_last_observation():
    observation, state, _, terminated, _, info = WORLD.step(
        jax.random.key(5), _at(2.39, velocity=5.0), jnp.zeros(1)
    )
    assert bool(terminated)
    assert float(info["final_observation"][0]) > 2.4
    assert abs(float(observation[0])) <= 2.4
    assert int(state.time) == 0


def test_same_key_same_start_perturbed_or_not():
    plain, _ = WORLD.reset(jax.random.key(9))
    shuffled, state = make("CartPoleSwingUpHarder", Shuffle()).reset(jax.random.key(9))
    np.testing.assert_array_equal(np.sort(plain), np.sort(shuffled))
    np.testing.assert_array_equal(np.asarray(plain)[np.asarray(state.perturbation)], shuffled)


def test_gradients_flow_through_a_step():
    def reached(action):
        return WORLD.advance(jax.random.key(0), _at(0.0), action[None])[1].velocity

    # dv/da = dt * 4 * force / (4 M - 3 m cos²) = 0.01 * 40 / 2.5
    assert float(jax.grad(reached)(0.1)) == pytest.approx(0.16, rel=1e-5)


def test_step_is_traced_once():
    count = 0

    class Counted(CartPoleSwingUpHarder):
        def step_env(self, *args):
            nonlocal count
            count += 1
            return super().step_env(*args)

    world = Counted()
    _, state = world.reset(jax.random.key(0))
    for index in range(5):
        _, state, *_ = world.step(jax.random.key(index), state, jnp.zeros(1))
    assert count == 1


def test_observation_table_matches_the_sensors():
    rows = [line for line in CartPoleSwingUpHarder.__doc__.splitlines() if line.strip()[:3] in
            {f"| {index}" for index in range(10)}]  # fmt: skip
    assert len(rows) == WORLD.num_sensors == len(WORLD.sensor_names)


def test_unknown_world_names_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'CartPoleSwingUpHarder'"):
        make("CartPoleSwingup")
