"""Policies x worlds -> returns, on the device: the readable engine.

One episode is a scan over time; rollouts and populations are `vmap`s of it. `fused.py` computes the same
several times faster for the hot path of evolution, and is tested against this.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sensorium.envs import Environment
from sensorium.policies import Policy
from sensorium.types import Key, Keys


class Episode(NamedTuple):
    """One finished episode; batched engines add leading axes."""

    total: Float[Array, "..."]
    """Sum of the rewards."""
    length: Int[Array, "..."]
    """Steps until the end."""
    rewards: Float[Array, "... T"]
    """Reward of each step, zero after the end."""


class Running(NamedTuple):
    """An episode that goes on, between two steps."""

    observation: Float[Array, " N"]
    world_state: object
    carry: object
    alive: Bool[Array, ""]


def run_episode(policy: Policy, world: Environment, key: Key) -> Episode:
    """One policy, one episode.

    Args:
        policy: The agent.
        world: The world, perturbed or not.
        key: Decides the start, and all noise; the same key gives the same episode.

    Returns:
        Its rewards, which stop at the first end.
    """
    key_reset, key_steps = jax.random.split(key)
    params = world.default_params
    observation, world_state = world.reset_env(key_reset, params)
    carry = policy.initial_carry(world.senses)
    start = Running(observation, world_state, carry, jnp.ones((), bool))

    def step(now: Running, time: Array) -> tuple[Running, tuple[Array, Array]]:
        action, carry, _ = policy.step(now.observation, now.carry)
        observation, world_state, reward, terminated, truncated, _ = world.advance(
            jax.random.fold_in(key_steps, time), now.world_state, action, params
        )
        alive = now.alive & ~terminated & ~truncated
        reward = jnp.where(now.alive, reward, 0.0)
        return Running(observation, world_state, carry, alive), (reward, now.alive)

    _, (rewards, alive) = jax.lax.scan(step, start, jnp.arange(world.max_steps))
    return Episode(jnp.sum(rewards), jnp.sum(alive), rewards)


@eqx.filter_jit
def run_episodes(policy: Policy, world: Environment, keys: Keys) -> Episode:
    """One policy, an episode for each of R keys; results have a leading axis R."""
    return jax.vmap(lambda key: run_episode(policy, world, key))(keys)


@eqx.filter_jit
def run_population(policies: Policy, world: Environment, keys: Keys) -> Episode:
    """P policies, R episodes each with the same R keys; results have leading axes P, R.

    Args:
        policies: A policy whose parameters have a leading axis P.
        world: The world, perturbed or not.
        keys: R random keys, shared by all policies (common random numbers).
    """

    def one(policy: Policy) -> Episode:
        return jax.vmap(lambda key: run_episode(policy, world, key))(keys)

    return eqx.filter_vmap(one)(policies)
