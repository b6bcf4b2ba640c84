"""The world of entities: its optimum is what it says, and agents of entities learn it in every way."""

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium.envs import make
from sensorium.envs.entities import best_action, best_return
from sensorium.evaluation import evaluate
from sensorium.perturbations import Duplicate, NoiseChannels, OneOf, Shuffle, compose
from sensorium.policies import AttentionNeuronConfig, SetTransformerConfig
from sensorium.rollout import DeviceEngine
from sensorium.training import DaggerConfig, EvolutionConfig, PpoConfig, ShacConfig
from tests.probes import context

WORLD = make("Entities")
KEYS = jax.random.split(jax.random.key(0), 64)
SHUFFLE = Shuffle()
AGENT = AttentionNeuronConfig(scale=True, controller_sizes=(32,), code_feedback=True)


@jax.jit
def play(rule_key, key):
    """Return and optimum of an episode of the optimal rule; of random actions if there is a key for it."""
    _, state = WORLD.reset_env(key, WORLD.default_params)
    best = best_return(state)

    def step(state, time):
        action = best_action(state)
        if rule_key is not None:
            action = jax.random.uniform(
                jax.random.fold_in(rule_key, time), (2,), minval=-2.0, maxval=2.0
            )
        _, state, reward, *_ = WORLD.advance(key, state, action)
        return state, reward

    _, rewards = jax.lax.scan(step, state, jnp.arange(WORLD.max_steps))
    return rewards.sum(), best


def test_the_optimal_rule_earns_the_optimum_and_nothing_earns_more():
    earned, best = jax.vmap(play, in_axes=(None, 0))(None, KEYS)
    np.testing.assert_allclose(earned, best, rtol=1e-5)
    assert best.min() < 17.0 < best.mean() < best.max() <= 20.0
    at_random, same = jax.vmap(play)(jax.random.split(jax.random.key(1), 64), KEYS)
    np.testing.assert_array_equal(best, same)
    assert (at_random <= best + 1e-4).all()
    assert at_random.mean() < best.mean() - 2.0


def test_what_is_shown_is_what_is_there():
    observation, state = WORLD.reset(jax.random.key(3))
    rows = np.asarray(observation)
    there = rows[~np.isnan(rows).any(axis=1)]
    assert len(there) == 1 + int(state.present.sum())
    (ego,) = there[there[:, 0] == 1]
    np.testing.assert_array_equal(ego[1:], state.ego)
    things = there[there[:, 0] == -1]
    np.testing.assert_allclose(things[:, 1:].mean(axis=0), state.centroid, rtol=1e-5)
    rows_of_ego = {int(np.argmax(np.asarray(WORLD.reset(key)[0])[:, 0] == 1)) for key in KEYS}
    assert len(rows_of_ego) == 8


def test_gymnasium_shows_the_same_entities():
    """Behind its passive checker, whose warnings are errors here."""
    env = gymnasium.make("sensorium/Entities-v0")
    shown, _ = env.reset(seed=0)
    again, _ = env.reset(seed=0)
    np.testing.assert_array_equal(shown, again)
    for row in (shown, env.step(np.ones(2, np.float32))[0]):
        assert env.observation_space.contains(row)
        row[0, 1] = np.nan if np.isfinite(row[0, 1]) else 0.0  # half of an entity
        assert not env.observation_space.contains(row)


DAGGER = DaggerConfig(
    num_envs=64, num_steps=20, window=20, num_batches=16, batch_size=64, learning_rate=1e-2
)
PPO = PpoConfig(num_envs=8, num_steps=5, num_iterations=1, num_epochs=1, num_minibatches=2)


def train(trainer, generations, agent=AGENT, perturbation=SHUFFLE):
    """Train under a perturbation; the mean returns before and after."""
    engine = DeviceEngine(make("Entities", perturbation))

    def draw(key):
        return agent.build(WORLD.observation_spec, WORLD.actions, key)

    expert = (lambda state: best_action(state)) if isinstance(trainer, DaggerConfig) else None
    built = trainer.build(context(draw, engine, generations=generations, expert=expert))
    states = [built.init(jax.random.key(0))]
    for _ in range(generations):
        states.append(built.step(states[-1])[0])
    ends = (built.candidates(states[0]), built.candidates(states[-1]))
    return [float(engine.returns(each, KEYS).mean(axis=1).max()) for each in ends]


def test_an_agent_gets_near_the_optimum():
    """85% of the way from an agent that has learned nothing."""
    before, after = train(DAGGER, 6)
    best = float(jax.vmap(play, in_axes=(None, 0))(None, KEYS)[1].mean())
    assert before + 0.85 * (best - before) < after <= best


@pytest.mark.parametrize(
    "trainer",
    [
        EvolutionConfig(population=8),
        ShacConfig(num_envs=4, num_steps=2, num_iterations=1),
        dataclasses.replace(PPO, sensor_id_coef=0.1),
    ],
    ids=lambda trainer: type(trainer).__name__,
)
def test_every_trainer_takes_entities(trainer):
    perturbation = OneOf((Shuffle(), compose(NoiseChannels(2), Shuffle())))
    assert np.isfinite(train(trainer, 1, SetTransformerConfig(), perturbation)).all()


def test_engines_agree_and_the_number_of_entities_is_free():
    policy = AGENT.build(WORLD.observation_spec, WORLD.actions, jax.random.key(0))
    device = evaluate(policy, "Entities", episodes=64)
    assert np.std(device.returns) > 0.5
    shuffled = evaluate(policy, "Entities", Shuffle(), episodes=64)
    np.testing.assert_allclose(shuffled.returns, device.returns, atol=1e-3)
    twice = evaluate(policy, "Entities", Duplicate(2), episodes=64)
    assert np.isfinite(twice.returns).all()
    host = evaluate(policy, "gym:sensorium/Entities-v0?observe=entities", episodes=4)
    assert host.returns.min() > 20 * -1.0
