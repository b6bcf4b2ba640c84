"""An agent that acts as another does, with room to learn more.

The features of a sensor are the H units of its LSTM, and attention before its tanh has no higher rank than
H or the E columns of the positional table, biases aside. `widened` adds to both.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sensorium.layers import AttentionNeuron
from sensorium.policies.policy import Policy


def widened(policy: Policy, into: Policy) -> Policy | None:
    """Make an agent with larger LSTMs or a wider positional table, whose new units have no effect at first.

    Args:
        policy: The agent that it is to act as.
        into: An agent of the larger architecture; its weights are those into the new units.

    Returns:
        The agent; None if there is no such: the two differ in anything else, or the wider table is no whole
        number of times as wide.
    """
    if _fixed(policy) is None or _fixed(policy) != _fixed(into):
        return None
    small, large = _layer(policy), _layer(into)
    assert small is not None  # as `_fixed` found
    assert large is not None
    units, columns = small.key_weight.shape[1], small.query_weight.shape[1]
    times, left = divmod(large.query_weight.shape[1], columns)
    lstm, old = large.lstm, small.lstm
    if left or lstm.hidden_size < units:
        return None
    # Columns 2i and 2i + 1 of a table of E columns are 2ik and 2ik + 1 of one of kE (AN section 3.3)
    column = np.arange(columns)
    place = 2 * times * (column // 2) + column % 2
    # Old units receive nothing of new ones
    into_units = _by_gate(lstm.weight_hh).at[:, :units, units:].set(0.0)
    into_units = into_units.at[:, :units, :units].set(_by_gate(old.weight_hh))
    layer = eqx.tree_at(
        _widened_weights,
        small,
        (
            _with_first(lstm.weight_ih, old.weight_ih),
            _with_first(lstm.bias_ih, old.bias_ih),
            _with_first(lstm.bias_hh, old.bias_hh),
            into_units.reshape(lstm.weight_hh.shape),
            jnp.zeros((len(small.query_weight), times * columns))
            .at[:, place]
            .set(small.query_weight),
            jnp.zeros((len(small.key_weight), lstm.hidden_size))
            .at[:, :units]
            .set(small.key_weight),
        ),
    )
    widest: Policy = eqx.tree_at(_layer, policy, layer)
    return widest


def _layer(policy: Any) -> AttentionNeuron | None:
    """Return the layer of a policy that has an AttentionNeuron; None for others."""
    layer = getattr(policy, "layer", None)
    return layer if isinstance(layer, AttentionNeuron) else None


def _widened_weights(layer: AttentionNeuron) -> tuple[Any, ...]:
    """Return the weights that get wider."""
    lstm = layer.lstm
    return (
        *(lstm.weight_ih, lstm.bias_ih, lstm.bias_hh),
        *(lstm.weight_hh, layer.query_weight, layer.key_weight),
    )


def _fixed(policy: Policy) -> tuple[Any, list[tuple[int, ...]]] | None:
    """Return what widening leaves as it is: the structure, all sizes but H and E; None for others."""
    layer = _layer(policy)
    if layer is None:
        return None
    *into_units, within, query_weight, key_weight = _widened_weights(layer)
    least = (
        *(weight[:1] for weight in into_units),
        *(within[:1, :1], query_weight[:, :1], key_weight[:, :1]),
    )
    rest = eqx.tree_at(lambda policy: _widened_weights(policy.layer), policy, least)
    return jax.tree.structure(rest), [leaf.shape for leaf in jax.tree.leaves(rest)]


def _with_first(new: Float[Array, "more ..."], old: Float[Array, "gates ..."]) -> Array:
    """Merge weights into the units of an LSTM: the old ones come first in each gate."""
    units = len(old) // 4
    return _by_gate(new).at[:, :units].set(_by_gate(old)).reshape(new.shape)


def _by_gate(weights: Float[Array, "gates ..."]) -> Float[Array, "4 H ..."]:
    return weights.reshape(4, -1, *weights.shape[1:])
