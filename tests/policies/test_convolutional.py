"""The convolutional agent: its size, what it computes, and that it works wherever an agent does."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium import recipes
from sensorium.errors import ConfigError, ObservationError
from sensorium.evaluation import evaluate
from sensorium.layers import Convolution
from sensorium.perturbations import RandomConvolution
from sensorium.policies import ConvolutionalConfig, num_parameters
from sensorium.rollout import HostEngine, make_world
from sensorium.zoo import Agent, load

SPEC = (96, 96, 3)
SMALL = ConvolutionalConfig(channels=(4, 5), windows=(8, 4), strides=(4, 2), hidden_sizes=(7,))


def agent(config=SMALL, spec=SPEC, actions=3, seed=0):
    return config.build(spec, actions, jax.random.key(seed))


def test_it_has_the_papers_sizes():
    # 8 x 8 x 3 to 32, 4 x 4 x 32 to 64, 3 x 3 x 64 to 64, 8 x 8 x 64 to 512, to 3
    convolutions = (192 + 1) * 32 + (512 + 1) * 64 + (576 + 1) * 64
    assert num_parameters(agent(ConvolutionalConfig())) == (
        convolutions + (4096 + 1) * 512 + (512 + 1) * 3
    )


@pytest.mark.parametrize(("size", "stride"), [(3, 2), (3, 1), (4, 2), (8, 4)])
def test_a_convolution_is_what_numpy_says(size, stride):
    layer = Convolution(2, 3, size, stride, key=jax.random.key(0))
    image = np.random.default_rng(0).normal(size=(12, 15, 2)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(image, (size, size), (0, 1))
    expected = np.einsum("rsbij,abij->rsa", windows[::stride, ::stride], layer.weight)
    seen = layer(jnp.asarray(image))
    assert seen.shape == expected.shape
    np.testing.assert_allclose(seen, expected, atol=1e-5)


def test_actions_are_in_range_and_depend_on_where_things_are():
    policy = agent()
    image = jax.random.bits(jax.random.key(1), SPEC, jnp.uint8)
    action, carry = policy(image, policy.initial_carry(SPEC))
    assert action.shape == (3,)
    assert carry == ()
    assert jnp.all(jnp.abs(action) <= 1)
    moved, _ = policy(jnp.roll(image, 40, 0), carry)
    assert not np.allclose(action, moved)
    loud = jax.tree.map(lambda leaf: 100 * leaf, agent(dataclasses.replace(SMALL, clipped=True)))
    assert set(np.abs(loud(image, ())[0])) == {1.0}


def test_frames_are_stacked_the_newest_last():
    spec = (24, 24, 1)
    four = agent(dataclasses.replace(SMALL, num_frames=4), spec)
    stacked = agent(SMALL, (24, 24, 4))
    images = np.random.default_rng(0).integers(0, 256, (6, *spec), np.uint8)
    carry = four.initial_carry(spec)
    for step, image in enumerate(images):
        shown = images[np.clip(np.arange(step - 3, step + 1), 0, None)]  # the first one fills all
        action, carry = four(image, carry)
        expected, _ = stacked(np.concatenate([*shown], -1), ())
        np.testing.assert_allclose(action, expected, atol=1e-6)


def test_a_batch_is_each_by_itself():
    policy = agent()
    images = jax.random.bits(jax.random.key(1), (4, *SPEC), jnp.uint8)
    together, _, _ = jax.vmap(policy.step, in_axes=(0, None))(images, ())
    for image, action in zip(images, together, strict=True):
        np.testing.assert_allclose(policy(image, ())[0], action, atol=1e-5)


def test_its_gradient_is_the_slope():
    policy = agent()
    image = jax.random.bits(jax.random.key(1), SPEC, jnp.uint8)

    def loss(policy):
        return jnp.sum(policy.step(image, ())[0] ** 2)

    gradient = jax.grad(loss)(policy)
    for leaf in jax.tree.leaves(gradient):
        assert jnp.any(leaf != 0)  # all layers learn
    direction = jax.tree.map(lambda leaf: leaf / jnp.linalg.norm(leaf.reshape(-1)), gradient)
    ahead, behind = (
        loss(jax.tree.map(lambda leaf, step: leaf + by * step, policy, direction))
        for by in (1e-2, -1e-2)
    )
    slope = sum(jax.tree.leaves(jax.tree.map(jnp.vdot, gradient, direction)))
    assert float(ahead - behind) / 2e-2 == pytest.approx(float(slope), rel=0.05)


def test_it_drives_behind_a_random_layer(monkeypatch):
    monkeypatch.setattr("sensorium.envs.CarRacing.max_steps", 12)
    scores = evaluate(agent(), "CarRacing", RandomConvolution(every=5), episodes=2, seed=0)
    assert scores.returns.shape == (2,)
    assert np.isfinite(scores.returns).all()


def test_it_acts_in_worlds_on_the_host():
    world = make_world("gym:tests.host_worlds:Images-v0")
    small = ConvolutionalConfig(channels=(2,), windows=(3,), strides=(1,), hidden_sizes=())
    policy = small.build(world.observation_spec, world.num_actions, jax.random.key(0))
    with HostEngine(world, workers=1) as engine:
        episodes = engine.run_episodes(policy, jax.random.split(jax.random.key(0), 2))
    assert np.isfinite(episodes.total).all()


def test_it_comes_back_from_a_file(tmp_path):
    recipe = recipes.find("carracing-netrand")
    stage = recipe.last.changed(perturbation=RandomConvolution(0.2, 7))
    recipe = dataclasses.replace(recipe, policy=SMALL, stages=(stage,))
    assert recipes.Recipe.from_json(recipe.to_json()) == recipe
    policy = recipe.draw_policy(jax.random.key(3))
    Agent(policy, recipe, {}).save(tmp_path / "agent.safetensors")
    again = load(tmp_path / "agent.safetensors")
    assert again.recipe == recipe
    image = jax.random.bits(jax.random.key(1), SPEC, jnp.uint8)
    np.testing.assert_array_equal(policy(image, ())[0], again(image, ())[0])


@pytest.mark.parametrize(
    ("spec", "settings", "sentence"),
    [
        (5, {}, "takes images of height x width x channels, not 5"),
        ((20, 96, 3), {}, "20 x 96 are too small for convolutions with windows of 8, 4, 3"),
        (SPEC, {"strides": (4, 2)}, "as many channels as windows and strides, got 3, 3 and 2"),
        (SPEC, {"strides": (4, 2, 0)}, "at least 1"),
        (SPEC, {"hidden_sizes": (0,)}, "at least 1"),
    ],
)
def test_what_it_cannot_be_is_refused(spec, settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        ConvolutionalConfig(**settings).build(spec, 3, jax.random.key(0))


def test_other_images_are_refused():
    policy = agent()
    with pytest.raises(ConfigError, match=r"built for, 96 x 96 x 3, not \(96, 96, 1\)"):
        policy.initial_carry((96, 96, 1))
    with pytest.raises(ObservationError, match=r"96 x 96 x 3 .* got shape \(96, 96, 1\)"):
        policy(np.zeros((96, 96, 1), np.uint8), ())
    with pytest.raises(ObservationError, match="must be of uint8"):
        policy(np.zeros(SPEC, np.float32), ())
