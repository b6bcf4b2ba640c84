"""Coaching: a coach copies its student, then finds out more; it resumes, and says what does not fit."""

import jax
import numpy as np
import pytest

from sensorium import zoo
from sensorium.errors import ConfigError
from sensorium.perturbations import Shuffle
from sensorium.policies import AttentionNeuronConfig, FeedForwardConfig, to_vector
from sensorium.recipes import Recipe, Stage
from sensorium.training import CoachingConfig
from sensorium.zoo import Agent
from tests.probes import UNTRAINED, Stopped, stop_after

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
        ({"rollouts": 15}, "15 environments x 16 steps do not divide into two halves"),
        ({"batch": 100}, "16 environments x 16 steps .* batches of 100"),
        ({"expert": ""}, "coach needs a student"),
        (
            {"perturbation": {"kind": "NoiseChannels", "count": 1}},
            "A coach senses the world as it is",
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
    with pytest.raises(ConfigError, match=r"The student .* 1 action\(s\); .* takes 2"):
        zoo.train(recipe, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_worlds_on_the_device_are_refused(recipe, tmp_path):
    with pytest.raises(ConfigError, match="worlds on the host"):
        zoo.train(recipe.override({"env": "CartPoleSwingUpHarder"}), tmp_path / "run", quiet=True)
