"""What acts in the lanes of the host engine: policies of ours, or anything else."""

import abc
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.perturbations import Perturbation, begin
from sensorium.policies import Policy
from sensorium.seeding import stream
from sensorium.serialisation import from_data, to_data
from sensorium.types import Key, Keys, ObservationSpec, PyTree


class Actor(abc.ABC):
    """Acts in L lanes side by side, each with a memory of its own."""

    @abc.abstractmethod
    def act(
        self,
        started: Bool[np.ndarray, " L"],
        episodes: Int[np.ndarray, " L"],
        observations: np.ndarray,
    ) -> Float[np.ndarray, "L A"]:
        """Take one step in every lane.

        Args:
            started: Lanes whose episode has just begun: their memory is to be blank.
            episodes: Which episode of the run a lane is in.
            observations: As the environments show them, unperturbed; a row each.

        Returns:
            Actions in [-1, 1].
        """

    def keep(self, lanes: Int[np.ndarray, " kept"]) -> None:  # noqa: B027  # many remember nothing
        """Forget all lanes but these, which are the rows of the next steps, in this order."""


class Memories(NamedTuple):
    """What each lane carries from step to step, on the device."""

    carry: PyTree
    perturbation: PyTree
    time: Int[Array, " L"]


class PolicyActor(Actor):
    """P of our policies behind the perturbation of a world; episode `p * R + r` is of policy p."""

    def __init__(self, policies: Policy, world: HostWorld, keys: Keys):
        """Set up.

        Args:
            policies: A policy whose parameters have a leading axis P.
            world: For its perturbation.
            keys: R random keys, which decide all noise of the episodes.
        """
        self._parameters, static = eqx.partition(policies, eqx.is_array)
        self._static = (static, world.perturbation, world.raw_observation_spec)
        self._key_data = np.asarray(jax.random.key_data(keys))
        self._memories: Memories | None = None

    def act(
        self,
        started: Bool[np.ndarray, " L"],
        episodes: Int[np.ndarray, " L"],
        observations: np.ndarray,
    ) -> Float[np.ndarray, "L A"]:
        policy, rollout = np.divmod(episodes, len(self._key_data))
        chosen = (self._parameters, policy, self._key_data[rollout])
        if self._memories is None:
            self._memories = zeros_of(_blank.eval_shape(self._static, *chosen))
        started = started.copy()  # JAX may read it in place, and the caller goes on to change it
        actions, self._memories = _act(self._static, *chosen, self._memories, started, observations)
        return np.asarray(actions)

    def keep(self, lanes: Int[np.ndarray, " kept"]) -> None:
        self._memories = _kept(self._memories, lanes)


class Uniform(Actor):
    """Acts at random: what a score is compared with."""

    def __init__(self, num_actions: int, seed: int = 0):
        """Set up for A numbers."""
        self._random = np.random.default_rng(seed)
        self._num_actions = num_actions

    def act(
        self,
        started: Bool[np.ndarray, " L"],
        episodes: Int[np.ndarray, " L"],
        observations: np.ndarray,
    ) -> Float[np.ndarray, "L A"]:
        shape = (len(observations), self._num_actions)
        return self._random.uniform(-1.0, 1.0, shape).astype(np.float32)


class PerturbedActor(Actor):
    """Any actor, which receives what a perturbation makes of observations: one that keeps their shape."""

    def __init__(self, actor: Actor, world: HostWorld, keys: Keys):
        """Put the perturbation of a world before an actor.

        Args:
            actor: What acts.
            world: For its perturbation.
            keys: One random key for each episode, which decide all noise, as of `PolicyActor`.
        """
        self._actor = actor
        self._static = (world.perturbation, world.raw_observation_spec, world.num_actions)
        self._key_data = np.asarray(jax.random.key_data(keys))
        self._memories: PyTree = None

    def act(
        self,
        started: Bool[np.ndarray, " L"],
        episodes: Int[np.ndarray, " L"],
        observations: np.ndarray,
    ) -> Float[np.ndarray, "L A"]:
        key_data = self._key_data[episodes]
        if self._memories is None:
            self._memories = zeros_of(_begin.eval_shape(self._static, key_data))
        shown, self._memories = _perturb(
            self._static, key_data, self._memories, started.copy(), observations
        )
        return self._actor.act(started, episodes, np.asarray(shown))

    def keep(self, lanes: Int[np.ndarray, " kept"]) -> None:
        self._memories = _kept(self._memories, lanes)
        self._actor.keep(lanes)


def _kept(memories: PyTree, lanes: Int[np.ndarray, " kept"]) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[lanes], memories)


@partial(jax.jit, static_argnames="static")
def _begin(static: tuple[Perturbation, ObservationSpec, int], key_data: Array) -> PyTree:
    """Make the state of a perturbation, and the time, at the start of the episode of each lane."""
    keys = jax.vmap(jax.random.wrap_key_data)(key_data)
    perturbation, shown, num_actions = static
    states = jax.vmap(lambda key: begin_perturbation(perturbation, key, shown, num_actions))(keys)
    return states, jnp.zeros(len(key_data), jnp.int32)


