"""PPO: its parts against plain loops; and that it learns in every cell, with memory, resumes and starts."""

import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorium import recipes, zoo
from sensorium.envs import CarRacingRoad, make
from sensorium.errors import ConfigError, WorldError
from sensorium.perturbations import Shuffle
from sensorium.policies import (
    AttentionNeuronConfig,
    ConvolutionalConfig,
    FeedForwardConfig,
    to_vector,
)
from sensorium.recipes import Recipe, Stage
from sensorium.rollout import DeviceEngine, HostEngine, Transitions, make_world, open_engine
from sensorium.training import EvolutionConfig, PpoConfig
from sensorium.training.critic import Discounter, RewardScale, estimate_advantages
from tests.probes import ChoosingWorld, FollowWorld, Stopped, context, stop_after
from tests.training.spot_world import EYES, WORLD, assert_encoder_is_frozen, flat

WALK = "gym:tests.host_worlds:Walk-v0"
AGENT = AttentionNeuronConfig(num_queries=4, message_size=4, controller_sizes=(8,))
CONFIG = PpoConfig(
    num_envs=8,
    num_steps=16,
    num_iterations=4,
    num_minibatches=2,
    num_epochs=5,
    critic_sizes=(16,),
    critic_iterations=1,
)
RECIPE = Recipe(
    name="walker",
    summary="Follows the first reading, wherever it is.",
    policy=AGENT,
    stages=(
        Stage(
            "ppo",
            CONFIG,
            generations=3,
            perturbation=Shuffle(),
            test_every=1,
            test_episodes=16,
            checkpoint_every=1,
        ),
    ),
    env=WALK,
)


def train(world, agent, config, generations, scored=False):
    """Train; the states, the figures, and the mean returns of 64 episodes of the first and last policy."""
    with (
        open_engine(world)
        if not isinstance(world, str)
        else open_engine(make_world(world)) as engine
    ):
        world = engine.world

        def draw(key):
            return agent.build(world.observation_spec, world.actions, key)

        trainer = config.build(context(draw, engine, generations=generations))
        states, metrics = [trainer.init(jax.random.key(0))], []
        for _ in range(generations):
            state, figures = trainer.step(states[-1])
            states.append(state)
            metrics.append(figures)
        keys = jax.random.split(jax.random.key(3), 64)
        scores = [
            float(engine.returns(trainer.candidates(state), keys).mean())
            for state in (states[0], states[-1])
            if scored
        ]
    return states, metrics, scores


LEARNS = dataclasses.replace(
    CONFIG, num_envs=32, num_iterations=8, num_minibatches=4, learning_rate=1e-2, hold_noise=1
)
IMAGES = dataclasses.replace(
    LEARNS, num_envs=16, num_steps=5, num_epochs=6, learning_rate=3e-2, action_std=0.5
)


@pytest.mark.parametrize(
    ("world", "agent", "config", "generations", "least"),
    [
        # Nothing earns about -10, all -0
        (FollowWorld(), FeedForwardConfig((8,)), LEARNS, 2, -3.0),
        # Chance earns 5 of 20
        (ChoosingWorld(), FeedForwardConfig((8,)), LEARNS, 2, 17.0),
        # Chance earns about 5 of 10
        ("gym:tests.host_worlds:Choices-v0", FeedForwardConfig((8,)), LEARNS, 2, 7.0),
        # The most is 22
        (WORLD, EYES, dataclasses.replace(IMAGES, freeze_encoder=True, ema_decay=0.1), 4, 8.0),
        # Chance earns 10 of 20
        (
            "gym:tests.host_worlds:Shades-v0",
            ConvolutionalConfig((4,), (4,), (4,), (8,)),
            dataclasses.replace(IMAGES, num_steps=10, learning_rate=1e-2),
            4,
            18.0,
        ),
    ],
    ids=["sensors-device", "choices-device", "choices-host", "images-device", "images-host"],
)
def test_it_learns_in_every_cell(world, agent, config, generations, least):
    (start, *_, end), _, (before, after) = train(world, agent, config, generations, scored=True)
    assert before < least < after
    if config.freeze_encoder:
        assert_encoder_is_frozen("look", start, end)


def test_it_learns_whichever_sensor_comes_first(tmp_path):
    recipe = RECIPE.override(
        {
            "num_envs": 16,
            "num_iterations": 8,
            "sensor_id_coef": 0.1,
            "learning_rate": 3e-3,
            "generations": 7,
        }
    )
    tests = []
    zoo.train(recipe, tmp_path / "run", quiet=True, on_generation=tests.append)
    first, last = tests[0], tests[-1]
    assert last["mean"] > first["mean"] + 3.0, tests  # of about -14, with exploration
    assert last["best_test"] > first["test"] + 1.0, tests
    assert last["explained"] > first["explained"]
    assert last["sensor_id_loss"] < first["sensor_id_loss"]


