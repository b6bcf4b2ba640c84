"""One episode of sensors or entities: readings, attention, code, actions, rewards."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.open_env import open_env
from sensorium.envs import Environment, Perturbed, World
from sensorium.perturbations import Identity, Perturbation
from sensorium.policies import Policy, SetCarry, SetPolicy
from sensorium.rollout import by_kind
from sensorium.rollout.acting import begin_perturbation, perturb_action, sense
from sensorium.rollout.host import seeds_of
from sensorium.types import Key, Keys, PyTree, spec_of


class EpisodeTrace(NamedTuple):
    """T steps; after the end of the episode `alive` is False."""

    sensors: Float[Array, "T N *F"]
    """Observations of the world, before the perturbation."""
    channels: Float[Array, "T C *F"]
    """The same after it, as the agent got them."""
    source: Int[Array, "T C"]
    """Which sensor each channel carries; -1 for noise."""
    attention: Float[Array, "T M C"] | None
    code: Float[Array, "T M"] | None
    action: Float[Array, "T A"]
    reward: Float[Array, " T"]
    alive: Array
    states: PyTree
    """States of the world, each leaf with a leading axis T. Of a world on the host its images (RGB), or
    None if it does not draw itself."""
    digest: Float[Array, "T K motors"] | None = None
    """What each motor seems to change."""


def trace_episode(
    policy: Policy, world: World, perturbation: Perturbation, key: Key, steps: int
) -> EpisodeTrace:
    """Run one episode and keep all of it; the same episode that engines run.

    Args:
        policy: The agent.
        world: An unperturbed world of scalar sensors or entities.
        perturbation: Of its observations.
        key: Decides the start and all noise; the start does not depend on the perturbation.
        steps: T, how many steps to keep.

    Returns:
        The trace; on the host it is shorter if the episode ends earlier.
    """
    return by_kind(
        world,
        lambda device: _trace_on_device(policy, device, perturbation, key, steps),
        lambda host: _trace_on_host(policy, host, perturbation, key, steps),
    )


def image(
    world: World, trace: EpisodeTrace, step: int
) -> UInt8[np.ndarray, "height width 3"] | None:
    """Draw the world at one step of a trace; None if it does not draw itself."""

    def draw(device: Environment) -> np.ndarray | None:
        return device.draw(jax.tree.map(lambda leaf: leaf[step], trace.states))

    return by_kind(world, draw, lambda _: None if trace.states is None else trace.states[step])


@eqx.filter_jit
def _trace_on_device(
    policy: Policy, world: Environment, perturbation: Perturbation, key: Key, steps: int
) -> EpisodeTrace:
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
            source=perturbed.sensor_of_channel(state),
            attention=inside.attention,
            code=inside.code,
            action=action,
            reward=jnp.where(alive, reward, 0.0),
            alive=alive,
            states=state.world,
            digest=inside.digest,
        )
        alive = alive & ~terminated & ~truncated
        return (next_channels, next_state, carry, alive), kept

    carry = policy.initial_carry(perturbed.observation_spec)
    start = (channels, state, carry, jnp.ones((), bool))
    return jax.lax.scan(step, start, jnp.arange(steps))[1]


def _trace_on_host(
    policy: Policy, world: HostWorld, perturbation: Perturbation, key: Key, steps: int
) -> EpisodeTrace:
    policy = policy.with_code_scale(perturbation.code_scale)
    carry = policy.initial_carry(perturbation.output_spec(world.raw_observation_spec))
    perturbation_state = begin_perturbation(
        perturbation, key, world.raw_observation_spec, world.num_actions
    )

    def act(env: Any, time: Array, observation: Array, memory: PyTree) -> tuple:
        drawn = env.render() if world.render_mode is not None else None
        channels, sensor_of_channel, action, command, inside, *memory = _act(
            policy, perturbation, key, time, memory[1], observation, memory[0]
        )
        kept = EpisodeTrace(
            sensors=observation,
            channels=channels,
            source=sensor_of_channel,
            attention=inside.attention,
            code=inside.code,
            action=action,
            reward=jnp.zeros(()),
            alive=jnp.ones((), bool),
            states=drawn,
            digest=inside.digest,
        )
        return command, kept, memory

    return run_on_host(world, key, steps, act, (carry, perturbation_state), world.render_mode)


def run_on_host(
    world: HostWorld,
    key: Key,
    steps: int,
    act: Callable[[Any, Array, Array, PyTree], tuple[Array, Any, PyTree]],
    memory: PyTree,
    render_mode: str | None = None,
) -> Any:
    """Run one episode in a world on the host, and keep something of each step.

    Args:
        world: The world.
        key: Decides the start.
        steps: How many, if the episode does not end earlier.
        act: Given the environment, the time, the observation and the memory, returns the action, what to keep
            (a named tuple, whose `reward` is filled in here) and the memory after the step.
        memory: Of `act`, at the start.
        render_mode: As of `open_env`.

    Returns:
        What was kept, each leaf with a leading axis.
    """
    kept = []
    with contextlib.closing(open_env(world.name, render_mode=render_mode)) as env:
        observation, _ = env.reset(seed=int(seeds_of(key[None])[0]))
        for time in range(steps):
            action, step, memory = act(env, jnp.asarray(time), jnp.asarray(observation), memory)
            observation, reward, terminated, truncated, _ = env.step(
                world.to_env_actions(np.asarray(action)[None])[0]
            )
            kept.append(step._replace(reward=jnp.asarray(reward, jnp.float32)))
            if terminated or truncated:
                break
    return jax.tree.map(lambda *leaves: np.stack(leaves), *kept)


@eqx.filter_jit
def _act(
    policy: Policy,
    perturbation: Perturbation,
    key: Key,
    time: Array,
    perturbation_state: PyTree,
    observation: Array,
    carry: PyTree,
) -> tuple:
    channels, perturbation_state = sense(perturbation, key, time, perturbation_state, observation)
    sensor_of_channel = perturbation.sensor_of_channel(
        perturbation_state, spec_of(observation.shape)
    )
    action, carry, inside = policy.step(channels, carry)
    command, perturbation_state = perturb_action(
        perturbation, key, time, perturbation_state, action
    )
    return channels, sensor_of_channel, action, command, inside, carry, perturbation_state


def collect_codes(
    policy: Policy,
    world: Environment,
    keys: Keys,
    steps: int,
    reader: SetPolicy | None = None,
) -> tuple[Float[np.ndarray, "samples M"], Float[np.ndarray, "samples N"]]:
    """Collect codes and the observations they were computed from, over many episodes, up to their ends.

    Args:
        policy: An agent that has a code.
        world: An unperturbed world.
        keys: One for each episode.
        steps: Steps of each episode to keep.
        reader: The agent whose codes to keep, while `policy` acts; `policy` itself by default.

    Returns:
        Codes and readings, row by row.
    """
    traces = jax.vmap(lambda key: trace_episode(policy, world, Identity(), key, steps))(keys)
    alive, codes = np.asarray(traces.alive), traces.code
    if reader is not None:
        codes = jax.vmap(lambda trace: _read(reader, trace))(traces)
    return np.asarray(codes)[alive], np.asarray(traces.sensors)[alive]


def _read(reader: SetPolicy, trace: EpisodeTrace) -> Float[Array, "T M"]:
    """Compute the codes of one agent from the observations and actions of another."""

    def step(carry: SetCarry, inputs: tuple[Array, Array]) -> tuple[SetCarry, Array]:
        channels, action = inputs
        _, carry, inside = reader.step(channels, carry)
        assert inside.code is not None
        feedback = carry.feedback.at[: action.shape[0]].set(action)
        return carry._replace(feedback=feedback), inside.code

    carry = reader.initial_carry(spec_of(trace.channels.shape[1:]))
    return jax.lax.scan(step, carry, (trace.channels, trace.action))[1]
