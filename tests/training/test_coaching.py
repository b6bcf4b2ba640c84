"""Coaching: a coach copies its student, then finds out more; it resumes, and says what does not fit."""

import dataclasses

import jax
import numpy as np
import pytest

from sensorium import zoo
from sensorium.errors import ConfigError
from sensorium.perturbations import NoiseChannels, Shuffle
from sensorium.policies import AttentionNeuronConfig, FeedForwardConfig, to_vector
from sensorium.recipes import Recipe
from sensorium.rollout import DeviceEngine, HostEngine, make_world
from sensorium.training import CoachingConfig, EvolutionConfig
from sensorium.zoo import Agent

WALK = "gym:tests.host_worlds:Walk-v0"
CONFIG = CoachingConfig(
    senses=Shuffle(),
    rollouts=16,
    horizon=16,
    rounds=4,
    turn=1,
    copy_rounds=4,
    total_rounds=80,
    batch=64,
    learning_rate=1e-2,
    critic_sizes=(16,),
    nearness=0.1,
    exploration=0.3,
)
RECIPE = Recipe(
    name="coach",
    summary="Knows better.",
    policy=FeedForwardConfig((16,)),
    trainer=CONFIG,
    env=WALK,
    generations=3,
    test_every=1,
    test_episodes=32,
    checkpoint_every=1,
)


@pytest.fixture
def recipe(tmp_path):
    """A recipe of a coach for an agent that was drawn at random."""
    config = AttentionNeuronConfig(num_queries=4, message_size=4)
    student = Recipe("student", "Knows nothing.", config, EvolutionConfig(), env=WALK)
    policy = student.draw_policy(jax.random.key(4))
    Agent(policy, student, {}).save(tmp_path / "student.safetensors")
    return RECIPE.override(student=str(tmp_path / "student.safetensors"))


def test_a_coach_copies_its_student_and_then_finds_out_more(recipe, tmp_path):
    rows = []
    recipe = dataclasses.replace(recipe, generations=12)
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
        near = dataclasses.replace(recipe.override(nearness=nearness), generations=4)
        zoo.train(near, tmp_path / str(nearness), quiet=True, on_generation=rows.append)
        apart.append(rows[-1]["apart"])
    assert apart[1] < 0.5 * apart[0]


def test_it_goes_on_as_if_never_stopped(recipe, tmp_path):
    whole = zoo.train(recipe, tmp_path / "whole", quiet=True)
    zoo.train(dataclasses.replace(recipe, generations=1), tmp_path / "cut", quiet=True)
    recipe_file = tmp_path / "cut" / "recipe.json"
    recipe_file.write_text((tmp_path / "whole" / "recipe.json").read_text())
    cut = zoo.resume(tmp_path / "cut", quiet=True)
    assert np.array_equal(to_vector(whole), to_vector(cut))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rollouts": 15}, "15 environments x 16 steps do not divide into two halves"),
        ({"batch": 100}, "16 environments x 16 steps .* batches of 100"),
        ({"student": ""}, "coach needs a student"),
        ({"perturbation": NoiseChannels(1)}, "A coach senses the world as it is"),
        ({"policy": AttentionNeuronConfig()}, "A coach must have no memory"),
    ],
)
def test_what_does_not_fit(recipe, tmp_path, settings, message):
    with pytest.raises(ConfigError, match=message):
        zoo.train(recipe.override(**settings), tmp_path / "run", quiet=True)


def test_a_student_of_another_body(recipe, tmp_path):
    config = AttentionNeuronConfig(num_queries=4)
    other = Recipe("other", "Has one motor.", config, EvolutionConfig())
    Agent(other.draw_policy(jax.random.key(0)), other, {}).save(tmp_path / "other.safetensors")
    recipe = recipe.override(student=str(tmp_path / "other.safetensors"))
    with pytest.raises(ConfigError, match=r"The student .* 1 action\(s\); .* takes 2"):
        zoo.train(recipe, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_worlds_on_the_device_are_refused(recipe, tmp_path):
    with HostEngine(make_world(WALK), workers=0) as engine:
        student = zoo.find_teacher(recipe)
        recipe.make_trainer(engine, tmp_path, student)
    with pytest.raises(ConfigError, match="worlds on the host"):
        recipe.make_trainer(DeviceEngine(make_world("CartPoleSwingUpHarder")), tmp_path, student)