compiled_estimates = jax.jit(estimate_advantages)


@given(st.integers(0, 2**31), st.floats(0.5, 1.0), st.floats(0.0, 1.0))
def test_advantages_are_those_of_the_definition(seed, discount, gae_lambda):
    random = np.random.default_rng(seed)
    rewards, values, next_values = random.normal(size=(3, 12, 3)).astype(np.float32)
    done = random.random((12, 3)) < 0.2
    found = compiled_estimates(rewards, values, next_values, done, discount, gae_lambda)
    for lane in range(3):
        for time in range(12):
            expected, weight = 0.0, 1.0
            for later in range(time, 12):  # eq. 16: a sum of surprises up to the end of the episode
                expected += weight * (
                    rewards[later, lane] + discount * next_values[later, lane] - values[later, lane]
                )
                weight *= discount * gae_lambda
                if done[later, lane]:
                    break
            np.testing.assert_allclose(found[time, lane], expected, atol=1e-4)


@given(st.integers(0, 2**31))
def test_rewards_are_scaled_by_the_deviation_of_discounted_returns(seed):
    random = np.random.default_rng(seed)
    rewards = random.normal(2, 3, (2, 6, 3))
    done = random.random((2, 6, 3)) < 0.2
    alive = random.random((2, 6, 3)) < 0.8
    discounter, scale = Discounter(0.9, 3), RewardScale.unknown()
    sums, known = np.zeros(3), []
    for segment in range(2):
        steps = Transitions(*[None] * len(Transitions._fields))._replace(
            reward=rewards[segment],
            terminated=done[segment],
            truncated=np.zeros_like(done[segment]),
            alive=alive[segment],
        )
        scale = discounter.update(scale, steps)
        for step in range(6):
            for lane in range(3):
                counts = alive[segment, step, lane]
                sums[lane] = (0.9 * sums[lane] + rewards[segment, step, lane]) * counts
                known += [sums[lane]] * int(counts)
                sums[lane] *= not done[segment, step, lane]
    np.testing.assert_allclose(scale.deviation, np.std(known), rtol=1e-3)


@pytest.mark.parametrize("agent", [EYES, AGENT])
def test_the_loss_replays_what_was_done(agent):
    """At the policy that acted, every ratio is 1: memory, starts and features are replayed exactly."""
    frozen = agent is EYES
    world = WORLD if frozen else make_world(WALK, Shuffle())
    with open_engine(world) as engine:

        def draw(key):
            return agent.build(world.observation_spec, world.actions, key)

        config = dataclasses.replace(CONFIG, freeze_encoder=frozen, num_epochs=1, learning_rate=0.0)
        trainer = config.build(context(draw, engine))
        _, metrics = trainer.step(trainer.init(jax.random.key(0)))
    assert float(metrics.figures["divergence"]) < 1e-9


def test_only_the_critic_learns_at_first():
    config = dataclasses.replace(LEARNS, num_iterations=4, critic_iterations=4)
    (start, end), *_ = train(FollowWorld(), FeedForwardConfig((8,)), config, 1)
    np.testing.assert_array_equal(flat(end.learner.model), flat(start.learner.model))
    np.testing.assert_array_equal(flat(end.learner.average), flat(start.learner.average))
    assert not np.allclose(flat(end.critic.model), flat(start.critic.model))


def test_entropy_keeps_choices_open():
    entropies = []
    for coefficient in (0.0, 0.5):
        config = dataclasses.replace(LEARNS, entropy_coef=coefficient)
        _, metrics, _ = train(ChoosingWorld(), FeedForwardConfig((8,)), config, 2)
        entropies.append(float(metrics[-1].figures["entropy"]))
    assert entropies[1] > entropies[0] + 0.2


def test_the_noise_falls_over_the_whole_stage():
    config = dataclasses.replace(LEARNS, action_std=0.4, last_action_std=0.1, num_iterations=1)
    _, metrics, _ = train(FollowWorld(), FeedForwardConfig((8,)), config, 2)
    found = [float(each.figures["spread"]) for each in metrics]
    np.testing.assert_allclose(found, [0.4, 0.2], rtol=1e-5)


def test_it_goes_on_as_if_never_stopped(tmp_path):
    whole = zoo.train(RECIPE, tmp_path / "whole", quiet=True)
    with pytest.raises(Stopped):
        zoo.train(RECIPE, tmp_path / "cut", quiet=True, on_generation=stop_after(1))
    cut = zoo.resume(tmp_path / "cut", quiet=True)
    assert np.array_equal(to_vector(whole), to_vector(cut))


