"""An agent that acts as another does, with room to learn more.

What a sensor can say is bounded by the H units of its LSTM, and attention before its tanh has no higher rank
than H or the E columns of the positional table, biases aside. `grown` adds to both.
"""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sensorium.layers import AttentionNeuron
from sensorium.policies.policy import Policy
from sensorium.policies.sensory import SensoryPolicy


def grown(policy: SensoryPolicy, into: Policy) -> SensoryPolicy | None:
    """An agent with larger LSTMs or a wider positional table, whose new units have no say at first.

    Args:
        policy: The agent that it is to act as.
        into: An agent of the larger architecture; its weights say what the new units hear.

    Returns:
        The agent; None if there is no such: the two differ in anything else, or the wider table is no whole
        number of times as wide.
    """
    small, large = policy.layer, getattr(into, "layer", None)
    if not isinstance(small, AttentionNeuron) or not isinstance(large, AttentionNeuron):
        return None
    units, columns = small.key_weight.shape[1], small.query_weight.shape[1]
    times, left = divmod(large.query_weight.shape[1], columns)
    lstm, old = large.lstm, small.lstm
    if left or lstm.hidden_size < units:
        return None
    # Columns 2i and 2i + 1 of a table of E columns are 2ik and 2ik + 1 of one of kE (AN section 3.3)
    column = np.arange(columns)
    place = 2 * times * (column // 2) + column % 2
    # Old units are deaf to new ones
    hearing = _by_gate(lstm.weight_hh).at[:, :units, units:].set(0.0)
    hearing = hearing.at[:, :units, :units].set(_by_gate(old.weight_hh))
    layer = eqx.tree_at(
        lambda layer: (
            *(layer.lstm.weight_ih, layer.lstm.bias_ih, layer.lstm.bias_hh),
            *(layer.lstm.weight_hh, layer.query_weight, layer.key_weight),
        ),
        small,
        (
            _with_first(lstm.weight_ih, old.weight_ih),
            _with_first(lstm.bias_ih, old.bias_ih),
            _with_first(lstm.bias_hh, old.bias_hh),
            hearing.reshape(lstm.weight_hh.shape),
            jnp.zeros((len(small.query_weight), times * columns))
            .at[:, place]
            .set(small.query_weight),
            jnp.zeros((len(small.key_weight), lstm.hidden_size))
            .at[:, :units]
            .set(small.key_weight),
        ),
    )
    return dataclasses.replace(policy, layer=layer)


def _with_first(new: Float[Array, "more ..."], old: Float[Array, "gates ..."]) -> Array:
    """Weights into the units of an LSTM: the old ones come first in each gate."""
    units = len(old) // 4
    return _by_gate(new).at[:, :units].set(_by_gate(old)).reshape(new.shape)


def _by_gate(weights: Float[Array, "gates ..."]) -> Float[Array, "4 H ..."]:
    return weights.reshape(4, -1, *weights.shape[1:])
