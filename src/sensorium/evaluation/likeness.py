"""Which sensors are alike in all but their role, so that an agent can hardly tell one from the other.

Of each sensor and episode a few features are computed: how large its readings are, how they change, and how
both go with the actions. For each pair a linear discriminant (Fisher 1936) is fitted to the differences of
their features in half of the episodes; in the other half it says which of the two is which. Two sensors that
it tells apart in about half of the episodes look alike to anybody who reads one sensor at a time.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

ALIKE = 0.75
"""Sensors that are told apart in fewer of the episodes are alike; by chance it would be half."""

_SHRINKAGE = 1e-2  # of the covariance, whose features depend on one another
_TINY = 1e-9


class Pair(NamedTuple):
    """Two sensors that are alike."""

    first: int
    second: int
    told_apart: float
    """In what share of episodes."""


def alike(
    observations: Float[np.ndarray, "E T N"],
    actions: Float[np.ndarray, "E T A"],
    lengths: Int[np.ndarray, " E"],
) -> tuple[Pair, ...]:
    """Find the pairs of sensors that look alike, least told apart first.

    Sensors that always read the same are no such pair, and neither are two that never change: to mistake
    one for the other does no harm.

    Args:
        observations: What each sensor reads in E episodes.
        actions: What was done at each step.
        lengths: Steps of each episode; what comes later is not read.

    Returns:
        The pairs; none of fewer than four episodes.
    """
    features = _features(observations, actions, lengths)
    num_episodes, num_sensors = features.shape[:2]
    if num_episodes < 4:
        return ()
    played = np.arange(observations.shape[1]) < lengths[:, None]
    readings = observations[played]
    changes = np.ptp(readings, axis=0) > _TINY
    pairs = []
    for first in range(num_sensors - 1):
        rest = np.arange(first + 1, num_sensors)
        differ = (np.abs(readings[:, [first]] - readings[:, rest]) > _TINY).any(axis=0)
        rest = rest[differ & (changes[first] | changes[rest])]
        shares = _told_apart(features[:, [first]] - features[:, rest])
        pairs += [
            Pair(first, int(second), float(share))
            for second, share in zip(rest, shares, strict=True)
            if share < ALIKE
        ]
    return tuple(sorted(pairs, key=lambda pair: pair.told_apart))


def _features(
    observations: Float[np.ndarray, "E T N"],
    actions: Float[np.ndarray, "E T A"],
    lengths: Int[np.ndarray, " E"],
) -> Float[np.ndarray, "E N F"]:
    """Describe each sensor in each episode by numbers of size about 1."""
    steps = np.arange(observations.shape[1])
    weight = (steps < lengths[:, None]) / np.maximum(lengths, 1)[:, None]
    changed = weight[:, 1:, None] * np.diff(observations, axis=1)

    def mean(values: np.ndarray) -> np.ndarray:
        return np.einsum("etn,et->en", values, weight)

    first, average = observations[:, 0], mean(observations)
    centred = observations - average[:, None]
    after = np.einsum("etn,eta->ena", changed, actions[:, :-1])
    during = np.einsum("etn,eta,et->ena", centred, actions, weight)
    moved = np.sqrt(np.einsum("etn,etn->en", changed, np.diff(observations, axis=1)))
    described = np.concatenate(
        [
            np.stack([first, average, np.sqrt(mean(observations**2)), moved], axis=-1),
            np.sqrt(mean(centred**2))[..., None],
            after,
            during,
        ],
        axis=-1,
    )
    return described / (np.sqrt(np.mean(described**2, axis=(0, 1))) + _TINY)


def _told_apart(differences: Float[np.ndarray, "E P F"]) -> Float[np.ndarray, " P"]:
    """Return in what share of episodes the sign of a discriminant of the other half is right."""
    halves = differences[::2], differences[1::2]
    right = np.zeros(differences.shape[1])
    for seen, unseen in (halves, halves[::-1]):
        average = seen.mean(axis=0)
        spread = np.einsum("epf,epg->pfg", seen - average, seen - average) / len(seen)
        size = np.trace(spread, axis1=1, axis2=2)[:, None, None] + _TINY
        spread += _SHRINKAGE * size * np.eye(spread.shape[-1])
        direction = np.linalg.solve(spread, average[..., None])[..., 0]
        right += (np.einsum("epf,pf->ep", unseen, direction) > 0).sum(axis=0)
    return right / len(differences)
