"""Each random key is used once, in worlds, engines and trainers."""

import dataclasses
from functools import partial

import jax
import pytest

from sensorium.analysis import attention
from sensorium.envs import Perturbed
from sensorium.evaluation import evaluation_keys
from sensorium.evaluation.recovery import ShuffleOnce
from sensorium.perturbations import (
    Drop,
    NoiseBackground,
    NoiseChannels,
    OneOf,
    Reshuffle,
    Shuffle,
    compose,
)
from sensorium.policies import FeedForwardConfig, as_population
from sensorium.rollout import DeviceEngine, HostEngine, fused_returns, make_world, run_population
from sensorium.seeding import key_of
from sensorium.training import (
    CoachingConfig,
    DaggerConfig,
    EvolutionConfig,
    PpoConfig,
    ShacConfig,
    StrategyConfig,
)
from sensorium.training.run import keys_of_tests
from sensorium.training.trainer import TrainingContext
from tests.keys import watched
from tests.probes import OneMattersWorld
from tests.training.spot_world import EYES, WORLD

PERTURBATION = compose(OneOf((Shuffle(), Reshuffle(2))), NoiseChannels(2), Drop(1))
AGENT = FeedForwardConfig(())  # soon compiled
WALK = "gym:tests.host_worlds:Walk-v0"


class SplittingWorld(OneMattersWorld):
    """Splits the key of its start, as worlds that draw more than once do."""

    max_steps = 4

    def reset_env(self, key, params):
        return super().reset_env(jax.random.split(key)[1], params)


@pytest.mark.parametrize("perturbation", [PERTURBATION, ShuffleOnce(2)], ids=str)
def test_worlds_on_the_device(perturbation):
    world = Perturbed(SplittingWorld(), perturbation)
    policy = as_population(AGENT.build(world.num_sensors, 1, jax.random.key(0)))
    with watched() as uses:
        run_population(policy, world, jax.random.split(jax.random.key(1), 2))
        fused_returns(policy, world, jax.random.split(jax.random.key(2), 2))
    assert uses.of_key
    assert not uses.twice()


def test_worlds_of_images():
    policy = EYES.build(WORLD.observation_spec, 2, jax.random.key(0))
    with watched() as uses:
        attention.trace_images(policy, WORLD, NoiseBackground(), jax.random.key(1), 3)
    assert uses.of_key
    assert not uses.twice()


def test_worlds_on_the_host():
    world = make_world(WALK, PERTURBATION)
    policy = AGENT.build(world.num_sensors, 2, jax.random.key(0))
    with watched() as uses, HostEngine(world, workers=0, lanes=4) as engine:
        engine.run_population(as_population(policy), jax.random.split(jax.random.key(1), 3))
    assert uses.of_key
    assert not uses.twice()


def _evolution(directory):
    strategy = StrategyConfig("cma-es", sigma=0.3)
    config = EvolutionConfig(
        strategy, population=4, num_episodes=3, replays=2, remembered=2, scouted=4
    )
    return config, TrainingContext(AGENT, _draw(3, 1), _device(), directory)


def _shac(directory):
    config = ShacConfig(population=2, num_envs=2, num_steps=2, num_iterations=2)
    return config, TrainingContext(AGENT, _draw(3, 1), _device(), directory)


PPO = PpoConfig(
    num_envs=4,
    num_steps=4,
    num_iterations=2,
    num_minibatches=2,
    num_epochs=2,
    critic_sizes=(4,),
    critic_iterations=1,
)


def _ppo_on_the_host(directory):
    return PPO, TrainingContext(AGENT, _draw(2, 2), _host(Shuffle()), directory)


def _ppo_on_the_device(directory):
    return PPO, TrainingContext(AGENT, _draw(3, 1), _device(), directory)


def _ppo_of_images(directory):
    draw = partial(EYES.build, WORLD.observation_spec, WORLD.actions)
    config = dataclasses.replace(PPO, freeze_encoder=True)
    return config, TrainingContext(EYES, draw, DeviceEngine(WORLD), directory)


def _coaching(directory):
    config = CoachingConfig(
        student_perturbation=Shuffle(),
        num_envs=4,
        num_steps=4,
        num_iterations=2,
        num_minibatches=2,
        num_epochs=2,
        critic_sizes=(4,),
    )
    student = AGENT.build(2, 2, jax.random.key(9))
    fresh = partial(FeedForwardConfig(()).build, 2, 2)
    return config, TrainingContext(FeedForwardConfig(()), fresh, _host(), directory, expert=student)


DAGGER = DaggerConfig(num_envs=2, num_steps=4, window=2, batch_size=2, num_batches=2)


def _dagger_on_the_host(directory):
    expert = AGENT.build(2, 2, jax.random.key(9))
    return DAGGER, TrainingContext(AGENT, _draw(2, 2), _host(Shuffle()), directory, expert=expert)


def _dagger_on_the_device(directory):
    expert = AGENT.build(3, 1, jax.random.key(9))
    return DAGGER, TrainingContext(AGENT, _draw(3, 1), _device(), directory, expert=expert)


def _draw(sensors, actions):
    return partial(AGENT.build, sensors, actions)


def _device():
    return DeviceEngine(Perturbed(SplittingWorld(), Shuffle()))


def _host(perturbation=None):
    return HostEngine(make_world(WALK, perturbation), workers=0, lanes=4)


@pytest.mark.parametrize(
    "prepare",
    [
        _evolution,
        _shac,
        _ppo_on_the_host,
        _ppo_on_the_device,
        _ppo_of_images,
        _coaching,
        _dagger_on_the_host,
        _dagger_on_the_device,
    ],
)
def test_trainers(prepare, tmp_path):
    with watched() as uses:
        config, context = prepare(tmp_path)
        trainer = config.build(context)
        state = trainer.init(key_of(5))
        for _ in range(2):
            state, _ = trainer.step(state)
        keys_of_tests(5, 3), evaluation_keys(5, 3)
        context.engine.close()
    assert uses.of_key
    assert not uses.twice()


@pytest.mark.parametrize(
    ("source", "twice"),
    [
        ("a = split(key)\nb = fold_in(key, 1)", True),
        ("a = split(key)\nb = fold_in(key, 2**31)", False),
        ("a = split(key)\nb = normal(a[0])", False),
        ("a = normal(key)\nb = normal(key)", True),
        ("a = normal(key)\nb = split(key)", True),
        ("a = split(key)\nb = split(key)", True),
        ("a = [fold_in(key, i) for i in range(3)]\nb = fold_in(key, 3)", False),
    ],
)
def test_what_is_used_twice_is_seen(source, twice):
    code = compile(source, "/sensorium/example.py", "exec")

    def example(key):
        names = {name: getattr(jax.random, name) for name in ("split", "fold_in", "normal")}
        exec(code, names | {"key": key})

    with watched() as uses:
        jax.jit(jax.vmap(example))(jax.random.split(jax.random.key(0)))
    assert uses.twice() == ({("example.py:1", "example.py:2")} if twice else set())
