"""Environments in worker processes behind Gymnasium's vector interface, several in each worker.

    pool = PoolVectorEnv(opener, num_envs=64, num_workers=2)
    observations, _ = pool.reset(seed=0)
    observations, rewards, terminated, truncated, infos = pool.step(actions)
    observations, _ = pool.reset(seed=seeds, options={"reset_mask": terminated | truncated})

What it adds to Gymnasium's `AsyncVectorEnv`, whose conventions for `AutoresetMode.DISABLED` it keeps:
several environments a process; one that has ended idles until it is reset; workers that die or hang are
replaced, and `infos["lost"]` says which environments must be started again; `reset_async` and
`step_async` return at once. Workers are spawned: JAX does not survive a fork.
"""

import contextlib
import ctypes
import io
import multiprocessing
import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_any
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from sensorium.bridges.advised import Advised
from sensorium.bridges.checked import checked, described, name_of
from sensorium.errors import ConfigError, SensoriumError, WorldError

OpenEnv = Callable[[], gymnasium.Env]
_CONTEXT = multiprocessing.get_context("spawn")
_STARTUP = 120.0  # seconds for a worker to import and open its environments
_ENDING = 5.0  # seconds for a worker to close them
_UNGUARDED = 97  # exit code of a worker that was to start workers


class PoolVectorEnv(VectorEnv):
    """Any number of one environment, stepped by worker processes."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.DISABLED}

    def __init__(self, opener: OpenEnv, num_envs: int, num_workers: int, *, timeout: float = 60.0):
        """Open the environments.

        Args:
            opener: Opens one environment; pickled, unless `num_workers` is 0.
            num_envs: How many.
            num_workers: How many processes share them; 0 keeps them in this one.
            timeout: Seconds after which a worker that does not answer is replaced.

        Raises:
            ConfigError: There are no environments.
            WorldError: An environment cannot be opened.
        """
        if num_envs < 1 or num_workers < 0:
            raise ConfigError(
                f"A pool needs at least 1 environment, got {num_envs} and {num_workers} workers."
            )
        if num_workers and _is_starting():
            sys.exit(_UNGUARDED)
        probe = opener()
        self.spec = probe.spec
        self.num_envs = num_envs
        self.single_observation_space = probe.observation_space
        self.single_action_space = probe.action_space
        self.observation_space = batch_space(probe.observation_space, num_envs)
        self.action_space = batch_space(probe.action_space, num_envs)
        self._name = name_of(probe)
        advice = len(probe.advice) if isinstance(probe, Advised) else 0
        probe.close()
        self._timeout = timeout
        self._blocks = _shared_blocks(self.observation_space, self.action_space, num_envs, advice)
        arrays = _Arrays(self._blocks)
        self._arrays = arrays
        parts = max(1, min(num_workers, num_envs))
        # One to each in turn, so that the first few keep all workers busy
        shares = [np.arange(place, num_envs, parts) for place in range(parts)]
        self._workers: list[_InProcess | _Process] = []
        for share in shares:
            if num_workers == 0:
                self._workers.append(_InProcess(opener, share, arrays))
            else:
                self._workers.append(_Process(opener, share, self._blocks))
        self._busy: list[int] = []
        for worker in self._workers:
            if isinstance(worker, _Process):
                self._collect(worker, _STARTUP, "opening")

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start all environments, or those of `options["reset_mask"]`.

        Args:
            seed: One for each environment, or the first of consecutive ones.
            options: `reset_mask`, booleans; other options are not passed on.

        Returns:
            All observations, and `lost` in the infos if workers were.
        """
        self.reset_async(seed, options)
        return self.reset_wait()

    def step(
        self, actions: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step the environments that have not ended; the others show their last observation, and 0.

        Returns:
            Observations, rewards, terminated, truncated, and `lost` in the infos if workers were.

        Raises:
            WorldError: An environment raised, or returned what it may not; see `checked`.
        """
        self.step_async(actions)
        return self.step_wait()

    def reset_async(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Begin what `reset` does."""
        everything = np.ones(self.num_envs, bool)
        mask = (options or {}).get("reset_mask", everything)
        if isinstance(seed, int | np.integer):
            seed = [int(seed) + index for index in range(self.num_envs)]
        seeds = [None] * self.num_envs if seed is None else list(seed)
        if len(seeds) != self.num_envs or mask.shape != (self.num_envs,):
            raise ConfigError(f"Seeds and reset_mask must be of length {self.num_envs}.")
        self._arrays.ended[mask, :] = False
        self._arrays.running[mask] = True
        for place, worker in enumerate(self._workers):
            chosen = [(int(env), seeds[env]) for env in worker.share if mask[env]]
            if chosen:
                worker.send(("reset", chosen))
                self._busy.append(place)

    def reset_wait(self) -> tuple[np.ndarray, dict[str, Any]]:
        """End what `reset_async` began."""
        infos = self._wait()
        return self._arrays.observations.copy(), infos

    def step_async(self, actions: Any) -> None:
        """Begin what `step` does."""
        self._arrays.actions[:] = actions
        self._arrays.rewards[:] = 0.0
        for place, worker in enumerate(self._workers):
            if self._arrays.running[worker.share].any():
                worker.send(("step", None))
                self._busy.append(place)

    def step_wait(
        self,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """End what `step_async` began."""
        infos = self._wait()
        arrays = self._arrays
        terminated, truncated = arrays.ended[:, 0].copy(), arrays.ended[:, 1].copy()
        arrays.running[terminated | truncated] = False
        return arrays.observations.copy(), arrays.rewards.copy(), terminated, truncated, infos

    @property
    def advice(self) -> np.ndarray:
        """What the expert beside each environment would do next; of width 0 where there is none."""
        return self._arrays.advice.copy()

    def idle(self, mask: np.ndarray) -> None:
        """Leave the environments of `mask` alone until they are reset."""
        self._arrays.running[mask] = False

    def close_extras(self, **kwargs: Any) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.send(("close", None))
        for worker in self._workers:
            worker.close()
        self._workers = []

    def _wait(self) -> dict[str, Any]:
        lost = np.zeros(self.num_envs, bool)
        reasons = []
        while self._busy:
            worker = self._workers[self._busy.pop()]
            if isinstance(worker, _InProcess):
                worker.receive()
                continue
            reason = self._collect(worker, self._timeout, "stepping")
            if reason:
                lost[worker.share] = True
                reasons.append(reason)
        self._arrays.running[lost] = False
        self._arrays.ended[lost] = False
        return {"lost": lost, "reason": reasons[0]} if reasons else {}

    def _collect(self, worker: "_Process", timeout: float, doing: str) -> str:
        """Wait for the answer of a worker; if it is lost, replace it and say why."""
        reason = worker.receive(timeout)
        if not reason:
            return ""
        if doing == "opening":
            self.close()
            raise WorldError(f"{self._name} cannot be opened in a worker: it {reason}.")
        worker.start()
        return self._collect(worker, _STARTUP, "opening") or reason


class _Arrays:
    """What the processes share: a row for each environment."""

    def __init__(self, blocks: dict[str, tuple[Any, tuple[int, ...], str]]):
        for name, (block, shape, dtype) in blocks.items():
            count = int(np.prod(shape))
            setattr(self, name, np.frombuffer(block, dtype, count).reshape(shape))

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    ended: np.ndarray
    """Terminated, truncated."""
    running: np.ndarray
    """Whether the environment was started and has not ended."""
    advice: np.ndarray
    """What an expert beside each environment would do next; of width 0 where there is none."""


def _shared_blocks(
    observations: gymnasium.Space, actions: gymnasium.Space, num_envs: int, advice: int
) -> dict[str, tuple[Any, tuple[int, ...], str]]:
    def block(shape: Any, dtype: Any) -> tuple[Any, tuple[int, ...], str]:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return _CONTEXT.RawArray(ctypes.c_byte, max(1, size)), tuple(shape), np.dtype(dtype).str

    return {
        "observations": block(observations.shape, observations.dtype),
        "actions": block(actions.shape, actions.dtype),
        "rewards": block((num_envs,), np.float64),
        "ended": block((num_envs, 2), np.bool_),
        "running": block((num_envs,), np.bool_),
        "advice": block((num_envs, advice), np.float32),
    }


class _InProcess:
    """A share of the environments, in this process."""

    def __init__(self, opener: OpenEnv, share: np.ndarray, arrays: _Arrays):
        self.share = share
        self._arrays = arrays
        opened = {int(env): opener() for env in share}
        self._advised = {at: env for at, env in opened.items() if isinstance(env, Advised)}
        self._envs = {at: checked(env) for at, env in opened.items()}
        self._discrete = all(
            isinstance(env.action_space, spaces.Discrete) for env in self._envs.values()
        )
        self._command: tuple[str, Any] = ("", None)

    def send(self, command: tuple[str, Any]) -> None:
        self._command = command

    def receive(self) -> None:
        """Carry out the command that was sent; WorldError if an environment raises or breaks its contract."""
        arrays = self._arrays
        verb, chosen = self._command
        if verb == "reset":
            for index, seed in chosen:
                arrays.observations[index], _ = self._envs[index].reset(seed=seed)
            self._share_advice()
            return
        for index, env in self._envs.items():
            if arrays.running[index] and not arrays.ended[index].any():
                action = arrays.actions[index]
                if not self._discrete:
                    action = np.array(action)  # its own: the next one is written in the same place
                observation, reward, *ended, _ = env.step(action)
                arrays.observations[index] = observation
                arrays.rewards[index] = reward
                arrays.ended[index] = ended
        self._share_advice()

    def _share_advice(self) -> None:
        for index, env in self._advised.items():
            self._arrays.advice[index] = env.advice

    def close(self) -> None:
        for env in self._envs.values():
            env.close()


class _Process:
    """A share of the environments, in a worker process."""

    def __init__(self, opener: OpenEnv, share: np.ndarray, blocks: dict[str, Any]):
        self.share = share
        self._opener = opener
        self._blocks = blocks
        self.start()

    def start(self) -> None:
        """Start the worker, or another in its place; the first answer says that it is ready."""
        self._connection, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(
            target=_serve, args=(theirs, self._opener, self.share, self._blocks), daemon=True
        )
        self._process.start()
        theirs.close()

    def send(self, command: tuple[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it has died: `receive` reports it
            self._connection.send(command)

    def receive(self, timeout: float) -> str:
        """Wait for the answer; returns why there is none, or nothing. WorldError if an env raised."""
        ready = wait_for_any([self._connection, self._process.sentinel], timeout)
        if self._connection in ready:
            with contextlib.suppress(EOFError, OSError):  # raised where it died
                failure = self._connection.recv()
                if failure is None:
                    return ""
                raise failure
        reason = f"did not answer within {timeout:g} seconds"
        if ready:
            self._process.join()
            code = self._process.exitcode or 0
            if code == _UNGUARDED:
                self._stop()
                return (
                    "runs the script anew, which may start Sensorium's workers only below "
                    '`if __name__ == "__main__":`'
                )
            reason = f"died with {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"
        self._stop()
        return reason

    def close(self) -> None:
        """Wait for the worker, which was sent "close"; after a moment insist."""
        self._process.join(_ENDING)
        self._stop()

    def _stop(self) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()


def _serve(connection: Connection, opener: OpenEnv, share: np.ndarray, blocks: Any) -> None:
    """Run a worker, until it is asked to close or its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to act upon
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # nothing is lost if this worker is killed
    try:
        try:
            envs = _InProcess(opener, share, _Arrays(blocks))
        except Exception as error:
            why = str(error) if isinstance(error, SensoriumError) else described(error)
            connection.send(WorldError(f"An environment cannot be opened in a worker: {why}"))
            return
        connection.send(None)
        while True:
            command = connection.recv()
            if command[0] == "close":
                envs.close()
                return
            envs.send(command)
            try:
                envs.receive()
                connection.send(None)
            except WorldError as failure:
                connection.send(failure)
            except Exception as error:
                connection.send(WorldError(f"A worker failed: {described(error)}"))
    except (EOFError, ConnectionError):
        sys.exit()  # the parent is gone


def _is_starting() -> bool:
    """Check whether this worker runs the script of its parent anew, to know what is defined there."""
    return bool(getattr(multiprocessing.current_process(), "_inheriting", False))
