"""The host engine does what a plain loop over one environment does, whatever happens to its workers."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium.bridges.open_env import open_env
from sensorium.bridges.training_envs import PenaliseJerk
from sensorium.bridges.vector_env import PoolVectorEnv
from sensorium.errors import ConfigError, WorldError
from sensorium.evaluation import evaluate
from sensorium.perturbations import (
    Identity,
    LagMotors,
    NoiseChannels,
    Reshuffle,
    RewireMotors,
    begin,
    compose,
)
from sensorium.policies import AttentionNeuronConfig, FeedForwardConfig, Policy
from sensorium.recipes import resume, train
from sensorium.rollout import DeviceEngine, EngineConfig, acting, host, make_world, open_engine
from sensorium.rollout.acting import PerturbedActor, PolicyActor
from sensorium.rollout.host import HostEngine, seeds_of
from sensorium.seeding import stream
from sensorium.training import RunDirectory
from sensorium.zoo import load, read_published
from tests.rollout.walking import RECIPE, WALK

PERTURBATION = compose(NoiseChannels(2), Reshuffle(3))
CONFIG = AttentionNeuronConfig(num_queries=4, message_size=4)


def population(config, world, size):
    keys = jax.random.split(jax.random.key(1), size)
    return eqx.filter_vmap(lambda key: config.build(world.num_sensors, world.num_actions, key))(
        keys
    )


def plain_loop(policy, name, perturbation, key):
    """One episode, step by step: the oracle."""
    env = open_env(name.removeprefix("gym:"))
    world = make_world(name)
    observation, _ = env.reset(seed=int(jax.random.bits(key) >> 1))
    start = stream(key, "senses")
    state = begin(perturbation, start, world.num_sensors, world.num_actions)
    carry = policy.initial_carry(perturbation.output_spec(world.num_sensors))
    rewards, ended = [], False
    while not ended:
        now = jax.random.fold_in(stream(key, "noise"), len(rewards))
        readings = jnp.asarray(observation, jnp.float32)
        readings, state = perturbation.apply(now, state, readings)
        action, carry, _ = policy.step(readings, carry)
        time = jnp.asarray(len(rewards))
        action, state = acting.perturb_action(perturbation, key, time, state, action)
        action = world.to_env_actions(np.asarray(action)[None])[0]
        observation, reward, terminated, truncated, _ = env.step(action)
        rewards.append(reward)
        ended = terminated or truncated
    return np.array(rewards)


@pytest.mark.parametrize(
    ("name", "perturbation"),
    [
        (WALK, PERTURBATION),
        (WALK, compose(NoiseChannels(1), LagMotors(), RewireMotors(3, signed=True))),
        ("gym:CartPole-v1", Identity()),
    ],
)
def test_the_same_episodes_as_a_plain_loop(name, perturbation, key):
    world = make_world(name, perturbation)
    policies = population(CONFIG, world, 2)
    keys = jax.random.split(key, 5)
    with HostEngine(world, workers=0, lanes=4) as engine:  # 10 episodes: lanes are used again
        episodes = engine.run_population(policies, keys)
        returns = engine.returns(policies, keys)
    assert episodes.rewards.shape == (2, 5, world.max_steps)
    assert np.array_equal(returns, episodes.total)
    for p, r in ((0, 0), (0, 4), (1, 0), (1, 3)):
        policy = jax.tree.map(lambda leaf: leaf[p] if eqx.is_array(leaf) else leaf, policies)
        expected = plain_loop(policy, name, perturbation, keys[r])
        length = len(expected)
        assert episodes.length[p, r] == length
        np.testing.assert_allclose(episodes.rewards[p, r, :length], expected, atol=1e-4)
        assert not episodes.rewards[p, r, length:].any()
        assert float(episodes.total[p, r]) == pytest.approx(expected.sum(), abs=1e-3)


def test_workers_change_nothing(key):
    world = make_world(WALK, PERTURBATION)
    policies = population(CONFIG, world, 3)
    keys = jax.random.split(key, 7)
    results = []
    for workers in (0, 1, 2):
        with HostEngine(world, workers=workers, lanes=6) as engine:
            results.append(engine.run_population(policies, keys))
    for other in results[1:]:
        assert np.array_equal(results[0].rewards, other.rewards)


def test_each_core_has_a_worker(key, worker_for_each_core):
    world = make_world(WALK)
    policies, keys = population(CONFIG, world, 2), jax.random.split(key, 5)
    with HostEngine(world, lanes=8) as many, HostEngine(world, workers=0, lanes=8) as alone:
        assert many.workers == worker_for_each_core
        same = many.run_population(policies, keys), alone.run_population(policies, keys)
    np.testing.assert_allclose(same[0].rewards, same[1].rewards, rtol=1e-5, atol=1e-5)


def test_nobody_acts_where_nothing_runs(key):
    lanes = []

    class Noting(PolicyActor):
        def act(self, started, episodes, observations):
            lanes.append((len(started), len(observations)))
            return super().act(started, episodes, observations)

    world = make_world(WALK, PERTURBATION)
    policies, keys = population(CONFIG, world, 1), jax.random.split(key, 10)
    with HostEngine(world, workers=2, lanes=16) as engine:
        many = engine.run_population(policies, keys)
        few = engine.transcribe(lambda: Noting(policies, world, keys[:3]), seeds_of(keys[:3]))
    assert set(lanes) == {(2, 2)}
    np.testing.assert_allclose(few.rewards, many.rewards[0, :3], rtol=1e-5, atol=1e-5)


def test_no_more_environments_are_opened_than_there_are_episodes(key, monkeypatch):
    opened = []

    class Noting(PoolVectorEnv):
        def __init__(self, opener, num_envs, *others, **options):
            opened.append(num_envs)
            super().__init__(opener, num_envs, *others, **options)

    monkeypatch.setattr(host, "PoolVectorEnv", Noting)
    world = make_world(WALK, PERTURBATION)
    policy, keys = CONFIG.build(world.num_sensors, world.num_actions, key), jax.random.split(key, 9)
    with HostEngine(world, workers=0, lanes=8) as engine:
        few = engine.run_episodes(policy, keys[:3])
        assert opened == [2, 2]
        many = engine.on(world).run_episodes(policy, keys)
        assert opened == [2, 2, 4, 4]
        again = engine.run_episodes(policy, keys[:3])
        assert opened == [2, 2, 4, 4]
    for episodes in (few, again):
        np.testing.assert_allclose(episodes.rewards, many.rewards[:3], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("perturbed", [False, True], ids=["of a policy", "of any make"])
def test_a_batch_shrinks_where_most_lanes_are_idle(perturbed, key, monkeypatch):
    """The episodes, of 5 to 14 steps each, stay the same but for the last digits."""
    batches = []

    class Noting(PolicyActor):
        def act(self, started, episodes, observations):
            batches.append(len(started))
            return super().act(started, episodes, observations)

    bare, world = make_world(WALK), make_world(WALK, Reshuffle(3) if perturbed else PERTURBATION)
    policies, keys = population(CONFIG, bare, 1), jax.random.split(key, 20)

    def actor():
        if perturbed:
            return PerturbedActor(Noting(policies, bare, keys), world, keys)
        return Noting(policies, world, keys)

    with HostEngine(world, workers=0, lanes=16) as engine:
        whole = engine.transcribe(actor, seeds_of(keys))
        assert set(batches) == {8}
        monkeypatch.setattr(host, "_PATIENCE", 2)
        shrunk = engine.transcribe(actor, seeds_of(keys))
    assert {8, 4, 2} <= set(batches)
    assert np.array_equal(shrunk.lengths, whole.lengths)
    np.testing.assert_allclose(shrunk.actions, whole.actions, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(shrunk.rewards, whole.rewards, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2])
def test_lanes_share_the_weights_of_a_single_policy(size, key):
    world, lanes = make_world(WALK), 6
    policies, keys = population(FeedForwardConfig((37,)), world, size), jax.random.split(key, lanes)
    actor, started = PolicyActor(policies, world, keys), np.ones(lanes, bool)
    actions = actor.act(started, np.arange(lanes), np.ones((lanes, world.num_sensors), np.float32))
    one = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, policies)
    expected, _ = one(jnp.ones(world.num_sensors), one.initial_carry(world.num_sensors))
    np.testing.assert_allclose(actions, np.tile(expected, (lanes, 1)), rtol=1e-5, atol=1e-6)
    compiled = str(jax.make_jaxpr(partial(acting._act, actor._static))(
        actor._parameters, *np.zeros((1, lanes), int), actor._key_data, actor._memories, started,
        np.ones((lanes, world.num_sensors), np.float32),
    ))  # fmt: skip
    copied = f"[{lanes},37,{world.num_sensors}]" in compiled
    assert copied == (size > 1)


def test_a_worker_that_dies_changes_nothing(key, monkeypatch, tmp_path):
    lives = tmp_path / "lives"
    monkeypatch.setenv("SENSORIUM_TEST_LIVES", str(lives))
    keys = jax.random.split(key, 7)
    results = []
    for deaths in ("", "xx"):
        lives.write_text(deaths)
        world = make_world("gym:tests.host_worlds:Mortal-v0", PERTURBATION)
        with HostEngine(world, workers=2, lanes=4) as engine:
            results.append(engine.run_population(population(CONFIG, world, 2), keys))
        assert lives.read_text() == ""
    assert np.array_equal(results[0].rewards, results[1].rewards)


def test_a_worker_that_always_dies_is_given_up(key, monkeypatch, tmp_path):
    lives = tmp_path / "lives"
    lives.write_text("x" * 99)
    monkeypatch.setenv("SENSORIUM_TEST_LIVES", str(lives))
    world = make_world("gym:tests.host_worlds:Mortal-v0")
    engine = HostEngine(world, workers=1, lanes=2)
    with pytest.raises(WorldError, match="its worker died with SIGKILL, 3 times in a row"):
        engine.run_episodes(CONFIG.build(2, 2, key), jax.random.split(key, 4))


@pytest.mark.parametrize(
    ("kind", "error", "sentence"),
    [
        (
            "Raising",
            WorldError,
            "Raising-v0 step 3: it raised ValueError: the left knee is missing",
        ),
        ("ShowingNaN", WorldError, "ShowingNaN-v0 step 3: the observation holds nan"),
    ],
)
def test_a_failing_world_is_one_sentence_and_the_engine_goes_on(kind, error, sentence, key):
    world = make_world(f"gym:tests.host_worlds:{kind}-v0")
    policy = CONFIG.build(2, 2, key)
    with HostEngine(world, workers=1, lanes=2) as engine:
        for _ in range(2):
            with pytest.raises(error, match=sentence):
                engine.run_episodes(policy, jax.random.split(key, 4))


@pytest.mark.parametrize("value", [jnp.nan, jnp.inf])
def test_a_policy_that_returns_nan_harms_no_other(value, key):
    world = make_world(WALK)
    policies, keys = population(FeedForwardConfig(()), world, 3), jax.random.split(key, 3)
    bad = jax.tree.map(lambda leaf: leaf.at[1].set(value), policies)
    with HostEngine(world, workers=0, lanes=4) as engine:
        expected = engine.run_population(policies, keys).total
        returns = engine.run_population(bad, keys).total
        finite = np.isfinite(returns).all(axis=1)
        if value is jnp.nan:
            assert finite.tolist() == [True, False, True]
        assert np.array_equal(returns[::2], expected[::2])
        one = jax.tree.map(lambda leaf: leaf[1:2] * jnp.nan, policies)
        with pytest.raises(ConfigError, match="The agent returned NaN or infinity as an action"):
            engine.transcribe(lambda: PolicyActor(one, world, keys), seeds_of(keys))


class Brightness(Policy):
    """Acts as bright as the image that it sees."""

    gain: jax.Array
    num_actions: int = 1

    def initial_carry(self, num_sensors):
        assert num_sensors == (4, 5, 3)
        return ()

    def decide(self, features, carry):
        assert features.shape == (4, 5, 3)
        return self.gain * jnp.mean(features, keepdims=True)[0, 0] / 255, carry


def test_images_reach_policies_that_see(key):
    world = make_world("gym:tests.host_worlds:Images-v0")
    with HostEngine(world, workers=0, lanes=2) as engine:
        episodes = engine.run_episodes(Brightness(jnp.ones(())), jax.random.split(key, 2))
    assert episodes.length.tolist() == [20, 20]
    assert 0 < float(episodes.total.min()) <= float(episodes.total.max()) < 20


def test_numbers_out_of_range():
    with pytest.raises(ConfigError, match="even number of lanes, got 3"):
        HostEngine(make_world(WALK), lanes=3)
    with pytest.raises(ConfigError, match="cannot have -1 workers"):
        HostEngine(make_world(WALK), workers=-1)
    with pytest.raises(ConfigError, match="this one runs on the device"):
        open_engine(make_world("CartPoleSwingUpHarder"), EngineConfig(workers=2))
    assert isinstance(open_engine(make_world("CartPoleSwingUpHarder")), DeviceEngine)
    assert isinstance(open_engine(make_world(WALK)), HostEngine)


def test_evolution_on_the_host_learns_and_resumes_bit_for_bit(tmp_path):
    rows = []
    whole = train(RECIPE, tmp_path / "whole", quiet=True, on_generation=rows.append)
    assert rows[-1]["best_test"] > rows[0]["mean"] + 3

    def stop(row):
        if row["generation"] == 3:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        train(RECIPE, tmp_path / "cut", quiet=True, on_generation=stop)
    resumed = resume(tmp_path / "cut", quiet=True, engine=EngineConfig(workers=1))
    for ours, theirs in zip(jax.tree.leaves(whole), jax.tree.leaves(resumed), strict=True):
        assert np.array_equal(ours, theirs)
    assert RunDirectory.open(tmp_path / "cut").recipe == RECIPE.to_json()
    assert load(tmp_path / "cut").recipe == RECIPE


def test_the_authors_ant_walks_though_its_sensors_are_shuffled(reference):
    pytest.importorskip("pybullet_envs_gymnasium", reason="the extra `ant` is not installed")
    from sensorium.perturbations import Shuffle

    agent = read_published("ant_pi", reference.path("weights", "ant_pi"))
    with HostEngine(make_world("gym:AntBulletEnv-v0", Shuffle())) as engine:
        episodes = engine.run_episodes(agent, jax.random.split(jax.random.key(0), 8))
    # Its authors logged 2563 +- 79
    assert 2300 < float(episodes.total.mean()) < 2700
    assert episodes.length.tolist() == [1000] * 8


def test_environments_of_a_trainer_are_opened_once():
    with HostEngine(make_world("gym:Pendulum-v1"), workers=0) as engine:
        pools = [
            engine.open_pool(2),
            engine.open_pool(3),
            engine.open_pool(2, PenaliseJerk, penalty=1.0),
            engine.open_pool(2, PenaliseJerk, penalty=2.0),
        ]
        assert len({id(pool) for pool in pools}) == 4
        assert engine.open_pool(2) is pools[0]
        assert engine.open_pool(2, PenaliseJerk, penalty=1.0) is pools[2]


def test_scores_share_the_environments_of_an_engine(key, monkeypatch):
    opened = []
    monkeypatch.setattr(
        "sensorium.rollout.host.PoolVectorEnv",
        lambda *arguments, **settings: opened.append(0) or PoolVectorEnv(*arguments, **settings),
    )
    policy = CONFIG.build(6, 2, key)
    perturbations = (Identity(), PERTURBATION, NoiseChannels(1))
    alone = [evaluate(policy, WALK, each, episodes=4) for each in perturbations]
    assert len(opened) == 6
    with open_engine(make_world(WALK)) as engine:
        shared = [evaluate(policy, WALK, each, episodes=4, engine=engine) for each in perturbations]
    assert len(opened) == 8
    for ours, theirs in zip(shared, alone, strict=True):
        np.testing.assert_array_equal(ours.returns, theirs.returns)


def test_engines_that_share_environments_go_on_after_a_failure(key):
    world = make_world("gym:tests.host_worlds:Raising-v0")
    policy = CONFIG.build(2, 2, key)
    with HostEngine(world, workers=1, lanes=2) as engine:
        for runs in (engine, engine.on(world), engine):
            with pytest.raises(WorldError, match="the left knee is missing"):
                runs.run_episodes(policy, jax.random.split(key, 4))
