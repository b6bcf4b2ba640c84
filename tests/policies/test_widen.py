"""Agents that grow act as they did."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorium.errors import ConfigError
from sensorium.policies import AttentionNeuronConfig, DeepSetsConfig, FeedForwardConfig
from sensorium.policies.widen import widened
from sensorium.recipes import Recipe
from sensorium.recipes.training import fit_start
from tests.probes import UNTRAINED

SMALL = AttentionNeuronConfig(
    num_queries=5, hidden_size=3, message_size=4, position_size=4, controller_sizes=(6,), bias=True
)


def _build(config, seed):
    return config.build(7, 2, jax.random.key(seed))


@settings(max_examples=15)
@given(st.sampled_from([0, 1, 4]), st.sampled_from([1, 2, 3]), st.booleans(), st.integers(0, 2**31))
def test_a_grown_agent_acts_as_before(more, times, feedback, seed):
    config = dataclasses.replace(SMALL, code_feedback=feedback)
    larger = dataclasses.replace(
        config, hidden_size=3 + more, position_size=4 * times, message_size=4
    )
    before, into = _build(config, seed), _build(larger, seed + 1)
    after = widened(before, into)
    assert jax.tree.map(np.shape, after) == jax.tree.map(np.shape, into)
    random = np.random.default_rng(seed)
    carries = [agent.initial_carry(7) for agent in (before, after)]
    for _ in range(5):
        readings = random.normal(size=7).astype(np.float32)
        (one, carries[0]), (two, carries[1]) = (
            before(readings, carries[0]),
            after(readings, carries[1]),
        )
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_what_is_new_can_be_learned():
    after = widened(_build(SMALL, 0), _build(dataclasses.replace(SMALL, hidden_size=5), 1))

    def first_action(agent):
        carry = agent.initial_carry(7)
        for _ in range(2):
            action, carry, _ = agent.step(jnp.linspace(-1, 1, 7), carry)
        return action[0]

    gradient = jax.grad(first_action)(after)
    assert np.abs(gradient.layer.key_weight[:, 3:]).min() > 0


@pytest.mark.parametrize(
    "into",
    [
        dataclasses.replace(SMALL, hidden_size=2),
        dataclasses.replace(SMALL, position_size=6),
        DeepSetsConfig(),
    ],
)
def test_no_other_agent_grows_into_another(into):
    assert widened(_build(SMALL, 0), _build(into, 1)) is None


@pytest.mark.parametrize("actions", [1, 3])
@pytest.mark.parametrize("feedback", [False, True])
def test_no_agent_grows_into_one_of_other_actions(actions, feedback):
    larger = dataclasses.replace(SMALL, hidden_size=5, position_size=8, code_feedback=feedback)
    assert widened(_build(SMALL, 0), larger.build(7, actions, jax.random.key(1))) is None


def test_what_differs_from_a_start_is_named():
    recipe = Recipe("small", "Few units.", SMALL, UNTRAINED)
    small = recipe.draw_policy(jax.random.key(0))
    for changes, sentence in (
        (dict(env="gym:CartPole-v1"), r"gives 1 action\(s\), not 2"),
        (dict(policy=DeepSetsConfig()), "has the shape"),
        (dict(policy=FeedForwardConfig()), "is a SetPolicy, not a FeedForwardPolicy"),
        (
            dict(policy=dataclasses.replace(SMALL, hidden_size=9, controller_sizes=(7,))),
            r"controller.layers\[0\].bias has the shape \(6,\), not \(7,\)",
        ),
        (dict(policy=dataclasses.replace(SMALL, scale=True)), "built with other settings"),
    ):
        wanted = dataclasses.replace(recipe, name="other", **changes)
        with pytest.raises(ConfigError, match=f"of other in .*{sentence}"):
            fit_start(small, wanted, wanted.last)


def test_a_recipe_may_start_from_a_smaller_agent():
    recipe = Recipe("small", "Few units.", SMALL, UNTRAINED)
    small = recipe.draw_policy(jax.random.key(0))
    config = dataclasses.replace(SMALL, hidden_size=9, position_size=8)
    larger = dataclasses.replace(recipe, name="large", policy=config)
    start = fit_start(small, larger, larger.last)
    assert jax.tree.map(np.shape, start) == jax.tree.map(
        np.shape, larger.draw_policy(jax.random.key(1))
    )
    readings = np.linspace(-1, 1, 5, dtype=np.float32)
    actions = [agent(readings, agent.initial_carry(5))[0] for agent in (small, start)]
    np.testing.assert_allclose(*actions, atol=1e-6)
