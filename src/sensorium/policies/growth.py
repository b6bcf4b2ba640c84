"""An agent that acts as another does, with room to learn more.

What a sensor can say is bounded by the H units of its LSTM, and attention before its tanh has no higher rank
than H or the E columns of the positional table, biases aside. `grown` adds to both; to an AttentionAgent it
adds units, and the places that it is told of.
"""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sensorium.layers import AttentionNeuron
from sensorium.layers.lstm import LSTMWeights
from sensorium.policies.attention_agent import AttentionAgent
from sensorium.policies.policy import Policy
from sensorium.policies.sensory import SensoryPolicy


def grown(policy: Policy, into: Policy) -> Policy | None:
    """An agent with larger LSTMs, more places or a wider positional table; what is new has no say at first.

    Args:
        policy: The agent that it is to act as.
        into: An agent of the larger architecture; its weights say what the new units hear.

    Returns:
        The agent; None if there is no such: the two differ in anything else, or the wider table is no whole
        number of times as wide.
    """
    if isinstance(policy, AttentionAgent) and isinstance(into, AttentionAgent):
        return _grown_controller(policy, into)
    if isinstance(policy, SensoryPolicy) and isinstance(into, SensoryPolicy):
        return _grown_layer(policy, into)
    return None


def _grown_controller(policy: AttentionAgent, into: AttentionAgent) -> AttentionAgent | None:
    policy = policy.with_top(into.top)
    units = policy.lstm.hidden_size
    if into.lstm.hidden_size < units:
        return None
    said = jnp.zeros_like(into.output.weight).at[:, :units].set(policy.output.weight)
    return eqx.tree_at(
        lambda agent: (agent.lstm, agent.output.weight),
        policy,
        (_grown_lstm(policy.lstm, into.lstm), said),
    )


def _grown_layer(policy: SensoryPolicy, into: SensoryPolicy) -> SensoryPolicy | None:
    small, large = policy.layer, into.layer
    if not isinstance(small, AttentionNeuron) or not isinstance(large, AttentionNeuron):
        return None
    units, columns = small.key_weight.shape[1], small.query_weight.shape[1]
    times, left = divmod(large.query_weight.shape[1], columns)
    if left or large.lstm.hidden_size < units:
        return None
    # Columns 2i and 2i + 1 of a table of E columns are 2ik and 2ik + 1 of one of kE (AN section 3.1)
    column = np.arange(columns)
    place = 2 * times * (column // 2) + column % 2
    layer = eqx.tree_at(
        lambda layer: (layer.lstm, layer.query_weight, layer.key_weight),
        small,
        (
            _grown_lstm(small.lstm, large.lstm),
            jnp.zeros((len(small.query_weight), times * columns))
            .at[:, place]
            .set(small.query_weight),
            jnp.zeros((len(small.key_weight), large.lstm.hidden_size))
            .at[:, :units]
            .set(small.key_weight),
        ),
    )
    return dataclasses.replace(policy, layer=layer)


def _grown_lstm(old: LSTMWeights, into: LSTMWeights) -> LSTMWeights:
    """Its units come first, and are deaf to the new ones."""
    units = old.hidden_size
    hearing = _by_gate(into.weight_hh).at[:, :units, units:].set(0.0)
    hearing = hearing.at[:, :units, :units].set(_by_gate(old.weight_hh))
    return eqx.tree_at(
        lambda lstm: (lstm.weight_ih, lstm.bias_ih, lstm.bias_hh, lstm.weight_hh),
        into,
        (
            _with_first(into.weight_ih, old.weight_ih),
            _with_first(into.bias_ih, old.bias_ih),
            _with_first(into.bias_hh, old.bias_hh),
            hearing.reshape(into.weight_hh.shape),
        ),
    )


def _with_first(new: Float[Array, "more ..."], old: Float[Array, "gates ..."]) -> Array:
    """Weights into the units of an LSTM: the old ones come first in each gate."""
    units = len(old) // 4
    return _by_gate(new).at[:, :units].set(_by_gate(old)).reshape(new.shape)


def _by_gate(weights: Float[Array, "gates ..."]) -> Float[Array, "4 H ..."]:
    return weights.reshape(4, -1, *weights.shape[1:])
