"""What a shuffle in mid-episode costs, step by step.

Sensors are put in a new order at one step while every place keeps its memory. Compared with the same
episode left alone, the code is wrong at first and recovers as the LSTMs adapt to their new inputs.
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sensorium.envs import Environment, Perturbed
from sensorium.errors import ConfigError
from sensorium.evaluation.evaluate import check_returns
from sensorium.perturbations import Perturbation
from sensorium.perturbations.perturbation import check_sensors
from sensorium.policies import Policy
from sensorium.rollout import run_episodes
from sensorium.types import Key, Keys, ObservationSpec, Order, Sensors


class _Waiting(NamedTuple):
    order: Order
    age: Array


@dataclasses.dataclass(frozen=True)
class ShuffleOnce(Perturbation):
    """The natural order until step `at`, a random one from then on."""

    at: int

    def output_spec(self, spec: ObservationSpec) -> ObservationSpec:
        """Return `spec`, unchanged; ConfigError if it is of images."""
        check_sensors(self, spec)
        return spec

    def init(self, key: Key, spec: ObservationSpec) -> _Waiting:
        """Draw the order to come; never the natural one, which would be no shuffle."""
        num_sensors = check_sensors(self, spec)
        key_shift, key_order = jax.random.split(key)
        shift = jax.random.randint(key_shift, (), 1, num_sensors)
        order = jax.random.permutation(key_order, num_sensors)
        rolled = (jnp.arange(num_sensors) + shift) % num_sensors
        is_natural = jnp.all(order == jnp.arange(num_sensors))
        return _Waiting(jnp.where(is_natural, rolled, order), jnp.zeros((), jnp.int32))

    def apply(self, key: Key, state: _Waiting, observation: Sensors) -> tuple[Array, _Waiting]:
        """Use the new order once it is time."""
        del key
        natural = jnp.arange(observation.shape[0])
        order = jnp.where(state.age >= self.at, state.order, natural)
        return observation[order], state._replace(age=state.age + 1)

    def sensor_of_channel(self, state: _Waiting, spec: ObservationSpec) -> Order:
        """Return the natural order, then the new one; the step that was just shown counts."""
        return jnp.where(state.age > self.at, state.order, jnp.arange(check_sensors(self, spec)))

    def __str__(self) -> str:
        return f"shuffled at step {self.at}"


class Recovery(NamedTuple):
    """Mean reward a step, over the episodes in which the agent was doing well at the shuffle."""

    undisturbed: Float[Array, " T"]
    shuffled: Float[Array, " T"]
    code_distance: Float[Array, " T"]
    """RMS distance between the code and the one that memories moved along would have given."""
    episodes: int
    """How many episodes the means are over."""


def recovery_curve(policy: Policy, world: Environment, keys: Keys, at: int = 500) -> Recovery:
    """Shuffle once at step `at`, and compare with the same episodes left alone.

    Args:
        policy: The agent.
        world: An unperturbed world.
        keys: One for each episode.
        at: The step of the shuffle.

    Returns:
        Curves over all steps, of the episodes whose mean reward over the 50 steps before the shuffle is at
        least that of a solved episode: those that fail from the start would only blur them.

    Raises:
        ConfigError: `at` is outside of an episode, or in no episode was the agent doing well.
        WorldError: A return is NaN or infinite.
    """
    if not 50 <= at < world.max_steps:
        raise ConfigError(
            f"The shuffle must come between steps 50 and {world.max_steps - 1}, got {at}."
        )
    undisturbed = run_episodes(policy, world, keys)
    disturbed = run_episodes(policy, Perturbed(world, ShuffleOnce(at)), keys)
    for episodes in (undisturbed, disturbed):
        check_returns(np.asarray(episodes.total), "The agent", world.id)
    plain, shuffled = undisturbed.rewards, disturbed.rewards
    well = jnp.mean(plain[:, at - 50 : at], axis=1) >= world.solved_return / world.max_steps
    if not bool(jnp.any(well)):
        raise ConfigError(
            f"In none of {len(keys)} episodes was the agent doing well at step {at}; "
            "recovery can only be measured of a trained agent."
        )
    distances = _code_distances(policy, world, keys, at)
    return Recovery(
        undisturbed=jnp.mean(plain[well], axis=0),
        shuffled=jnp.mean(shuffled[well], axis=0),
        code_distance=jnp.sqrt(jnp.mean(distances[well], axis=0)),
        episodes=int(jnp.sum(well)),
    )


@eqx.filter_jit
def _code_distances(policy: Policy, world: Environment, keys: Keys, at: int) -> Float[Array, "R T"]:
    """Compute the squared distance of codes on the same readings, memories left behind or moved along."""

    def one(key: Key) -> Float[Array, " T"]:
        key_reset, key_steps = jax.random.split(key)
        params = world.default_params
        _, begun = Perturbed(world, ShuffleOnce(at)).reset_env(key_reset, params)
        state, order = begun.world, begun.perturbation.order
        observation = world.observe(state)
        carry = policy.initial_carry(world.observation_spec)
        # Two agents in one array, so that they round alike until the shuffle parts them
        pair = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), carry)

        def step(now: tuple, time: Array) -> tuple[tuple, Array]:
            observation, state, pair = now
            shown = jnp.where(time >= at, observation[order], observation)
            moved = policy.reordered(jax.tree.map(lambda leaf: leaf[0], pair), order)
            pair = jax.tree.map(
                lambda both, along: jnp.where(time == at, both.at[0].set(along), both), pair, moved
            )
            actions, pair, trace = jax.vmap(policy.step, in_axes=(None, 0))(shown, pair)
            # The one whose memories moved along acts, so both receive the same readings
            observation, state, *_ = world.advance(
                jax.random.fold_in(key_steps, time), state, actions[0], params
            )
            assert trace.code is not None
            distance = jnp.mean((trace.code[1] - trace.code[0]) ** 2)
            return (observation, state, pair), distance

        start = (observation, state, pair)
        return jax.lax.scan(step, start, jnp.arange(world.max_steps))[1]

    return jax.vmap(one)(keys)
