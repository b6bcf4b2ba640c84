"""Who acts in the lanes of the host engine: our policies, or somebody else's."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.perturbations import Identity, Perturbation
from sensorium.policies import Policy
from sensorium.types import Key, Keys, PyTree

_SENSES = 1  # folded into the key of an episode, as in `envs.Perturbed`


class Actor(abc.ABC):
    """Acts in L lanes side by side, each with a memory of its own."""

    @abc.abstractmethod
    def act(
        self,
        started: Bool[np.ndarray, " L"],
        episodes: Int[np.ndarray, " L"],
        observations: np.ndarray,
    ) -> Float[np.ndarray, "L A"]:
        """One step of every lane.

        Args:
            started: Lanes whose episode has just begun: their memory is to be blank.
            episodes: Which episode of the run a lane is in.
            observations: As the environments show them, unperturbed; a row each.

        Returns:
            Actions in [-1, 1].
        """


class Memories(NamedTuple):
    """What each lane carries from step to step, on the device."""

    carry: PyTree
    senses: PyTree
    time: Int[Array, " L"]


class PolicyActor(Actor):
    """P of our policies behind the perturbed senses of a world; episode `p * R + r` is of policy p."""

    def __init__(self, policies: Policy, world: HostWorld, keys: Keys):
        """Set up.

        Args:
            policies: A policy whose parameters have a leading axis P.
            world: For its perturbation.
            keys: R random keys, which decide all noise of the episodes.
        """
        self._policies = policies
        self._perturbation = world.perturbation
        self._shape = world.observation_shape
        self._key_data = np.asarray(jax.random.key_data(keys))
        self._memories: Memories | None = None

    def act(
        self,
        started: Bool[np.ndarray, " L"],
        episodes: Int[np.ndarray, " L"],
        observations: np.ndarray,
    ) -> Float[np.ndarray, "L A"]:
        policy, rollout = np.divmod(episodes, len(self._key_data))
        actions, self._memories = _act(
            self._policies,
            self._perturbation,
            self._shape,
            self._memories,
            jnp.asarray(policy),
            jnp.asarray(self._key_data[rollout]),
            jnp.array(started),
            jnp.asarray(observations),
        )
        return np.asarray(actions)


def begin_senses(perturbation: Perturbation, key: Key, sensors: int) -> PyTree:
    """The senses at the start of the episode of `key`."""
    return perturbation.init(jax.random.fold_in(key, _SENSES), sensors)


def sense(
    perturbation: Perturbation, key: Key, time: Array, senses: PyTree, observation: Array
) -> tuple[Array, PyTree]:
    """What arrives at a step of the episode of `key`, and the senses after it."""
    key = jax.random.fold_in(jax.random.fold_in(key, _SENSES + 1), time)
    readings = observation.astype(jnp.float32)
    if perturbation == Identity():  # pictures pass by
        return readings, senses
    return perturbation.apply(key, senses, readings)


@eqx.filter_jit
def _act(
    policies: Policy,
    perturbation: Perturbation,
    observation_shape: tuple[int, ...],
    memories: Memories | None,
    individuals: Int[Array, " L"],
    key_data: Array,
    started: Bool[Array, " L"],
    observations: Array,
) -> tuple[Float[Array, "L A"], Memories]:
    """One step of the senses and the policy of every lane."""
    parameters, static = eqx.partition(policies, eqx.is_inexact_array)
    sensors: Any = observation_shape[0] if len(observation_shape) == 1 else observation_shape

    def start(policy: Policy, key: Array) -> Memories:
        carry = policy.initial_carry(sensors)
        senses = begin_senses(perturbation, key, observations.shape[1])
        return Memories(carry, senses, jnp.zeros((), jnp.int32))

    def lane(
        individual: Array, key: Array, started: Array, before: Memories | None, observation: Array
    ) -> tuple[Array, Memories]:
        policy = eqx.combine(jax.tree.map(lambda leaf: leaf[individual], parameters), static)
        key = jax.random.wrap_key_data(key)
        blank = start(policy, key)
        now = jax.tree.map(lambda new, old: jnp.where(started, new, old), blank, before or blank)
        readings, senses = sense(perturbation, key, now.time, now.senses, observation)
        action, carry, _ = policy.step(readings, now.carry)
        return action, Memories(carry, senses, now.time + 1)

    axes = (0, 0, 0, None if memories is None else 0, 0)
    return jax.vmap(lane, in_axes=axes)(individuals, key_data, started, memories, observations)
