"""Transitions of worlds on the device: all lanes step together in one compiled scan.

A lane whose episode ends idles to the end of the segment, and begins its next episode before the next one. A
start can cost as much as fifty steps and 20 MB (CarRacing draws its whole track), and inside the scan every
lane would pay for the end of any.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sensorium.envs import Environment
from sensorium.rollout.sharding import num_shares, over_devices
from sensorium.rollout.transitions import (
    Behaviour,
    Collector,
    Memory,
    Segment,
    StepContext,
    Transitions,
    as_numpy,
    blank_memory,
    look,
)
from sensorium.seeding import stream
from sensorium.types import Key, PyTree, Sensed

_PARTS = (
    8  # lanes are begun an eighth at a time: as few compiled shapes as possible, and little in vain
)


class Lane(NamedTuple):
    """An episode between two steps."""

    shown: Sensed
    world: PyTree
    memory: Memory
    alive: Bool[Array, ""]
    earned: Float[Array, ""]


class DeviceCollector(Collector):
    """Lanes on the devices of this machine, an equal share on each."""

    world: Environment

    def __init__(self, world: Environment, num_envs: int, key: Key, cut_first: bool = True):
        """Set up; the lanes begin with the first call of `collect`.

        Args:
            world: The world, perturbed or not.
            num_envs: B, how many lanes.
            key: Random key.
            cut_first: Cut the first episode of each lane short at a random step, or rather before the next
                segment, so that all phases of an episode are in every segment.
        """
        super().__init__(world, num_envs)
        self._key, key_limits = jax.random.split(key)
        limits = jax.random.randint(key_limits, (num_envs,), 1, world.max_steps + 1)
        self._limits = np.asarray(limits) if cut_first else np.full(num_envs, world.max_steps)
        self._lanes: Lane | None = None
        self._first = np.ones(num_envs, bool)

    def collect(self, behaviour: Behaviour, num_steps: int, key: Key) -> Segment:
        world, count = self.world, self.num_envs
        arrays, static = eqx.partition(behaviour, eqx.is_array)
        self._key, key_begin = jax.random.split(self._key)
        if self._lanes is None:
            ended = np.ones(count, bool)
            self._lanes = _begin_all(static, world, arrays, jax.random.split(key_begin, count))
        else:
            ended = ~np.asarray(self._lanes.alive)
            ended |= self._first & (np.asarray(world.time(self._lanes.world)) >= self._limits)
            self._first &= ~ended
            keys = jax.random.split(key_begin, count)
            for places, fresh in self._places(np.flatnonzero(ended), keys):
                self._lanes = _restart(static, world, arrays, self._lanes, places, fresh)
        before = as_numpy(self._lanes.memory)
        keys = jax.random.split(key, count)
        self._lanes, transitions = _run(
            static, world, num_steps, arrays, self._lanes, jnp.arange(count), keys
        )
        transitions = jax.tree.map(lambda leaf: np.asarray(leaf).swapaxes(0, 1), transitions)
        started = np.zeros((num_steps, count), bool)
        started[0] = ended
        transitions = transitions._replace(started=started)
        done = transitions.terminated | transitions.truncated
        self.returns += (transitions.earned + transitions.reward)[done].tolist()
        self.env_steps += int(transitions.alive.sum())
        return Segment(before, transitions)

    def _places(self, ended: Int[np.ndarray, " E"], keys: Array) -> Iterator[tuple[Array, Array]]:
        """Yield the lanes that have ended, as `_restart` takes them, and a key for each."""
        shares = num_shares(self.num_envs)
        size = self.num_envs // shares
        part = -(-size // _PARTS)
        todo = [ended[ended // size == share] for share in range(shares)]
        while any(len(each) for each in todo):
            places = np.full((shares, part), size)  # out of range: nothing is placed there
            for share, each in enumerate(todo):
                places[share, : len(each[:part])] = each[:part] - share * size
                todo[share] = each[part:]
            lanes = (places + np.arange(shares)[:, None] * size).reshape(-1)
            fresh = keys[np.minimum(lanes, self.num_envs - 1)]
            yield jnp.asarray(places.reshape(-1)), fresh


def _begin(behaviour: Behaviour, world: Environment, key: Key) -> Lane:
    bare = world.unperturbed
    shown, state = bare.reset_env(key, bare.default_params)
    memory = blank_memory(behaviour, world, stream(key, "between"))
    return Lane(shown, state, memory, jnp.ones((), bool), jnp.zeros(()))


# Behaviours come in two parts, arrays and the rest, as jit donates the lanes: they can be gigabytes


@partial(jax.jit, static_argnums=(0, 1))
def _begin_all(static: PyTree, world: Environment, arrays: PyTree, keys: Array) -> Lane:
    """Begin an episode in every lane."""

    def begin(keys: Array, arrays: PyTree) -> Lane:
        return jax.vmap(partial(_begin, eqx.combine(arrays, static), world))(keys)

    return over_devices(begin, keys, len(keys), arrays)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def _restart(
    static: PyTree, world: Environment, arrays: PyTree, lanes: Lane, places: Array, keys: Array
) -> Lane:
    """Begin new episodes in some lanes: in those of `places`, counted from the first lane of each device."""

    def restart(each: tuple[Lane, Array, Array], arrays: PyTree) -> Lane:
        lanes, places, keys = each
        fresh = jax.vmap(partial(_begin, eqx.combine(arrays, static), world))(keys)
        return jax.tree.map(lambda old, new: old.at[places].set(new, mode="drop"), lanes, fresh)

    return over_devices(restart, (lanes, places, keys), len(lanes.alive), arrays)


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=4)
def _run(
    static: PyTree,
    world: Environment,
    num_steps: int,
    arrays: PyTree,
    lanes: Lane,
    numbers: Int[Array, " B"],
    keys: Array,
) -> tuple[Lane, Transitions]:
    """Run a segment in every lane; results have leading axes B, T."""

    def run(each: tuple[Lane, Array, Array], arrays: PyTree) -> tuple[Lane, Transitions]:
        behaviour = eqx.combine(arrays, static)
        return jax.vmap(partial(_run_lane, behaviour, world, num_steps))(*each)

    return over_devices(run, (lanes, numbers, keys), len(lanes.alive), arrays)


def _run_lane(
    behaviour: Behaviour,
    world: Environment,
    num_steps: int,
    lane: Lane,
    number: Int[Array, ""],
    key: Key,
) -> tuple[Lane, Transitions]:
    bare, perturbation = world.unperturbed, world.perturbation
    key_steps, key_held = jax.random.split(key)
    _, constant = bare.split(lane.world)

    def context_of(now: Lane, step: Array, key: Key) -> tuple[StepContext, Memory]:
        return look(
            world,
            key,
            now.memory,
            now.shown,
            truth=bare.critic_features(now.world),
            world_state=now.world,
            advice=jnp.zeros(0),
            lane=number,
            step=step,
            key=key_held,
        )

    def step(changing: Lane, step: Array) -> tuple[Lane, Transitions]:
        now = changing._replace(world=bare.join(changing.world, constant))
        key_apply, key_action, key_world = jax.random.split(jax.random.fold_in(key_steps, step), 3)
        context, memory = context_of(now, step, key_apply)
        action, carry, record = behaviour.act(context, memory.carry)
        between = memory.perturbation
        if perturbation.perturbs_actions:
            action, between = perturbation.perturb_action(key_action, between, action)
        shown, state, reward, terminated, truncated, _ = bare.advance(
            key_world, now.world, action, bare.default_params
        )
        reward = jnp.where(now.alive, reward, 0.0)
        view = behaviour.view(context, memory.carry)
        transitions = Transitions(
            started=jnp.zeros((), bool),  # set by the collector
            alive=now.alive,
            time=bare.time(now.world),
            earned=now.earned,
            reward=reward,
            terminated=now.alive & terminated,
            truncated=now.alive & truncated,
            view=view,
            next_view=view,  # those of the step after, below
            record=record,
        )
        after = Lane(
            shown,
            bare.split(state)[0],
            Memory(carry, between),
            now.alive & ~terminated & ~truncated,
            now.earned + reward,
        )
        return after, transitions

    start = lane._replace(world=bare.split(lane.world)[0])
    last, transitions = jax.lax.scan(step, start, jnp.arange(num_steps))
    last = last._replace(world=bare.join(last.world, constant))
    context, memory = context_of(
        last, jnp.asarray(num_steps), jax.random.fold_in(key_steps, num_steps)
    )
    view = transitions.view
    final = behaviour.view(context, memory.carry)
    return last, transitions._replace(next_view=jnp.concatenate([view[1:], final[None]]))
