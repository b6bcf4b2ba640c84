"""Transitions of worlds on the host: worker processes simulate, one compiled call a step acts in all lanes.

A lane begins its next episode as soon as one ends, as on the host a start costs that lane only.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.vector_env import PoolVectorEnv
from sensorium.errors import WorldError
from sensorium.rollout.acting import Actor, restarted, zeros_of
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
from sensorium.types import Key, PyTree, as_vector

_ATTEMPTS = 3  # losses of workers before any episode ends


class HostCollector(Collector):
    """Lanes of a pool of environments."""

    world: HostWorld

    def __init__(
        self,
        world: HostWorld,
        pool: PoolVectorEnv,
        key: Key,
        cut_first: bool = True,
        expert: Actor | None = None,
    ):
        """Start all episodes.

        Args:
            world: What the environments are, and what happens to their observations.
            pool: The environments, one a lane.
            key: Random key.
            cut_first: Cut the first episode of each lane short at a random step, so that all phases of an
                episode are in every segment.
            expert: Its actions are the `advice` of each step.
        """
        super().__init__(world, pool.num_envs)
        self._pool, self._expert = pool, expert
        self._random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        self._memory: Memory | None = None
        count = self.num_envs
        self._started = np.ones(count, bool)
        self._steps = np.zeros(count, int)
        self._limit = np.full(count, world.max_steps)
        if cut_first:
            self._limit = self._random.integers(1, world.max_steps + 1, count)
        self._earned = np.zeros(count)
        self._episode = np.arange(count)
        self._losses = 0
        self._shown = self._reset(self._started)

    def collect(self, behaviour: Behaviour, num_steps: int, key: Key) -> Segment:
        key_blank, key_steps, key_held = jax.random.split(key, 3)
        count = self.num_envs
        if self._memory is None:  # all start, so it is replaced at once
            keys = jax.random.split(key_blank, count)
            self._memory = zeros_of(eqx.filter_eval_shape(_blank, behaviour, self.world, keys))
        before = as_numpy(self._memory)
        held = jax.random.split(key_held, count)
        rows = []
        for step in range(num_steps):
            now = (jnp.asarray(step), jax.random.fold_in(key_steps, step), held)
            started, time, earned = self._started, self._steps.copy(), self._earned.copy()
            shown = self._readings(self._shown)
            advice = self._advise(started)
            actions, view, record, self._memory = _act(
                behaviour, self.world, self._memory, started, shown, advice, *now
            )
            seen, reward, terminated, done = self._advance(np.asarray(actions))
            last = step == num_steps - 1
            # Of the next step, below, unless nothing or another episode follows
            next_view: Any = view
            if last or done.any():
                next_view = _view(behaviour, self.world, self._memory, self._readings(seen), *now)
            row = Transitions(
                started=started,
                alive=np.ones(count, bool),
                time=time,
                earned=earned.astype(np.float32),
                reward=reward,
                terminated=terminated,
                truncated=done & ~terminated,
                view=view,
                next_view=next_view,
                record=record,
            )
            rows.append(jax.tree.map(np.asarray, row))
        transitions: Transitions = jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
        done = (transitions.terminated | transitions.truncated)[:-1, :, None]
        following = np.where(done, transitions.next_view[:-1], transitions.view[1:])
        next_view = np.concatenate([following, transitions.next_view[-1:]])
        return Segment(before, transitions._replace(next_view=next_view))

    def _readings(self, shown: np.ndarray) -> np.ndarray:
        """Keep images as bytes; convert all else to float32."""
        return shown if shown.dtype == np.uint8 and shown.ndim == 4 else shown.astype(np.float32)

    def _advise(self, started: Bool[Any, " B"]) -> Float[Any, "B A"]:
        if self._expert is None:
            return self._pool.advice
        return self._expert.act(started, self._episode, self._shown)

    def _advance(self, actions: np.ndarray) -> tuple[np.ndarray, ...]:
        shown, rewards, terminated, truncated, infos = self._pool.step(
            self.world.to_env_actions(actions)
        )
        lost = self._count_losses(infos)
        self._steps += 1
        self.env_steps += len(rewards)
        self._earned += rewards
        over = terminated | truncated | (self._steps >= self.world.max_steps)
        ended = over & ~lost
        self.returns += self._earned[ended].tolist()
        if ended.any():
            self._losses = 0
        done = over | lost | (self._steps >= self._limit)
        self._started = done
        self._shown = self._reset(done) if done.any() else shown
        return shown, rewards.astype(np.float32), terminated & ~lost, done

    def _reset(self, which: Bool[Any, " B"]) -> np.ndarray:
        drawn = self._random.integers(2**31, size=len(which))
        seeds = [int(seed) if reset else None for seed, reset in zip(drawn, which, strict=True)]
        if self._steps.any():  # only the first episode of each is cut short
            self._limit[which] = self.world.max_steps
        self._steps[which] = 0
        self._earned[which] = 0.0
        self._episode[which] += self.num_envs
        shown, infos = self._pool.reset(seed=seeds, options={"reset_mask": which})
        lost = self._count_losses(infos)
        return self._reset(lost) if lost.any() else shown

    def _count_losses(self, infos: dict[str, object]) -> Bool[Any, " B"]:
        """Find the environments that are gone with their worker; an episode that is lost ends there."""
        lost = np.broadcast_to(np.asarray(infos.get("lost", False)), self._started.shape)
        self._losses += bool(lost.any())
        if self._losses > _ATTEMPTS:
            raise WorldError(
                f"{self.world.name} cannot go on: its worker {infos['reason']}, "
                f"{self._losses} times before an episode ended."
            )
        return lost


@eqx.filter_jit
def _blank(behaviour: Behaviour, world: HostWorld, keys: Array) -> Memory:
    """Make the memory of every lane at the start of an episode."""
    return jax.vmap(lambda key: blank_memory(behaviour, world, key))(keys)


@eqx.filter_jit
def _act(
    behaviour: Behaviour,
    world: HostWorld,
    memory: Memory,
    started: Bool[Any, " B"],
    shown: Any,
    advice: Float[Any, "B advice"],
    step: Int[Array, ""],
    key: Key,
    held: Array,
) -> tuple[Float[Array, "B A"], Float[Array, "B F"], PyTree, Memory]:
    """Step perturbation and behaviour in every lane: actions, views, records, memories."""
    perturbation, count = world.perturbation, len(shown)
    keys = jax.vmap(lambda key: jax.random.split(key, 3), out_axes=1)(jax.random.split(key, count))
    memory = restarted(started, lambda: _blank(behaviour, world, keys[0]), memory)

    def lane(number: Array, keys: Array, held: Key, memory: Memory, *rest: Array) -> tuple:
        context, memory = _context(world, keys[0], held, number, step, memory, *rest)
        action, carry, record = behaviour.act(context, memory.carry)
        view = behaviour.view(context, memory.carry)
        state = memory.perturbation
        if perturbation.perturbs_actions:
            action, state = perturbation.perturb_action(keys[1], state, action)
        return action, view, record, Memory(carry, state)

    return jax.vmap(lane)(jnp.arange(count), keys[1:].swapaxes(0, 1), held, memory, shown, advice)


@eqx.filter_jit
def _view(
    behaviour: Behaviour,
    world: HostWorld,
    memory: Memory,
    shown: Any,
    step: Int[Array, ""],
    key: Key,
    held: Array,
) -> Float[Array, "B F"]:
    """Compute what a critic reads of what is shown after the step of `key`."""
    count = len(shown)

    def lane(number: Array, key: Key, held: Key, memory: Memory, shown: Array) -> Array:
        context, memory = _context(world, key, held, number, step, memory, shown, jnp.zeros(0))
        return behaviour.view(context, memory.carry)

    keys = jax.random.split(stream(key, "view"), count)
    return jax.vmap(lane)(jnp.arange(count), keys, held, memory, shown)


def _context(
    world: HostWorld,
    key: Key,
    held: Key,
    number: Int[Array, ""],
    step: Int[Array, ""],
    memory: Memory,
    shown: Array,
    advice: Float[Array, " advice"],
) -> tuple[StepContext, Memory]:
    return look(
        world,
        key,
        memory,
        shown,
        truth=as_vector(shown) if shown.ndim in (1, 2) else jnp.zeros(0),
        world_state=(),
        advice=advice,
        lane=number,
        step=step,
        key=held,
    )
