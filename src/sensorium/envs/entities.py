"""Entities: move to the middle of whatever is there. The observation is a set, and the optimum is known."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sensorium.envs.base import Environment
from sensorium.types import Action, Flag, Key, Order, Scalar
from sensorium.types import Entities as Rows

_THINGS = 7  # at most


class EntitiesState(NamedTuple):
    """Where everything is; positions are (x, y) in a square from -1 to 1."""

    ego: Float[Array, "2"]
    things: Float[Array, "things 2"]
    present: Bool[Array, " things"]
    """Which things are there."""
    order: Order
    """The row of the observation in which each comes; the ego is the first."""
    time: Int[Array, ""]
    """Steps since the start."""

    @property
    def centroid(self) -> Float[Array, "2"]:
        """The mean position of the things that are there."""
        there = self.present[:, None]
        return jnp.sum(jnp.where(there, self.things, 0.0), axis=0) / jnp.sum(there)


@dataclasses.dataclass(frozen=True)
class EntitiesParams:
    """How far the ego moves."""

    speed: float = 0.1
    """Of a step, along each axis, at an action of 1."""


jax.tree_util.register_dataclass(EntitiesParams)


@dataclasses.dataclass(frozen=True)
class Entities(Environment):
    """An ego that earns by being near the middle of 1 to 7 things, which stand still.

    ## Action space
    Two numbers in [-1, 1]: the motion along x and y, times 0.1. Values outside are clipped, and so is the
    position at the edge of the square.

    ## Observation space
    Eight entities in an order drawn for each episode; a row of NaN is a thing that is not there.

    | feature | meaning | at the start |
    |---|---|---|
    | 0 | 1 of the ego, -1 of a thing | |
    | 1 | x | uniform in ±1 |
    | 2 | y | uniform in ±1 |

    ## Rewards
    `1 - (|x - cx| + |y - cy|) / 2` after each step, where (cx, cy) is the mean position of the things.

    ## Episode end
    Truncation: after 20 steps.

    ## Optimum
    The reward is a sum over the axes, and the motion along one has no effect on the other. Along an axis a
    step shortens a distance d to max(d - 0.1, 0) at most. To do so in each step is best now and leaves the
    least distance to go, so it is optimal: `best_action`. An episode that starts (dx, dy) away then earns
    the sum of `1 - (max(dx - 0.1 t, 0) + max(dy - 0.1 t, 0)) / 2` over t = 1 to 20: `best_return`.
    """

    id = "Entities"
    num_sensors = 1 + _THINGS
    num_actions = 2
    max_steps = 20
    steps_per_second = 10

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Eight entities of three features."""
        return (self.num_sensors, 3)

    @property
    def default_params(self) -> EntitiesParams:
        """A tenth of the way from the middle to an edge in a step."""
        return EntitiesParams()

    def reset_env(self, key: Key, params: Any) -> tuple[Rows, EntitiesState]:
        """Draw how many things there are, and all positions, uniformly; see the class."""
        del params
        key_positions, key_count, key_order = jax.random.split(key, 3)
        positions = jax.random.uniform(key_positions, (1 + _THINGS, 2), jnp.float32, -1.0, 1.0)
        count = jax.random.randint(key_count, (), 1, _THINGS + 1)
        state = EntitiesState(
            ego=positions[0],
            things=positions[1:],
            present=jnp.arange(_THINGS) < count,
            order=jax.random.permutation(key_order, 1 + _THINGS),
            time=jnp.zeros((), jnp.int32),
        )
        return self.observe(state), state

    def step_env(
        self, key: Key, state: EntitiesState, action: Action, params: Any
    ) -> tuple[Rows, EntitiesState, Scalar, Flag, dict[str, Any]]:
        """Move the ego."""
        del key
        ego = jnp.clip(state.ego + params.speed * jnp.clip(action, -1.0, 1.0), -1.0, 1.0)
        state = state._replace(ego=ego, time=state.time + 1)
        reward = 1.0 - jnp.sum(jnp.abs(ego - state.centroid)) / 2
        return self.observe(state), state, reward, jnp.zeros((), bool), {}

    def observe(self, state: EntitiesState) -> Rows:
        """Return the rows in their order."""
        things = jnp.where(state.present[:, None], state.things, jnp.nan)
        positions = jnp.concatenate([state.ego[None], things])
        marks = jnp.concatenate([jnp.ones(1), jnp.where(state.present, -1.0, jnp.nan)])
        return jnp.concatenate([marks[:, None], positions], axis=1)[state.order]

    def critic_features(self, state: EntitiesState) -> Float[Array, "4"]:
        """Return where the ego and the middle of the things are."""
        return jnp.concatenate([state.ego, state.centroid])


def best_action(state: EntitiesState) -> Float[Array, "2"]:
    """Compute the action of the optimal rule, which can be the expert of agents; see `Entities`."""
    return jnp.clip((state.centroid - state.ego) / EntitiesParams().speed, -1.0, 1.0)


def best_return(state: EntitiesState) -> Scalar:
    """Compute what the optimal rule earns in an episode that starts in `state`; see `Entities`."""
    walked = EntitiesParams().speed * jnp.arange(1, Entities.max_steps + 1)
    left = jnp.maximum(jnp.abs(state.ego - state.centroid)[:, None] - walked, 0.0)
    return jnp.sum(1.0 - jnp.sum(left, axis=0) / 2)