@partial(jax.jit, static_argnames="static")
def _perturb(
    static: tuple[Perturbation, ObservationSpec, int],
    key_data: Array,
    memories: PyTree,
    started: Bool[Array, " L"],
    observations: Array,
) -> tuple[Array, PyTree]:
    """Perturb what every lane is shown."""
    states, times = restarted(started, lambda: _begin(static, key_data), memories)
    keys = jax.vmap(jax.random.wrap_key_data)(key_data)
    shown, states = jax.vmap(partial(sense, static[0]))(keys, times, states, observations)
    return shown, (states, times + 1)


def zeros_of(outline: PyTree) -> PyTree:
    """Return zeros of the shapes that `jax.eval_shape` found, where making the real ones is not worth it.

    What is a random key there is one here.
    """

    def zeros(leaf: Any) -> Any:
        outline = jax.eval_shape(to_data, leaf)
        return from_data(np.zeros(outline.shape, outline.dtype), leaf)

    return jax.tree.map(zeros, outline)


def restarted(
    started: Bool[Array, " L"], blank: Callable[[], PyTree], memories: PyTree, axis: int = 0
) -> PyTree:
    """Return the memories of L lanes, blank in those that have started.

    Args:
        started: Which.
        blank: Makes memories for all lanes; not called while none has started, since drawing the order
            of sensors takes longer than a step of the agent.
        memories: Before; the lanes along `axis` of every leaf.
        axis: 0 or -1.
    """

    def choose(new: Array, old: Array) -> Array:
        shape = (-1, *[1] * (new.ndim - 1)) if axis == 0 else (-1,)
        return jnp.where(started.reshape(shape), new, old)

    return jax.lax.cond(
        jnp.any(started), lambda: jax.tree.map(choose, blank(), memories), lambda: memories
    )


def begin_perturbation(
    perturbation: Perturbation, key: Key, shown: ObservationSpec, num_actions: int
) -> PyTree:
    """Draw the perturbation's state at the start of the episode of `key`, in a world that shows `shown`."""
    return begin(perturbation, stream(key, "senses"), shown, num_actions)


def sense(
    perturbation: Perturbation, key: Key, time: Array, state: PyTree, observation: Array
) -> tuple[Array, PyTree]:
    """Perturb the observation of a step of the episode of `key`; return it and the new state."""
    return perturbation.apply(noise_key(key, time), state, observation.astype(jnp.float32))


def noise_key(key: Key, time: Array) -> Key:
    """Return the key of what `sense` draws at a step of the episode of `key`."""
    return jax.random.fold_in(stream(key, "noise"), time)


def perturb_action(
    perturbation: Perturbation, key: Key, time: Array, state: PyTree, action: Array
) -> tuple[Array, PyTree]:
    """Perturb the action of a step of the episode of `key`; `state` is what `sense` returned."""
    if not perturbation.perturbs_actions:
        return action, state
    key = jax.random.fold_in(stream(key, "action"), time)
    return perturbation.perturb_action(key, state, action)


_Static = tuple[Policy, Perturbation, ObservationSpec]
"""The policy without its arrays, the perturbation, and what the world shows."""


@partial(jax.jit, static_argnames="static")
def _act(
    static: _Static,
    parameters: PyTree,
    individuals: Int[Array, " L"],
    key_data: Array,
    memories: Memories,
    started: Bool[Array, " L"],
    observations: Array,
) -> tuple[Float[Array, "L A"], Memories]:
    """Take one step of the perturbation and the policy in every lane."""
    architecture, perturbation, _ = static

    def lane(
        individual: Array, key: Array, now: Memories, observation: Array
    ) -> tuple[Array, Memories]:
        policy = _pick(architecture, parameters, individual)
        key = jax.random.wrap_key_data(key)
        readings, state = sense(perturbation, key, now.time, now.perturbation, observation)
        action, carry, _ = policy.step(readings, now.carry)
        action, state = perturb_action(perturbation, key, now.time, state, action)
        return action, Memories(carry, state, now.time + 1)

    now = restarted(started, lambda: _blank(static, parameters, individuals, key_data), memories)
    return jax.vmap(lane)(individuals, key_data, now, observations)


@partial(jax.jit, static_argnames="static")
def _blank(
    static: _Static,
    parameters: PyTree,
    individuals: Int[Array, " L"],
    key_data: Array,
) -> Memories:
    """Make the memories of every lane at the start of an episode."""
    architecture, perturbation, shown = static

    def lane(individual: Array, key: Array) -> Memories:
        policy = _pick(architecture, parameters, individual)
        key = jax.random.wrap_key_data(key)
        state = begin_perturbation(perturbation, key, shown, policy.num_actions)
        carry = policy.initial_carry(perturbation.output_spec(shown))
        return Memories(carry, state, jnp.zeros((), jnp.int32))

    return jax.vmap(lane)(individuals, key_data)


def _pick(architecture: Policy, parameters: PyTree, individual: Int[Array, ""]) -> Policy:
    """Pick one policy of a population."""

    def pick(leaf: Array) -> Array:
        # The only one is shared by all lanes: one product of matrices, and no copy of weights for each
        return leaf[0] if len(leaf) == 1 else leaf[individual]

    return eqx.combine(jax.tree.map(pick, parameters), architecture)
