"""Checkpoints of a run: the whole state, so that a run resumes bit for bit."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from sensorium.errors import AgentFileError
from sensorium.policies import Policy
from sensorium.serialisation import format_json, load_pytree, parse_json, read_header, save_pytree
from sensorium.types import PyTree

_NOTHING = object()  # in place of a setting that a recipe does not have
_LONGEST = 60  # characters of a setting in a sentence
LAST = "last.safetensors"
BEST = "best.safetensors"


class Progress(NamedTuple):
    """All that changes during a run; what is not in here is in the recipe."""

    trainer: PyTree
    best: Policy
    """The candidate with the best test so far."""
    best_score: Array
    generation: Array


@dataclasses.dataclass(frozen=True)
class Clock:
    """Facts of a run that no result depends on."""

    seconds: float = 0.0
    """Training time of the stage so far, over all sessions."""
    env_steps: int = 0
    """Environment steps that its training has simulated."""


def save_checkpoint(
    directory: Path, progress: Progress, header: dict[str, Any], clock: Clock
) -> None:
    """Write `last.safetensors` atomically; after a WriteError the previous checkpoint is intact."""
    facts = {"generation": int(progress.generation), **dataclasses.asdict(clock)}
    save_pytree(directory / LAST, progress, header | facts)


def stage_of_checkpoint(directory: Path, recipe: dict[str, Any]) -> str | None:
    """Return the stage that `last.safetensors` is of; None if there is no such file.

    Args:
        directory: Of the run.
        recipe: As the run's folder has it.

    Raises:
        AgentFileError: It is damaged, or of another recipe.
    """
    file = directory / LAST
    if not file.exists():
        return None
    header = read_header(file)
    seconds, stage = header.get("seconds"), header.get("stage")
    timed = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if "recipe" not in header or not timed or not isinstance(stage, str):
        raise AgentFileError(f"{file} is no checkpoint: its header lacks recipe, stage or time.")
    check_recipe(file, header, recipe)
    return stage


def load_checkpoint(directory: Path, like: Progress) -> tuple[Progress, Clock]:
    """Read `last.safetensors` into the structure of `like`, what its stage begins with.

    Raises:
        AgentFileError: It is damaged, or of another architecture.
    """
    file = directory / LAST
    header = read_header(file)
    clock = Clock(float(header["seconds"]), int(header.get("env_steps", 0)))
    return load_pytree(file, like), clock


def check_recipe(file: Path, header: dict[str, Any], recipe: dict[str, Any]) -> None:
    """Raise AgentFileError unless a file was trained by the recipe in the folder of its run."""
    if changed := _difference(header.get("recipe"), parse_json(format_json(recipe))):
        setting, trained, now = changed
        raise AgentFileError(
            f"{file} was trained with {setting} {trained}, but recipe.json says {now}; put that back, "
            f"or begin another run with `sensorium train RECIPE --start {file}`."
        )


def _difference(one: Any, other: Any, name: str = "") -> tuple[str, str, str] | None:
    """Find the first setting in which two recipes differ, and both values; None if they are the same."""
    if isinstance(one, dict) and isinstance(other, dict):
        for field in (*one, *(field for field in other if field not in one)):
            path = f"{name}.{field}" if name else field
            if found := _difference(one.get(field, _NOTHING), other.get(field, _NOTHING), path):
                return found
        return None
    if isinstance(one, list) and isinstance(other, list):
        pairs = enumerate(itertools.zip_longest(one, other, fillvalue=_NOTHING))
        each = (_difference(*pair, f"{name}[{place}]") for place, pair in pairs)
        return next((difference for difference in each if difference), None)
    if one == other and isinstance(one, bool) == isinstance(other, bool):
        return None
    return repr(name or "recipe"), _written(one), _written(other)


def _written(setting: Any) -> str:
    """Write a setting for a sentence: the beginning of a long one."""
    if setting is _NOTHING:
        return "nothing"
    text = format_json(setting)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def first_progress(trainer_state: PyTree, candidate: Policy) -> Progress:
    """Return the progress before the first generation."""
    return Progress(
        trainer_state, candidate, jnp.asarray(-jnp.inf, jnp.float32), jnp.zeros((), jnp.int32)
    )
