"""Twins of experts of images: which student, and how it learns.

- Where episodes are a few, over and over, as in Atari games without chance, a student without a memory learns
  them by heart from whole episodes of the expert (behaviour cloning).
- Where most patches are alike, as on Atari's screens, they do not tell where they are: the student has a
  memory, and learns by DAgger on a buffer of long rounds.
- Elsewhere it has a memory too, and DAgger corrects it after each 20 steps.

Where most patches are alike, equal ones are merged (`distinct_patches`).
"""

import dataclasses
from typing import Any, Literal, NamedTuple

from sensorium.errors import ConfigError
from sensorium.policies import KeyMap, Reading, VisionAttentionNeuronConfig
from sensorium.recipes.pong import BY_HEART, LONG_ROUNDS, REMEMBERING, SMALL_POLICY
from sensorium.training import DaggerConfig
from sensorium.types import ObservationSpec, shape_of

Size = Literal["standard", "wide"]
"""Of a student."""

_PATCH_SIZES = (6, 7, 8, 5, 4, 10, 3)  # pixels, the best first

_CORRECTED = VisionAttentionNeuronConfig(
    num_queries=16,
    message_size=32,
    motion_scale=10.0,
    reading=Reading.WHOLE,
    hidden_rows=0,
    key_map=KeyMap.NLA_INVARIANT,
)
_WIDER: dict[VisionAttentionNeuronConfig, dict[str, Any]] = {
    SMALL_POLICY: dict(num_queries=400, reader_size=512),
    REMEMBERING: dict(num_queries=64, hidden_size=256),
    _CORRECTED: dict(num_queries=32, reader_size=64, hidden_size=64),
}


class Training(NamedTuple):
    """How a student learns."""

    trainer: DaggerConfig
    generations: int
    test_every: int
    """Generations between tests, which take long where episodes do."""


def student_of_images(
    size: Size, spec: ObservationSpec, distinct_patches: int | None, few_episodes: bool
) -> VisionAttentionNeuronConfig:
    """Return the student.

    Args:
        size: Of it.
        spec: Of the images.
        distinct_patches: See `Measured.distinct_patches`.
        few_episodes: See `Measured.few_episodes`.

    Raises:
        ConfigError: The images do not divide into patches.
    """
    student = SMALL_POLICY if few_episodes else REMEMBERING if distinct_patches else _CORRECTED
    wider = _WIDER[student] if size == "wide" else {}
    student = dataclasses.replace(student, **wider)
    return dataclasses.replace(
        student, patch_size=patch_size(spec), distinct_patches=distinct_patches
    )


def training_on_images(distinct_patches: int | None, few_episodes: bool, longest: int) -> Training:
    """Return how the student learns.

    Args:
        distinct_patches: See `Measured.distinct_patches`.
        few_episodes: See `Measured.few_episodes`.
        longest: Steps of the expert's longest episode.
    """
    if few_episodes:
        return Training(_by_heart(longest), generations=40, test_every=8)
    if distinct_patches:
        return Training(_remembering(), generations=12, test_every=3)
    return Training(_corrected(), generations=100, test_every=4)


def _by_heart(longest: int) -> DaggerConfig:
    """Set up behaviour cloning, as of Pong."""
    return dataclasses.replace(BY_HEART, rollout_steps=min(longest, BY_HEART.rollout_steps))


def _remembering() -> DaggerConfig:
    """Set up DAgger as of Pong, in smaller steps, from an expert that tells actions only."""
    return dataclasses.replace(
        LONG_ROUNDS,
        num_rounds=2,
        buffer_rounds=30,
        beta_generations=0,
        num_batches=64,
        privileged_coef=0.0,
    )


def _corrected() -> DaggerConfig:
    """Set up DAgger that corrects the student before its errors add up: see docs/experiments.md."""
    return DaggerConfig(
        num_envs=16,
        rollout_steps=20,
        num_rounds=50,
        buffer_rounds=1,
        num_batches=1,
        batch_size=16,
        num_steps=20,
        window=20,
        beta_generations=5,
        learning_rate=1e-3,
        ema_decay=0.99,
    )


def patch_size(spec: ObservationSpec) -> int:
    """Return the best size of patches that divide images; ConfigError if none does."""
    height, width, _ = shape_of(spec)
    sizes = [size for size in _PATCH_SIZES if height % size == width % size == 0]
    if not sizes:
        raise ConfigError(
            f"Images of {height} x {width} pixels divide into no patches of 3 to 10 pixels; a wrapper of "
            "Gymnasium (ResizeObservation) makes them 84 x 84."
        )
    return sizes[0]
