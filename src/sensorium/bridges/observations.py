"""What environments show, as agents take it: a row of sensors, entities, or an image.

| observation space | what agents are shown |
|---|---|
| Box (N) | N sensors |
| Box (H, W, C) of bytes | an image |
| Box (N, F) | asked about: `observe=entities` for N entities of F features, `observe=flat` for N F sensors |
| Discrete (n) | n sensors, of which one reads 1 and the others 0 |
| MultiDiscrete | the same for each of its numbers |
| MultiBinary | one sensor for each bit |
| Dict, Tuple | the sensors of all parts, of a Dict in the order of their names |

Within a Dict or Tuple, the numbers of a Box are sensors whatever its shape. Entities that are absent are rows
of NaN; what says so, a column or a mask, is read here and nowhere else. Imports no JAX, so that worker
processes start fast.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from gymnasium.wrappers import FlattenObservation
from jaxtyping import Float

from sensorium.bridges.spaces import CHOICES, EntityBox
from sensorium.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Layout:
    """How to show an observation to agents: what the options of an environment's name say."""

    observe: str = ""
    """`entities`, `flat`, or nothing, where there is no choice."""
    presence: int | None = None
    """The feature of an entity that is 0 where it is absent; None if none says so."""
    mask: str = ""
    """The part of a Dict that says which rows of its other part, a matrix, are there; empty if none does."""


class EntityObservation(gymnasium.ObservationWrapper):
    """Show a matrix as entities: a float32 array (N, F), in which a row of NaN is absent.

    Such as `EntityObservation(gymnasium.make("highway_env:highway-v0"), presence=0)`.
    """

    def __init__(self, env: gymnasium.Env, presence: int | None = None, mask: str = ""):
        """Wrap an environment.

        Args:
            env: One that shows a Box (N, F); or with `mask` a Dict of such a Box and a mask of N numbers.
            presence: The feature that is 0 where an entity is absent; None if none says so.
            mask: The part of the Dict that is 0 where an entity is absent.

        Raises:
            ConfigError: The environment shows something else, or has no such feature.
        """
        super().__init__(env)
        self._presence, self._mask, self._matrix = presence, mask, ""
        space = env.observation_space
        if mask:
            self._matrix, space = _masked(space, mask)
        if not isinstance(space, spaces.Box) or len(space.shape) != 2:
            raise ConfigError(f"Entities are the rows of a Box (N, F), not of {space}.")
        if presence is not None and presence >= space.shape[1]:
            raise ConfigError(
                f"presence={presence} is none of the {space.shape[1]} features, which count from 0."
            )
        low, high = (bound.astype(np.float32) for bound in (space.low, space.high))
        self.observation_space = EntityBox(low, high, dtype=np.float32)

    def observation(self, observation: Any) -> Float[np.ndarray, "N F"]:
        """Turn what the environment shows into entities; rows that are absent become NaN."""
        shown = observation[self._matrix] if self._mask else observation
        with np.errstate(
            over="ignore"
        ):  # the infinity that this gives is an error where it is checked
            rows = np.array(shown, np.float32)
        absent = np.isnan(rows).any(axis=1)
        if self._presence is not None:
            absent |= rows[:, self._presence] == 0
        if self._mask:
            absent |= np.reshape(observation[self._mask], -1) == 0
        rows[absent] = np.nan
        return rows


class _Flattened(FlattenObservation):
    """Flattened by `lay_out`, not by who made the environment."""


def lay_out(name: str, env: gymnasium.Env, layout: Layout | None = None) -> gymnasium.Env:
    """Return an environment that shows a Box: `env`, or a wrapper that lays out what it shows.

    Raises:
        ConfigError: It shows a matrix, and no layout says what its rows are; or something that no rule makes
            numbers of: text, graphs, sequences, or images among other things.
    """
    layout, space = layout or Layout(), env.observation_space
    if layout.observe == "entities":
        try:
            return EntityObservation(env, layout.presence, layout.mask)
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from error
    if isinstance(space, spaces.Box):
        if layout.observe == "flat":
            return _Flattened(env)
        if len(space.shape) == 2:
            raise _which_matrix(name, space)
        return env
    parts = list(_parts(space, ""))
    if not parts:
        raise ConfigError(f"{name} observes a {type(space).__name__} that holds nothing.")
    for part, where in parts:
        what = f"{name} observes a {type(space).__name__}" + (f" with {where}" if where else "")
        if isinstance(part, spaces.Box):
            if len(part.shape) == 3:
                raise ConfigError(
                    f"{what}, an image of shape {part.shape}: agents see images alone, or numbers alone; a "
                    "wrapper of Gymnasium (TransformObservation) can choose which."
                )
        elif not isinstance(part, CHOICES):
            kind = type(part).__name__
            raise ConfigError(
                f"{what}{f', a {kind}' if where else ''}; agents need numbers: a Box, a Discrete, a "
                "MultiDiscrete, a MultiBinary, or a Dict or Tuple of these."
            )
    return _Flattened(env)


