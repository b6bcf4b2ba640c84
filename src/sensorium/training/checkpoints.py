"""Checkpoints of a run: the whole state, so that a resumed run goes on bit for bit."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from sensorium.policies import Policy
from sensorium.serialisation import load_pytree, read_header, save_pytree
from sensorium.types import PyTree

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

    seconds: float
    """Training time so far, over all sessions."""


def save_checkpoint(
    directory: Path, progress: Progress, recipe: dict[str, Any], clock: Clock
) -> None:
    """Write `last.safetensors` atomically; WriteError leaves the checkpoint of before."""
    header = {
        "recipe": recipe,
        "generation": int(progress.generation),
        "seconds": clock.seconds,
    }
    save_pytree(directory / LAST, progress, header)


def load_checkpoint(directory: Path, like: Progress) -> tuple[Progress, Clock]:
    """Read `last.safetensors` into the structure of `like`.

    Raises:
        AgentFileError: There is none, it is damaged, or it is of another recipe.
    """
    header = read_header(directory / LAST)
    progress = load_pytree(directory / LAST, like)
    return progress, Clock(seconds=float(header["seconds"]))


def first_progress(trainer_state: PyTree, candidate: Policy) -> Progress:
    """Before the first generation."""
    return Progress(
        trainer_state, candidate, jnp.asarray(-jnp.inf, jnp.float32), jnp.zeros((), jnp.int32)
    )
