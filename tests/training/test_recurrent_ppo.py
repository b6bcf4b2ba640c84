"""PPO for agents with memory: its parts against plain loops, and that it learns, resumes and starts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorium import recipes, zoo
from sensorium.errors import ConfigError, WorldError
from sensorium.perturbations import Shuffle
from sensorium.policies import AttentionNeuronConfig, to_vector
from sensorium.recipes import Recipe, Stage
from sensorium.rollout import DeviceEngine, HostEngine, make_world
from sensorium.training import EvolutionConfig, RecurrentPpoConfig
from sensorium.training.policy_gradient import advantage_estimates
from tests.probes import Stopped, context, stop_after

WALK = "gym:tests.host_worlds:Walk-v0"
AGENT = AttentionNeuronConfig(num_queries=4, message_size=4, controller_sizes=(8,))
CONFIG = RecurrentPpoConfig(
    rollouts=8,
    horizon=16,
    rounds=4,
    groups=2,
    epochs=5,
    critic_sizes=(16,),
    critic_rounds=1,
    total_rounds=80,
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


def trainer_of(config, engine):
    recipe = dataclasses.replace(RECIPE, stages=(RECIPE.last.changed(trainer=config),))
    return config.build(context(recipe.draw_policy, engine))


@given(
    st.integers(0, 2**31),
    st.floats(0.5, 1.0),
    st.floats(0.0, 1.0),
)
def test_advantages_are_those_of_the_definition(seed, discount, trace_decay):
    random = np.random.default_rng(seed)
    rewards, values, next_values = random.normal(size=(3, 12, 3)).astype(np.float32)
    done = random.random((12, 3)) < 0.2
    found = advantage_estimates(
        *(jnp.asarray(array) for array in (rewards, values, next_values, done)),
        discount,
        trace_decay,
    )
    for lane in range(3):
        for time in range(12):
            expected, weight = 0.0, 1.0
            for later in range(time, 12):  # eq. 16: a sum of surprises up to the end of the episode
                expected += weight * (
                    rewards[later, lane] + discount * next_values[later, lane] - values[later, lane]
                )
                weight *= discount * trace_decay
                if done[later, lane]:
                    break
            np.testing.assert_allclose(found[time, lane], expected, atol=1e-4)


def test_it_learns_whichever_sensor_comes_first(tmp_path):
    recipe = RECIPE.override(
        {
            "rollouts": 16,
            "rounds": 8,
            "identity_weight": 0.1,
            "learning_rate": 3e-3,
            "generations": 10,
        }
    )
    tests = []
    zoo.train(recipe, tmp_path / "run", quiet=True, on_generation=tests.append)
    first, last = tests[0], tests[-1]
    assert last["mean"] > first["mean"] + 3.0, tests  # of about -14, with exploration
    assert last["best_test"] > first["test"] + 1.0, tests
    assert max(row["explained"] for row in tests) > 0.0  # that of one generation is left to chance
    assert last["identity"] < first["identity"]


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
    recipe = RECIPE.override({"critic_rounds": 1000, "generations": 1} | start)
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
    evolution = EvolutionConfig(population=4, rollouts=2, start_at_zero=start_at_zero)
    with HostEngine(make_world(WALK, Shuffle()), workers=0) as engine:
        started = dataclasses.replace(context(RECIPE.draw_policy, engine), start=first)
        trainer = evolution.build(started)
        centre = trainer.candidates(trainer.init(jax.random.key(5)))
    assert np.array_equal(to_vector(jax.tree.map(lambda leaf: leaf[0], centre)), to_vector(first))


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
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.student))


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


def test_settings_that_do_not_fit(tmp_path):
    with pytest.raises(ConfigError, match="worlds on the host"):
        trainer_of(CONFIG, DeviceEngine(make_world("CartPoleSwingUpHarder")))
    with (
        HostEngine(make_world(WALK), workers=0) as engine,
        pytest.raises(ConfigError, match="8 environments do not divide into 3 groups"),
    ):
        trainer_of(dataclasses.replace(CONFIG, groups=3), engine)
