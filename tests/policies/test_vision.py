"""The AttentionNeuron agent of images: its size, its invariance, what it refuses."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium.errors import ConfigError
from sensorium.policies import KeyMap, Reading, VisionAttentionNeuronConfig, num_parameters

SMALL = VisionAttentionNeuronConfig(num_queries=36, patch_size=4)
WHOLE = dataclasses.replace(SMALL, num_queries=7, reading=Reading.WHOLE)


def agent(config=SMALL, spec=(24, 32, 3)):
    return config.build(spec, 3, jax.random.key(0))


def images(count, shape=(24, 32, 3)):
    return jax.random.randint(jax.random.key(1), (count, *shape), 0, 256).astype(jnp.uint8)


def act(policy, frames, carry):
    """A step from grey frames."""
    seen, carry, _ = policy.look_at(frames, carry)
    sums, carry = policy.decide(seen, carry)
    return jnp.tanh(sums), carry


def codes(policy, seen):
    frames = jnp.asarray(seen, jnp.float32)[..., 0]
    return act(policy, frames, policy.initial_carry(seen.shape[1:]))[1].code


def test_it_has_the_papers_number_of_parameters():
    assert num_parameters(agent(VisionAttentionNeuronConfig(), (96, 96, 3))) == 7212


SCREEN = VisionAttentionNeuronConfig(
    num_queries=64,
    message_size=8,
    reading=Reading.CONVOLUTIONS,
    hidden_size=None,
    hidden_rows=0,
    learned_norms=True,
)


def screens(count, kinds, shape=(24, 36)):
    """Stacks of frames made of so many kinds of patches."""
    random = np.random.default_rng(0)
    kinds = random.integers(0, 256, (kinds, 4, 6, 6))
    rows, columns = shape[0] // 6, shape[1] // 6
    chosen = kinds[random.integers(len(kinds), size=(count, rows, columns))]
    return jnp.asarray(chosen.transpose(0, 3, 1, 4, 2, 5).reshape(count, 4, *shape), jnp.float32)


@pytest.mark.parametrize("key_map", KeyMap)
@pytest.mark.parametrize("kinds", [1, 5, 24])
def test_equal_patches_can_be_merged(kinds, key_map):
    """Codes and gradients are the same, also where more differ than are told apart."""
    plain, merging = (
        dataclasses.replace(SCREEN, distinct_patches=limit, key_map=key_map).build(
            (24, 36, 1), (6,), jax.random.key(0)
        )
        for limit in (None, 8)
    )
    seen = screens(3, kinds)

    def loss(policy):
        def one(frames):
            carry = policy.initial_carry((24, 36, 1))
            code, carry, _ = policy.look_at(frames, carry)
            return policy.decide(code, carry)[0]

        logits = jax.vmap(one)(seen)
        return jnp.sum(logits**2), logits

    (_, expected), gradient = eqx.filter_jit(eqx.filter_value_and_grad(loss, has_aux=True))(plain)
    (_, logits), merged = eqx.filter_jit(eqx.filter_value_and_grad(loss, has_aux=True))(merging)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
    for one, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(merged), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-4)


def test_patches_that_are_absent_change_nothing():
    layer = SCREEN.build((24, 36, 1), (6,), jax.random.key(0)).layer
    patches, action = layer.split(screens(1, 24)[0] / 255), jnp.zeros(6)
    absent = patches.at[5:].set(jnp.nan)
    code, attention = layer.attend(absent, action)
    np.testing.assert_allclose(code, layer.attend(patches[:5], action)[0], rtol=1e-5, atol=1e-6)
    assert not attention[:, 5:].any()


@pytest.mark.parametrize("num_queries", [63, 49])
def test_a_code_that_convolutions_cannot_read_names_one_that_they_can(num_queries):
    config = dataclasses.replace(SCREEN, num_queries=num_queries)
    with pytest.raises(ConfigError, match="64 is one"):
        config.build((24, 36, 1), (6,), jax.random.key(0))


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_patches_does_not_matter(seed):
    policy, seen = agent(), images(4)
    order = np.random.default_rng(seed).permutation(6 * 8)
    patches = np.asarray(seen).reshape(4, 6, 4, 8, 4, 3).transpose(0, 1, 3, 2, 4, 5)
    patches = patches.reshape(4, 48, 4, 4, 3)[:, order].reshape(4, 6, 8, 4, 4, 3)
    shuffled = patches.transpose(0, 1, 3, 2, 4, 5).reshape(4, 24, 32, 3)
    # The code and not the actions: with random weights places of the code tie, and rounding decides
    code, moved, later = (codes(policy, jnp.asarray(each)) for each in (seen, shuffled, seen[::-1]))
    np.testing.assert_allclose(moved, code, atol=1e-4)
    assert not np.allclose(later, code, atol=1e-2)


def test_who_reads_the_whole_code_acts_alike_on_shuffled_patches_and_learns_of_all_of_them():
    policy, seen = agent(WHOLE), images(4)
    carry = policy.initial_carry((24, 32, 3))
    frames = jnp.asarray(seen, jnp.float32)[..., 0]
    # Upper and lower half change places, which only moves patches
    halves = jnp.roll(frames, 12, 1)
    action, after = act(policy, frames, carry)
    moved, _ = act(policy, halves, carry)
    np.testing.assert_allclose(moved, action, atol=1e-5)
    assert after.code.shape == (7, 16)

    def loss(policy):
        return jnp.sum(act(policy, frames, carry)[0] ** 2)

    gradient = eqx.filter_grad(loss)(policy)
    assert all(
        jnp.any(leaf) for leaf in jax.tree.leaves((gradient.layer.value, gradient.layer.key.weight))
    )


def test_who_does_not_blend_reads_the_new_code_alone():
    blending, plain = (agent(dataclasses.replace(WHOLE, blends=each)) for each in (True, False))
    frames = jnp.asarray(images(4), jnp.float32)[..., 0]
    before = [policy.initial_carry((24, 32, 3)) for policy in (blending, plain)]
    both = zip((blending, plain), before, strict=True)
    first = [act(policy, frames, carry) for policy, carry in both]
    np.testing.assert_allclose(first[0][0], first[1][0], atol=1e-6)  # nothing to blend yet
    assert first[1][1].code is None
    assert first[1][1].memory is not None
    both = zip((blending, plain), first, strict=True)
    second = [act(policy, frames[::-1], carry)[0] for policy, (_, carry) in both]
    assert not np.allclose(second[0], second[1], atol=1e-6)


def test_a_head_makes_outputs_of_the_memory_through_a_layer_with_tanh():
    policy = agent(dataclasses.replace(WHOLE, head_size=5))
    frames = jnp.asarray(images(4), jnp.float32)[..., 0]
    seen, carry, _ = policy.look_at(frames, policy.initial_carry((24, 32, 3)))
    outputs, carry = policy.decide(seen, carry)
    first, second = policy.output.layers
    assert first.bias.shape == (5,)
    expected = (
        second.weight @ np.tanh(first.weight @ carry.memory.hidden + first.bias) + second.bias
    )
    np.testing.assert_allclose(outputs, expected, atol=1e-6)


def test_motion_is_scaled_where_keys_hear_it():
    once, twice = (agent(dataclasses.replace(WHOLE, motion_scale=each)) for each in (1.0, 2.0))
    # Keys of half the weight hear the same of twice the motion
    weight = once.layer.key.weight
    half = eqx.tree_at(
        lambda policy: policy.layer.key.weight, twice, weight.at[:, : 16 * 3].divide(2)
    )
    np.testing.assert_allclose(codes(half, images(4)), codes(once, images(4)), atol=1e-5)
    assert not np.allclose(codes(twice, images(4)), codes(once, images(4)), atol=1e-3)


@pytest.mark.parametrize("key_map", list(KeyMap))
def test_nonlinear_keys_are_a_switch(key_map):
    policy, seen = agent(dataclasses.replace(SMALL, key_map=key_map)), images(4)
    more = {KeyMap.LINEAR: 0, KeyMap.NLA_INVARIANT: 36 + 1, KeyMap.NLA_PUBLISHED: (36 + 1) * 48}
    assert num_parameters(policy) == num_parameters(agent()) + more[key_map]
    # The right half first
    turned = np.roll(np.asarray(seen), 16, 2)
    same = np.allclose(codes(policy, seen), codes(policy, jnp.asarray(turned)), atol=1e-4)
    assert same == (key_map != KeyMap.NLA_PUBLISHED)
    if key_map != KeyMap.LINEAR:
        assert not np.allclose(codes(policy, seen), codes(agent(), seen), atol=1e-2)


def test_published_nonlinear_keys_know_how_many_patches_there_are():
    policy = agent(dataclasses.replace(SMALL, key_map=KeyMap.NLA_PUBLISHED))
    with pytest.raises(ConfigError, match="built for 48 patches, not for 36"):
        policy.initial_carry((24, 24, 3))


def test_the_first_frame_fills_its_memory_and_later_ones_push_it_out():
    policy, seen = agent(), images(5, (24, 32, 1))
    carry = policy.initial_carry((24, 32, 1))
    _, carry, _ = policy.step(seen[0], carry)
    np.testing.assert_array_equal(carry.frames, np.repeat(seen[:1, ..., 0], 4, 0))
    for image in seen[1:]:
        _, carry, _ = policy.step(image, carry)
    np.testing.assert_array_equal(carry.frames, seen[1:, ..., 0])


@pytest.mark.parametrize(
    ("spec", "config", "sentence"),
    [
        (28, SMALL, "takes images of height x width x 3"),
        ((24, 32, 2), SMALL, "takes images of height x width x 3"),
        ((25, 32, 3), SMALL, "Patches of 4 pixels do not divide an image of 25 x 32; 1 would"),
        ((24, 32, 3), VisionAttentionNeuronConfig(num_queries=30), "square number .* 25 is one"),
        ((24, 32, 3), VisionAttentionNeuronConfig(num_queries=4), "at least 10, got 4; 16 is one"),
        ((24, 32, 3), VisionAttentionNeuronConfig(patch_size=4, num_frames=1), "two frames"),
    ],
)
def test_what_does_not_fit_is_refused(spec, config, sentence):
    with pytest.raises(ConfigError, match=sentence):
        config.build(spec, 3, jax.random.key(0))
