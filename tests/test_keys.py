"""Each random key is used once, in every world, engine and trainer."""

from functools import partial

import jax
import pytest

from sensorium.analysis import seeing
from sensorium.analysis.traces import trace_episode, trace_on_host
from sensorium.envs import Perturbed
from sensorium.evaluation import evaluation_keys
from sensorium.evaluation.recovery import ShuffleOnce
from sensorium.perturbations import (
    Drop,
    NoiseBackground,
    NoiseChannels,
    OneOf,
    RandomBackground,
    RandomConvolution,
    Reshuffle,
    Shuffle,
    ShufflePatches,
    compose,
)
from sensorium.policies import AttentionNeuronConfig, FeedForwardConfig, as_population
from sensorium.rollout import DeviceEngine, HostEngine, fused_returns, make_world, run_population
from sensorium.seeding import key_of
from sensorium.training import (
    CloningConfig,
    CoachingConfig,
    ControllerImitationConfig,
    ControllerPpoConfig,
    EvolutionConfig,
    ImitationConfig,
    RecurrentPpoConfig,
    ShortHorizonConfig,
    StrategyConfig,
)
from sensorium.training.run import keys_of_tests
from sensorium.training.teachers import AgentTeacher
from sensorium.training.trainer import TrainingContext
from tests.keys import watched
from tests.probes import OneMattersWorld
from tests.training.spot_world import EYES, WORLD, bold_teacher

pytestmark = pytest.mark.usefixtures("compiled_in_a_hurry")

SENSES = compose(OneOf((Shuffle(), Reshuffle(2))), NoiseChannels(2), Drop(1))
PICTURES = compose(OneOf((RandomBackground(), RandomConvolution(every=2))), ShufflePatches())
AGENT = AttentionNeuronConfig(num_queries=2, message_size=2)
WALK = "gym:tests.host_worlds:Walk-v0"


class SplittingWorld(OneMattersWorld):
    """Splits the key of its start, as worlds that draw more than once do."""

    max_steps = 4

    def reset_env(self, key, params):
        return super().reset_env(jax.random.split(key)[1], params)


def on_device(world):
    policy = as_population(AGENT.build(world.num_sensors, 1, jax.random.key(0)))
    run_population(policy, world, jax.random.split(jax.random.key(1), 2))
    fused_returns(policy, world, jax.random.split(jax.random.key(2), 2))


def test_worlds_on_the_device():
    world = SplittingWorld()
    with watched() as uses:
        for senses in (SENSES, ShuffleOnce(2)):
            on_device(Perturbed(world, senses))
        policy = AGENT.build(world.num_sensors, 1, jax.random.key(0))
        trace_episode(policy, world, SENSES, jax.random.key(3), 2)
    assert uses.of_key
    assert not uses.twice()


def test_worlds_of_pictures():
    with watched() as uses:
        for senses in (PICTURES, NoiseBackground()):
            seeing.watch(
                EYES.build(WORLD.senses, 2, jax.random.key(0)), WORLD, senses, jax.random.key(1), 3
            )
    assert uses.of_key
    assert not uses.twice()


def test_worlds_on_the_host():
    world = make_world(WALK, SENSES)
    policy = AGENT.build(world.num_sensors, 2, jax.random.key(0))
    with watched() as uses, HostEngine(world, workers=0, lanes=4) as engine:
        engine.run_population(as_population(policy), jax.random.split(jax.random.key(1), 3))
        trace_on_host(policy, make_world(WALK), SENSES, jax.random.key(2), 3)
    assert uses.of_key
    assert not uses.twice()


def _evolution(directory):
    strategy = StrategyConfig("cma-es", sigma=0.3)
    config = EvolutionConfig(strategy, population=4, rollouts=3, replays=2, remembered=2, scouted=4)
    return config, TrainingContext(_draw(3, 1), _device(), directory)


def _short_horizon(directory):
    config = ShortHorizonConfig(population=2, rollouts=2, horizon=2, updates_per_generation=2)
    return config, TrainingContext(_draw(3, 1), _device(), directory)


def _imitation(directory):
    config = ImitationConfig(rollouts=2, window=2)
    expert = bold_teacher(3, 1)
    return config, TrainingContext(_draw(3, 1), _device(), directory, expert=expert)


def _recurrent_ppo(directory):
    config = RecurrentPpoConfig(
        rollouts=4, horizon=4, rounds=2, groups=2, epochs=2, critic_sizes=(4,), critic_rounds=1
    )
    return config, TrainingContext(_draw(2, 2), _host(Shuffle()), directory)


def _coaching(directory):
    config = CoachingConfig(
        senses=Shuffle(), rollouts=4, horizon=4, rounds=2, batch=8, epochs=2, critic_sizes=(4,)
    )
    student = AGENT.build(2, 2, jax.random.key(9))
    fresh = partial(FeedForwardConfig(()).build, 2, 2)
    return config, TrainingContext(fresh, _host(), directory, expert=student)


def _cloning(directory):
    config = CloningConfig(
        episodes=0, steps=4, window=2, batch=2, batches=2, dagger_every=1, dagger_episodes=2
    )
    policy = FeedForwardConfig(()).build(2, 2, jax.random.key(9))
    expert = AgentTeacher(policy, make_world(WALK))
    return config, TrainingContext(_draw(2, 2), _host(Shuffle()), directory, expert=expert)


def _controller_ppo(directory):
    config = ControllerPpoConfig(rollouts=8, window=5, windows=2, epochs=2, groups=2)
    return config, TrainingContext(_draw_eyes, DeviceEngine(WORLD), directory)


def _controller_imitation(directory):
    config = ControllerImitationConfig(
        rollouts=2, remembered=1, updates=2, batch=2, steps=4, warm_up=1
    )
    expert = bold_teacher(2, 2)
    return config, TrainingContext(_draw_eyes, DeviceEngine(WORLD), directory, expert=expert)


def _draw(sensors, actions):
    return partial(AGENT.build, sensors, actions)


_draw_eyes = partial(EYES.build, WORLD.senses, 2)


def _device():
    return DeviceEngine(Perturbed(SplittingWorld(), Shuffle()))


def _host(perturbation=None):
    return HostEngine(make_world(WALK, perturbation), workers=0, lanes=4)


@pytest.mark.parametrize(
    "prepare",
    [
        _evolution,
        _short_horizon,
        _imitation,
        _recurrent_ppo,
        _coaching,
        _cloning,
        _controller_ppo,
        _controller_imitation,
    ],
)
def test_trainers(prepare, tmp_path):
    with watched() as uses:
        config, context = prepare(tmp_path)
        trainer = config.build(context)
        state = trainer.init(key_of(0))
        for _ in range(2):
            state, _ = trainer.step(state)
        keys_of_tests(0, 3), evaluation_keys(0, 3)
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
