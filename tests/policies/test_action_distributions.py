"""Action distributions against their definitions."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorium.policies import Categorical, Gaussian, distribution_of
from sensorium.policies.action_distributions import SHARPNESS

STD = jnp.asarray(0.3)
FLOATS = st.floats(-3, 3, width=32)


def outputs_of(draw_from, count):
    return jnp.asarray(draw_from, jnp.float32)[:count]


@given(st.lists(FLOATS, min_size=5, max_size=5), st.lists(FLOATS, min_size=5, max_size=5))
def test_a_gaussian_is_that_of_the_textbook(outputs, drawn):
    outputs, drawn = jnp.asarray(outputs), jnp.asarray(drawn)
    density = np.exp(-0.5 * ((drawn - outputs) / STD) ** 2) / (STD * np.sqrt(2 * np.pi))
    constant = 5 * 0.5 * np.log(2 * np.pi)
    with np.errstate(divide="ignore"):
        expected = np.sum(np.log(density)) + constant
    if np.isfinite(expected):
        found = Gaussian().log_prob(drawn, outputs, STD)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@given(st.lists(FLOATS, min_size=5, max_size=5), st.integers(0, 2**31))
def test_categoricals_add_up_over_all_combinations(outputs, seed):
    both = Categorical((3, 2))
    outputs = jnp.asarray(outputs)
    options = [
        jnp.asarray([*np.eye(3)[one], *np.eye(2)[other]])
        for one, other in itertools.product(range(3), range(2))
    ]
    logs = np.array([both.log_prob(each, outputs, STD) for each in options])
    assert np.exp(logs).sum() == pytest.approx(1, abs=1e-4)
    assert both.entropy(outputs, STD) == pytest.approx(-np.sum(np.exp(logs) * logs), abs=1e-4)
    drawn = both.draw(jax.random.key(seed), outputs, STD)
    assert any(np.array_equal(drawn, each) for each in options)
    np.testing.assert_array_equal(both.to_action(drawn), drawn)
    np.testing.assert_array_equal(both.feedback(drawn), drawn)
    # The most likely combination is that of the largest logits
    assert logs.max() == pytest.approx(float(both.log_prob(both.feedback(outputs), outputs, STD)))


def test_samples_come_as_often_as_their_probabilities_say():
    one, outputs = Categorical((3,)), jnp.asarray([0.0, 1.0, -1.0])
    keys = jax.random.split(jax.random.key(0), 20_000)
    drawn = jax.vmap(lambda key: one.draw(key, outputs, STD))(keys)
    np.testing.assert_allclose(drawn.mean(0), jax.nn.softmax(outputs / STD), atol=0.02)
    normal = jax.vmap(lambda key: Gaussian().draw(key, outputs, STD))(keys)
    np.testing.assert_allclose(normal.mean(0), outputs, atol=0.02)
    np.testing.assert_allclose(normal.std(0), STD, atol=0.02)


@pytest.mark.parametrize(
    ("distribution", "expected"),
    [(Gaussian(), np.tanh([2.0, -0.5])), (Gaussian(clipped=True), [1.0, -0.5])],
)
def test_gaussians_are_squashed(distribution, expected):
    outputs = jnp.asarray([2.0, -0.5])
    np.testing.assert_allclose(distribution.action(outputs), expected, rtol=1e-6)
    np.testing.assert_allclose(distribution.to_action(outputs), expected, rtol=1e-6)
    assert distribution.bounded


@pytest.mark.parametrize("distribution", [Gaussian(), Gaussian(clipped=True), Categorical((2, 3))])
def test_imitation_is_best_where_the_expert_is(distribution):
    wanted = distribution.feedback(distribution.action(jnp.asarray([0.4, -0.2, 0.1, 0.3, -0.6])))
    weights = np.ones(5, np.float32)

    def loss(outputs):
        return distribution.imitation_loss(outputs, wanted, weights)

    near = 10 * wanted if not distribution.bounded else jnp.asarray([0.4, -0.2, 0.1, 0.3, -0.6])
    assert float(loss(near)) < 1e-3
    assert float(loss(-near)) > 0.1
    assert float(jnp.abs(jax.grad(loss)(-near)).max()) > 1e-3


def test_advice_tells_how_likely_options_are():
    distribution, weights = Categorical((2, 3)), np.ones(5, np.float32)
    logits = jnp.asarray([0.3, 0.0, -1.0, 0.1, 0.2])
    advice = distribution.advice(logits)
    assert (jnp.abs(advice) <= 1).all()
    assert (advice[:2].argmax(), advice[2:].argmax()) == (0, 2)
    # The loss is least where the student's likelihoods are those of the advice
    loss = jax.grad(lambda outputs: distribution.imitation_loss(outputs, advice, weights))
    np.testing.assert_allclose(loss(SHARPNESS * logits), 0, atol=1e-6)
    hard = jnp.asarray([1.0, -1, -1, -1, 1])
    near = 20 * hard
    assert float(distribution.imitation_loss(near, hard, weights)) < 1e-6
    np.testing.assert_array_equal(Gaussian().advice(logits), logits)


@pytest.mark.parametrize("distribution", [Gaussian(), Categorical((2, 3))])
def test_a_mixture_is_of_both(distribution):
    one, other = jnp.asarray([1.0, 0, 0, 0, 1]), jnp.asarray([0.0, 1, 1, 0, 0])
    keys = jax.random.split(jax.random.key(0), 4000)

    def mixed(share, noise=0.0):
        share, noise = jnp.asarray(share), jnp.asarray(noise)
        return jax.vmap(lambda key: distribution.mixed(key, share, one, other, noise))(keys)

    np.testing.assert_array_equal(mixed(1.0), np.broadcast_to(one, (4000, 5)))
    np.testing.assert_array_equal(mixed(0.0), np.broadcast_to(other, (4000, 5)))
    np.testing.assert_allclose(mixed(0.25).mean(0), 0.25 * one + 0.75 * other, atol=0.03)
    noisy = mixed(1.0, 0.4)
    changed = np.any(noisy != one, axis=1).mean()
    # Of discrete actions four in ten are random, and a sixth of those are the same as before
    expected = 1.0 if distribution.bounded else 0.4 * 5 / 6
    assert changed == pytest.approx(expected, abs=0.03)


def test_the_distribution_of_a_world():
    assert distribution_of(3) == Gaussian()
    assert distribution_of(3, clipped=True) == Gaussian(clipped=True)
    assert distribution_of((3, 2)) == Categorical((3, 2))
