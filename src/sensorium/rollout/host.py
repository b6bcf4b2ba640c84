"""Policies x a Gymnasium environment -> returns: worker processes simulate, one jitted call a step acts.

The episodes of a run are dealt out to a fixed number of lanes, a lane being an environment and a row of
the batch. Lanes form two groups: while the policy acts for one, the workers simulate the other. Which
episode runs in which lane depends on nothing else, so the number of workers does not change a result. Where
most lanes have run all their episodes, the batch shrinks; so a worker that dies can change the last digits of
others, but not more. An episode whose agent acts by NaN or infinity ends there, with a return of NaN.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.vector_env import OpenEnv, PoolVectorEnv
from sensorium.errors import ConfigError, WorldError
from sensorium.policies import Policy, as_population
from sensorium.rollout.acting import Actor, PolicyActor
from sensorium.rollout.device import Episode
from sensorium.rollout.engine import Engine
from sensorium.rollout.sharding import usable_cores
from sensorium.types import Keys

_ATTEMPTS = 3  # at an episode whose worker dies
_PATIENCE = 200  # steps with half of a batch idle, until it shrinks: about what compiling a smaller one costs


class Transcript(NamedTuple):
    """E episodes in full; zeros after the end of each."""

    observations: np.ndarray
    """As the environment showed them, unperturbed: E, T + 1, and the shape of one."""
    actions: Float[np.ndarray, "E T A"]
    """In [-1, 1], as the agent gave them."""
    rewards: Float[np.ndarray, "E T"]
    lengths: Int[np.ndarray, " E"]
    terminated: Bool[np.ndarray, " E"]
    """Whether an episode ended by itself, rather than at its time limit."""


def _open_wrapped(opener: OpenEnv, wrapper: Callable, settings: dict[str, Any]) -> Any:
    return wrapper(opener(), **settings)


class HostEngine(Engine):
    """A Gymnasium environment in worker processes, which start at the first run."""

    def __init__(
        self,
        world: HostWorld,
        *,
        workers: int | None = None,
        lanes: int = 64,
        timeout: float = 60.0,
    ):
        """Set up; nothing is started yet.

        Args:
            world: The environment, perturbed or not.
            workers: Worker processes of each of the two groups; one a core by default, 0 for none at
                all: then this process simulates.
            lanes: Episodes that run at a time, at most; an even number. Part of what decides the last
                digits of a result, so it does not depend on the machine.
            timeout: Seconds after which a worker that does not answer is replaced.

        Raises:
            ConfigError: A number is out of range.
        """
        if lanes < 2 or lanes % 2:
            raise ConfigError(f"A host engine needs an even number of lanes, got {lanes}.")
        if workers is not None and workers < 0:
            raise ConfigError(f"A host engine cannot have {workers} workers.")
        self.world: HostWorld = world
        self.workers = usable_cores() if workers is None else workers
        self._lanes = lanes
        self._timeout = timeout
        self._pools: list[PoolVectorEnv] = []
        self._lent: dict[tuple[Any, ...], PoolVectorEnv] = {}

    def run_population(self, policies: Policy, keys: Keys) -> Episode:
        population = jax.tree.leaves(eqx.filter(policies, eqx.is_inexact_array))[0].shape[0]
        run = _Run(seeds_of(keys), population, self.world.max_steps)
        self._play(lambda: PolicyActor(policies, self.world, keys), run)
        shape = (population, len(keys))
        return Episode(
            total=jnp.asarray(_totals(run).reshape(shape)),
            length=jnp.asarray(run.lengths.reshape(shape)),
            rewards=jnp.asarray(run.rewards.reshape(*shape, -1)),
        )

    def run_actor(self, make_actor: Callable[[], Actor], seeds: Int[np.ndarray, " E"]) -> Episode:
        """Run an agent of any make.

        Args:
            make_actor: Makes an actor; called once for each group of lanes.
            seeds: Of the environment, one for each episode.

        Returns:
            E episodes, in NumPy; their returns are NaN where an action was no number.
        """
        run = _Run(seeds, 1, self.world.max_steps)
        self._play(make_actor, run)
        return Episode(_totals(run), run.lengths, run.rewards)

    def transcribe(
        self, make_actor: Callable[[], Actor], seeds: Int[np.ndarray, " E"]
    ) -> Transcript:
        """Record the observations and actions of an agent of any make.

        Args:
            make_actor: Makes an actor; called once for each group of lanes.
            seeds: Of the environment, one for each episode.

        Raises:
            ConfigError: An action is NaN or infinite.
        """
        run = _Run(seeds, 1, self.world.max_steps)
        episodes, steps = len(seeds), self.world.max_steps
        seen = np.zeros((episodes, steps + 1, *self.world.raw_observation_shape), np.float32)
        done = np.zeros((episodes, steps, self.world.num_actions), np.float32)
        run.observations, run.actions = seen, done
        self._play(make_actor, run)
        if not np.isfinite(run.rewards).all():
            raise ConfigError("The agent returned NaN or infinity as an action.")
        return Transcript(seen, done, run.rewards, run.lengths, run.terminated)

    def _play(self, make_actor: Callable[[], Actor], run: "_Run") -> None:
        half = min(self._lanes // 2, (run.episodes + 1) // 2)  # no lanes without an episode
        self._open(half)
        groups = [
            _Group(pool, make_actor(), self.world, run, lanes=half, first_lane=place * half)
            for place, pool in enumerate(self._pools)
        ]
        try:
            for group in groups:
                group.start()
            while any(group.busy for group in groups):
                for group in groups:
                    group.advance()
        except BaseException:
            self.close()  # answers may be under way: the pools cannot be used again
            raise

    def run_episodes(self, policy: Policy, keys: Keys) -> Episode:
        return jax.tree.map(lambda leaf: leaf[0], self.run_population(as_population(policy), keys))

    def open_pool(
        self, num_envs: int, wrapper: Callable | None = None, **settings: Any
    ) -> PoolVectorEnv:
        """Open environments for a trainer to step; they are closed with the engine.

        The same arguments give the same ones again.

        Args:
            num_envs: How many.
            wrapper: Wraps each.
            settings: Of the wrapper; values that can be pickled and hashed.
        """
        asked = (num_envs, wrapper, *sorted(settings.items()))
        if asked not in self._lent:
            opener = self.world.opener()
            if wrapper is not None:
                opener = partial(_open_wrapped, opener, wrapper, settings)
            self._lent[asked] = PoolVectorEnv(opener, num_envs, self.workers, timeout=self._timeout)
        return self._lent[asked]

    def close(self) -> None:
        """End the workers."""
        for pool in (*self._pools, *self._lent.values()):
            pool.close()
        self._pools.clear()
        self._lent.clear()

    def _open(self, half: int) -> None:
        """Open two pools of so many environments, unless those that are open have enough."""
        if self._pools and self._pools[0].num_envs >= half:
            return
        for pool in self._pools:
            pool.close()
        self._pools.clear()  # also those of engines that share them: see `on`
        self._pools += [  # both or none
            PoolVectorEnv(self.world.opener(), half, self.workers, timeout=self._timeout)
            for _ in range(2)
        ]


class _Run:
    """All episodes of a run, and what is noted of them."""

    def __init__(self, seeds: Int[np.ndarray, " R"], population: int, max_steps: int):
        self.seeds = [int(seed) for seed in seeds]
        self.episodes = population * len(seeds)
        self.rewards = np.zeros((self.episodes, max_steps), np.float32)
        self.lengths = np.zeros(self.episodes, np.int32)
        self.terminated = np.zeros(self.episodes, bool)
        self.observations: np.ndarray | None = None
        self.actions: np.ndarray | None = None


class _Group:
    """Half of the lanes, the first ones of a pool, and the episodes that they work through."""

    def __init__(
        self,
        pool: PoolVectorEnv,
        actor: Actor,
        world: HostWorld,
        run: _Run,
        lanes: int,
        first_lane: int,
    ):
        size = pool.num_envs
        self._pool = pool
        self._actor = actor
        self._world = world
        self._run = run
        self._lanes = lanes
        self._rows = np.arange(lanes)  # of the batch: in which lanes the actor acts
        self._idle_steps = 0
        self._episode = np.arange(first_lane, first_lane + size)
        self._time = np.zeros(size, np.int64)
        self._attempts = np.zeros(size, np.int64)
        self._due = (np.arange(size) < lanes) & (self._episode < run.episodes)  # to be started
        self._running = np.zeros(size, bool)
        self._fresh = np.zeros(size, bool)  # started since the policy last acted
        self._failed = np.zeros(size, bool)  # the last action is NaN or infinite: the return is NaN
        self._resetting = False

    @property
    def busy(self) -> bool:
        """Return whether there are episodes to run."""
        return bool(self._due.any() or self._running.any())

    def start(self) -> None:
        """Begin the first episodes."""
        if self.busy:
            self._reset()

    def advance(self) -> None:
        """Take what the workers have ready, and give them the next thing to do."""
        if not self.busy:
            return
        if self._resetting:
            self._resetting = False
            observations, infos = self._pool.reset_wait()
            self._restart_lost(infos)
        else:
            observations, rewards, terminated, truncated, infos = self._pool.step_wait()
            self._restart_lost(infos)
            self._record(observations, rewards, terminated, truncated)
        if self._due.any():
            self._reset()
        elif self._running.any():
            self._act(observations)

    def _reset(self) -> None:
        seeds = self._run.seeds
        chosen = [
            seeds[episode % len(seeds)] if due else None
            for episode, due in zip(self._episode, self._due, strict=True)
        ]
        self._pool.reset_async(chosen, {"reset_mask": self._due.copy()})
        self._running |= self._due
        self._fresh |= self._due
        self._time[self._due] = 0
        self._due[:] = False
        self._resetting = True

    def _act(self, observations: np.ndarray) -> None:
        self._shrink()
        running, rows = self._running, self._rows
        episodes = np.where(running, self._episode, 0)
        actions = np.zeros((len(running), self._world.num_actions), np.float32)
        actions[rows] = self._actor.act(self._fresh[rows], episodes[rows], observations[rows])
        self._fresh[:] = False
        self._failed = running & ~np.isfinite(actions).all(axis=1)
        if self._run.observations is not None and self._run.actions is not None:
            now = (self._episode[running], self._time[running])
            self._run.observations[now] = observations[running]
            self._run.actions[now] = actions[running]
        actions = np.where(np.isfinite(actions), actions, 0.0)  # those of idle and failed lanes
        self._pool.step_async(self._world.to_env_actions(actions))

    def _shrink(self) -> None:
        """Leave out lanes that have run all their episodes, once they have cost enough."""
        busy, size = int(self._running.sum()), len(self._rows)
        self._idle_steps += 2 * busy <= size
        if self._idle_steps < _PATIENCE:
            return
        while 2 * busy <= size:
            size = (size + 1) // 2
        idle_last = np.argsort(~self._running[self._rows], stable=True)
        self._actor.keep(idle_last[:size])
        self._rows = self._rows[idle_last[:size]]
        self._idle_steps = 0

    def _record(
        self,
        observations: np.ndarray,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> None:
        running = self._running
        rewards = np.where(self._failed, np.nan, rewards)
        self._run.rewards[self._episode[running], self._time[running]] = rewards[running]
        self._time[running] += 1
        late = self._time >= self._world.max_steps
        ended = running & (terminated | truncated | late | self._failed)
        self._pool.idle(ended)
        if self._run.observations is not None:
            self._run.observations[self._episode[ended], self._time[ended]] = observations[ended]
        self._run.terminated[self._episode[ended]] = terminated[ended]
        self._run.lengths[self._episode[ended]] = self._time[ended]
        self._episode[ended] += 2 * self._lanes
        self._attempts[ended] = 0
        self._running &= ~ended
        self._due |= ended & (self._episode < self._run.episodes)

    def _restart_lost(self, infos: dict[str, object]) -> None:
        """Repeat the episodes of a worker that died, from their beginning."""
        lost = self._running & np.asarray(infos.get("lost", False))
        if not lost.any():
            return
        self._attempts[lost] += 1
        if self._attempts.max() >= _ATTEMPTS:
            raise WorldError(
                f"{self._world.name} cannot finish an episode: its worker {infos['reason']}, "
                f"{_ATTEMPTS} times in a row."
            )
        self._run.rewards[self._episode[lost]] = 0.0
        self._running &= ~lost
        self._due |= lost


def _totals(run: _Run) -> Float[np.ndarray, " E"]:
    """Compute the returns; infinite where float32 does not hold them."""
    with np.errstate(over="ignore"):
        return run.rewards.sum(axis=1, dtype=np.float64).astype(np.float32)


def seeds_of(keys: Keys) -> Int[np.ndarray, " R"]:
    """Return the seed of the environment that each key stands for."""
    return np.asarray(jax.vmap(lambda key: jax.random.bits(key) >> 1)(keys)).astype(np.int64)
