"""Agents that grow act as they did."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorium import zoo
from sensorium.policies import AttentionNeuronConfig, DeepSetsConfig
from sensorium.policies.growth import grown
from sensorium.recipes import Recipe
from sensorium.training import EvolutionConfig

SMALL = AttentionNeuronConfig(
    num_queries=5, hidden_size=3, message_size=4, position_size=4, controller_sizes=(6,), bias=True
)


def _build(config, seed):
    return config.build(7, 2, jax.random.key(seed))


@given(st.integers(0, 5), st.sampled_from([1, 2, 3]), st.booleans(), st.integers(0, 2**31))
def test_a_grown_agent_acts_as_before(more, times, feedback, seed):
    config = dataclasses.replace(SMALL, code_feedback=feedback)
    larger = dataclasses.replace(
        config, hidden_size=3 + more, position_size=4 * times, message_size=4
    )
    before, into = _build(config, seed), _build(larger, seed + 1)
    after = grown(before, into)
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
    after = grown(_build(SMALL, 0), _build(dataclasses.replace(SMALL, hidden_size=5), 1))

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
    assert grown(_build(SMALL, 0), _build(into, 1)) is None


def test_a_recipe_may_start_from_a_smaller_agent(tmp_path):
    recipe = Recipe("small", "Few units.", SMALL, EvolutionConfig(), env="CartPoleSwingUpHarder")
    small = recipe.draw_policy(jax.random.key(0))
    zoo.Agent(small, recipe, {}).save(tmp_path / "small.safetensors")
    config = dataclasses.replace(SMALL, hidden_size=9, position_size=8)
    larger = dataclasses.replace(
        recipe, name="large", policy=config, start=str(tmp_path / "small.safetensors")
    )
    start = zoo.find_start(larger)
    assert jax.tree.map(np.shape, start) == jax.tree.map(
        np.shape, larger.draw_policy(jax.random.key(1))
    )
    readings = np.linspace(-1, 1, 5, dtype=np.float32)
    actions = [agent(readings, agent.initial_carry(5))[0] for agent in (small, start)]
    np.testing.assert_allclose(*actions, atol=1e-6)
