"""Patch importance of agents of images, in videos and figures."""

import jax
import numpy as np
import pytest
from PIL import Image

from sensorium import recipes
from sensorium.analysis import attention
from sensorium.analysis.show import show
from sensorium.envs import CarRacing
from sensorium.errors import ConfigError
from sensorium.evaluation import evaluation_keys
from sensorium.flags import PerturbationFlags
from sensorium.perturbations import SCENES, ShufflePatches, each_background
from sensorium.perturbations.backgrounds import frames_of
from sensorium.policies import AttentionAgentConfig, FeedForwardConfig, VisionAttentionNeuronConfig
from sensorium.rollout import HostEngine, make_world
from sensorium.zoo.agent import Agent

SHAPE = (96, 96, 3)
AGENTS = {
    "shuffled patches": VisionAttentionNeuronConfig(num_queries=16, top=4),
    "patch importance": AttentionAgentConfig(top=5),
}


@pytest.fixture(scope="module", params=AGENTS)
def policy(request):
    return AGENTS[request.param].build(SHAPE, 3, jax.random.key(0))


@pytest.fixture(scope="module")
def episode(policy):
    seen = attention.trace_images(policy, CarRacing(), ShufflePatches(), jax.random.key(1), 8)
    return jax.tree.map(np.asarray, seen)


def test_every_pixel_is_followed_to_where_it_was(episode):
    assert episode.alive.all()
    for before, after, places in zip(episode.world, episode.arrived, episode.places, strict=True):
        assert (before != after).any()
        np.testing.assert_array_equal(before[places[..., 0], places[..., 1]], after)


@pytest.mark.parametrize(
    ("env", "spec", "actions"), [("Stripes", (12, 18, 3), 1), ("Shades", (8, 8, 3), (2,))]
)
def test_worlds_on_the_host_are_shown_too(env, spec, actions, tmp_path):
    config = VisionAttentionNeuronConfig(num_queries=16, top=4, patch_size=2, hidden_rows=0)
    policy = config.build(spec, actions, jax.random.key(0))
    world, shuffle = make_world(f"gym:tests.host_worlds:{env}-v0"), ShufflePatches(2)
    (key,) = keys = evaluation_keys(3, 1)
    seen = attention.trace_images(policy, world, shuffle, key, 20)
    for before, after, places in zip(seen.world, seen.arrived, seen.places, strict=True):
        np.testing.assert_array_equal(before[places[..., 0], places[..., 1]], after)
    with HostEngine(make_world(f"gym:{world.name}", shuffle), workers=0) as engine:
        episode = engine.run_episodes(policy, keys)
    assert float(seen.reward.sum()) == pytest.approx(float(episode.total[0]))
    assert attention.write_image_video(tmp_path / "seen.mp4", policy, seen, env, 50) == 10
    attention.importance_figure(tmp_path / "seen.png", policy, seen, env)


def test_importance_is_that_of_the_patches(policy, episode):
    corners, size = policy.patches(96, 96)
    assert (len(corners), size) == {6: (256, 6), 7: (529, 7)}[size]
    assert episode.importance.shape == (8, len(corners))
    # Each of 16 queries, or each patch, gives 1 in all
    given = {6: 16, 7: 529}[size]
    np.testing.assert_allclose(episode.importance.sum(1), given, rtol=1e-4)


def test_agents_without_patches_have_none_to_show():
    with pytest.raises(ConfigError, match="does not attend to patches"):
        FeedForwardConfig().build(5, 1, jax.random.key(0)).patches(96, 96)


@pytest.mark.parametrize(("steps_per_second", "frames"), [(50, 4), (30, 4), (15, 8)])
def test_slow_worlds_have_a_frame_for_each_step(
    policy, episode, tmp_path, steps_per_second, frames
):
    path = tmp_path / "seen.mp4"
    assert frames == attention.write_image_video(path, policy, episode, "seen", steps_per_second)
    assert len(frames_of(str(path), 496, 800)) == frames


def test_video_and_figure_are_written(policy, episode, tmp_path):
    assert attention.write_image_video(tmp_path / "seen.mp4", policy, episode, "seen", 50) == 4
    frames = frames_of(str(tmp_path / "seen.mp4"), 496, 800)
    # Some of the image is dimmed and some is not
    assert frames[0, 30:400, 20:380].std() > 5
    attention.importance_figure(tmp_path / "seen.png", policy, episode, "seen")
    with Image.open(tmp_path / "seen.png") as figure:
        assert figure.width == 1200


