"""Coaching: a coach copies its student, then finds out more; it resumes, and says what does not fit."""

import dataclasses

import jax
import numpy as np
import pytest

from sensorium import zoo
from sensorium.errors import ConfigError
from sensorium.perturbations import Shuffle
from sensorium.policies import (
    AttentionNeuronConfig,
    FeedForwardConfig,
    as_population,
    to_vector,
)
from sensorium.recipes import Recipe, Stage
from sensorium.rollout import DeviceEngine
from sensorium.training import CoachingConfig
from sensorium.zoo import Agent
from tests.probes import UNTRAINED, FollowWorld, Stopped, context, stop_after
from tests.training.spot_world import EYES, WORLD

WALK = "gym:tests.host_worlds:Walk-v0"
CONFIG = CoachingConfig(
    student_perturbation=Shuffle(),
    num_envs=16,
    num_steps=16,
    num_iterations=4,
    turn=1,
    copy_iterations=4,
    num_minibatches=4,
    learning_rate=1e-2,
    critic_sizes=(16,),
    nearness=0.1,
    action_std=0.3,
    last_action_std=0.2,
)
RECIPE = Recipe(
    name="coach",
    summary="Knows better.",
    policy=FeedForwardConfig((16,)),
    stages=(
        Stage("coach", CONFIG, generations=3, test_every=1, test_episodes=32, checkpoint_every=1),
    ),
    env=WALK,
)


@pytest.fixture
def recipe(tmp_path):
    """A recipe of a coach for an agent that was drawn at random."""
    config = AttentionNeuronConfig(num_queries=4, message_size=4)
    student = Recipe("student", "Knows nothing.", config, UNTRAINED, env=WALK)
    policy = student.draw_policy(jax.random.key(4))
    Agent(policy, student, {}).save(tmp_path / "student.safetensors")
    return RECIPE.override({"expert": str(tmp_path / "student.safetensors")})


def test_a_coach_copies_its_student_and_then_finds_out_more(recipe, tmp_path):
    rows = []
    recipe = recipe.override({"generations": 12})
    coach = zoo.train(recipe, tmp_path / "run", quiet=True, on_generation=rows.append)
    assert (
        rows[0]["divergence"] < rows[1]["divergence"]
    )  # it moves for the reward from the second on
    assert rows[0]["apart"] < rows[-1]["apart"]
    assert rows[-1]["best_test"] > rows[0]["test"] + 3.0, rows  # of about -9
    assert isinstance(coach, type(FeedForwardConfig((16,)).build(2, 2, jax.random.key(0))))


def test_nearness_keeps_a_coach_by_its_student(recipe, tmp_path):
    apart = []
    for nearness in (0.0, 100.0):
        rows = []
        near = recipe.override({"nearness": nearness, "generations": 4})
        zoo.train(near, tmp_path / str(nearness), quiet=True, on_generation=rows.append)
        apart.append(rows[-1]["apart"])
    assert apart[1] < 0.5 * apart[0]


def test_it_goes_on_as_if_never_stopped(recipe, tmp_path):
    whole = zoo.train(recipe, tmp_path / "whole", quiet=True)
    with pytest.raises(Stopped):
        zoo.train(recipe, tmp_path / "cut", quiet=True, on_generation=stop_after(1))
    cut = zoo.resume(tmp_path / "cut", quiet=True)
    assert np.array_equal(to_vector(whole), to_vector(cut))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_envs": 15}, "15 environments x 16 steps do not divide into two halves"),
        ({"num_minibatches": 100}, "16 environments x 16 steps .* 100 minibatches"),
        ({"expert": ""}, "coach needs a student"),
        (
            {"perturbation": {"kind": "NoiseChannels", "count": 1}},
            "A coach receives the world as it is",
        ),
        ({"policy": {"kind": "AttentionNeuronConfig"}}, "A coach must have no memory"),
    ],
)
def test_what_does_not_fit(recipe, tmp_path, settings, message):
    with pytest.raises(ConfigError, match=message):
        zoo.train(recipe.override(settings), tmp_path / "run", quiet=True)


def test_a_student_of_another_body(recipe, tmp_path):
    config = AttentionNeuronConfig(num_queries=4)
    other = Recipe("other", "Has one motor.", config, UNTRAINED)
    Agent(other.draw_policy(jax.random.key(0)), other, {}).save(tmp_path / "other.safetensors")
    recipe = recipe.override({"expert": str(tmp_path / "other.safetensors")})
    with pytest.raises(ConfigError, match=r"The student has 1 action\(s\), but the world takes 2"):
        zoo.train(recipe, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_images_are_refused():
    student = EYES.build(WORLD.observation_spec, 2, jax.random.key(0))
    with pytest.raises(ConfigError, match="A coach reads scalar sensors"):
        CONFIG.build(context(lambda key: student, DeviceEngine(WORLD), student))


def test_a_coach_in_a_world_on_the_device():
    world = FollowWorld()
    student = AttentionNeuronConfig(num_queries=4).build(1, 1, jax.random.key(0))

    def draw(key):
        return FeedForwardConfig((8,)).build(1, 1, key)

    config = dataclasses.replace(CONFIG, num_iterations=16)
    trainer = config.build(context(draw, DeviceEngine(world), student, generations=4))
    state = trainer.init(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 64)
    for _ in range(4):
        state, _ = trainer.step(state)
    score = trainer.engine.returns(trainer.candidates(state), keys).mean()
    alone = trainer.engine.returns(as_population(student), keys).mean()
    assert score > alone + 3.0
