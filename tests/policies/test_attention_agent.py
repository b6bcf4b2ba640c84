"""AttentionAgent: its size, what it looks at, and what it refuses to look at."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium import recipes, zoo
from sensorium.envs import make
from sensorium.errors import ConfigError, ObservationError
from sensorium.policies import (
    AttentionAgentConfig,
    AttentionNeuronConfig,
    FeedForwardConfig,
    as_population,
    num_parameters,
)
from sensorium.recipes.training import fit_start
from sensorium.rollout import DeviceEngine

SPEC = (96, 96, 3)


def agent(**settings):
    return AttentionAgentConfig(**settings).build(SPEC, 3, jax.random.key(0))


def test_it_has_the_papers_number_of_parameters():
    assert num_parameters(agent()) == 3667


def test_it_acts_on_places_alone():
    # An image in other colours with the same importances: the projections only see the first channel
    policy = agent()
    mask = jnp.tile(jnp.array([1.0, 0.0, 0.0]), 49)
    policy = eqx.tree_at(
        lambda policy: (policy.look.query.weight, policy.look.key.weight),
        policy,
        replace_fn=lambda weight: weight * mask,
    )
    image = jax.random.randint(jax.random.key(1), SPEC, 0, 256).astype(jnp.uint8)
    recoloured = image.at[..., 1:].set(7)
    carry = policy.initial_carry(SPEC)
    action, _, trace = policy.step(image, carry)
    other, _, _ = policy.step(recoloured, carry)
    np.testing.assert_array_equal(action, other)
    assert trace.attention.shape == (1, 529)
    moved, _, _ = policy.step(jnp.roll(image, 40, 0), carry)
    assert not np.allclose(action, moved)


def test_told_of_more_places_it_acts_as_before_and_of_fewer_on_the_best():
    policy = agent()
    image = jax.random.randint(jax.random.key(1), SPEC, 0, 256).astype(jnp.uint8)

    def act(policy):
        action, _, _ = policy.step(image, policy.initial_carry(SPEC))
        return np.asarray(action)

    more, fewer = policy.with_top(25), policy.with_top(4)
    np.testing.assert_allclose(act(more), act(policy), atol=1e-6)
    assert more.num_attended == 25
    deaf = policy.lstm.weight_ih.at[:, 8:].set(0)
    deaf = eqx.tree_at(lambda policy: policy.lstm.weight_ih, policy, deaf)
    np.testing.assert_allclose(act(fewer), act(deaf), atol=1e-6)
    assert not np.allclose(act(fewer), act(policy))
    assert num_parameters(fewer) == num_parameters(agent(top=4))
    with pytest.raises(ConfigError, match="1 patch or more, not 0"):
        policy.with_top(0)


@pytest.mark.parametrize("top", [5, 20])
def test_training_starts_from_an_agent_of_other_places(top):
    recipe = recipes.find("carracing-attention-agent")
    recipe = dataclasses.replace(recipe, policy=AttentionAgentConfig(top=top))
    shipped = zoo.load("carracing-attention-agent").policy
    start = fit_start(shipped, recipe, recipe.last)
    assert start.num_attended == top
    np.testing.assert_array_equal(start.look.key.weight, shipped.look.key.weight)
    larger = dataclasses.replace(recipe, policy=AttentionAgentConfig(top=top, hidden_size=32))
    with pytest.raises(ConfigError, match="of another architecture"):
        fit_start(shipped, larger, larger.last)


def test_a_reader_reads_all_patches(key):
    policy = AttentionAgentConfig(reader_size=8, hidden_size=4).build(SPEC, 3, key)
    image = jax.random.randint(key, SPEC, 0, 256).astype(jnp.uint8)
    features, memory, trace = policy.encode(image, policy.initial_carry(SPEC))
    np.testing.assert_allclose(features, np.log(trace.attention[0] + 0.05) / 2, rtol=1e-5)
    gradient = jax.grad(lambda policy: policy.step(image, memory)[0].sum())(policy)
    assert all(
        np.abs(leaf).max() > 0 for leaf in jax.tree.leaves((gradient.look.key, gradient.reader))
    )
    few = policy.with_top(3)
    assert few.num_attended == 3
    np.testing.assert_array_equal(few.step(image, memory)[0], policy.step(image, memory)[0])
    with pytest.raises(ConfigError, match="reads 529 patches; 64 x 64 pixels make 225"):
        policy.initial_carry((64, 64, 3))
    with pytest.raises(ObservationError, match="64 x 64 pixels make 225"):
        policy(np.zeros((64, 64, 3), np.uint8), memory)


@pytest.mark.parametrize("settings", [{}, {"reader_size": 8}])
def test_its_memory_may_receive_the_previous_action(settings, key):
    policy = AttentionAgentConfig(action_feedback=True, **settings).build(SPEC, (3,), key)
    image = jax.random.randint(key, SPEC, 0, 256).astype(jnp.uint8)
    _, carry = policy(image, policy.initial_carry(SPEC))
    after = [policy.after_action(carry, jnp.eye(3)[option]) for option in range(3)]
    outputs = [np.asarray(policy(image, carry)[0]) for carry in after]
    assert not np.allclose(outputs[0], outputs[1])
    for top in (4, 20):  # what receives it stays where places come and go
        fitted = policy.with_top(top)
        weights = fitted.lstm.weight_ih[:, -3:]
        np.testing.assert_array_equal(weights, policy.lstm.weight_ih[:, -3:])
        fitted(image, carry)
    blind = agent(**settings)
    assert blind.after_action(blind.initial_carry(SPEC), jnp.ones(3)).action is None


def test_a_head_makes_outputs_of_the_memory_through_a_layer_with_tanh(key):
    policy = agent(head_size=5)
    image = jax.random.randint(key, SPEC, 0, 256).astype(jnp.uint8)
    features, carry, _ = policy.encode(image, policy.initial_carry(SPEC))
    outputs, carry = policy.decide(features, carry)
    first, second = policy.output.layers
    hidden = np.tanh(first.weight @ carry.memory.hidden + first.bias)
    assert hidden.shape == (5,)
    np.testing.assert_allclose(outputs, second.weight @ hidden + second.bias, atol=1e-6)


def test_it_drives_in_the_engine():
    engine = DeviceEngine(make("CarRacing"))
    keys = jax.random.split(jax.random.key(0), 1)
    episodes = engine.run_population(as_population(agent()), keys)
    assert episodes.rewards.shape == (1, 1, 1000)
    assert float(episodes.rewards[0, 0, 0]) > 0


@pytest.mark.parametrize(
    ("spec", "settings", "sentence"),
    [
        (5, {}, "takes images of height x width x 3, not 5"),
        ((96, 96, 1), {}, r"height x width x 3, not images of shape \(96, 96, 1\)"),
        ((5, 96, 3), {}, "smaller than a patch of 7"),
        ((7, 11, 3), {}, "has 2 patches, fewer than the 10"),
        (SPEC, {"stride": 0}, "at least 1"),
        (SPEC, {"top": 0}, "top must be at least 1, got 0"),
        (5, {"reader_size": 8}, "takes images of height x width x 3, not 5"),
    ],
)
def test_what_it_cannot_look_at_is_refused(spec, settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        AttentionAgentConfig(**settings).build(spec, 3, jax.random.key(0))


@pytest.mark.parametrize(
    ("image", "sentence"),
    [
        (np.zeros((96, 96, 3)), "got dtype float64; multiply by 255 and convert it first"),
        (np.full((96, 96, 3), 90, np.float32), "got dtype float32; convert it first"),
        (np.zeros((0, 96, 3), np.float32), "got dtype float32"),
        (np.zeros((96, 96), np.uint8), r"any x any x 3 .* got shape \(96, 96\)"),
        (np.zeros((96, 96, 4), np.uint8), r"got shape \(96, 96, 4\)"),
        (np.zeros((2, 96, 96, 3), np.uint8), "batch with jax.vmap"),
        (np.zeros((5, 96, 3), np.uint8), "smaller than a patch of 7"),
        (np.zeros((7, 11, 3), np.uint8), "has 2 patches, fewer than the 10"),
        ([[1], [1, 2]], "not rows of several lengths"),
    ],
)
def test_a_image_that_it_cannot_see_is_refused(image, sentence):
    policy = agent()
    with pytest.raises(ObservationError, match=sentence):
        policy(image, policy.initial_carry(SPEC))


@pytest.mark.parametrize("config", [AttentionNeuronConfig(), FeedForwardConfig()])
def test_agents_of_scalar_sensors_refuse_images(config):
    with pytest.raises(ConfigError, match="cannot take images of shape"):
        config.build(SPEC, 3, jax.random.key(0))
