"""The folder of a run: its files, its lock, and the cost of its stages.

runs/ant-pi/
    recipe.json               the recipe
    versions.json             of Python, JAX and the rest
    metrics.jsonl             one line a generation: its stage, what `Metrics` holds, mean return of the last
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
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

from sensorium.errors import AgentFileError, RunError, WriteError
from sensorium.policies import Policy
from sensorium.serialisation import (
    load_pytree,
    parse_json,
    read_header,
    remove_partial_files,
    save_pytree,
    write_json,
)
from sensorium.training.checkpoints import check_recipe

_RECIPE = "recipe.json"
_VERSIONS = "versions.json"


class RunDirectory:
    """A folder that holds one run of one recipe."""

    def __init__(self, path: Path | str, recipe: dict[str, Any]):
        """Set up; nothing is read or written yet."""
        self.path = Path(path)
        self.recipe = recipe

    @staticmethod
    def exists(path: Path | str) -> bool:
        """Return whether a folder holds a run."""
        return os.path.isfile(Path(path) / _RECIPE)

    @staticmethod
    def open(path: Path | str) -> "RunDirectory":
        """Open an existing run, to be resumed.

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
        """What `describe_versions` returned when the run began; None if that cannot be read."""
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
        """Return whether a stage is finished."""
        return os.path.isfile(self._file(stage))

    def load(self, stage: str, like: Policy) -> Policy:
        """Load the policy that a finished stage kept, in the structure of `like`.

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
        """Save the policy of a stage: its file marks the stage as finished. Its data are deleted."""
        save_pytree(self._file(stage), policy, header)
        shutil.rmtree(self.data(stage), ignore_errors=True)

    def data(self, stage: str) -> Path:
        """Return the folder where the trainer of a stage may keep data until the stage is finished."""
        return self.path / "data" / stage

    def history(self) -> list[dict[str, Any]]:
        """Read what the finished stages cost, in the order of the recipe."""
        names = [stage["name"] for stage in self.recipe["stages"]]
        files = [self._file(name) for name in names]
        return [read_header(file)["history"] for file in files if os.path.isfile(file)]

    def cost(self) -> dict[str, Any]:
        """Compute the cost of training by stage, and the sum with what the stages started from.

        Raises:
            RunError: It is not finished.
        """
        stages = self.history()
        if len(stages) < len(self.recipe["stages"]):
            raise RunError(
                f"{self.path} is not finished: continue it with `sensorium train --resume {self.path}`."
            )
        seconds = [
            stage["seconds"] + stage.get("start", {}).get("training_seconds", 0) for stage in stages
        ]
        return {"training_seconds": round(sum(seconds), 1), "stages": stages}

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


def written_by(versions: Any) -> str:
    """Describe which version of Sensorium wrote something, for an error; empty if that is not known."""
    known = versions.get("sensorium") if isinstance(versions, dict) else None
    return f" (Sensorium {known} wrote it)" if isinstance(known, str) else ""


def describe_versions() -> dict[str, str]:
    """Describe Python, the machine, and the packages that a result may depend on."""
    versions = {"python": platform.python_version(), "machine": platform.machine()}
    for package in ("sensorium", "jax", "jaxlib", "equinox", "evosax", "optax", "numpy"):
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions
