"""What a teacher did, on disk: a Minari dataset, collected in parts so that it can be resumed.

Any Minari dataset of the same world serves as well, whoever made it.
"""

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from sensorium.bridges import minari
from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.errors import ConfigError
from sensorium.rollout.host import HostEngine, Transcript
from sensorium.serialisation import load_arrays, save_arrays
from sensorium.training.teachers import Teacher, check_fit

PART = 64  # episodes
_SEEDS = (
    1_000_000  # of demonstrations: apart from what keys give only by chance, and that is enough
)


def collect(
    path: Path,
    teacher: Teacher,
    engine: HostEngine,
    episodes: int,
    on_part: Callable[[int], None] | None = None,
) -> Transcript:
    """Let the teacher act, or read what it did already.

    Args:
        path: The dataset, a folder; parts of an unfinished one lie beside it and are gone on with.
        teacher: Acts in the unperturbed world.
        engine: Runs the world; its time limit is the length of the episodes.
        episodes: How many.
        on_part: Called with the number of episodes so far.

    Raises:
        ConfigError: The dataset is of another world, or has fewer episodes.
        MissingExtraError: Minari is not installed.
        WriteError: A file could not be written.
    """
    if not path.exists():
        parts = path.with_name(f".{path.name}.parts")
        for first in range(0, episodes, PART):
            file = parts / f"{first:06d}.safetensors"
            if not file.exists():
                seeds = _SEEDS + np.arange(first, min(first + PART, episodes))
                save_arrays(file, engine.transcribe(teacher.make_actor, seeds)._asdict())
            if on_part:
                on_part(min(first + PART, episodes))
        files = sorted(parts.glob("*.safetensors"))
        transcripts = (Transcript(**load_arrays(file)) for file in files)
        minari.write(path, engine.world, (_as_episodes(one, engine.world) for one in transcripts))
        shutil.rmtree(parts)
    return read(path, engine, episodes)


def read(path: Path, engine: HostEngine, episodes: int) -> Transcript:
    """Read a Minari dataset of at least `episodes` episodes; errors as of `collect`."""
    world = engine.world
    data = minari.read(path, world.max_steps)
    steps, shape = data.actions.shape[:2], data.actions.shape[2:]
    # A single number may be the place of one of many actions
    count = math.prod(shape) if shape else world.num_actions
    check_fit(f"The dataset {path}", world, data.observations.shape[2:], count)
    actions = world.from_env_actions(data.actions.reshape(-1, *shape))
    if len(data.lengths) < episodes:
        raise ConfigError(
            f"The dataset {path} has {len(data.lengths)} episodes; {episodes} were asked for."
        )
    transcript = Transcript(*data._replace(actions=actions.reshape(*steps, -1)))
    return Transcript(*(array[:episodes] for array in transcript))


def _as_episodes(transcript: Transcript, world: HostWorld) -> minari.Episodes:
    episodes, steps, size = transcript.actions.shape
    actions = world.to_env_actions(transcript.actions.reshape(-1, size))
    actions = actions.reshape(episodes, steps, *actions.shape[1:])
    return minari.Episodes(*transcript._replace(actions=actions))


class Sequences(NamedTuple):
    """Equal stretches of episodes to learn from: S sequences of T steps, zeros where one is shorter."""

    observations: Float[np.ndarray, "S T N"]
    previous: Float[np.ndarray, "S T A"]
    """What was done a step before."""
    wanted: Float[np.ndarray, "S T A"]
    """What the teacher would do."""
    lengths: Int[np.ndarray, " S"]


def previous(seen: Transcript) -> Float[np.ndarray, "E T A"]:
    """The action before each step; zeros at the start."""
    return np.concatenate([np.zeros_like(seen.actions[:, :1]), seen.actions[:, :-1]], axis=1)


def cut(seen: Transcript, wanted: Float[np.ndarray, "E T A"], steps: int) -> Sequences:
    """Cut episodes into sequences of `steps` steps."""
    stretches = []
    for start in range(0, seen.actions.shape[1], steps):
        left = np.clip(seen.lengths - start, 0, steps)
        keep, stretch = left > 0, slice(start, start + steps)
        arrays = (seen.observations[:, :-1], previous(seen), wanted)
        observations, before, then = (_pad(array[keep, stretch], steps) for array in arrays)
        stretches.append(Sequences(observations, before, then, left[keep]))
    return join(*stretches)


def join(*parts: Sequences) -> Sequences:
    """All sequences of all parts."""
    if len(parts) == 1:
        return parts[0]
    return Sequences(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _pad(array: np.ndarray, steps: int) -> np.ndarray:
    short = steps - array.shape[1]
    return np.pad(array, [(0, 0), (0, short)] + [(0, 0)] * (array.ndim - 2))
