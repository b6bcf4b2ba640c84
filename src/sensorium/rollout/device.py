"""Policies x worlds -> returns, on the device: the readable engine.

One episode is a loop over time; rollouts and populations are `vmap`s of it, which stop when the last of their
episodes has ended. `fused.py` computes the same several times faster for the hot path of evolution, and is
tested against this.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sensorium.envs import Environment
from sensorium.policies import Policy
from sensorium.types import Key, Keys, Sensed


class Episode(NamedTuple):
    """One finished episode; batched engines add leading axes."""

    total: Float[Array | np.ndarray, "..."]
    """Sum of the rewards."""
    length: Int[Array | np.ndarray, "..."]
    """Steps until the end."""
    rewards: Float[Array | np.ndarray, "... T"]
    """Reward of each step, zero after the end."""


class Totals(NamedTuple):
    """Returns and lengths of finished episodes; batched engines add leading axes."""

    returns: Float[Array | np.ndarray, "..."]
    """Sum of the rewards."""
    steps: Int[Array | np.ndarray, "..."]
    """Until the end."""


class Running(NamedTuple):
    """An episode that goes on, between two steps."""

    observation: Sensed
    world_state: object
    carry: object
    alive: Bool[Array, ""]
    time: Int[Array, ""]
    length: Int[Array, ""]
    rewards: Float[Array, " T"]


def run_episode(
    policy: Policy, world: Environment, key: Key, together: tuple[str, ...] = ()
) -> Episode:
    """Run one policy for one episode.

    Args:
        policy: The agent.
        world: The world, perturbed or not.
        key: Decides the start, and all noise; the same key gives the same episode.
        together: Names of the `vmap`s around it. Without them each episode of a batch would be held back
            where it has ended, which copies its whole state at each step.

    Returns:
        Its rewards, which stop at the first end.
    """
    key_reset, key_steps = jax.random.split(key)
    params = world.default_params
    observation, world_state = world.reset_env(key_reset, params)
    carry = policy.initial_carry(world.observation_spec)
    zero = jnp.zeros((), jnp.int32)
    start = Running(
        observation, world_state, carry, jnp.ones((), bool), zero, zero, jnp.zeros(world.max_steps)
    )

    def goes_on(now: Running) -> Array:
        living = now.alive.astype(jnp.int32)
        return (jax.lax.psum(living, together) if together else living) > 0

    def step(now: Running) -> Running:
        action, carry, _ = policy.step(now.observation, now.carry)
        observation, world_state, reward, terminated, truncated, _ = world.advance(
            jax.random.fold_in(key_steps, now.time), now.world_state, action, params
        )
        return Running(
            observation,
            world_state,
            carry,
            alive=now.alive & ~terminated & ~truncated,
            time=now.time + 1,
            length=now.length + now.alive,
            rewards=now.rewards.at[now.time].set(jnp.where(now.alive, reward, 0.0)),
        )

    last = jax.lax.while_loop(goes_on, step, start)
    return Episode(jnp.sum(last.rewards), last.length, last.rewards)


@eqx.filter_jit
def run_episodes(policy: Policy, world: Environment, keys: Keys) -> Episode:
    """Run one policy for an episode of each of R keys; results have a leading axis R."""

    def one(key: Key) -> Episode:
        return run_episode(policy, world, key, ("rollouts",))

    return jax.vmap(one, axis_name="rollouts")(keys)


@eqx.filter_jit
def run_population(policies: Policy, world: Environment, keys: Keys) -> Episode:
    """Run P policies for R episodes each with the same R keys; results have leading axes P, R.

    Args:
        policies: A policy whose parameters have a leading axis P.
        world: The world, perturbed or not.
        keys: R random keys, shared by all policies (common random numbers).
    """

    def one(policy: Policy, key: Key) -> Episode:
        return run_episode(policy, world, key, ("population", "rollouts"))

    on_all = jax.vmap(one, in_axes=(None, 0), axis_name="rollouts")
    return eqx.filter_vmap(on_all, in_axes=(eqx.if_array(0), None), axis_name="population")(
        policies, keys
    )
