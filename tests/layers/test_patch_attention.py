"""Patch importance against the formula, with all patches and the whole matrix written out."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorium.errors import ConfigError
from sensorium.layers import PatchAttention
from sensorium.layers.patch_attention import patch_importance
from sensorium.layers.top_places import top_places

pytestmark = pytest.mark.usefixtures("compiled_as_for_users")


def written_out(layer, image):
    rows, columns = layer.grid(*image.shape[:2])
    size, stride = layer.patch_size, layer.stride
    cut = [
        image[r * stride : r * stride + size, c * stride : c * stride + size].reshape(-1) / 255
        for r in range(rows)
        for c in range(columns)
    ]
    patches = np.stack(cut).astype(np.float64)
    queries, keys = (
        patches @ np.asarray(p.weight, np.float64).T + np.asarray(p.bias, np.float64)
        for p in (layer.query, layer.key)
    )
    scores = queries @ keys.T / layer.scale
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return (weights / weights.sum(1, keepdims=True)).sum(0)


@given(
    size=st.integers(1, 8),
    stride=st.integers(1, 8),
    height=st.integers(8, 30),
    width=st.integers(8, 30),
    channels=st.sampled_from([1, 3]),
    seed=st.integers(0, 2**31 - 1),
)
@settings(max_examples=20, deadline=None)
def test_importances_are_the_column_sums_of_the_formula(
    size, stride, height, width, channels, seed
):
    layer = PatchAttention(
        channels=channels,
        patch_size=size,
        stride=stride,
        message_size=4,
        scale=0.5,
        key=jax.random.key(seed),
    )
    image = np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)
    counted = np.asarray(eqx.filter_jit(layer)(image))
    np.testing.assert_allclose(counted, written_out(layer, image), rtol=2e-3, atol=2e-4)
    assert counted.sum() == pytest.approx(len(counted), rel=1e-4)
    assert layer.centres(height, width).shape == (len(counted), 2)


def test_scores_of_any_size_do_not_overflow():
    layer = PatchAttention(
        channels=3, patch_size=7, stride=4, message_size=4, scale=1e-6, key=jax.random.key(0)
    )
    image = jax.random.randint(jax.random.key(1), (96, 96, 3), 0, 256).astype(jnp.uint8)
    counted = layer(image)
    assert counted.shape == (529,)
    assert bool(jnp.all(jnp.isfinite(counted)))
    assert float(jnp.sum(counted)) == pytest.approx(529, rel=1e-4)


def test_centres_are_in_the_middle_of_patches():
    layer = PatchAttention(
        channels=3, patch_size=7, stride=4, message_size=4, scale=2.0, key=jax.random.key(0)
    )
    centres = layer.centres(96, 96)
    assert centres[0].tolist() == [3, 3]
    assert centres[24].tolist() == [7, 7]  # the second of the second row
    assert centres[-1].tolist() == [91, 91]


def test_a_image_smaller_than_a_patch_is_refused():
    layer = PatchAttention(
        channels=1, patch_size=7, stride=4, message_size=4, scale=2.0, key=jax.random.key(0)
    )
    with pytest.raises(ConfigError, match="6 x 40 pixels is smaller than a patch of 7"):
        layer(jnp.zeros((6, 40, 1), jnp.uint8))


@given(
    patches=st.sampled_from([1, 5, 64, 100]),
    width=st.integers(1, 5),
    seed=st.integers(0, 2**31 - 1),
)
@settings(max_examples=15, deadline=None)
def test_gradients_of_importances_are_those_of_the_formula(patches, width, seed):
    draw = np.random.default_rng(seed).standard_normal
    queries, keys = draw((2, patches, width)).astype(np.float32)
    weight = draw(patches).astype(np.float32)

    for ours, theirs in zip(*both_gradients(queries, keys, weight), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


@jax.jit
def both_gradients(queries, keys, weight):
    def formula(queries, keys):
        return jnp.sum(jax.nn.softmax(queries @ keys.T, -1), 0)

    return [
        jax.grad(lambda *both, f=f: jnp.sum(weight * f(*both)), (0, 1))(queries, keys)
        for f in (patch_importance, formula)
    ]


def test_top_places_are_exact_and_lean_towards_higher_importance():
    places = jnp.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    counted = jnp.array([1.0, 3.0, 2.9, 0.1])
    np.testing.assert_array_equal(top_places(counted, places, 2), [[0, 1], [1, 0]])
    np.testing.assert_array_equal(top_places(counted[::-1], places, 2), [[1, 0], [0, 1]])

    def first_row(counted):
        return top_places(counted, places, 2)[0, 0]

    # The row of the winner would grow if the runner-up, which lies lower, had more patch_importance
    slope = jax.grad(first_row)(counted)
    assert slope[2] > 0 > slope[1]
    assert abs(float(slope[3])) < 0.05 * float(slope[2])
