"""The loop around every trainer: test, keep the best, log, checkpoint, stop when asked.

runs/ant-pi/
    recipe.json               what was asked for
    versions.json             of Python, JAX and the rest
    metrics.jsonl             one line a generation: its stage, what `Metrics` says, mean return of the last
                              test and of the best one, seconds since the start of the stage and to its end,
                              and environment steps that training simulated in the generation
                              (`env_steps`), also for each of its seconds
    tensorboard/              the same for TensorBoard
    last.safetensors          the whole state of the stage that is under way, to resume from
    best.safetensors          the policy with the best test of the furthest stage that has had one
    stages/clone.safetensors  what a finished stage kept, what it cost, and what it learned from
    data/clone/               what its trainer needs until the stage is finished, such as demonstrations
"""

import contextlib
import os
import platform
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np

from sensorium.errors import AgentFileError, RunError, WriteError
from sensorium.policies import Policy
from sensorium.rollout import Engine
from sensorium.seeding import Seed, key_of, stream
from sensorium.serialisation import (
    load_pytree,
    parse_json,
    read_header,
    remove_partial_files,
    save_pytree,
    write_json,
)
from sensorium.training.budget import Budget
from sensorium.training.checkpoints import (
    BEST,
    Clock,
    Progress,
    check_recipe,
    first_progress,
    load_checkpoint,
    save_checkpoint,
    stage_of_checkpoint,
)
from sensorium.training.progress import Display, MetricsFile, TensorBoard
from sensorium.training.trainer import Metrics, Trainer
from sensorium.types import Keys

_RECIPE = "recipe.json"
_VERSIONS = "versions.json"
_TESTS = 0x7E57  # folded into the seed: test episodes are never training episodes


class RunDirectory:
    """A folder that holds one run of one recipe."""

    def __init__(self, path: Path | str, recipe: dict[str, Any]):
        """Name a run; nothing is touched yet."""
        self.path = Path(path)
        self.recipe = recipe

    @staticmethod
    def exists(path: Path | str) -> bool:
        """Whether a folder holds a run."""
        return os.path.isfile(Path(path) / _RECIPE)

    @staticmethod
    def open(path: Path | str) -> "RunDirectory":
        """An existing run, to be resumed.

        Raises:
            RunError: There is no run in that folder, or it cannot be read.
        """
        path = Path(path)
        file = path / _RECIPE
        if not RunDirectory.exists(path):
            raise RunError(f"{path} is not a run directory: it has no {_RECIPE}.")
        try:
            recipe = parse_json(file.read_bytes())
        except OSError as error:
            raise RunError(f"Could not read {file}: {error.strerror or error}.") from error
        except ValueError as error:
            raise RunError(f"Could not read {file}: {error}.") from error
        if not isinstance(recipe, dict):
            raise RunError(f"Could not read {file}: it holds no recipe.")
        return RunDirectory(path, recipe)

    @property
    def versions(self) -> Any:
        """What `describe_versions` said when the run began; nothing if that cannot be read."""
        with contextlib.suppress(OSError, ValueError):
            return parse_json((self.path / _VERSIONS).read_bytes())
        return None

    @contextlib.contextmanager
    def locked(self, new: bool = False) -> Iterator[None]:
        """Keep other processes from training in the folder.

        Args:
            new: Make the folder, and refuse one that holds a run.

        Raises:
            RunError: Another process has it, there is a run in it already, or it cannot be locked.
            WriteError: It cannot be written.
        """
        name = self.path / ".lock"
        try:
            if new:
                self.path.mkdir(parents=True, exist_ok=True)
            lock = name.open("w")
        except OSError as error:
            raise WriteError(f"Could not write {name}: {error.strerror}.") from error
        with lock:
            _lock(lock, self.path)
            if new and self.exists(self.path):
                held = RunDirectory.open(self.path).recipe.get("name", "?")
                raise RunError(
                    f"{self.path} already holds a run of {held!r}; continue it with "
                    f"`sensorium train --resume {self.path}` or choose another --run-dir."
                )
            remove_partial_files(self.path)
            yield

    def describe(self) -> None:
        """Write recipe and versions, if need be: from now on the folder, which is `locked`, holds a run."""
        if self.exists(self.path):
            return
        write_json(self.path / _VERSIONS, describe_versions())
        write_json(self.path / _RECIPE, self.recipe)

    def finished(self, stage: str) -> bool:
        """Whether a stage is done."""
        return os.path.isfile(self._file(stage))

    def load(self, stage: str, like: Policy) -> Policy:
        """What a finished stage kept, in the structure of `like`.

        Raises:
            RunError: The file is damaged, or of another recipe.
        """
        file = self._file(stage)
        try:
            check_recipe(file, read_header(file), self.recipe)
            return load_pytree(file, like)
        except AgentFileError as error:
            raise RunError(f"{self.path} cannot be resumed: {error}") from error

    def finish(self, stage: str, policy: Policy, header: dict[str, Any]) -> None:
        """Keep the policy of a stage; the stage is done when its file is there, and its data go."""
        save_pytree(self._file(stage), policy, header)
        shutil.rmtree(self.data(stage), ignore_errors=True)

    def data(self, stage: str) -> Path:
        """Where the trainer of a stage may keep data until the stage is finished."""
        return self.path / "data" / stage

    def history(self) -> list[dict[str, Any]]:
        """What the finished stages cost, in the order of the recipe."""
        names = [stage["name"] for stage in self.recipe["stages"]]
        files = [self._file(name) for name in names]
        return [read_header(file)["history"] for file in files if os.path.isfile(file)]

    def _file(self, stage: str) -> Path:
        return self.path / "stages" / f"{stage}.safetensors"


