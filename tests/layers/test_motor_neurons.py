"""Motor neurons: no motor is told from another but by what it does."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorium.envs import Thrusters
from sensorium.errors import ConfigError
from sensorium.policies import (
    AnonymousMotorNeuronsConfig,
    MotorNeuronsConfig,
    Policy,
    check_policy,
    num_parameters,
    to_vector,
)

CONFIGS = [MotorNeuronsConfig(), AnonymousMotorNeuronsConfig()]


def drawn(config, num_motors, seed=0) -> Policy:
    """An agent whose weights are all at random, so that no zero hides a fault."""
    policy = config.build(5, num_motors, jax.random.key(seed))
    noise = iter(jax.random.split(jax.random.key(seed + 1), 40))
    return jax.tree.map(
        lambda leaf: leaf + 0.1 * jax.random.normal(next(noise), leaf.shape), policy
    )


def effects(num_motors, seed):
    return np.random.default_rng(seed).normal(size=(5, num_motors)).astype(np.float32) / 5


@jax.jit
def live(policy, carry, readings, effect):
    """Act for some steps in a world where readings change linearly; all actions, and what is left."""

    def step(now, _):
        readings, carry = now
        action, carry, _ = policy.step(readings, carry)
        return (0.9 * readings + effect @ action, carry), action

    (readings, carry), actions = jax.lax.scan(step, (readings, carry), None, length=12)
    return actions, readings, carry


@pytest.mark.parametrize("config", CONFIGS)
@given(st.integers(1, 64), st.integers(0, 2**31))
@settings(max_examples=8)
def test_motors_that_move_or_turn_around_with_memory_and_noise_act_as_before(config, count, seed):
    policy, random = drawn(config, count), np.random.default_rng(seed)
    order = jnp.asarray(random.permutation(count))
    sign = jnp.asarray(random.choice([-1.0, 1.0], count), jnp.float32)
    effect, carry, readings = effects(count, seed), policy.initial_carry(5), jnp.ones(5)
    _, readings, carry = live(policy, carry, readings, effect)
    moved = policy.motors_reordered(carry, order, sign)
    actions, end, _ = live(policy, carry, readings, effect)
    actions_moved, end_moved, _ = live(policy, moved, readings, effect[:, order] * sign)
    np.testing.assert_allclose(actions_moved, actions[:, order] * sign, atol=2e-3)
    np.testing.assert_allclose(end_moved, end, atol=2e-3)


@given(st.permutations(range(5)))
@settings(max_examples=8)
def test_anonymous_sensors_that_move_with_their_memory_change_nothing(order):
    policy, order = drawn(CONFIGS[1], 6), jnp.array(order)
    effect = effects(6, 0)
    _, readings, carry = live(policy, policy.initial_carry(5), jnp.arange(5.0), effect)
    action, _, _ = policy.step(readings, carry)
    same, _, _ = policy.step(readings[order], policy.reordered(carry, order))
    np.testing.assert_allclose(same, action, atol=1e-4)


@pytest.mark.parametrize("config", CONFIGS)
def test_without_noise_of_its_own_no_motor_becomes_unlike_another(config):
    policy, effect = drawn(config, 6), effects(6, 0)
    carry = policy.initial_carry(5)
    alike = carry._replace(motors=carry.motors._replace(seed=jnp.zeros_like(carry.motors.seed)))
    actions, _, _ = live(policy, alike, jnp.ones(5), effect)
    np.testing.assert_array_equal(actions, actions[:, :1].repeat(6, axis=1))
    actions, _, _ = live(policy, carry, jnp.ones(5), effect)
    assert np.abs(actions - actions[:, :1]).max() > 0.1


@pytest.mark.parametrize("config", CONFIGS)
def test_weights_do_not_depend_on_how_many_motors_there_are(config):
    policy = config.build(5, 3, jax.random.key(0))
    for count in (1, 8, 40):
        more = policy.with_motors(count)
        check_policy(more, 5)
        assert more.initial_carry(5).motors.action.shape == (count,)
        np.testing.assert_array_equal(to_vector(more), to_vector(policy))
        assert num_parameters(config.build(5, count, jax.random.key(0))) == num_parameters(policy)
    with pytest.raises(ConfigError, match="at least one motor, got 0"):
        policy.with_motors(0)
    with pytest.raises(ConfigError, match="not for choices"):
        config.build(5, (3, 2), jax.random.key(0))


@pytest.mark.parametrize("config", CONFIGS)
def test_cost_is_linear_in_the_number_of_motors(config):
    policy, flops, size = config.build(5, 1, jax.random.key(0)), [], []
    for count in (1_000, 10_000):
        agent = policy.with_motors(count)
        carry = agent.initial_carry(5)
        compiled = jax.jit(Policy.step).lower(agent, jnp.ones(5), carry).compile()
        flops.append(compiled.cost_analysis()["flops"])
        size.append(compiled.memory_analysis().temp_size_in_bytes)
    assert 5 < flops[1] / flops[0] < 11
    assert size[1] < 11 * size[0] + 100_000


def test_a_digest_becomes_what_its_motor_does():
    """The prediction error shrinks as digests learn; a body at rest that is pushed at random teaches them."""
    world = Thrusters(least=8)
    policy = MotorNeuronsConfig().build(5, 8, jax.random.key(0))
    weight = policy.senses.channels.weight.at[:, :2].set(0.0)  # where it is says nothing of motors
    policy = eqx.tree_at(
        lambda policy: (policy.motors.leak, policy.senses.channels.weight),
        policy,
        (jnp.array(-9.0), weight),
    )
    observation, state = world.reset(jax.random.key(1))
    carry = policy.initial_carry(5)
    channels, scale = policy.senses.channels.weight, policy.senses.change_scale
    random, errors = np.random.default_rng(0), []
    for _ in range(90):
        features, carry, _ = policy.encode(observation, carry)
        errors.append(float(jnp.linalg.norm(features.error)))
        _, carry = policy.decide(features, carry)
        action = jnp.asarray(random.uniform(-1, 1, 8), jnp.float32)
        carry = policy.after_action(carry, action)
        observation, state, *_ = world.advance(jax.random.key(0), state, action)
    # In the frame of the body an acceleration of one step is what a wrench gives it
    params = world.default_params
    wrench = np.asarray(state.wrench) / [params.mass, params.mass, params.inertia]
    effect = scale * params.time_step * np.asarray(channels)[:, 2:] @ wrench.T
    found = np.corrcoef(effect.ravel(), np.asarray(carry.motors.digest).ravel())[0, 1]
    assert found > 0.8
    assert np.mean(errors[-20:]) < np.mean(errors[1:21])