def test_training_starts_from_a_named_agent(tmp_path):
    first = zoo.train(RECIPE, tmp_path / "first", quiet=True)
    start = {"start": str(tmp_path / "first")}
    # Only the critic learns
    recipe = RECIPE.override({"critic_iterations": 1000, "generations": 1} | start)
    second = zoo.train(recipe, tmp_path / "second", quiet=True)
    assert np.array_equal(to_vector(first), to_vector(second))
    assert recipes.read(tmp_path / "second").last.start == str(tmp_path / "first")
    other = dataclasses.replace(RECIPE, policy=AttentionNeuronConfig()).override(start)
    with pytest.raises(ConfigError, match="of another architecture cannot start"):
        zoo.train(other, tmp_path / "third", quiet=True)
    assert not (tmp_path / "third").exists()


@pytest.mark.parametrize("start_at_zero", [True, False])  # of no account: the start is named
def test_evolution_starts_from_a_named_agent(tmp_path, start_at_zero):
    first = RECIPE.draw_policy(jax.random.key(3))
    evolution = EvolutionConfig(population=4, num_episodes=2, start_at_zero=start_at_zero)
    with HostEngine(make_world(WALK, Shuffle()), workers=0) as engine:
        started = dataclasses.replace(context(RECIPE.draw_policy, engine), start=first)
        trainer = evolution.build(started)
        centre = trainer.candidates(trainer.init(jax.random.key(5)))
    assert np.array_equal(to_vector(jax.tree.map(lambda leaf: leaf[0], centre)), to_vector(first))


def trainer_of(config, engine):
    recipe = dataclasses.replace(RECIPE, stages=(RECIPE.last.changed(trainer=config),))
    return config.build(context(recipe.draw_policy, engine))


def test_a_worker_that_dies_is_replaced(tmp_path, monkeypatch):
    lives = tmp_path / "lives"
    lives.write_text("x")
    monkeypatch.setenv("SENSORIUM_TEST_LIVES", str(lives))
    world = make_world("gym:tests.host_worlds:Mortal-v0", Shuffle())
    with HostEngine(world, workers=1) as engine:
        trainer = trainer_of(CONFIG, engine)
        state, metrics = trainer.step(trainer.init(jax.random.key(0)))
        assert lives.read_text() == ""
        assert np.isfinite(metrics.figures["mean"])
        assert np.isfinite(flat(eqx.filter(state.learner.model, eqx.is_array))).all()


def test_a_world_that_always_kills_its_worker(tmp_path, monkeypatch):
    (tmp_path / "lives").write_text("x" * 100)
    monkeypatch.setenv("SENSORIUM_TEST_LIVES", str(tmp_path / "lives"))
    recipe = dataclasses.replace(RECIPE, env="gym:tests.host_worlds:Mortal-v0")
    with HostEngine(recipe.make_world(), workers=1) as engine:
        trainer = trainer_of(CONFIG, engine)
        state = trainer.init(jax.random.key(0))
        with pytest.raises(
            WorldError, match="Mortal-v0 cannot go on: its worker died with SIGKILL"
        ):
            trainer.step(state)


def test_a_world_that_shows_nan(tmp_path):
    recipe = dataclasses.replace(RECIPE, env="gym:tests.host_worlds:ShowingNaN-v0")
    with HostEngine(recipe.make_world(), workers=0) as engine:
        trainer = trainer_of(CONFIG, engine)
        state = trainer.init(jax.random.key(0))
        with pytest.raises(WorldError, match="ShowingNaN-v0 step 3: the observation holds nan"):
            trainer.step(state)


def test_it_drives():
    config = dataclasses.replace(
        CONFIG, num_envs=1, num_steps=250, num_iterations=2, num_minibatches=1
    )
    world = CarRacingRoad().for_training()

    def draw(key):
        return FeedForwardConfig((8,)).build(world.observation_spec, world.actions, key)

    trainer = config.build(context(draw, DeviceEngine(world)))
    end, metrics = trainer.step(trainer.init(jax.random.key(0)))
    assert int(end.iterations) == 2
    assert metrics.env_steps > 0
    assert np.isfinite(flat(end.learner.model)).all()


def test_settings_that_do_not_fit():
    world = make("CartPoleSwingUpHarder")
    with pytest.raises(ConfigError, match="8 environments do not divide into 3 minibatches"):
        dataclasses.replace(CONFIG, num_minibatches=3).build(
            context(lambda key: AGENT.build(5, 1, key), DeviceEngine(world))
        )
    with pytest.raises(ConfigError, match="num_iterations must be at least 1, got 0"):
        dataclasses.replace(CONFIG, num_iterations=0)
