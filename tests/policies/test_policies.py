"""The interface of every policy, their sizes, and what they say to bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium.errors import AgentFileError, ConfigError, ObservationError
from sensorium.perturbations import Occlude, Shuffle
from sensorium.policies import (
    AnonymousMotorNeuronsConfig,
    AttentionAgentConfig,
    AttentionNeuronConfig,
    ConvolutionalConfig,
    DeepSetsConfig,
    FeedForwardConfig,
    KeyMap,
    MotorGraphConfig,
    MotorNeuronsConfig,
    RecurrentConfig,
    SetTransformerConfig,
    VisionAttentionNeuronConfig,
    check_policy,
    from_vector,
    num_parameters,
    to_vector,
)
from sensorium.policies.policy import check_sensors

ALL = {
    "plain": (AttentionNeuronConfig(), 913),
    "code fed back": (AttentionNeuronConfig(code_feedback=True), 913 + 16 * 32),
    "changes": (AttentionNeuronConfig(with_change=True), 913 + 32),
    "NLA published": (AttentionNeuronConfig(key_map=KeyMap.NLA_PUBLISHED), 998),
    "NLA invariant": (AttentionNeuronConfig(key_map=KeyMap.NLA_INVARIANT), 930),
    "Deep Sets": (DeepSetsConfig(), 911),
    "Set Transformer": (SetTransformerConfig(), 911),
    "feed-forward": (FeedForwardConfig(), 113),
    "recurrent": (RecurrentConfig(8, (4,)), 4 * 8 * (6 + 8 + 2) + 9 * 4 + 5),
    "motor neurons": (MotorNeuronsConfig(), 8 + 10 + 2 * (32 * 6 + 5 * 38)),
    "anonymous motor neurons": (AnonymousMotorNeuronsConfig(), 1750),
    "with attention": (AnonymousMotorNeuronsConfig(wish_size=32, num_queries=8), 2846),
    "graph of motors": (MotorGraphConfig(), 41351),
}


@pytest.mark.parametrize("name", ALL)
def test_contract_and_size(name, key, strict):
    config, parameters = ALL[name]
    policy = config.build(5, 1, key)
    check_policy(policy, 5)
    check_policy(policy.with_code_scale(0.5), 5)
    assert num_parameters(policy) == parameters


@pytest.mark.parametrize(("key_map", "parameters"), [("linear", 2504), ("nla-published", 3428)])
def test_published_sizes_of_the_ant(key_map, parameters, key):
    config = AttentionNeuronConfig(
        num_queries=32, bias=True, scale=True, controller_sizes=(32,), key_map=KeyMap(key_map)
    )
    assert num_parameters(config.build(28, 8, key)) == parameters


@pytest.mark.parametrize("name", ALL)
def test_vector_round_trip_keeps_every_number_in_its_place(name, key):
    policy = ALL[name][0].build(5, 1, key)
    vector = jnp.arange(num_parameters(policy), dtype=jnp.float32)
    np.testing.assert_array_equal(to_vector(from_vector(vector, policy)), vector)


def test_vector_order_is_the_documented_one(paper_agent):
    policy = from_vector(jnp.arange(913, dtype=jnp.float32), paper_agent)
    assert policy.layer.lstm.weight_ih[0, 1] == 1
    assert policy.layer.lstm.weight_hh[0, 0] == 64
    assert policy.layer.query_weight[0, 0] == 384
    assert policy.layer.key_weight[0, 0] == 640
    assert policy.controller.layers[0].weight[0, 0] == 896
    assert policy.controller.layers[0].bias[0] == 912


def test_vector_of_another_length_is_refused(paper_agent):
    with pytest.raises(AgentFileError, match=r"has 913 parameters but the vector has shape \(5,\)"):
        from_vector(jnp.zeros(5), paper_agent)


@pytest.mark.parametrize(
    ("observation", "sentence"),
    [
        ([1.0, float("nan"), 0.0], "Sensor 1 reads nan"),
        ([1.0, 0.0, float("inf")], "Sensor 2 reads inf"),
        (np.ones((2, 5)), r"one vector of N sensors, got shape \(2, 5\)"),
        (np.ones(0), r"got shape \(0,\)"),
        (1.0, r"got shape \(\)"),
        (np.ones(5, bool), "real numbers, got dtype bool"),
        (np.ones(5, complex), "real numbers, got dtype complex"),
        (["a", "b"], "must be an array of numbers, got list"),
    ],
)
def test_bad_observations_get_one_clear_sentence(paper_agent, observation, sentence):
    with pytest.raises(ObservationError, match=sentence):
        paper_agent(observation, paper_agent.initial_carry(5))


def test_integers_are_readings_too(paper_agent):
    action, _ = paper_agent(np.array([1, 2, 3]), paper_agent.initial_carry(3))
    assert action.shape == (1,)


def test_numbers_of_sensors_that_cannot_be(key, paper_agent):
    with pytest.raises(ConfigError, match="at least one sensor"):
        paper_agent.initial_carry(0)
    with pytest.raises(ConfigError, match="takes exactly 5 sensors, got 6"):
        FeedForwardConfig().build(5, 1, key).initial_carry(6)
    with pytest.raises(ConfigError, match="NLA as published takes exactly 5 sensors"):
        AttentionNeuronConfig(key_map=KeyMap.NLA_PUBLISHED).build(5, 1, key).initial_carry(10)


def test_a_policy_that_keeps_hidden_state_is_found_out(paper_agent):
    class Forgetful(type(paper_agent)):
        def step(self, observation, carry):
            action, _, trace = super().step(observation, carry)
            return action, carry._replace(feedback=jnp.zeros((2,))), trace

    broken = Forgetful(paper_agent.layer, paper_agent.controller, 1)
    with pytest.raises(ConfigError, match="changes the structure"):
        check_policy(broken)


def test_vmap_over_agents_and_observations(paper_agent):
    carry = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (7, *leaf.shape)), paper_agent.initial_carry(5)
    )
    actions, _ = jax.vmap(paper_agent)(jnp.ones((7, 5)), carry)
    assert actions.shape == (7, 1)


def test_a_matrix_is_no_image_and_what_to_do_is_said():
    with pytest.raises(
        ConfigError, match=r"3 entities of 4 .*observe=flat .* makes scalar sensors"
    ):
        check_sensors((3, 4))
    for refused in (
        lambda: Occlude().output_spec((3, 4)),
        lambda: AttentionAgentConfig().build((3, 4), 1, jax.random.key(0)),
        lambda: ConvolutionalConfig().build((3, 4), 1, jax.random.key(0)),
        lambda: VisionAttentionNeuronConfig().build((3, 4), 1, jax.random.key(0)),
    ):
        with pytest.raises(ConfigError, match=r"images .*3 entities of 4 feature"):
            refused()
    with pytest.raises(
        ConfigError, match=r"arrays of shape \(2, 3, 4, 5\), of which .observe=flat"
    ):
        Shuffle().output_spec((2, 3, 4, 5))
