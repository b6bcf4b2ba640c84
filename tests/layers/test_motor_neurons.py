"""Motor neurons: no motor is told from another but by what it does."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from sensorium.envs import Thrusters
from sensorium.errors import ConfigError
from sensorium.layers.motor_neurons import normal, solved
from sensorium.layers.motor_trials import cosines, matched
from sensorium.policies import (
    AnonymousMotorNeuronsConfig,
    MotorGraphConfig,
    MotorNeuronsConfig,
    Policy,
    check_policy,
    num_parameters,
    to_vector,
)

ANONYMOUS = [
    AnonymousMotorNeuronsConfig(),
    AnonymousMotorNeuronsConfig(num_queries=4),
    MotorGraphConfig(8, 8, num_queries=4, message_size=4, key_size=4, controller_sizes=(8,)),
]
CONFIGS = [MotorNeuronsConfig(), *ANONYMOUS]


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
    with jax.enable_x64(True):  # in 32 bits, what rounding leaves grows in a closed loop
        policy = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), policy)
        order = jnp.asarray(random.permutation(count))
        sign = jnp.asarray(random.choice([-1.0, 1.0], count))
        effect = effects(count, seed).astype(np.float64)
        _, readings, carry = live(policy, policy.initial_carry(5), jnp.ones(5), effect)
        moved = policy.motors_reordered(carry, order, sign)
        actions, end, _ = live(policy, carry, readings, effect)
        actions_moved, end_moved, _ = live(policy, moved, readings, effect[:, order] * sign)
        np.testing.assert_allclose(actions_moved, actions[:, order] * sign, atol=1e-8)
        np.testing.assert_allclose(end_moved, end, atol=1e-8)


@pytest.mark.parametrize("config", ANONYMOUS)
@given(st.permutations(range(5)))
@settings(max_examples=8)
def test_anonymous_sensors_that_move_with_their_memory_change_nothing(config, order):
    policy, order, effect = drawn(config, 6), jnp.array(order), effects(6, 0)
    with jax.enable_x64(True):
        policy = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), policy)
        effect = effect.astype(np.float64)
        _, readings, carry = live(policy, policy.initial_carry(5), jnp.arange(5.0), effect)
        action, _, _ = policy.step(readings, carry)
        same, _, _ = policy.step(readings[order], policy.reordered(carry, order))
        np.testing.assert_allclose(same, action, atol=1e-8)


@pytest.mark.parametrize("config", ANONYMOUS)
def test_sensors_that_are_there_twice_change_nothing_if_their_sum_is_halved(config):
    with jax.enable_x64(True):
        policy = drawn(config, 3)
        policy = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), policy)
        readings, effect = jnp.linspace(-1, 1, 5), effects(3, 1)
        actions, _, _ = live(policy, policy.initial_carry(5), readings, effect)
        policy, effect = policy.with_code_scale(0.5), np.tile(effect, (2, 1))
        twice, _, _ = live(policy, policy.initial_carry(10), jnp.tile(readings, 2), effect)
        np.testing.assert_allclose(twice, actions, atol=1e-4)


@pytest.mark.parametrize("config", CONFIGS)
def test_without_noise_of_its_own_no_motor_becomes_unlike_another(config):
    policy, effect = drawn(config, 6), effects(6, 0)
    carry = policy.initial_carry(5)
    own = "number" if hasattr(carry.motors, "number") else "seed"
    none = {own: jnp.zeros_like(getattr(carry.motors, own))}
    alike = carry._replace(motors=carry.motors._replace(**none))
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


@given(st.integers(1, 10), st.integers(0, 2**31))
@settings(max_examples=20)
def test_elimination_solves_as_numpy_does_and_has_its_gradient(size, seed):
    random = np.random.default_rng(seed)
    half = random.normal(size=(size, size))
    with jax.enable_x64(True):
        gram = jnp.asarray(half @ half.T + 0.1 * np.eye(size))
        right = jnp.asarray(random.normal(size=(size, 3)))
        np.testing.assert_allclose(solved(gram, right), np.linalg.solve(gram, right), rtol=1e-6)
        slopes = [
            jax.grad(lambda gram, solve=solve: jnp.sum(solve(gram, right) ** 2))(gram)
            for solve in (solved, jnp.linalg.solve)
        ]
        np.testing.assert_allclose(*slopes, rtol=1e-4, atol=1e-4)


def test_noise_is_normal_and_of_each_motor_its_own():
    steps = jnp.arange(500)
    drawn = np.asarray(jax.vmap(lambda time: normal(jnp.arange(40, dtype=jnp.uint32), time))(steps))
    assert kstest(drawn.ravel(), "norm").pvalue > 0.01
    assert np.abs(np.corrcoef(drawn.T) - np.eye(40)).max() < 0.2
    assert abs(np.corrcoef(drawn[1:].ravel(), drawn[:-1].ravel())[0, 1]) < 0.05


def live_on_a_body(policy, steps, rewired_at=None):
    """Push a body at random, and rewire it; how far digests are from what motors do, after each step."""
    world = Thrusters(least=8)
    observation, state = world.reset(jax.random.key(1))
    carry, random, apart = policy.initial_carry(5), np.random.default_rng(0), []
    step = jax.jit(lambda observation, carry: policy.step(observation, carry))
    for time in range(steps):
        if time == rewired_at:
            state = state._replace(wrench=-state.wrench[::-1])
        _, carry, _ = step(observation, carry)
        # In the frame of the body an acceleration of one step is what a wrench gives it
        params = world.default_params
        wrench = np.asarray(state.wrench) / [params.mass, params.mass, params.inertia]
        effect = policy.senses.change_scale * params.time_step * wrench.T
        apart.append(np.linalg.norm(carry.motors.digest[2:] - effect) / np.linalg.norm(effect))
        action = jnp.asarray(random.uniform(-0.5, 0.5, 8), jnp.float32)
        carry = policy.after_action(carry, action)
        observation, state, *_ = world.advance(jax.random.key(0), state, action)
    return apart


def test_a_digest_becomes_what_its_motor_does_in_two_steps_a_motor():
    apart = live_on_a_body(MotorNeuronsConfig().build(5, 8, jax.random.key(0)), 16)
    assert apart[0] > 0.99
    assert apart[-1] < 0.3


def test_after_a_rewiring_it_becomes_that_again():
    apart = live_on_a_body(MotorNeuronsConfig().build(5, 8, jax.random.key(0)), 40, rewired_at=20)
    assert apart[19] < 0.3 < 1.0 < apart[20]
    assert apart[-1] < 0.4


@given(st.integers(1, 40), st.integers(0, 10_000))
@settings(max_examples=20)
def test_vibrations_are_at_right_angles_to_each_other_and_to_what_is_always_there(count, start):
    steps, numbers = jnp.asarray(count + 2), jnp.arange(count)
    times = start * steps + jnp.arange(count + 2)
    over_time = np.asarray(jax.vmap(lambda time: cosines(numbers, time, steps))(times))
    np.testing.assert_allclose(over_time.T @ over_time, (count + 2) * np.eye(count), atol=1e-3)
    np.testing.assert_allclose(over_time.sum(axis=0), 0.0, atol=1e-3)


@given(st.integers(0, 2**31))
@settings(max_examples=20)
def test_rounds_of_matching_leave_no_sensor_to_two_motors(seed):
    size = jnp.asarray(np.random.default_rng(seed).uniform(0, 1, (8, 8)), jnp.float32)
    once, often = (matched(size, jnp.zeros((8, 1)), rounds) for rounds in (0, 300))
    for match in (once, often):
        np.testing.assert_allclose(match.sum(axis=0), 1.0, rtol=1e-4)
    assert often.sum(axis=1).max() < 1.02


@pytest.mark.parametrize("seed", range(4))
def test_a_graph_knows_what_each_motor_moves_once_all_have_vibrated(seed):
    """Whatever happens anyhow, and whatever another would do in its place."""
    random = np.random.default_rng(seed)
    moves, sign = random.permutation(12)[:8], random.choice([-1.0, 1.0], 8)
    effect = np.zeros((12, 8), np.float32)
    effect[moves, range(8)] = sign * random.uniform(0.05, 0.2, 8)
    policy = MotorGraphConfig().build(12, 8, jax.random.key(seed))
    carry, readings = policy.initial_carry(12), random.normal(size=12).astype(np.float32)
    step = jax.jit(lambda readings, carry: policy.step(readings, carry))
    others, learnt = jnp.asarray(random.uniform(-1, 1, 8), jnp.float32), None
    for time in range(40):
        action, carry, _ = step(jnp.asarray(readings), carry)
        explored = policy.explored(others, carry)
        if time < 10:
            vibration = 0.5 * cosines(jnp.arange(8), jnp.asarray(time), jnp.asarray(10))
            np.testing.assert_allclose(action, vibration, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(explored, vibration, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(explored, others)
        if time > 10:
            np.testing.assert_array_equal(carry.motors.digest, learnt)
        learnt = carry.motors.digest
        carry = policy.after_action(carry, explored)
        readings = 0.98 * readings + effect @ np.asarray(explored) - 0.02
    digest = np.asarray(carry.motors.digest[0])
    np.testing.assert_array_equal(np.abs(digest).argmax(0), moves)
    np.testing.assert_array_equal(np.sign(digest[moves, range(8)]), sign)


def alone(policy, readings, world, steps):
    """Let an agent of a graph act in a world; its memory after each step."""
    carry, readings = policy.initial_carry(len(readings)), jnp.asarray(readings, jnp.float32)
    step, carries = jax.jit(lambda readings, carry: policy.step(readings, carry)), []
    for time in range(steps):
        action, carry, _ = step(readings, carry)
        readings = world(time, readings, action)
        carries.append(carry)
    return carries


def test_a_graph_that_tries_its_motors_anew_finds_them_where_they_are_then():
    effect = np.zeros((12, 8), np.float32)
    effect[range(8), range(8)] = 0.1
    policy = MotorGraphConfig(renewal=20).build(12, 8, jax.random.key(0))

    def rewired(time, readings, action):
        return 0.98 * readings + (effect if time < 20 else -effect[:, ::-1]) @ action

    carries = alone(policy, np.ones(12), rewired, 40)
    before, after = (np.asarray(carries[time].motors.digest[0]) for time in (19, 39))
    np.testing.assert_array_equal(before.argmax(0), range(8))
    np.testing.assert_array_equal(after.argmin(0), range(8)[::-1])
    assert [int(carries[time].time) for time in (19, 20, 39)] == [20, 1, 20]


def test_a_graph_tries_its_motors_anew_once_what_sensors_expect_is_wrong_for_long():
    policy = MotorGraphConfig(doubt_limit=3.0).build(5, 3, jax.random.key(0))
    last = policy.expects.layers[-1]
    sure = (jnp.zeros_like(last.weight), jnp.array([0.0, -2.0]))  # nothing changes, almost surely
    policy = eqx.tree_at(
        lambda policy: (policy.expects.layers[-1].weight, policy.expects.layers[-1].bias),
        policy,
        sure,
    )
    still = alone(policy, np.ones(5), lambda time, readings, action: readings, 30)
    assert [int(carry.time) for carry in still] == list(range(1, 31))
    moving = alone(policy, np.ones(5), lambda time, *_: jnp.full(5, (time >= 15) * time % 2.0), 30)
    times = [int(carry.time) for carry in moving]
    assert times[:15] == list(range(1, 16))
    assert 1 in times[15:21]
