"""What agents are shown, checked: readings of sensors, entities or an image."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sensorium.errors import ConfigError, ObservationError
from sensorium.types import Image, ObservationSpec, Sensors, in_words


def check_observation(observation: Any, num_features: int | None = None) -> Sensors:
    """Return `observation` as float32 of shape (N,) or (N, F), or say what is wrong with it.

    Inside compiled code values are not known yet, so only shape and dtype are checked there.

    Args:
        observation: What claims to be readings of N sensors.
        num_features: F, if they are entities; None for scalar sensors.

    Returns:
        The same readings, float32.

    Raises:
        ObservationError: It is not a vector, or matrix of F columns, of at least one real, finite number. Of
            entities NaN is accepted: its row is absent.
    """
    traced = isinstance(observation, jax.core.Tracer)
    array = _as_array(observation)
    if array.dtype.kind in "OUS":
        raise ObservationError(
            f"An observation must be an array of numbers, got {type(observation).__name__}."
        )
    if not (jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)):
        raise ObservationError(f"An observation must hold real numbers, got dtype {array.dtype}.")
    row = () if num_features is None else (num_features,)
    if array.ndim != 1 + len(row) or array.shape[1:] != row or array.shape[0] < 1:
        what = (
            f"one matrix of N rows of {num_features} feature(s)"
            if row
            else "one vector of N sensors"
        )
        raise ObservationError(
            f"An observation must be {what}, got shape {array.shape}; batch with jax.vmap."
        )
    readings = jnp.asarray(array, jnp.float32)
    if traced:
        return readings
    wrong = jnp.isinf(readings) if row else ~jnp.isfinite(readings)
    if bool(jnp.any(wrong)):
        place = tuple(np.argwhere(np.asarray(wrong))[0])
        what = f"Feature {place[1]} of entity {place[0]}" if row else f"Sensor {place[0]}"
        raise ObservationError(f"{what} reads {readings[place]}; observations must be finite.")
    return readings


def size_of_images(
    spec: ObservationSpec, channels: tuple[int, ...], who: str = "The agent"
) -> tuple[int, int]:
    """Return height and width of the images that `spec` is of.

    Args:
        spec: What a world shows.
        channels: How many an image may have, the usual number first.
        who: Takes such images, for the sentence.

    Raises:
        ConfigError: They are no images, or have other channels.
    """
    if isinstance(spec, int) or len(spec) != 3 or spec[2] not in channels:
        usual, *others = channels
        known = f"{usual}" + "".join(f" (or {each})" for each in others)
        raise ConfigError(f"{who} takes images of height x width x {known}, not {in_words(spec)}.")
    return spec[0], spec[1]


def check_image(observation: Any, shape: tuple[int | None, int | None, int]) -> Image:
    """Return `observation` as an image of bytes, or of floats where a part is removed; or say what is wrong.

    Args:
        observation: What claims to be one.
        shape: Height, width and channels; None for any.

    Raises:
        ObservationError: It is of another shape or dtype.
    """
    array = _as_array(observation)
    fits = array.ndim == 3 and all(
        wanted in (None, side) for wanted, side in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted = " x ".join("any" if side is None else str(side) for side in shape)
        raise ObservationError(
            f"This agent takes images of {wanted} (height x width x channels), got shape {array.shape}; "
            "batch with jax.vmap."
        )
    if array.dtype != np.uint8 and not _has_gaps(array):
        scale = "multiply by 255 and " if _up_to_one(array) else ""
        raise ObservationError(
            f"An image must be of uint8, 0 to 255, got dtype {array.dtype}; {scale}convert it first."
        )
    return jnp.asarray(array)


def _as_array(observation: Any) -> Any:
    if isinstance(observation, jax.Array):
        return observation
    try:
        return np.asarray(observation)
    except ValueError as error:  # NumPy's of rows of several lengths
        raise ObservationError(
            "An observation must be one array, not rows of several lengths."
        ) from error


def _up_to_one(array: Any) -> bool:
    """Check whether these are fractions, as far as values are known: not inside compiled code."""
    known = array.dtype.kind == "f" and not isinstance(array, jax.core.Tracer)
    return known and bool(array.max(initial=0) <= 1)


def _has_gaps(array: Any) -> bool:
    """Check whether this is an image of 0 to 255 of which a part is NaN: removed."""
    if array.dtype.kind != "f" or isinstance(array, jax.core.Tracer):
        return False
    gaps = np.isnan(array)
    rest = np.where(gaps, 0, array)
    return bool(gaps.any() and rest.min() >= 0 and 1 < rest.max() <= 255)
