"""Between the A numbers in [-1, 1] of an agent and what a Gymnasium environment takes.

| action space | what -1 to 1 becomes |
|---|---|
| Box with both bounds | low to high, linearly |
| Box with a lower bound only | low to low + 2 |
| Box with an upper bound only | high - 2 to high |
| Box without bounds | -1 to 1: passed on |
| Box of integers or booleans | the integers between these ends, an equal share of [-1, 1] for each |
| Discrete (A) | the place of the largest of A numbers |
| MultiDiscrete | the same for each choice, whose numbers follow one another |
| MultiBinary (n) | n choices of two: off and on |

Each dimension of a Box has a kind of its own. A bound as large as the largest float32 or int32, which some
environments write for infinity, is none; half of the largest float32 is enough, since a width must be
finite as well. What comes out lies in the space: numbers outside [-1, 1] count as the nearest end, except
where there are no bounds. Imports no JAX, so that worker processes start fast.
"""

import abc
import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Float

from sensorium.errors import ConfigError


class EntityBox(spaces.Box):
    """A Box (N, F) of entities, in which a row of NaN is absent."""

    def contains(self, x: Any) -> bool:
        """Check whether an array lies in the space, but for rows that are absent."""
        if not isinstance(x, np.ndarray) or x.shape != self.shape:
            return False
        absent = np.isnan(x).all(axis=1, keepdims=True)
        return super().contains(np.where(absent, self.low, x).astype(x.dtype))


CHOICES = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
"""Spaces of discrete choices: an action is their logits."""
Number = int | float


def check_spaces(name: str, env: gymnasium.Env) -> None:
    """Check whether agents can work with an environment.

    Raises:
        ConfigError: Its observations are no number at all, or its actions of a space that no rule makes of
            numbers.
    """
    observations, actions = env.observation_space, env.action_space
    assert isinstance(observations, spaces.Box)  # see `observations.lay_out`
    if not isinstance(actions, spaces.Box | CHOICES):
        raise ConfigError(
            f"{name} takes actions of a {type(actions).__name__}; agents act in a Box, a Discrete, a "
            "MultiDiscrete or a MultiBinary."
        )
    if not observations.shape or not math.prod(observations.shape):
        raise ConfigError(
            f"{name} observes a Box of shape {observations.shape}; agents need at least one number, in "
            "a shape such as (1,)."
        )
    if not num_actions(actions):
        raise ConfigError(
            f"{name} takes actions of shape {actions.shape}; agents need at least one number to choose."
        )


