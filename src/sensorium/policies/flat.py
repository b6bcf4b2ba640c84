"""Policies as vectors, for evolution and for the published weights.

The order is that of the fields as declared, depth first: for an AttentionNeuron agent LSTM (weight_ih,
weight_hh, bias_ih, bias_hh), query projection (weight, bias), key projection (weight, bias), nonlinear
keys (weight, bias), then each layer of the controller (weight, bias). This is the order of the authors'
files.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.errors import AgentFileError
from sensorium.policies.policy import Policy


def num_parameters(policy: Policy) -> int:
    """Count the numbers that training may change."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(policy, eqx.is_inexact_array)))


def to_vector(policy: Policy) -> Float[Array, " parameters"]:
    """Flatten all parameters into one vector, in the order of this module."""
    leaves = jax.tree.leaves(eqx.filter(policy, eqx.is_inexact_array))
    return jnp.concatenate([leaf.reshape(-1) for leaf in leaves])


def from_vector(vector: Float[Array, " parameters"], like: Policy) -> Policy:
    """Build a policy of the architecture of `like` with the parameters of `vector`.

    Raises:
        AgentFileError: The vector is not as long as the policy has parameters.
    """
    parameters, static = eqx.partition(like, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(parameters)
    expected = sum(leaf.size for leaf in leaves)
    if vector.shape != (expected,):
        raise AgentFileError(
            f"{type(like).__name__} has {expected} parameters but the vector has shape "
            f"{tuple(vector.shape)}."
        )
    new_leaves, start = [], 0
    for leaf in leaves:
        new_leaves.append(vector[start : start + leaf.size].reshape(leaf.shape))
        start += leaf.size
    return eqx.combine(jax.tree.unflatten(structure, new_leaves), static)
