"""Episodes on disk in the format of Minari, the field's for offline data."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.errors import ConfigError, needs
from sensorium.serialisation import atomic_folder


class Episodes(NamedTuple):
    """E episodes of at most T steps; zeros after the end of each."""

    observations: np.ndarray
    """As the environment showed them: E, T + 1, and the shape of one; the last is of the end."""
    actions: np.ndarray
    """As the environment took them: E, T, and the shape of one."""
    rewards: Float[np.ndarray, "E T"]
    lengths: Int[np.ndarray, " E"]
    terminated: Bool[np.ndarray, " E"]
    """Whether an episode ended by itself, rather than at its time limit."""


def write(path: Path, world: HostWorld, parts: Iterable[Episodes]) -> None:
    """Write a dataset: a folder, whole or absent.

    Raises:
        MissingExtraError: Minari is not installed.
        WriteError: It could not be written. Nothing is left.
    """
    storage_of, buffer_of = _import()
    path = path.absolute()  # Minari puts a relative folder in front of its own files once more
    env = world.opener()()
    with contextlib.closing(env), atomic_folder(path) as filled:
        storage = storage_of.new(
            filled,
            env.observation_space,
            env.action_space,
            _spec(env),
            jpeg_encoding=False,  # lossless
        )
        for part in parts:
            storage.update_episodes(_buffers(buffer_of, part))
        storage.update_metadata(
            {"dataset_id": f"sensorium/{path.name}-v0", "minari_version": _version()}
        )


def is_dataset(path: Path | str) -> bool:
    """Check whether a folder looks like a dataset of Minari, or holds one in `data`, as its downloads do."""
    return os.path.isfile(_storage(Path(path)) / "metadata.json")


def _storage(path: Path) -> Path:
    return path / "data" if os.path.isdir(path / "data") else path


def read(path: Path, max_steps: int) -> Episodes:
    """Read a dataset, cut to `max_steps` steps an episode.

    Raises:
        MissingExtraError: Minari is not installed.
        ConfigError: It is no Minari dataset, or not of arrays.
    """
    storage_of, _ = _import()
    try:
        storage = storage_of.read(_storage(path))
        stored = list(storage.get_episodes(range(storage.total_episodes)))
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{path} is not a dataset of Minari, or it is damaged.") from error
    if not stored or not isinstance(stored[0]["observations"], np.ndarray):
        raise ConfigError(f"The dataset {path} holds no episodes, or not of arrays.")
    lengths = np.array([min(len(one["rewards"]), max_steps) for one in stored])
    steps = int(lengths.max())

    def stack(key: str, longer: int = 0) -> np.ndarray:
        first = np.asarray(stored[0][key])
        dtype = np.uint8 if first.dtype == np.uint8 and first.ndim == 4 else np.float32
        rows = np.zeros((len(stored), steps + longer, *first.shape[1:]), dtype)
        for row, one in zip(rows, stored, strict=True):
            short = np.asarray(one[key])[: steps + longer]
            row[: len(short)] = short
        return rows

    ended = [
        bool(one["terminations"][length - 1]) for one, length in zip(stored, lengths, strict=True)
    ]
    return Episodes(
        stack("observations", 1), stack("actions"), stack("rewards"), lengths, np.array(ended)
    )


def _buffers(buffer_of: Any, part: Episodes) -> list[Any]:
    buffers = []
    for index, length in enumerate(part.lengths):
        last = np.arange(length) == length - 1
        buffers.append(
            buffer_of(
                observations=part.observations[index, : length + 1],
                actions=part.actions[index, :length],
                rewards=part.rewards[index, :length],
                terminations=last & part.terminated[index],
                truncations=last & ~part.terminated[index],
            )
        )
    return buffers


def _spec(env: Any) -> Any:
    """Return how to make the environment again, if that can be written down."""
    try:
        env.spec.to_json()
    except (AttributeError, TypeError, ValueError):
        return None
    return env.spec


def _import() -> tuple[Any, Any]:
    with needs("experts", "A dataset of Minari"):
        import h5py  # noqa: F401  # what Minari stores with
        from minari.data_collector import EpisodeBuffer
        from minari.dataset.minari_storage import MinariStorage
    return MinariStorage, EpisodeBuffer


def _version() -> str:
    import minari

    return minari.__version__