def actions_of(space: gymnasium.Space) -> int | tuple[int, ...]:
    """Return A: how many numbers in [-1, 1] a policy gives; or how many options each of its choices has."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(space.nvec.reshape(-1).tolist())
    if isinstance(space, spaces.MultiBinary):
        return (2,) * math.prod(space.shape)
    assert isinstance(space, spaces.Box)
    return math.prod(space.shape)


def num_actions(space: gymnasium.Space) -> int:
    """Return A: how many numbers a policy gives."""
    actions = actions_of(space)
    return actions if isinstance(actions, int) else sum(actions)


def action_map(space: gymnasium.Space) -> "ActionMap":
    """Return the map between [-1, 1] and a space that passed `check_spaces`."""
    if isinstance(space, CHOICES):
        return _ToChoices(space)
    assert isinstance(space, spaces.Box)
    return _ToReals(space) if space.dtype.kind == "f" else _ToIntegers(space)


class ActionMap(abc.ABC):
    """Between numbers in [-1, 1] and the actions of L environments, both ways."""

    def to_env(self, actions: Float[np.ndarray, "L A"]) -> np.ndarray:
        """Map numbers in [-1, 1] to what L environments take: L, and the shape of one action.

        Raises:
            ConfigError: The numbers are NaN or infinite.
        """
        _check_finite(actions)
        return self._to_env(actions)

    def from_env(self, actions: np.ndarray) -> Float[np.ndarray, "L A"]:
        """Map actions back to the numbers in [-1, 1] that become them: the inverse.

        An integer becomes the middle of its share, exactly as long as there are at most 2^24. An action
        that nothing in [-1, 1] becomes counts as the nearest that something does. Where there is but one
        action, it is 0.

        Args:
            actions: L, and the shape of one.

        Raises:
            ConfigError: They are NaN or infinite, or of another space.
        """
        actions = np.asarray(actions)
        _check_finite(actions)
        return self._from_env(actions).astype(np.float32)

    @abc.abstractmethod
    def _to_env(self, actions: Float[np.ndarray, "L A"]) -> np.ndarray: ...

    @abc.abstractmethod
    def _from_env(self, actions: np.ndarray) -> np.ndarray: ...


class _ToChoices(ActionMap):
    def __init__(self, space: gymnasium.Space):
        options = actions_of(space)
        assert isinstance(options, tuple)
        self._shape, self._dtype = space.shape or (), space.dtype or np.dtype(np.int64)
        self._start = np.reshape(getattr(space, "start", 0), -1)
        self._ends = np.cumsum(options)[:-1]
        self._count = len(options)
        self._option = np.concatenate([np.arange(each) for each in options])

    def _to_env(self, actions: Float[np.ndarray, "L A"]) -> np.ndarray:
        choices = [each.argmax(axis=1) for each in np.split(actions, self._ends, axis=1)]
        values = np.stack(choices, axis=1) + self._start
        return values.astype(self._dtype).reshape(-1, *self._shape)

    def _from_env(self, actions: np.ndarray) -> np.ndarray:
        values = _rows(actions, self._count).astype(np.int64) - self._start
        place = np.split(self._option, self._ends)
        chosen = [values[:, [i]] == options for i, options in enumerate(place)]
        return np.where(np.concatenate(chosen, axis=1), 1.0, -1.0)


class _ToReals(ActionMap):
    def __init__(self, space: spaces.Box):
        self._shape, self._dtype = space.shape, space.dtype
        self._low, self._high = action_bounds(space)
        self._width = self._high - self._low
        # Where these are bounds, what is outside of them is cut at the end
        self._passed_on = (self._low == -1) & (self._high == 1)
        # The dtype may not hold all that is passed on
        largest = np.finfo(space.dtype).max
        self._lowest = np.maximum(space.low, -largest).reshape(-1)
        self._highest = np.minimum(space.high, largest).reshape(-1)

    def _to_env(self, actions: Float[np.ndarray, "L A"]) -> np.ndarray:
        actions = np.where(self._passed_on, actions, np.clip(actions, -1.0, 1.0))
        mapped = self._low + (actions + 1.0) * 0.5 * self._width
        # Also because rounding may lead past a bound
        inside = np.clip(mapped, self._lowest, self._highest)
        return inside.astype(self._dtype).reshape(-1, *self._shape)

    def _from_env(self, actions: np.ndarray) -> np.ndarray:
        within = np.clip(_rows(actions, len(self._low)), self._low, self._high)
        some = self._width > 0
        mapped = 2.0 * (within - self._low) / np.where(some, self._width, 1.0) - 1.0
        return np.where(some, np.clip(mapped, -1.0, 1.0), 0.0)


class _ToIntegers(ActionMap):
    """All in int64: numbers of uint64 that are too large for it wrap around, and back again."""

    def __init__(self, space: spaces.Box):
        self._shape, self._dtype = space.shape, space.dtype
        ends = [(int(low), int(high)) for low, high in _ends(space)]
        self._first, self._last = (
            np.array(column, space.dtype) for column in zip(*ends, strict=True)
        )
        self._count = np.array([last - first + 1 for first, last in ends], np.float64)

    def _to_env(self, actions: Float[np.ndarray, "L A"]) -> np.ndarray:
        share = (np.clip(actions, -1.0, 1.0).astype(np.float64) + 1.0) * 0.5
        place = np.minimum(np.floor(share * self._count), self._count - 1)
        values = self._first.astype(np.int64) + place.astype(np.int64)
        return values.astype(self._dtype).reshape(-1, *self._shape)

    def _from_env(self, actions: np.ndarray) -> np.ndarray:
        within = np.clip(_rows(actions, len(self._first)), self._first, self._last)
        values = within.astype(self._dtype).astype(np.int64)
        place = values - self._first.astype(np.int64)
        return 2.0 * (place + 0.5) / self._count - 1.0


def action_bounds(space: spaces.Box) -> tuple[Float[np.ndarray, " A"], Float[np.ndarray, " A"]]:
    """Return what -1 and 1 become in each dimension of a Box."""
    dtype = np.result_type(space.dtype, np.float32)
    first, last = (np.array(ends, dtype) for ends in zip(*_ends(space), strict=True))
    return first, last


def _ends(space: spaces.Box) -> list[tuple[Number, Number]]:
    """Return the ends of each dimension, in Python's numbers, which do not overflow."""
    if space.dtype.kind == "f":
        largest = min(float(np.finfo(space.dtype).max), float(np.finfo(np.float32).max) / 2)
    else:
        largest = np.iinfo(np.int32).max
    lows, highs = (bound.reshape(-1).tolist() for bound in (space.low, space.high))
    return [_ends_between(*bounds, largest) for bounds in zip(lows, highs, strict=True)]


def _ends_between(low: Number, high: Number, largest: Number) -> tuple[Number, Number]:
    below, above = low > -largest, high < largest
    if below and above:
        return low, high
    if below:
        return low, min(low + 2, high)
    if above:
        return max(low, high - 2), high
    return -1, 1


def _rows(actions: np.ndarray, count: int) -> np.ndarray:
    rows = actions.reshape(len(actions), -1)
    if rows.shape[1] != count:
        raise ConfigError(f"Actions of {rows.shape[1]} number(s) do not fit a space of {count}.")
    return rows


def _check_finite(actions: np.ndarray) -> None:
    if not np.isfinite(actions).all():
        raise ConfigError("An action must be finite numbers, got NaN or infinity.")
