"""Shape letters and array aliases shared by every public signature, and what observations a shape stands for.

The letters used in shape annotations:

| letter | meaning |
|---|---|
| `N` | sensors (channels of an observation), or entities |
| `F` | features of an entity |
| `M` | queries, and so the length of the code |
| `A` | actions |
| `H` | hidden units of the LSTM that every sensor carries |
| `D` | message size, the width of queries and keys |
| `T` | time steps |
| `P` | population, one set of parameters each |
| `R` | rollouts, one episode each |
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt8

Key = PRNGKeyArray
"""A JAX random key; each is consumed once."""

Keys = jax.Array
"""Many random keys, along a leading axis."""

Scalar = Float[Array, ""]
Flag = Bool[Array, ""]

Observation = Float[Array, " N"]
"""Readings of N scalar sensors, in any order."""

Entities = Float[Array, "N F"]
"""N entities (vehicles, robots, bins) of F features each, in any order. A row of NaN is absent."""

Sensors = Observation | Entities
"""What agents of sensors read: a number, or a row of features, from each."""

Image = UInt8[Array, "height width channels"] | Float[Array, "height width channels"]
"""An image that a world shows: bytes, or the same numbers as floats."""

Sensed = Observation | Entities | Image
"""What a world shows."""

ObservationSpec = int | tuple[int, ...]
"""What observations are: N scalar sensors, entities (N, F), or images of a shape."""

Action = Float[Array, " A"]
"""What the agent does: numbers in [-1, 1], or the logits of choices."""

Actions = int | tuple[int, ...]
"""What a world takes: A numbers in [-1, 1], or how many options each of its choices has."""

Code = Float[Array, " M"]
"""The permutation-invariant summary of the observation."""

Attention = Float[Array, "M N"]
"""How much each of the M queries attends to each of the N sensors."""

Order = Int[Array, " N"]
"""`order[i]` is the sensor that arrives in place `i`."""

PyTree = Any
"""Nested containers of arrays, as JAX understands them."""


def spec_of(shape: tuple[int, ...]) -> ObservationSpec:
    """Return the specification of observations of a shape: N for (N,), the shape itself for all others."""
    return shape[0] if len(shape) == 1 else shape


def in_words(spec: ObservationSpec) -> str:
    """Describe observations for a sentence; arrays that are no images come with what can be done about it."""
    if isinstance(spec, int):
        return f"{spec} scalar sensor(s)"
    if len(spec) == 3:
        return f"images of shape {spec}"
    if len(spec) == 2:
        return f"{spec[0]} entities of {spec[1]} feature(s)"
    return f"arrays of shape {spec}, of which ?observe=flat behind an environment's name makes scalar sensors"


def num_sensors_of(spec: ObservationSpec) -> int | None:
    """Return N of scalar sensors or entities; None of images and other arrays."""
    if isinstance(spec, int):
        return spec
    return spec[0] if len(spec) == 2 else None


def with_num_sensors(spec: ObservationSpec, count: int) -> ObservationSpec:
    """Return the specification of `count` sensors of the same kind as those of `spec`."""
    return count if isinstance(spec, int) else (count, *spec[1:])


def as_vector(observation: Sensors) -> Float[Array, " numbers"]:
    """Return all readings in a row, zeros for absent entities: what knows entities by their places reads."""
    if observation.ndim == 1:
        return observation
    absent = jnp.isnan(observation).any(axis=1, keepdims=True)
    return jnp.where(absent, 0.0, observation).reshape(-1)


def levels(readings: Any, spec: ObservationSpec) -> np.ndarray:
    """Return one number for each sensor (..., N): of entities the largest feature, 0 of absent ones."""
    readings = np.asarray(readings)
    return readings if isinstance(spec, int) else np.abs(np.nan_to_num(readings)).max(axis=-1)


def digest_levels(digest: Any, inputs: int) -> Float[np.ndarray, "K motors"]:
    """Return what each motor seems to change, relative to the largest such number of its kind.

    Where each of N inputs has several channels, channel `k * N + i` is of kind k, with units of its own.
    """
    digest = np.asarray(digest)
    kinds = digest.reshape(
        -1, inputs if len(digest) % inputs == 0 else len(digest), digest.shape[1]
    )
    largest = np.maximum(np.abs(kinds).max(axis=(1, 2), keepdims=True), 1e-6)
    return (kinds / largest).reshape(digest.shape)


def in_colour(images: Any) -> UInt8[np.ndarray, "*T height width 3"]:
    """Return images of bytes, grey or in colour, with red, green and blue."""
    images = np.asarray(images, np.uint8)
    return np.repeat(images, 3 // images.shape[-1], axis=-1)


def count_of(actions: Actions) -> int:
    """Count the numbers of an action, A: of choices, all their options."""
    return actions if isinstance(actions, int) else sum(actions)


def shape_of(spec: ObservationSpec) -> tuple[int, ...]:
    """Return the shape of observations: the inverse of `spec_of`."""
    return (spec,) if isinstance(spec, int) else spec
