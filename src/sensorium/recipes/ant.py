"""The PyBullet ant: a teacher, its clones, and evolution."""

import dataclasses

from sensorium.perturbations import Shuffle
from sensorium.policies import AttentionNeuronConfig, FeedForwardConfig
from sensorium.recipes.recipe import Recipe
from sensorium.training import CloningConfig, PpoConfig

_WORLD = "gym:AntBulletEnv-v0"

_PAPER = AttentionNeuronConfig(num_queries=32, bias=True, scale=True, controller_sizes=(32,))
_LARGE = AttentionNeuronConfig(num_queries=32, bias=True, scale=True, controller_sizes=(128, 128))

FEED_FORWARD = Recipe(
    name="ant-fnn",
    summary="Feed-forward teacher, trained by PPO of Stable-Baselines3: good, until its inputs move.",
    policy=FeedForwardConfig(hidden_sizes=(128, 128), clipped=True),
    trainer=PpoConfig(),
    env=_WORLD,
)

CLONE = Recipe(
    name="ant-pi-clone",
    summary="The paper's small student (2,504 parameters), cloned from the feed-forward teacher.",
    policy=_PAPER,
    trainer=CloningConfig(teacher="ant-fnn"),
    env=_WORLD,
    perturbation=Shuffle(),
    generations=100,
    test_every=10,
    test_episodes=16,
)

CLONE_LARGE = dataclasses.replace(
    CLONE,
    name="ant-pi-clone-large",
    summary="The paper's larger student: one more layer, 128 units wide.",
    policy=_LARGE,
)

RECIPES = (FEED_FORWARD, CLONE, CLONE_LARGE)
