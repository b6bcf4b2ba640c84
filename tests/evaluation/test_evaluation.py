"""Scores: statistics by hand, starts that are fair, and the curve after a shuffle."""

import dataclasses

import jax
import numpy as np
import pytest

from sensorium.envs import CartPoleSwingUpHarder
from sensorium.errors import ConfigError, WorldError
from sensorium.evaluation import (
    evaluate,
    evaluation_keys,
    mean_interval,
    paired_difference,
    recovery_curve,
    summarise,
)
from sensorium.evaluation.recovery import ShuffleOnce
from sensorium.perturbations import Duplicate, Identity, Shuffle
from sensorium.policies import FeedForwardConfig, MotorNeuronsConfig
from sensorium.rollout import EngineConfig, make_world
from sensorium.zoo import load

ENV = "CartPoleSwingUpHarder"


def test_summary_of_numbers_counted_by_hand():
    summary = summarise(np.array([0.0, 0.0, 0.0, 100.0, 200.0, 900.0, 900.0, 900.0]), 800.0)
    assert summary.mean == 375.0
    assert summary.iqm == (0 + 100 + 200 + 900) / 4
    assert summary.std == pytest.approx(np.sqrt((3 * 375**2 + 275**2 + 175**2 + 3 * 525**2) / 8))
    assert summary.solved == 3 / 8
    assert summary.ci95[0] < 375 < summary.ci95[1]


def test_summary_of_one_episode_and_of_none():
    assert summarise(np.array([7.0]), 800.0).ci95 == (7.0, 7.0)
    with pytest.raises(ConfigError, match="at least one episode"):
        summarise(np.array([]), 800.0)


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    draws = np.random.default_rng(0).normal(5.0, 2.0, (100, 60))
    inside = [low <= 5.0 <= high for low, high in (summarise(d, 9.0).ci95 for d in draws)]
    assert 0.85 <= np.mean(inside) <= 1.0


def test_the_interval_of_a_few_scores_is_that_of_students_t():
    # With one degree of freedom t is Cauchy's distribution: its 97.5% quantile is tan(0.475 pi)
    half = np.tan(0.475 * np.pi) * 0.5
    np.testing.assert_allclose(mean_interval(np.array([2.0, 3.0])), (2.5 - half, 2.5 + half))


def test_paired_difference_is_sharper_than_the_scores():
    before = np.random.default_rng(0).normal(400, 400, 200)
    mean, (low, high) = paired_difference(before + 3.0, before)
    assert mean == pytest.approx(3.0)
    assert high - low < 1e-6


@pytest.fixture(scope="module")
def policy():
    return load("cartpole-pi").policy


def test_scores_in_a_world_on_the_host():
    feedback = load("cartpole-pi-feedback").policy  # one action, as the pendulum has
    scores = [
        evaluate(
            feedback, "gym:Pendulum-v1", perturbation, episodes=3, engine=EngineConfig(workers=n)
        )
        for perturbation, n in ((Identity(), 0), (Identity(), 1), (Shuffle(), 0))
    ]
    assert np.array_equal(scores[0].returns, scores[1].returns)
    np.testing.assert_allclose(scores[0].returns, scores[2].returns, rtol=0.02)  # any order will do
    assert scores[0].env == "gym:Pendulum-v1"
    assert scores[0].summary.solved is None  # it names no return that would solve it
    with pytest.raises(
        ConfigError, match=r"The agent has 1 action\(s\), but gym:CartPole-v1 takes 2"
    ):
        evaluate(feedback, "gym:CartPole-v1", episodes=2)


@pytest.mark.parametrize(("env", "actions"), [(ENV, 1), ("gym:tests.host_worlds:Walk-v0", 2)])
def test_a_return_that_is_no_number_is_one_sentence(env, actions, short_episodes):
    agent = FeedForwardConfig(()).build(make_world(env).num_sensors, actions, jax.random.key(0))
    agent = jax.tree.map(lambda leaf: leaf * np.nan, agent)
    with pytest.raises(WorldError, match=f"broken in {env}: the return of episode 0 is nan, since"):
        evaluate(agent, env, episodes=2, name="broken", engine=EngineConfig())


@pytest.fixture
def short_episodes(monkeypatch):
    monkeypatch.setattr(CartPoleSwingUpHarder, "max_steps", 20)


def test_same_seed_same_returns_and_the_same_starts_for_all(policy, short_episodes):
    first, again, other, shuffled = (
        evaluate(policy, ENV, perturbation, episodes=6, seed=seed).returns
        for perturbation, seed in (
            (Identity(), 1),
            (Identity(), 1),
            (Identity(), 2),
            (Shuffle(), 1),
        )
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0
    # Same starts; an invariant agent then earns the same, up to what rounding grows into
    np.testing.assert_allclose(shuffled, first, atol=0.05)


def test_doubled_senses_with_half_the_code_earn_the_same(policy, short_episodes):
    plain, doubled = (
        evaluate(policy, ENV, perturbation, episodes=6, seed=0).returns
        for perturbation in (Identity(), Duplicate(2))
    )
    np.testing.assert_allclose(doubled, plain, atol=0.05)


def test_evaluation_starts_are_not_those_of_training(policy):
    def data(keys):
        return {tuple(row) for row in np.asarray(jax.random.key_data(keys)).tolist()}

    evaluation = data(evaluation_keys(0, 100))
    assert len(evaluation) == 100
    assert not evaluation & data(jax.random.split(jax.random.key(0), 100))


def test_no_episodes(policy):
    with pytest.raises(ConfigError, match="episodes must be at least 1, got 0"):
        evaluate(policy, ENV, episodes=0)


def test_recovery_begins_at_the_shuffle(policy, monkeypatch):
    # A start that hangs still: half the length is enough to swing up
    monkeypatch.setattr(CartPoleSwingUpHarder, "max_steps", 700)
    monkeypatch.setattr(CartPoleSwingUpHarder, "solved_return", 490.0)
    world = CartPoleSwingUpHarder()
    curve = recovery_curve(policy, world, evaluation_keys(0, 24), at=600)
    assert 1 <= curve.episodes <= 24
    np.testing.assert_array_equal(curve.shuffled[:600], curve.undisturbed[:600])
    assert np.asarray(curve.undisturbed[550:600]).mean() >= 0.7
    assert float(curve.code_distance[:600].max()) == 0.0
    assert float(curve.code_distance[600]) > 0.05


def test_recovery_wants_a_step_within_the_episode(policy):
    with pytest.raises(ConfigError, match="between steps 50 and 999, got 1000"):
        recovery_curve(policy, CartPoleSwingUpHarder(), evaluation_keys(0, 2), at=1000)


def test_shuffle_once_never_draws_the_natural_order():
    perturbation = dataclasses.replace(ShuffleOnce(3), at=3)
    for seed in range(50):
        order = perturbation.init(jax.random.key(seed), 2).order
        assert order.tolist() == [1, 0]


def test_agents_with_motor_neurons_act_on_as_many_motors_as_there_are():
    policy = MotorNeuronsConfig(hidden_size=4).build(5, 8, jax.random.key(0))
    scores = evaluate(policy, "Thrusters?motors=11&least=11", episodes=4)
    assert scores.env == "Thrusters?motors=11&least=11"
    same = evaluate(policy.with_motors(11), scores.env, episodes=4)
    np.testing.assert_array_equal(scores.returns, same.returns)
    fixed = FeedForwardConfig().build(5, 8, jax.random.key(0))
    with pytest.raises(ConfigError, match=r"has 8 action.* takes 11"):
        evaluate(fixed, scores.env, episodes=4)