def _lock(file: IO[str], directory: Path) -> None:
    """Lock a file for as long as it is open; RunError if another process has, or if that is not possible."""
    try:
        import fcntl
    except ImportError as error:
        raise RunError(
            f"{platform.system()} lacks fcntl, which runs are locked with: train on Linux or macOS."
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RunError(f"Another process is training in {directory}.") from error
    except OSError as error:
        raise RunError(
            f"The file system of {directory} cannot lock files ({error.strerror or error}); choose a "
            "folder on another one."
        ) from error


def run(
    trainer: Trainer,
    engine: Engine,
    directory: RunDirectory,
    budget: Budget,
    *,
    quiet: bool = False,
    on_generation: Callable[[dict[str, Any]], None] | None = None,
    facts: dict[str, Any] | None = None,
) -> Policy:
    """Train a stage to the end of its budget, or until SIGTERM or Ctrl-C.

    It goes on from the checkpoint, if there is one of this stage, as if the run had never been interrupted.

    Args:
        trainer: How to train.
        engine: Runs the tests of the candidates.
        directory: Where everything is kept; locked by this process.
        budget: How long, and how often to look.
        quiet: Show nothing.
        on_generation: Called with every row of the metrics.
        facts: More to note of the stage once it is finished.

    Returns:
        The policy with the best test.

    Raises:
        RunError: The checkpoint is damaged or of another recipe, or no test gave a finite return.
        WriteError: A file could not be written; the checkpoint of before is intact.
        KeyboardInterrupt: Stopped by a signal; a checkpoint was written first.
    """
    key = key_of(budget.seed)
    state = trainer.init(stream(key, budget.stage) if budget.number else key)
    candidate = jax.tree.map(lambda leaf: leaf[0], trainer.candidates(state))
    progress, clock = first_progress(state, candidate), Clock()
    try:
        if stage_of_checkpoint(directory.path, directory.recipe) == budget.stage:
            progress, clock = load_checkpoint(directory.path, progress)
    except AgentFileError as error:
        raise RunError(f"{directory.path} cannot be resumed: {error}") from error
    directory.describe()
    first = int(progress.generation)
    spent = budget.is_spent(first, float(progress.best_score), clock.seconds)
    test_keys = keys_of_tests(budget.seed, budget.test_episodes)
    test_score: float | None = None  # until the first test
    versions = describe_versions()
    header = {"recipe": directory.recipe, "stage": budget.stage, "versions": versions}
    with (
        _stop_signals() as stopped,
        contextlib.closing(
            TensorBoard(directory.path / "tensorboard" / budget.stage, first)
        ) as tensorboard,
        Display(budget, first, quiet) as display,
    ):
        metrics_file = MetricsFile(directory.path / "metrics.jsonl", budget.stage, first)
        started, elapsed, env_steps = time.perf_counter(), clock, clock.env_steps
        generation = first
        while not spent:
            generation += 1
            began = time.perf_counter()
            state, metrics = trainer.step(progress.trainer)
            _check_finite(trainer.candidates(state), generation)
            progress = progress._replace(
                trainer=state, generation=jnp.asarray(generation, jnp.int32)
            )
            jax.block_until_ready(progress)
            step_seconds = time.perf_counter() - began
            session = time.perf_counter() - started
            last = engine.anywhere(
                budget.is_spent(generation, float(progress.best_score), clock.seconds + session)
            )
            if generation % budget.test_every == 0 or last:
                progress, test_score, is_best = _test(trainer, engine, progress, test_keys)
                if is_best and test_score is not None:
                    of_best = {"generation": generation, "test": test_score}
                    save_pytree(directory.path / BEST, progress.best, header | of_best)
            session = time.perf_counter() - started
            spent = last or budget.is_spent(generation, float(progress.best_score))
            env_steps += metrics.env_steps
            pace = session / (generation - first)
            left = budget.seconds_left(generation, clock.seconds + session, pace)
            row = {
                "stage": budget.stage,
                "generation": generation,
                **_figures(metrics),
                "test": test_score,
                "best_test": _finite(float(progress.best_score)),
                "seconds": clock.seconds + session,
                "seconds_left": 0.0 if spent else left,
                "env_steps": metrics.env_steps,
                "env_steps_per_second": metrics.env_steps / step_seconds,
            }
            metrics_file.append(row)
            tensorboard.append(row)
            display.update(row)
            if on_generation:
                on_generation(row)
            stop = engine.anywhere(stopped())
            if generation % budget.checkpoint_every == 0 or spent or stop:
                elapsed = Clock(clock.seconds + session, env_steps)
                save_checkpoint(directory.path, progress, header, elapsed)
                trainer.saved(progress.trainer)
            if spent and not np.isfinite(float(progress.best_score)):
                raise RunError(
                    f"No test of {directory.path} gave a finite return: no agent is kept."
                )
            if stop and not spent:
                raise KeyboardInterrupt(
                    f"Stopped after generation {generation} of the stage {budget.stage!r}; continue with "
                    f"`sensorium train --resume {directory.path}`."
                )
    history = {
        "stage": budget.stage,
        "version": versions.get("sensorium"),
        "generations": int(progress.generation),
        "best_test": _finite(float(progress.best_score)),
        "seconds": round(elapsed.seconds, 1),
        "env_steps": elapsed.env_steps,
        **(facts or {}),
    }
    directory.finish(budget.stage, progress.best, header | {"history": history})
    return progress.best


def keys_of_tests(seed: Seed, episodes: int) -> Keys:
    """One for each episode of the tests of a run."""
    return jax.random.split(jax.random.fold_in(key_of(seed), _TESTS), episodes)


def _test(
    trainer: Trainer, engine: Engine, progress: Progress, keys: jax.Array
) -> tuple[Progress, float | None, bool]:
    """The progress with the best candidate so far, the best of these, and whether it is that one."""
    candidates = trainer.candidates(progress.trainer)
    returns = np.asarray(engine.run_population(candidates, keys).total)
    with np.errstate(over="ignore", invalid="ignore"):
        scores = returns.mean(axis=1)
    scores = np.where(np.isfinite(scores), scores, -np.inf)  # one bad candidate is no winner
    winner = int(scores.argmax())
    score = float(scores[winner])
    if not score > float(progress.best_score):
        return progress, _finite(score), False
    best = jax.tree.map(lambda leaf: leaf[winner], candidates)
    progress = progress._replace(best=best, best_score=jnp.asarray(score, jnp.float32))
    return progress, score, True


def _check_finite(candidates: Policy, generation: int) -> None:
    """RunError unless all weights of at least one candidate are numbers; the checkpoint before stands."""
    leaves = [
        leaf for leaf in jax.tree.leaves(candidates) if jnp.issubdtype(leaf.dtype, jnp.inexact)
    ]
    whole = [
        np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in map(np.asarray, leaves)
    ]
    if whole and not np.all(whole, axis=0).any():
        raise RunError(
            f"Generation {generation} made weights NaN or infinite; the last checkpoint is from before, "
            "and a lower learning rate may help."
        )


def _figures(metrics: Metrics) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.figures.items()}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def written_by(versions: Any) -> str:
    """Which version of Sensorium wrote something, for an error; nothing if that is not known."""
    known = versions.get("sensorium") if isinstance(versions, dict) else None
    return f" (Sensorium {known} wrote it)" if isinstance(known, str) else ""


def describe_versions() -> dict[str, str]:
    """Python, the machine, and the packages that a result may depend on."""
    versions = {"python": platform.python_version(), "machine": platform.machine()}
    for package in ("sensorium", "jax", "jaxlib", "equinox", "evosax", "optax", "numpy"):
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


@contextlib.contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """SIGTERM and Ctrl-C are noted, and acted upon after the generation; a second one is obeyed."""
    received: list[int] = []

    def note(number: int, _: object) -> None:
        if received:
            raise KeyboardInterrupt("Stopped at once; the last checkpoint stands.")
        received.append(number)

    previous = {}
    with contextlib.suppress(ValueError):  # not in the main thread: nothing to handle
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, note)
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
