"""Models of Stable-Baselines3 teach, and our agents stand where one of its models would."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium import recipes, zoo
from sensorium.bridges import sb3
from sensorium.errors import (
    ConfigError,
    MissingExtraError,
    ObservationError,
)
from sensorium.policies import AttentionNeuronConfig, FeedForwardConfig, as_population
from sensorium.rollout import make_world, open_engine
from sensorium.serialisation import save_pytree
from sensorium.training import Sb3PpoConfig
from sensorium.training.expert_actors import Sb3Actor
from sensorium.training.run import keys_of_tests

WALK = "gym:tests.host_worlds:Walk-v0"


def test_any_number_of_sensors_in_one_environment_or_many(key):
    policy = AttentionNeuronConfig().build(5, 1, key)
    agent = sb3.Sb3Agent(policy)
    rng = np.random.default_rng(0)
    for sensors in (5, 12):
        rows = rng.normal(size=(4, 3, sensors)).astype(np.float32)  # steps, environments, sensors
        order = rng.permutation(sensors)
        state = shuffled_state = single_state = None
        carry = policy.initial_carry(sensors)
        for row in rows:
            actions, state = agent.predict(row, state)
            shuffled, shuffled_state = agent.predict(row[:, order], shuffled_state)
            single, single_state = agent.predict(row[1], single_state)
            expected, carry = policy(row[1], carry)
            assert actions.shape == (3, 1)
            assert single.shape == (1,)
            np.testing.assert_allclose(single, expected, atol=1e-6)
            np.testing.assert_allclose(actions[1], expected, atol=1e-6)
            np.testing.assert_allclose(actions, shuffled, atol=1e-5)


def test_an_episode_that_starts_has_blank_memories(key):
    agent = sb3.Sb3Agent(AttentionNeuronConfig().build(5, 1, key))
    readings = np.ones((2, 5), np.float32)
    first, state = agent.predict(readings)
    second, _ = agent.predict(readings, state)
    restarted, _ = agent.predict(readings, state, episode_start=np.array([True, False]))
    assert restarted[0] == first[0]
    assert restarted[1] == second[1] != first[1]


def test_wrong_observations_and_states_are_one_sentence(key):
    agent = sb3.Sb3Agent(AttentionNeuronConfig().build(5, 1, key))
    with pytest.raises(ObservationError, match=r"got shape \(2, 3, 5\)"):
        agent.predict(np.zeros((2, 3, 5)))
    with pytest.raises(ObservationError, match="must be finite"):
        agent.predict(np.full(5, np.nan))
    _, state = agent.predict(np.zeros((2, 5)))
    with pytest.raises(
        ConfigError, match=r"another number of environments or sensors than \(2, 6\)"
    ):
        agent.predict(np.zeros((2, 6)), state)


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "stable_baselines3", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'sensorium\[experts\]'"):
        sb3.load_model("some.zip")


WALKER = recipes.Recipe(
    name="walker",
    summary="Follows.",
    policy=FeedForwardConfig((8,), clipped=True),
    stages=(
        recipes.Stage(
            "ppo",
            Sb3PpoConfig(
                num_envs=2,
                num_steps=64,
                num_iterations=2,
                num_minibatches=2,
                num_epochs=2,
                learning_rate=1e-2,
            ),
            generations=2,
            test_every=1,
            test_episodes=4,
        ),
    ),
    env=WALK,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """PPO of a few hundred steps."""
    pytest.importorskip("stable_baselines3", reason="the extra `experts` is not installed")
    directory = tmp_path_factory.mktemp("runs") / "walker"
    zoo.train(WALKER, directory, quiet=True)
    return directory


def test_the_agent_of_ours_is_the_model_of_theirs(run):
    from stable_baselines3 import PPO

    world = make_world(WALK)
    name, arguments = sb3.network_of(WALKER.policy)
    model = PPO(name, world.opener()(), policy_kwargs=arguments, seed=3, device="cpu")
    ours = sb3.to_policy(model, WALKER.policy, 2, 2)
    seen = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32) * 30
    theirs = Sb3Actor(model, world).act(np.ones(20, bool), np.arange(20), seen)
    act = jax.vmap(lambda readings: ours.step(readings, ours.initial_carry(2))[0])
    np.testing.assert_allclose(act(jnp.asarray(seen)), theirs, atol=1e-5)


def test_the_one_with_the_best_test_is_kept(run):
    recipe = recipes.read(run)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["env_steps"] for row in rows] == [256, 256]
    best = max(row["test"] for row in rows)
    assert rows[-1]["best_test"] == best
    with open_engine(recipe.make_world()) as engine:
        keys = keys_of_tests(recipe.seed, recipe.last.test_episodes)
        returns = engine.run_population(as_population(zoo.load(run).policy), keys).total
    assert np.mean(returns) == pytest.approx(best, abs=1e-4)


def test_only_ppo_becomes_an_agent_of_ours(run):
    from stable_baselines3 import SAC

    model = SAC("MlpPolicy", "Pendulum-v1", policy_kwargs=dict(net_arch=[4]), buffer_size=1)
    with pytest.raises(ConfigError, match="is no feed-forward agent of PPO"):
        sb3.to_policy(model, FeedForwardConfig((4,), clipped=True), 3, 1)


def test_stable_baselines_evaluates_an_agent_of_ours(run):
    import gymnasium
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    agent = sb3.Sb3Agent(AttentionNeuronConfig().build(3, 1, jax.random.key(0)))
    returns, lengths = evaluate_policy(
        agent, Monitor(gymnasium.make("Pendulum-v1")), 2, return_episode_rewards=True
    )
    assert lengths == [200, 200]
    assert np.isfinite(returns).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_minibatches": 60}, "2 environments x 64 steps do not divide into 60 minibatches"),
        ({"action_repeat": 2}, "action_repeat is for worlds on the device"),
        ({"policy.clipped": False}, "trains agents that are clipped"),
        ({"policy": {"kind": "AttentionNeuronConfig"}}, "not AttentionNeuronConfig"),
        ({"start": "ant-fnn"}, "cannot start the stage 'ppo'"),
        ({"env": "gym:CartPole-v1"}, "CartPole-v1 takes Discrete"),
        ({"env": "gym:tests.host_worlds:Unbounded-v0"}, "Unbounded-v0 takes Box"),
        ({"env": "gym:tests.host_worlds:Images-v0"}, "images"),
        ({"env": "CartPoleSwingUpHarder"}, "jerk_penalty is for worlds on the host"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_there_is_a_folder(changes, words, run, tmp_path):
    with pytest.raises(ConfigError, match=words) as caught:
        zoo.train(WALKER.override(changes), tmp_path / "run", quiet=True)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_what_load_gives_acts_as_its_policy(tmp_path):
    recipe = recipes.find("cartpole-pi")
    path = tmp_path / "agent.safetensors"
    save_pytree(path, recipe.draw_policy(jax.random.key(0)), {"recipe": recipe.to_json()})
    loaded = zoo.load(path)
    readings = np.ones((2, 5), np.float32)
    expected, _ = sb3.Sb3Agent(loaded.policy).predict(readings)
    np.testing.assert_array_equal(sb3.Sb3Agent(loaded).predict(readings)[0], expected)
