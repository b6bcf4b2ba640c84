"""What an agent of pictures looks at, shown."""

import jax
import numpy as np
import pytest
from PIL import Image

from sensorium import recipes
from sensorium.analysis import seeing
from sensorium.analysis.show import show
from sensorium.envs import CarRacing
from sensorium.errors import ConfigError
from sensorium.perturbations import Background, ShufflePatches
from sensorium.perturbations.backgrounds import frames_of
from sensorium.policies import FeedForwardConfig, VisionAttentionNeuronConfig
from sensorium.zoo.agent import Agent

SHAPE = (96, 96, 3)
CONFIG = VisionAttentionNeuronConfig(num_queries=16, top=4)


@pytest.fixture(scope="module")
def policy():
    return CONFIG.build(SHAPE, 3, jax.random.key(0))


@pytest.fixture(scope="module")
def episode(policy):
    seen = seeing.watch(policy, CarRacing(), ShufflePatches(), jax.random.key(1), 8)
    return jax.tree.map(np.asarray, seen)


def test_every_pixel_is_followed_to_where_it_was(episode):
    assert episode.alive.all()
    for before, after, places in zip(episode.world, episode.arrived, episode.places, strict=True):
        assert (before != after).any()
        np.testing.assert_array_equal(before[places[..., 0], places[..., 1]], after)


def test_importance_is_that_of_the_patches(policy, episode):
    corners, size = policy.patches(96, 96)
    assert (len(corners), size) == (256, 6)
    assert episode.importance.shape == (8, 256)
    # Each of 16 queries gives 1 in all
    np.testing.assert_allclose(episode.importance.sum(1), 16, rtol=1e-4)
    with pytest.raises(ConfigError, match="does not look at patches"):
        FeedForwardConfig().build(5, 1, jax.random.key(0)).patches(96, 96)


def test_video_and_figure_are_written(policy, episode, tmp_path):
    assert seeing.video(tmp_path / "seen.mp4", policy, episode, "seen") == 4
    frames = frames_of(str(tmp_path / "seen.mp4"), 496, 800)
    assert len(frames) == 4
    # Some of the picture is dimmed and some is not
    assert frames[0, 20:380, 20:380].std() > 5
    seeing.importance_figure(tmp_path / "seen.png", policy, episode, "seen")
    with Image.open(tmp_path / "seen.png") as figure:
        assert figure.width == 1200


def test_what_cannot_be_shown_gets_one_sentence(policy, tmp_path):
    racing = Agent(policy, recipes.find("carracing-pi"), {})
    nothing = dict(video=None, figure=None, steps=5, seed=0, shuffle_at=None)
    with pytest.raises(ConfigError, match="pictures, which have no channels"):
        show(racing, **nothing, noise_channels=5)
    recipe = recipes.find("cartpole-pi")
    balancing = Agent(recipe.blank_policy(), recipe, {})
    with pytest.raises(ConfigError, match="shows no pictures"):
        show(balancing, **nothing, noise_channels=None, background=Background("hills"))
    recipe = recipes.find("carracing-cnn")
    with pytest.raises(ConfigError, match="ConvolutionalPolicy does not look at patches"):
        show(Agent(recipe.blank_policy(), recipe, {}), **nothing, noise_channels=None)
