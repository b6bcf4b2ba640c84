"""Returns of many episodes as a distribution: a mean alone hides that CartPole's is bimodal."""

import dataclasses
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from sensorium.errors import ConfigError

Interval = tuple[float, float]
"""Lower and upper end of a 95% interval."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """Summary statistics of a set of returns."""

    mean: float
    """Mean return."""
    std: float
    """Standard deviation over episodes."""
    iqm: float
    """Interquartile mean: the mean of the middle half."""
    ci95: Interval
    """Bootstrap interval of the mean."""
    iqm_ci95: Interval
    """Bootstrap interval of the interquartile mean."""
    solved: float | None
    """Share of the episodes that reached the world's `solved_return`; None where it has none."""


def summarise(returns: Float[np.ndarray, " episodes"], solved_return: float) -> Summary:
    """Describe returns; intervals are percentile bootstraps of 2,000 resamples, seeded.

    Args:
        returns: One number for each episode.
        solved_return: From which return on an episode is solved; infinite if the world has none.

    Raises:
        ConfigError: There are no returns.
    """
    returns = np.asarray(returns, np.float64)
    if returns.size == 0:
        raise ConfigError("There must be at least one episode to score.")
    mean, std = float(returns.mean()), float(returns.std())
    if np.ptp(returns) == 0:  # the mean of equal numbers may differ from them by rounding
        mean, std = float(returns[0]), 0.0
    return Summary(
        mean=mean,
        std=std,
        iqm=float(interquartile_mean(returns)),
        ci95=bootstrap_interval(returns, np.mean),
        iqm_ci95=bootstrap_interval(returns, interquartile_mean),
        solved=float(np.mean(returns >= solved_return)) if np.isfinite(solved_return) else None,
    )


def interquartile_mean(returns: np.ndarray, axis: int = -1) -> np.ndarray:
    """Compute the mean without the lowest and the highest quarter."""
    from scipy import stats  # here, as it takes most of a second, and training needs it never

    return np.asarray(stats.trim_mean(returns, 0.25, axis=axis))


def bootstrap_interval(
    returns: Float[np.ndarray, " episodes"], statistic: Callable[..., np.ndarray]
) -> Interval:
    """Compute the 95% percentile bootstrap interval of `statistic(returns, axis)`."""
    from scipy import stats

    if np.ptp(returns) == 0:  # one episode, or all alike: nothing to resample
        value = float(statistic(returns, axis=-1))
        return value, value
    result = stats.bootstrap(
        (returns,), statistic, n_resamples=2000, batch=500, method="percentile", rng=0
    )
    low, high = result.confidence_interval
    return float(low), float(high)


def mean_interval(scores: Float[np.ndarray, " seeds"]) -> Interval:
    """Compute the 95% interval of the mean of a few scores, by Student's t, as a bootstrap's is too short."""
    from scipy import stats

    half = float(stats.sem(scores) * stats.t.ppf(0.975, len(scores) - 1))
    mean = float(np.mean(scores))
    return mean - half, mean + half


def paired_difference(
    after: Float[np.ndarray, " episodes"], before: Float[np.ndarray, " episodes"]
) -> tuple[float, Interval]:
    """Compute the mean of `after - before` over the same seeds, and its bootstrap interval."""
    difference = np.asarray(after, np.float64) - np.asarray(before, np.float64)
    return float(difference.mean()), bootstrap_interval(difference, np.mean)