def test_the_agents_own_number_of_patches_is_lit_the_best_whitest(policy, episode, tmp_path):
    """On a black world in its own order: what is not black is what the agent looks at."""
    drawn = []

    def keep(path, draw, count, steps_per_second):
        drawn.extend(draw(step) for step in range(count))
        return len(drawn)

    black = np.zeros_like(episode.world)
    places = np.stack(np.meshgrid(np.arange(96), np.arange(96), indexing="ij"), -1)
    corners, size = policy.patches(96, 96)
    apart = np.flatnonzero((corners % (2 * size // 8 * 8) == 0).all(1))  # none covers another
    importance = np.zeros_like(episode.importance)
    importance[:, apart] = 1 + np.arange(len(apart))
    shown = episode._replace(
        world=black,
        arrived=black,
        places=np.broadcast_to(places, (*black.shape[:3], 2)).astype(np.uint8),
        importance=importance,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "write_frames", keep)
        attention.write_image_video(tmp_path / "never.mp4", policy, shown, "black", 50)
    right = drawn[0][29:413, 404:788, 0][::4, ::4]
    lit = {int(right[row, column]) for row, column in corners[apart]} - {0}
    assert len(lit) == policy.num_attended
    assert (right > 0).sum() == policy.num_attended * size**2
    assert right[tuple(corners[apart[-1]])] == max(lit)
    assert not drawn[0][29:413, 10:394].any()  # as the world was: nothing is lit or dimmed


def test_each_background_has_a_video_of_its_own(tmp_path, capsys):
    images = tmp_path / "images"
    images.mkdir()
    for name, colour in (("red.png", (200, 30, 30)), ("blue.png", (30, 30, 200))):
        Image.new("RGB", (8, 8), colour).save(images / name)
    recipe = recipes.find("carracing-attention-agent")
    agent = Agent(recipe.draw_policy(jax.random.key(0)), recipe, {})
    wanted = dict(steps=4, seed=0, video=tmp_path / "videos", figure=None)
    show(agent, **wanted, backgrounds=str(images))
    said = capsys.readouterr().out
    assert said.index("background blue.png: return") < said.index("background red.png: return")
    means = {}
    for name in ("blue", "red"):
        frames = frames_of(str(tmp_path / "videos" / f"{name}.mp4"), 496, 800)
        means[name] = frames[0, 40:200, 420:780].mean((0, 1))
    assert means["red"][0] > means["red"][2]
    assert means["blue"][2] > means["blue"][0]
    assert set(each_background("scenes")) == set(SCENES)


def test_what_cannot_be_shown_gets_one_sentence(tmp_path):
    nothing = dict(video=None, figure=None, steps=5, seed=0)

    def refused(name, match, **asked):
        recipe = recipes.find(name)
        with pytest.raises(ConfigError, match=match):
            show(Agent(recipe.draw_policy(jax.random.key(0)), recipe, {}), **nothing | asked)

    refused("carracing-pi", "not to images of shape", flags=PerturbationFlags(noise_channels=5))
    refused(
        "carracing-pi",
        "reshuffle_every must be at least 1",
        flags=PerturbationFlags(reshuffle_every=-3),
    )
    refused("carracing-pi", "between 1 and 1000, got 2000", steps=2000)
    refused(
        "carracing-pi",
        "--backgrounds is each",
        flags=PerturbationFlags(background="hills"),
        backgrounds="scenes",
    )
    refused("carracing-pi", "no folder nowhere of backgrounds", backgrounds="nowhere")
    refused("carracing-pi", "nothing to use as background", backgrounds=str(tmp_path))
    refused(
        "cartpole-pi",
        "'background hills' happens to images",
        flags=PerturbationFlags(background="hills"),
    )
    refused(
        "carracing-pi", "--plain goes without", flags=PerturbationFlags(shuffle=True), plain=True
    )
    refused("carracing-cnn", "ConvolutionalPolicy does not attend to patches")
    refused("carracing-expert", "does not draw itself", video=tmp_path / "none.mp4")
    assert not list(tmp_path.iterdir())