def own_space(env: gymnasium.Env) -> spaces.Space:
    """Return the space of what an environment shows before `lay_out`."""
    inner = env
    while isinstance(inner, gymnasium.Wrapper):
        if isinstance(inner, _Flattened | EntityObservation):
            return inner.env.observation_space
        inner = inner.env
    return env.observation_space


def in_own_space(space: spaces.Space, shown: np.ndarray, layout: Layout | None = None) -> Any:
    """Turn what agents are shown back into what the environment shows, a batch.

    Entities that a feature or a mask says are absent read zero in all features.

    Args:
        space: As of `own_space`.
        shown: Rows of sensors, entities or images, one for each of L environments.
        layout: As of `lay_out`.

    Returns:
        An array with a leading axis L; of a Dict or Tuple one for each part.
    """
    if isinstance(space, spaces.Box):
        return _in_box(space, shown, layout or Layout())
    each = each_in_own_space(space, shown, layout)
    return concatenate(space, each, create_empty_array(space, len(shown)))


def each_in_own_space(
    space: spaces.Space, shown: np.ndarray, layout: Layout | None = None
) -> list[Any]:
    """Turn what agents are shown back into what each environment shows; arguments as of `in_own_space`."""
    layout = layout or Layout()
    if isinstance(space, spaces.Box):
        return list(_in_box(space, shown, layout))
    if not layout.mask:
        return [spaces.unflatten(space, row) for row in shown]
    matrix, box = _masked(space, layout.mask)
    assert isinstance(space, spaces.Dict)  # see `_masked`
    mask = space[layout.mask]
    present = ~np.isnan(shown).any(axis=2)
    return [
        {
            matrix: np.nan_to_num(rows).astype(box.dtype),
            layout.mask: there.reshape(mask.shape).astype(mask.dtype),
        }
        for rows, there in zip(shown, present, strict=True)
    ]


def _in_box(space: spaces.Box, shown: np.ndarray, layout: Layout) -> np.ndarray:
    if layout.presence is not None:
        return np.nan_to_num(shown)
    return shown.reshape(len(shown), *space.shape) if layout.observe == "flat" else shown


def _masked(space: spaces.Space, mask: str) -> tuple[str, spaces.Box]:
    """Return the name and the space of the matrix beside a mask; ConfigError if there is none."""
    parts = space.spaces if isinstance(space, spaces.Dict) else {}
    others = [name for name in parts if name != mask]
    if mask not in parts or len(others) != 1:
        raise ConfigError(f"mask={mask} is for a Dict of a matrix and {mask!r}, not for {space}.")
    box = parts[others[0]]
    if not isinstance(box, spaces.Box) or len(box.shape) != 2:
        raise ConfigError(f"Entities are the rows of a Box (N, F), not of {box}.")
    if np.prod(parts[mask].shape or (1,), dtype=int) != box.shape[0] or not isinstance(
        parts[mask], spaces.Box | spaces.MultiBinary
    ):
        raise ConfigError(
            f"The mask {mask!r} must be {box.shape[0]} numbers, one for each row, not {parts[mask]}."
        )
    return others[0], box


def _which_matrix(name: str, space: spaces.Box) -> ConfigError:
    """Build the error for a matrix that may be anything."""
    more = "&" if "?" in name else "?"
    rows, columns = space.shape
    grey = ""
    if space.dtype == np.uint8:
        grey = "; an image in grey needs a third axis, of length 1"
    return ConfigError(
        f"{name} observes a matrix of {rows} x {columns}: append {more}observe=entities if its rows are "
        f"things, such as vehicles, or {more}observe=flat for {rows * columns} scalar sensors{grey}."
    )


def sensor_names(space: spaces.Space) -> tuple[str, ...]:
    """Name the sensors that `lay_out` makes: `position[0]`, `gear=2`; none of a Box, which says nothing."""
    if isinstance(space, spaces.Box):
        return ()
    return tuple(name for part, where in _parts(space, "") for name in _names(part, where))


def _parts(space: spaces.Space, where: str) -> Iterator[tuple[spaces.Space, str]]:
    """Go through all parts that are no Dict or Tuple, with their places."""
    named: Sequence[tuple[Any, spaces.Space]] = ()
    if isinstance(space, spaces.Dict):
        named = tuple(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        named = tuple(enumerate(space.spaces))
    else:
        yield space, where
    for name, part in named:
        yield from _parts(part, f"{where}.{name}" if where else str(name))


def _names(part: spaces.Space, where: str) -> Iterator[str]:
    where = where or "value"
    if isinstance(part, spaces.Discrete):
        yield from (f"{where}={option}" for option in range(part.start, part.start + part.n))
    elif isinstance(part, spaces.MultiDiscrete):
        starts = np.broadcast_to(part.start, part.nvec.shape)
        for place in np.ndindex(part.nvec.shape):
            at = f"{where}[{', '.join(map(str, place))}]"
            first, count = int(starts[place]), int(part.nvec[place])
            yield from (f"{at}={option}" for option in range(first, first + count))
    elif part.shape == () or part.shape == (1,):
        yield where
    else:
        for place in np.ndindex(*(part.shape or ())):
            yield f"{where}[{', '.join(map(str, place))}]"
