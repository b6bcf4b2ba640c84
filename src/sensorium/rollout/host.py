"""Policies x a Gymnasium environment -> returns: worker processes simulate, one jitted call a step acts.

The episodes of a run are dealt out to a fixed number of lanes, a lane being an environment and a row of
the batch. Lanes form two groups: while the policy acts for one, the workers simulate the other. Which
episode runs in which lane depends on nothing else, so neither the number of workers nor a worker that
dies changes a result.
"""

import os
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.pool import PoolVectorEnv
from sensorium.errors import ConfigError, ObservationError, WorldError
from sensorium.perturbations import Identity, Perturbation
from sensorium.policies import Policy
from sensorium.rollout.device import Episode
from sensorium.rollout.engine import Engine
from sensorium.types import Keys, PyTree

_SENSES = 1  # folded into the key of an episode, as in `envs.Perturbed`
_ATTEMPTS = 3  # at an episode whose worker dies


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
            world: The environment and what happens to its senses.
            workers: Worker processes of each of the two groups; one a core by default, 0 for none at
                all: then this process simulates.
            lanes: Episodes that run at a time; an even number. Part of what decides the last digits of
                a result, so it does not depend on the machine.
            timeout: Seconds after which a worker that does not answer is replaced.

        Raises:
            ConfigError: A number is out of range.
        """
        if lanes < 2 or lanes % 2:
            raise ConfigError(f"A host engine needs an even number of lanes, got {lanes}.")
        if workers is not None and workers < 0:
            raise ConfigError(f"A host engine cannot have {workers} workers.")
        self.world: HostWorld = world
        self._workers = len(os.sched_getaffinity(0)) if workers is None else workers
        self._lanes = lanes
        self._timeout = timeout
        self._pools: list[PoolVectorEnv] = []

    def run_population(self, policies: Policy, keys: Keys) -> Episode:
        population = jax.tree.leaves(eqx.filter(policies, eqx.is_inexact_array))[0].shape[0]
        schedule = _Schedule(keys, population, self.world.max_steps)
        if not self._pools:
            self._open()
        half = self._lanes // 2
        groups = [
            _Group(
                pool, policies, self.world, schedule, first_lane=index * half, stride=self._lanes
            )
            for index, pool in enumerate(self._pools)
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
        shape = (population, len(keys))
        return Episode(
            total=jnp.asarray(schedule.rewards.sum(axis=1, dtype=np.float64).reshape(shape)),
            length=jnp.asarray(schedule.lengths.reshape(shape)),
            rewards=jnp.asarray(schedule.rewards.reshape(*shape, -1)),
        )

    def run_episodes(self, policy: Policy, keys: Keys) -> Episode:
        one = jax.tree.map(lambda leaf: leaf[None] if eqx.is_inexact_array(leaf) else leaf, policy)
        return jax.tree.map(lambda leaf: leaf[0], self.run_population(one, keys))

    def close(self) -> None:
        """End the workers."""
        for pool in self._pools:
            pool.close()
        self._pools = []

    def _open(self) -> None:
        for _ in range(2):
            self._pools.append(
                PoolVectorEnv(
                    self.world.opener(), self._lanes // 2, self._workers, timeout=self._timeout
                )
            )


class _Schedule:
    """All episodes of a run: episode `p * R + r` is policy `p` with key `r`."""

    def __init__(self, keys: Keys, population: int, max_steps: int):
        self.episodes = population * len(keys)
        self.rollouts = len(keys)
        self.key_data = np.asarray(jax.random.key_data(keys))
        self.seeds = [int(seed) for seed in np.asarray(_seeds(keys))]
        self.rewards = np.zeros((self.episodes, max_steps), np.float32)
        self.lengths = np.zeros(self.episodes, np.int32)


class _Lanes(NamedTuple):
    """What each lane of a group carries from step to step, on the device."""

    carry: PyTree
    senses: PyTree
    time: Int[Array, " L"]


class _Group:
    """Half of the lanes: a pool, and the episodes that it works through."""

    def __init__(
        self,
        pool: PoolVectorEnv,
        policies: Policy,
        world: HostWorld,
        schedule: _Schedule,
        first_lane: int,
        stride: int,
    ):
        lanes = pool.num_envs
        self._pool = pool
        self._policies = policies
        self._world = world
        self._schedule = schedule
        self._stride = stride
        self._episode = np.arange(first_lane, first_lane + lanes)
        self._time = np.zeros(lanes, np.int64)
        self._attempts = np.zeros(lanes, np.int64)
        self._due = self._episode < schedule.episodes  # to be started
        self._running = np.zeros(lanes, bool)
        self._fresh = np.zeros(lanes, bool)  # started since the policy last acted
        self._on_device: _Lanes | None = None
        self._resetting = False

    @property
    def busy(self) -> bool:
        """Whether there are episodes to run."""
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
            self._record(rewards, terminated | truncated)
        if self._due.any():
            self._reset()
        elif self._running.any():
            self._act(observations)

    def _reset(self) -> None:
        seeds = self._schedule.seeds
        chosen = [
            seeds[episode % self._schedule.rollouts] if due else None
            for episode, due in zip(self._episode, self._due, strict=True)
        ]
        self._pool.reset_async(chosen, {"reset_mask": self._due.copy()})
        self._running |= self._due
        self._fresh |= self._due
        self._time[self._due] = 0
        self._due[:] = False
        self._resetting = True

    def _act(self, observations: np.ndarray) -> None:
        episode = np.where(self._running, self._episode, 0)
        actions, self._on_device = _act(
            self._policies,
            self._world.perturbation,
            self._world.observation_shape,
            self._on_device,
            jnp.asarray(episode // self._schedule.rollouts),
            jnp.asarray(self._schedule.key_data[episode % self._schedule.rollouts]),
            jnp.array(self._fresh),
            jnp.asarray(observations),
        )
        self._fresh[:] = False
        chosen = np.asarray(actions)
        if not np.isfinite(chosen[self._running]).all():
            self._blame(observations)
        self._pool.step_async(self._world.to_env_actions(np.where(np.isfinite(chosen), chosen, 0)))

    def _record(self, rewards: np.ndarray, ended: np.ndarray) -> None:
        running = self._running
        self._schedule.rewards[self._episode[running], self._time[running]] = rewards[running]
        self._time[running] += 1
        ended = running & (ended | (self._time >= self._world.max_steps))
        self._schedule.lengths[self._episode[ended]] = self._time[ended]
        self._episode[ended] += self._stride
        self._attempts[ended] = 0
        self._running &= ~ended
        self._due |= ended & (self._episode < self._schedule.episodes)

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
        self._schedule.rewards[self._episode[lost]] = 0.0
        self._running &= ~lost
        self._due |= lost

    def _blame(self, observations: np.ndarray) -> None:
        """Say who made the NaN: the environment or the policy."""
        if not np.isfinite(observations[self._running]).all():
            raise ObservationError(f"{self._world.name} showed NaN or infinity.")
        raise ConfigError("The policy returned NaN or infinity as an action.")


@eqx.filter_jit
def _act(
    policies: Policy,
    perturbation: Perturbation,
    observation_shape: tuple[int, ...],
    lanes: _Lanes | None,
    individuals: Int[Array, " L"],
    key_data: Array,
    fresh: Bool[Array, " L"],
    observations: Array,
) -> tuple[Float[Array, "L A"], _Lanes]:
    """One step of the senses and the policy of every lane; fresh lanes start with blank memories."""
    parameters, static = eqx.partition(policies, eqx.is_inexact_array)
    sensors: Any = observation_shape[0] if len(observation_shape) == 1 else observation_shape

    def start(policy: Policy, key: Array) -> _Lanes:
        carry = policy.initial_carry(sensors)
        senses = perturbation.init(jax.random.fold_in(key, _SENSES), observations.shape[1])
        return _Lanes(carry, senses, jnp.zeros((), jnp.int32))

    def lane(
        individual: Array, key: Array, fresh: Array, before: _Lanes | None, observation: Array
    ) -> tuple[Array, _Lanes]:
        policy = eqx.combine(jax.tree.map(lambda leaf: leaf[individual], parameters), static)
        key = jax.random.wrap_key_data(key)
        blank = start(policy, key)
        now = jax.tree.map(lambda new, old: jnp.where(fresh, new, old), blank, before or blank)
        key = jax.random.fold_in(jax.random.fold_in(key, _SENSES + 1), now.time)
        readings, senses = observation.astype(jnp.float32), now.senses
        if perturbation != Identity():  # pictures pass by
            readings, senses = perturbation.apply(key, senses, readings)
        action, carry, _ = policy.step(readings, now.carry)
        return action, _Lanes(carry, senses, now.time + 1)

    axes = (0, 0, 0, None if lanes is None else 0, 0)
    return jax.vmap(lane, in_axes=axes)(individuals, key_data, fresh, lanes, observations)


@jax.jit
def _seeds(keys: Keys) -> Array:
    """A seed for the environment from each key."""
    return jax.vmap(lambda key: jax.random.bits(key) >> 1)(keys)
