"""One population over the machines of `jax.distributed`: every process runs the same program.

Each process keeps the whole state of the search and runs the episodes of its own share of a population,
on all of its devices; only returns are sent, P x R floats a generation. The first process writes the run.
"""

import atexit
import os
import sys
import time
from collections.abc import Callable

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather

from sensorium.envs import World
from sensorium.errors import ClusterError, ConfigError
from sensorium.policies import Policy
from sensorium.rollout.address import answers
from sensorium.rollout.device import Episode, Totals
from sensorium.rollout.engine import Engine
from sensorium.types import Keys, PyTree

_PATIENCE = 60  # seconds for all processes to come


def join(address: str | None, processes: int | None, process: int | None) -> None:
    """Find the other processes; call it before anything uses JAX. A second call does nothing.

    Args:
        address: Host and port of the first process, which all others call.
        processes: How many there are.
        process: Which of them this is, from 0. None for all three where JAX finds out by itself: under
            Slurm, Open MPI, on Kubernetes and on Cloud TPUs.

    Raises:
        ConfigError: The numbers do not fit, or JAX is running already.
        ClusterError: The others did not come.
    """
    if jax.distributed.is_initialized():
        return
    given = [value is not None for value in (address, processes, process)]
    if any(given) and not all(given):
        raise ConfigError(
            "--engine jax takes --address, --processes and --process, or none of them."
        )
    if processes is not None and process is not None and not 0 <= process < processes:
        raise ConfigError(f"--process counts from 0 to {processes - 1}, got {process}.")
    if address is not None and process:
        _wait_for(address)
    try:
        jax.distributed.initialize(address, processes, process, initialization_timeout=_PATIENCE)
    except ValueError as error:  # nothing was given, and nothing was found
        raise ConfigError(
            "Nothing tells JAX of its other processes here; give --address, --processes, --process."
        ) from error
    except RuntimeError as error:
        if "before" in str(error):
            raise ConfigError("Processes are joined before anything uses JAX.") from error
        raise ClusterError(f"The {processes} processes did not meet at {address}.") from error
    # XLA gives up on a first exchange that some begin half a minute after others, as they may once each
    # has compiled its own rollouts; here they are together
    _exchange(np.zeros(1), advice="start all again")


def _wait_for(address: str) -> None:
    """Wait until the first process is there: JAX itself would abort, without a sentence."""
    if not address.rpartition(":")[2].isdigit():
        raise ConfigError(f"An address is a host and a port, got {address!r}.")
    give_up = time.monotonic() + _PATIENCE
    while not answers(address):
        if time.monotonic() > give_up:
            raise ClusterError(f"There is no first process at {address}.")
        time.sleep(0.5)


def _exchange(
    array: np.ndarray, *, tiled: bool = False, advice: str = "start all again with --resume"
) -> np.ndarray:
    """Gather the arrays of all processes, one under another."""
    try:
        return process_allgather(array, tiled=tiled)
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        # On machines of one core a lost peer is a ValueError; any other is a fault of ours
        if isinstance(error, ValueError) and "Gloo" not in str(error):
            raise
        atexit.register(_leave)
        raise ClusterError(f"Another process of this run does not answer; {advice}.") from error


def _leave() -> None:
    """End at once: JAX would wait at the exit for a process that is gone, and after minutes abort."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(2)


class DistributedEngine(Engine):
    """An engine of every process, each for its share of the population."""

    here = False

    def __init__(self, local: Engine):
        """Share out what `local` would run alone; `join` comes first."""
        self.world = local.world
        self.leads = jax.process_index() == 0
        self._local = local

    def run_population(self, policies: Policy, keys: Keys) -> Episode:
        return self._shared(lambda share: self._local.run_population(share, keys), policies)

    def run_episodes(self, policy: Policy, keys: Keys) -> Episode:
        return self._shared(lambda share: self._local.run_episodes(policy, share), keys)

    def totals(self, policies: Policy, keys: Keys) -> Totals:
        return self._shared(lambda share: self._local.totals(share, keys), policies)

    def on(self, world: World) -> "DistributedEngine":
        return DistributedEngine(self._local.on(world))

    def anywhere(self, flag: bool) -> bool:
        return bool(np.any(_exchange(np.asarray(flag))))

    def close(self) -> None:
        self._local.close()

    def _shared(self, run: Callable[[PyTree], PyTree], rows: PyTree) -> PyTree:
        """Compute `run(rows)`, an equal share in every process; the last row fills up the last share."""
        size = jax.tree.leaves(rows)[0].shape[0]
        share = -(-size // jax.process_count())
        first = share * jax.process_index()
        mine = np.minimum(np.arange(first, first + share), size - 1)
        done = run(jax.tree.map(lambda leaf: leaf[mine], rows))
        return jax.tree.map(lambda leaf: _exchange(np.asarray(leaf), tiled=True)[:size], done)
