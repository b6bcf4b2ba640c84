"""Trainers on tiny worlds whose best behaviour is known: they must find it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium.errors import ConfigError, UnknownNameError, WorldError
from sensorium.policies import AttentionNeuronConfig, FeedForwardConfig, FeedForwardPolicy
from sensorium.rollout import DeviceEngine, run_population
from sensorium.training import (
    DaggerConfig,
    EvolutionConfig,
    PpoConfig,
    ShacConfig,
    Strategy,
    StrategyConfig,
)
from sensorium.training.strategies import STRATEGIES
from tests.probes import FollowWorld, OneMattersWorld, context


def draw_follower(key):
    return FeedForwardConfig((4,)).build(1, 1, key)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_maximises_a_sphere(name):
    # The best of -|x - 1|² is at ones; a strategy that minimised would run away from it
    strategy = Strategy(StrategyConfig(name, sigma=0.3, learning_rate=0.1), 32, 6)
    state = strategy.init(jax.random.key(0), jnp.zeros(6))

    @jax.jit
    def generation(state, key):
        key_ask, key_tell = jax.random.split(key)
        population, state = strategy.ask(key_ask, state)
        fitness = -jnp.sum((population - 1.0) ** 2, axis=1)
        return strategy.tell(key_tell, population, fitness, state)

    for key in jax.random.split(jax.random.key(1), 150):
        state = generation(state, key)
    assert float(jnp.sum((strategy.mean(state) - 1.0) ** 2)) < 0.3


def test_strategy_names_and_populations():
    with pytest.raises(UnknownNameError, match="did you mean 'cma-es'"):
        Strategy(StrategyConfig("cmaes"), 8, 3)
    with pytest.raises(ConfigError, match="at least 4, got 2"):
        Strategy(StrategyConfig(), 2, 3)
    with pytest.raises(ConfigError, match="population 7 is odd"):
        Strategy(StrategyConfig("pgpe"), 7, 3)


def _train(config, policy_config, world, generations):
    trainer = config.build(
        context(
            lambda key: policy_config.build(world.num_sensors, world.num_actions, key),
            DeviceEngine(world),
            generations=generations,
        )
    )
    state = trainer.init(jax.random.key(0))
    for _ in range(generations):
        state, _ = trainer.step(state)
    keys = jax.random.split(jax.random.key(7), 32)
    return float(run_population(trainer.candidates(state), world, keys).total.mean(axis=1).max())


EVOLUTION = EvolutionConfig(StrategyConfig("cma-es", sigma=0.3), population=32, num_episodes=8)
REPLAYS = dataclasses.replace(EVOLUTION, replays=6, remembered=8, scouted=64)
GRADIENTS = ShacConfig(num_envs=32, num_steps=8, num_iterations=50, learning_rate=1e-2)


@pytest.mark.parametrize(
    "config", [EVOLUTION, REPLAYS, GRADIENTS], ids=["evolution", "replays", "gradients"]
)
def test_following_a_sensor_is_learned(config):
    # Reward -|reading - action| a step, 20 steps: doing nothing earns about -10, following 0
    score = _train(config, FeedForwardConfig((8,)), FollowWorld(), 12)
    assert score > -4.0


def test_gradients_find_the_one_sensor_that_matters():
    # Of three anonymous sensors one moves slowly and pays; the others are noise
    score = _train(
        GRADIENTS, AttentionNeuronConfig(num_queries=4, message_size=8), OneMattersWorld(), 12
    )
    assert score > -6.0


def test_order_that_matters_cannot_be_learned_by_an_invariant_agent():
    # All three sensors look alike and only the first pays
    class First(OneMattersWorld):
        alike = True

    score = _train(GRADIENTS, AttentionNeuronConfig(num_queries=4, message_size=8), First(), 12)
    assert score < -3.0


@pytest.mark.parametrize(
    "config", [EVOLUTION, REPLAYS, GRADIENTS], ids=["evolution", "replays", "gradients"]
)
def test_a_generation_is_a_function_of_its_state(config):
    world = FollowWorld()
    trainer = config.build(context(draw_follower, DeviceEngine(world)))
    state = trainer.init(jax.random.key(0))
    first, _ = trainer.step(state)
    second, _ = trainer.step(state)
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        if not jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            np.testing.assert_array_equal(one, other)


class Counting(FollowWorld):
    """Counts how often its steps, and its policies, are traced."""

    traced = 0

    def step_env(self, key, state, action, params):
        Counting.traced += 1
        return super().step_env(key, state, action, params)


class CountingPolicy(FeedForwardPolicy):
    def encode(self, observation, carry):
        Counting.traced += 1
        return super().encode(observation, carry)


FEW = dict(num_envs=2, num_steps=4)
SMALL = [
    EvolutionConfig(population=4, num_episodes=2),
    ShacConfig(**FEW, num_iterations=1),
    PpoConfig(**FEW, num_iterations=1, num_minibatches=1),
    DaggerConfig(**FEW, rollout_steps=4, window=4, num_batches=1, batch_size=2),
]


@pytest.mark.parametrize("config", SMALL, ids=lambda config: type(config).__name__)
def test_trainers_of_equal_settings_share_what_they_compile(config):
    def draw(key):
        policy = draw_follower(key)
        fields = {each.name: getattr(policy, each.name) for each in dataclasses.fields(policy)}
        return CountingPolicy(**fields)

    def traces_of_a_generation(config, generations=2):
        before, engine = Counting.traced, DeviceEngine(Counting())
        trainer = config.build(context(draw, engine, lambda state: state.readings, generations))
        trainer.step(trainer.init(jax.random.key(0)))
        return Counting.traced - before

    first, again = traces_of_a_generation(config), traces_of_a_generation(config)
    assert first > again
    assert again <= 2  # outside of what is compiled: at `init`, for shapes
    if not isinstance(config, EvolutionConfig):  # has no schedule
        assert traces_of_a_generation(config, 3) > again


@pytest.mark.parametrize("name", ["population", "num_envs", "num_steps"])
def test_gradient_settings_out_of_range(name):
    with pytest.raises(ConfigError, match=f"{name} must be at least 1, got 0"):
        ShacConfig(**{name: 0}).build(context(lambda key: None, DeviceEngine(FollowWorld())))


def test_evolution_goes_back_to_where_it_did_worst():
    world = FollowWorld()
    engine = DeviceEngine(world)
    # All but still, so that what it remembers is what its centre finds hard
    still = dataclasses.replace(REPLAYS, strategy=StrategyConfig("pgpe", 1e-6, learning_rate=1e-6))
    trainer = still.build(context(draw_follower, engine))
    state = trainer.init(jax.random.key(0))
    assert np.isinf(state.hard.returns).all()
    for _ in range(3):
        state, metrics = trainer.step(state)
    returns = engine.returns(trainer.candidates(state), state.hard.keys)[0]
    np.testing.assert_allclose(returns, state.hard.returns, atol=1e-3)
    assert metrics.figures["hard"] == pytest.approx(float(np.mean(returns)), abs=1e-3)
    elsewhere = jax.random.split(jax.random.key(9), 200)
    usual = engine.returns(trainer.candidates(state), elsewhere)[0]
    # The 8 worst of 64 and more
    assert np.max(returns) < np.quantile(usual, 0.25)


def test_evolution_without_replays_remembers_nothing():
    trainer = EVOLUTION.build(context(draw_follower, DeviceEngine(FollowWorld())))
    state, metrics = trainer.step(trainer.init(jax.random.key(0)))
    assert len(state.hard.returns) == 0
    assert "hard" not in metrics.figures


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"replays": 9}, "from 0 to 8 of its 8 episode"),
        ({"replays": -1}, "got -1"),
        ({"replays": 5, "remembered": 4}, "with 4 starts remembered, got 5"),
        ({"replays": 2, "scouted": 3}, r"as many starts as it remembers \(32\), got 3"),
        ({"num_episodes": 0}, "num_episodes must be at least 1, got 0"),
    ],
)
def test_evolution_settings_out_of_range(settings, words):
    with pytest.raises(ConfigError, match=words):
        dataclasses.replace(EVOLUTION, **settings).build(
            context(lambda key: None, DeviceEngine(FollowWorld()))
        )


class Failing(DeviceEngine):
    """The returns of some individuals are what they are not."""

    def __init__(self, world, individuals, change):
        super().__init__(world)
        self._individuals, self._change = individuals, change

    def totals(self, policies, keys):
        totals = super().totals(policies, keys)
        returns = totals.returns.copy()
        returns[self._individuals] = self._change(returns)
        return totals._replace(returns=returns)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_an_individual_that_fails_counts_as_the_worst(value):
    def worst(returns):
        others = np.delete(returns, [1, 2], axis=0)
        return others[others.mean(axis=1).argmin()]

    states = []
    for change in (lambda returns: np.full_like(returns[0], value), worst):
        engine = Failing(FollowWorld(), [1, 2], change)
        config = EvolutionConfig(population=8, num_episodes=4)
        trainer = config.build(context(draw_follower, engine))
        state, metrics = trainer.step(trainer.init(jax.random.key(0)))
        states.append((state.strategy, metrics))
    for failed, expected in zip(*map(jax.tree.leaves, states), strict=True):
        assert np.array_equal(failed, expected)
        assert np.isfinite(failed).all() or not np.issubdtype(failed.dtype, np.floating)


def test_where_all_individuals_fail_training_stops():
    engine = Failing(FollowWorld(), slice(None), lambda returns: np.nan)
    trainer = EvolutionConfig(population=8, num_episodes=4).build(context(draw_follower, engine))
    with pytest.raises(WorldError, match="No individual of the generation has a finite return"):
        trainer.step(trainer.init(jax.random.key(0)))
