"""Imitation: a student with shuffled senses comes to do what a teacher does who knows the state."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium import zoo
from sensorium.envs import CartPoleSwingUpHarder, Perturbed
from sensorium.errors import ConfigError
from sensorium.perturbations import Shuffle
from sensorium.policies import AttentionNeuronConfig, FeedForwardConfig
from sensorium.recipes import find
from sensorium.rollout import DeviceEngine, HostEngine, make_world
from sensorium.training import ImitationConfig
from sensorium.zoo.agent import Agent
from tests.probes import context
from tests.training.spot_world import bold_teacher

WORLD = Perturbed(CartPoleSwingUpHarder(), Shuffle())
FEATURES = WORLD.critic_features(WORLD.reset(jax.random.key(0))[1]).shape[0]
CONFIG = ImitationConfig(
    rollouts=8, window=50, learning_rate=1e-2, total_generations=8, teacher_generations=6
)


def draw(key):
    return AttentionNeuronConfig().build(WORLD.num_sensors, 1, key)


def teacher(features=FEATURES, actions=1):
    return bold_teacher(features, actions)


def trainer(config=CONFIG):
    return config.build(context(draw, DeviceEngine(WORLD), teacher()))


def test_the_student_comes_to_do_what_the_teacher_does():
    # The teacher's hand stays on the wheel, so that generations can be compared
    config = dataclasses.replace(
        CONFIG, rollouts=16, window=25, teacher_generations=10**6, action_noise=0.0
    )
    world = CartPoleSwingUpHarder()

    def draw_clear_sighted(key):
        return FeedForwardConfig((16,)).build(world.num_sensors, 1, key)

    learning = config.build(context(draw_clear_sighted, DeviceEngine(world), teacher()))
    state, losses = learning.init(jax.random.key(0)), []
    for _ in range(10):
        state, metrics = learning.step(state)
        losses.append(float(metrics.figures["loss"]))
    assert losses[-1] < 0.5 * losses[0]


def test_the_teacher_takes_its_hand_off_the_wheel():
    for generations, expected in ((2, [1.0, 0.5, 0.0, 0.0]), (0, [0.0])):
        learning = trainer(dataclasses.replace(CONFIG, teacher_generations=generations))
        state, shares = learning.init(jax.random.key(0)), []
        for _ in expected:
            state, metrics = learning.step(state)
            shares.append(float(metrics.figures["teacher"]))
        assert shares == expected


def test_what_is_kept_is_a_running_mean_of_the_student():
    config = dataclasses.replace(CONFIG, averaging=0.5, window=500)
    learning = trainer(config)
    start = learning.init(jax.random.key(0))
    state, _ = learning.step(start)
    kept = jax.tree.map(lambda leaf: leaf[0], learning.candidates(state))
    # Two windows: a quarter start, a quarter after the first, half after the second
    output = [each.controller.layers[-1].weight for each in (start.student, state.student, kept)]
    first = 4 * output[2] - output[0] - 2 * output[1]
    assert not np.allclose(output[1], output[0])
    once = dataclasses.replace(config, averaging=0.0)
    only_last, _ = trainer(once).step(start)
    np.testing.assert_allclose(only_last.mean.controller.layers[-1].weight, output[1], atol=1e-6)
    # Adam's first step is of the size of the learning rate
    assert np.max(np.abs(first - output[0])) < 1.1 * CONFIG.learning_rate


def test_the_same_state_gives_the_same_generation():
    state = trainer().init(jax.random.key(1))
    once, again = (trainer().step(state)[0] for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, once.student, again.student)


def test_nothing_is_learned_after_the_end():
    learning = trainer()
    state = learning.init(jax.random.key(0))
    lanes = learning._begin(state.student, jax.random.split(jax.random.key(2), 8))
    over = lanes._replace(alive=jnp.zeros(8, bool))
    gradients, (sums, _) = learning._run_window(
        state.student, over, jax.random.key(3), jnp.float32(0)
    )
    assert not any(values.any() for values in sums)
    assert not any(leaf.any() for leaf in jax.tree.leaves(gradients))


def test_settings_that_do_not_fit_get_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match="needs an agent of ours as its expert"):
        CONFIG.build(context(draw, DeviceEngine(WORLD)))
    with pytest.raises(ConfigError, match="1000 steps do not divide into windows of 30"):
        dataclasses.replace(CONFIG, window=30).build(context(draw, DeviceEngine(WORLD), teacher()))
    with (
        HostEngine(make_world("gym:Pendulum-v1")) as engine,
        pytest.raises(ConfigError, match="on the device"),
    ):
        CONFIG.build(context(draw, engine, teacher()))


def test_an_expert_must_fit_its_world(tmp_path):
    recipe = find("carracing-attention-agent-clone")
    world = dataclasses.replace(find("cartpole-fnn"), policy=FeedForwardConfig((8,)))
    Agent(teacher(5, 1), world, {}).save(tmp_path / "expert.safetensors")
    for expert, words in (
        (str(tmp_path / "expert.safetensors"), r"takes exactly 5 sensors, got \d+"),
        ("", "needs an agent of ours as its expert"),
    ):
        with pytest.raises(ConfigError, match=words):
            zoo.train(recipe.override({"expert": expert}), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
