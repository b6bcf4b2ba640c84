"""Votes of patches against the formula, with all patches and the whole matrix written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorium.errors import ConfigError
from sensorium.layers import PatchVotes


def written_out(layer, picture):
    rows, columns = layer.grid(*picture.shape[:2])
    size, stride = layer.patch_size, layer.stride
    cut = [
        picture[r * stride : r * stride + size, c * stride : c * stride + size].reshape(-1) / 255
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
def test_votes_are_the_column_sums_of_the_formula(size, stride, height, width, channels, seed):
    keys = jax.random.split(jax.random.key(seed), 2)
    layer = PatchVotes(
        channels=channels, patch_size=size, stride=stride, message_size=4, scale=0.5, key=keys[0]
    )
    picture = jax.random.randint(keys[1], (height, width, channels), 0, 256).astype(jnp.uint8)
    votes = layer(picture)
    np.testing.assert_allclose(votes, written_out(layer, np.asarray(picture)), rtol=2e-3, atol=2e-4)
    assert float(jnp.sum(votes)) == pytest.approx(len(votes), rel=1e-4)
    assert layer.centres(height, width).shape == (len(votes), 2)


def test_scores_of_any_size_do_not_overflow():
    layer = PatchVotes(
        channels=3, patch_size=7, stride=4, message_size=4, scale=1e-6, key=jax.random.key(0)
    )
    picture = jax.random.randint(jax.random.key(1), (96, 96, 3), 0, 256).astype(jnp.uint8)
    votes = layer(picture)
    assert votes.shape == (529,)
    assert bool(jnp.all(jnp.isfinite(votes)))
    assert float(jnp.sum(votes)) == pytest.approx(529, rel=1e-4)


def test_centres_are_in_the_middle_of_patches():
    layer = PatchVotes(
        channels=3, patch_size=7, stride=4, message_size=4, scale=2.0, key=jax.random.key(0)
    )
    centres = layer.centres(96, 96)
    assert centres[0].tolist() == [3, 3]
    assert centres[24].tolist() == [7, 7]  # the second of the second row
    assert centres[-1].tolist() == [91, 91]


def test_a_picture_smaller_than_a_patch_is_refused():
    layer = PatchVotes(
        channels=1, patch_size=7, stride=4, message_size=4, scale=2.0, key=jax.random.key(0)
    )
    with pytest.raises(ConfigError, match="6 x 40 pixels is smaller than a patch of 7"):
        layer(jnp.zeros((6, 40, 1), jnp.uint8))
