"""One episode with everything that happened in it."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.opening import open_env
from sensorium.envs import Environment, Perturbed
from sensorium.errors import ConfigError
from sensorium.perturbations import Identity, Perturbation
from sensorium.policies import Policy, SensoryCarry, SensoryPolicy
from sensorium.rollout.acting import begin_senses, sense
from sensorium.rollout.host import seeds_of
from sensorium.types import Key, Keys, PyTree


class EpisodeTrace(NamedTuple):
    """T steps; after the end of the episode, rows repeat nothing and `alive` is False."""

    sensors: Float[Array, "T N"]
    """True readings of the world, in its own order."""
    channels: Float[Array, "T C"]
    """What arrived at the agent."""
    source: Int[Array, "T C"]
    """Which sensor each channel carries; -1 for noise."""
    attention: Float[Array, "T M C"] | None
    code: Float[Array, "T M"] | None
    action: Float[Array, "T A"]
    reward: Float[Array, " T"]
    alive: Array
    states: PyTree
    """States of the world, each leaf with a leading axis T; pictures (RGB) of a world on the host."""


@eqx.filter_jit
def trace_episode(
    policy: Policy, world: Environment, perturbation: Perturbation, key: Key, steps: int
) -> EpisodeTrace:
    """Run one episode and keep all of it.

    Args:
        policy: The agent.
        world: An unperturbed world.
        perturbation: What happens to its senses.
        key: Decides the start and all noise; the start does not depend on the perturbation.
        steps: T, how many steps to keep.

    Returns:
        The trace.
    """
    perturbed = Perturbed(world, perturbation)
    policy = policy.with_code_scale(perturbation.code_scale)
    key_reset, key_steps = jax.random.split(key)
    params = world.default_params
    channels, state = perturbed.reset_env(key_reset, params)

    def step(now: tuple, time: Array) -> tuple[tuple, EpisodeTrace]:
        channels, state, carry, alive = now
        action, carry, inside = policy.step(channels, carry)
        step_key = jax.random.fold_in(key_steps, time)
        next_channels, next_state, reward, terminated, truncated, _ = perturbed.advance(
            step_key, state, action, params
        )
        kept = EpisodeTrace(
            sensors=world.observe(state.world),
            channels=channels,
            source=perturbed.sources(state),
            attention=inside.attention,
            code=inside.code,
            action=action,
            reward=jnp.where(alive, reward, 0.0),
            alive=alive,
            states=state.world,
        )
        alive = alive & ~terminated & ~truncated
        return (next_channels, next_state, carry, alive), kept

    carry = policy.initial_carry(perturbed.senses)
    start = (channels, state, carry, jnp.ones((), bool))
    return jax.lax.scan(step, start, jnp.arange(steps))[1]


def trace_on_host(
    policy: Policy, world: HostWorld, perturbation: Perturbation, key: Key, steps: int
) -> EpisodeTrace:
    """Run one episode of a world on the host, with pictures of it; the same as engines run.

    Args:
        policy: The agent.
        world: An unperturbed world, of flat observations.
        perturbation: What happens to its senses.
        key: Decides the start and all noise.
        steps: T, how many steps to keep.

    Returns:
        The trace; after an early end it is shorter.

    Raises:
        ConfigError: The world cannot draw itself.
    """
    policy = policy.with_code_scale(perturbation.code_scale)
    carry = policy.initial_carry(perturbation.arriving(world.raw_senses))
    senses = begin_senses(perturbation, key, world.raw_senses)
    env = open_env(world.name, render_mode="rgb_array")
    kept = []
    try:
        observation, _ = env.reset(seed=int(seeds_of(key[None])[0]))
        for time in range(steps):
            picture = env.render()
            if not isinstance(picture, np.ndarray):
                raise ConfigError(f"{world.name} cannot draw itself.")
            channels, sources, action, inside, carry, senses = _listen_and_act(
                policy,
                perturbation,
                key,
                jnp.asarray(time),
                senses,
                jnp.asarray(observation),
                carry,
            )
            command = world.to_env_actions(np.asarray(action)[None])[0]
            seen, reward, terminated, truncated, _ = env.step(command)
            kept.append(
                EpisodeTrace(
                    sensors=observation,
                    channels=channels,
                    source=sources,
                    attention=inside.attention,
                    code=inside.code,
                    action=action,
                    reward=jnp.asarray(reward, jnp.float32),
                    alive=jnp.ones((), bool),
                    states=picture,
                )
            )
            observation = seen
            if terminated or truncated:
                break
    finally:
        env.close()
    return jax.tree.map(lambda *leaves: np.stack(leaves), *kept)


@eqx.filter_jit
def _listen_and_act(
    policy: Policy,
    perturbation: Perturbation,
    key: Key,
    time: Array,
    senses: PyTree,
    observation: Array,
    carry: PyTree,
) -> tuple:
    channels, senses = sense(perturbation, key, time, senses, observation)
    sources = perturbation.sources(senses, observation.shape[0])
    action, carry, inside = policy.step(channels, carry)
    return channels, sources, action, inside, carry, senses


def collect_codes(
    policy: Policy,
    world: Environment,
    keys: Keys,
    steps: int,
    listener: SensoryPolicy | None = None,
) -> tuple[Float[np.ndarray, "samples M"], Float[np.ndarray, "samples N"]]:
    """Codes and the readings they were made of, over many episodes, without what follows their end.

    Args:
        policy: An agent that has a code.
        world: An unperturbed world.
        keys: One for each episode.
        steps: Steps of each episode to keep.
        listener: Whose codes to keep, while `policy` acts; the agent's own by default.

    Returns:
        Codes and readings, row by row.
    """
    traces = jax.vmap(lambda key: trace_episode(policy, world, Identity(), key, steps))(keys)
    alive, codes = np.asarray(traces.alive), traces.code
    if listener is not None:
        codes = jax.vmap(lambda trace: _listen(listener, trace))(traces)
    return np.asarray(codes)[alive], np.asarray(traces.sensors)[alive]


def _listen(listener: SensoryPolicy, trace: EpisodeTrace) -> Float[Array, "T M"]:
    """Codes of an agent that hears what another heard, and is told what that one did."""

    def step(carry: SensoryCarry, heard: tuple[Array, Array]) -> tuple[SensoryCarry, Array]:
        channels, action = heard
        _, carry, inside = listener.step(channels, carry)
        assert inside.code is not None
        feedback = carry.feedback.at[: action.shape[0]].set(action)
        return carry._replace(feedback=feedback), inside.code

    carry = listener.initial_carry(trace.channels.shape[1])
    return jax.lax.scan(step, carry, (trace.channels, trace.action))[1]
