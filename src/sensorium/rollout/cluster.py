"""The same episodes on the machines of a Ray cluster.

A population is cut into portions whose size depends on nothing but the world and the number of
episodes, and each is a Ray task that runs one of the other engines in a worker of one core. A task whose
machine fails is run again elsewhere, with the same result: neither the number of machines nor the loss
of one changes anything.
"""

import contextlib
import dataclasses
import functools
import os
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sensorium.envs import World
from sensorium.errors import ClusterError, SensoriumError, needs
from sensorium.policies import Policy, as_population
from sensorium.rollout.address import answers
from sensorium.rollout.device import Episode, Totals
from sensorium.rollout.engine import Engine
from sensorium.types import Keys, PyTree

LANES = 32
"""Episodes that a task runs at a time in a world on the host."""
DEVICE_EPISODES = 1024
"""Episodes of a task in a world on the device."""
_LOOK = 5.0  # seconds between checks of the head while nothing arrives


@dataclasses.dataclass(frozen=True)
class Portion:
    """Some individuals of a population, as a task receives them."""

    world: World
    open_engine: Callable[[World], Engine]
    static: PyTree
    parameters: PyTree
    key_data: np.ndarray
    whole: bool
    """Whether episodes are wanted in full, or their totals alone."""


class ClusterEngine(Engine):
    """Any world on a Ray cluster."""

    here = False

    def __init__(
        self, world: World, open_engine: Callable[[World], Engine], address: str | None = None
    ):
        """Join a cluster, or start one on this machine.

        Args:
            world: The world, of any kind.
            open_engine: Opens the engine of a task, in a process of one core; see `select.task_engine`.
            address: Of the head, as `ray start` prints it (`192.168.1.1:6379`), `auto` for the cluster
                that this machine belongs to; None starts one.

        Raises:
            MissingExtraError: Ray is not installed.
            ClusterError: There is no cluster at that address.
        """
        self.world = world
        self._open_engine = open_engine
        self._ray = _import_ray()
        self._joined = not self._ray.is_initialized()
        if self._joined:
            nobody = f"There is no Ray cluster at {address}: start one with `ray start --head`."
            if address and ":" in address and not answers(address):
                raise ClusterError(nobody)  # Ray itself would wait for minutes
            try:
                with warnings.catch_warnings():
                    # Ray starts its processes by fork and exec, which is safe
                    warnings.filterwarnings("ignore", r"os\.fork\(\) was called")
                    self._ray.init(address, log_to_driver=False, logging_level="error")
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise ClusterError(nobody) from error
        self._head = self._ray.get_runtime_context().gcs_address
        # One core a task, and none of its threads on the cores of another
        quiet = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
        self._task = self._ray.remote(
            num_cpus=1, max_retries=-1, retry_exceptions=False, runtime_env={"env_vars": quiet}
        )(_run)

    def run_population(self, policies: Policy, keys: Keys) -> Episode:
        rows = self._grid(policies, keys, whole=True)
        total, length, rewards = (
            jnp.concatenate(
                [jnp.concatenate([part[field] for part in row], axis=1) for row in rows]
            )
            for field in range(3)
        )
        return Episode(total, length, rewards)

    def run_episodes(self, policy: Policy, keys: Keys) -> Episode:
        return jax.tree.map(lambda leaf: leaf[0], self.run_population(as_population(policy), keys))

    def totals(self, policies: Policy, keys: Keys) -> Totals:
        rows = self._grid(policies, keys, whole=False)
        return Totals(
            *(
                np.concatenate([np.concatenate([part[field] for part in row], 1) for row in rows])
                for field in range(2)
            )
        )

    def close(self) -> None:
        """Leave the cluster, if it was joined by this engine."""
        if self._joined:
            self._ray.shutdown()

    def _grid(self, policies: Policy, keys: Keys, whole: bool) -> list[list[Any]]:
        """Return all results: a row for each share of the population, of shares of the episodes."""
        parameters, static = eqx.partition(policies, eqx.is_array)
        parameters = jax.tree.map(np.asarray, parameters)
        population = jax.tree.leaves(parameters)[0].shape[0]
        key_data = np.asarray(jax.random.key_data(keys))
        width = min(len(key_data), episodes_of_a_task(self.world))
        height = episodes_of_a_task(self.world) // width
        columns = range(0, len(key_data), width)
        tasks = [
            self._task.remote(
                Portion(
                    self.world,
                    self._open_engine,
                    static,
                    jax.tree.map(lambda leaf: leaf[top : top + height], parameters),
                    key_data[left : left + width],
                    whole,
                )
            )
            for top in range(0, population, height)
            for left in columns
        ]
        done = self._collect(tasks)
        return [done[first : first + len(columns)] for first in range(0, len(done), len(columns))]

    def _collect(self, tasks: list[Any]) -> list[Any]:
        waiting = list(tasks)
        try:
            while waiting:
                ready, waiting = self._ray.wait(waiting, num_returns=len(waiting), timeout=_LOOK)
                if not ready and not answers(self._head):
                    raise ClusterError(
                        f"The head of the Ray cluster at {self._head} does not answer; once it is back, "
                        "go on with `sensorium train --resume`."
                    )
            return self._ray.get(tasks)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, SensoriumError):
                raise cause from None
            raise ClusterError(f"A task of the cluster failed: {cause}.") from error
        except self._ray.exceptions.RayError as error:
            raise ClusterError(f"The Ray cluster failed: {error}.") from error
        finally:
            for task in waiting:
                with contextlib.suppress(self._ray.exceptions.RayError):
                    self._ray.cancel(task)


def _run(portion: Portion) -> Any:
    """Run a portion, in a task, with an engine that its process keeps for the next."""
    engine = _engine(portion.open_engine, portion.world)
    policies = eqx.combine(jax.tree.map(jnp.asarray, portion.parameters), portion.static)
    keys = jax.random.wrap_key_data(jnp.asarray(portion.key_data))
    if not portion.whole:
        return tuple(engine.totals(policies, keys))
    return tuple(np.asarray(leaf) for leaf in engine.run_population(policies, keys))


@functools.lru_cache(maxsize=1)
def _engine(open_engine: Callable[[World], Engine], world: World) -> Engine:
    return open_engine(world)


def episodes_of_a_task(world: World) -> int:
    """Return how many episodes a task runs at most."""
    return LANES if world.on_host else DEVICE_EPISODES


def _import_ray() -> Any:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with needs("cluster", "The engine for clusters"):
        import ray
    return ray
