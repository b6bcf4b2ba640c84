"""What environments show that is no Box, as a row of sensors: each number of it is one.

| observation space | sensors |
|---|---|
| Discrete (n) | n, of which one reads 1 and the others 0 |
| MultiDiscrete | the same for each of its numbers |
| MultiBinary | one for each bit |
| Dict, Tuple | those of all parts, of a Dict in the order of their names |

Boxes are left as they are, but within a Dict or Tuple, where their numbers are sensors too. Imports no JAX,
so that worker processes start fast.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from gymnasium.wrappers import FlattenObservation

from sensorium.bridges.spaces import CHOICES
from sensorium.errors import ConfigError


def in_a_row(name: str, env: gymnasium.Env) -> gymnasium.Env:
    """Return an environment that shows a Box: `env`, or a wrapper that lays its numbers out in a row.

    Raises:
        ConfigError: It shows something that no rule makes numbers of: text, graphs, sequences, or images
            among other things.
    """
    space = env.observation_space
    if isinstance(space, spaces.Box):
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
    return FlattenObservation(env)


def own_space(env: gymnasium.Env) -> spaces.Space:
    """Return the space of what an environment shows before `in_a_row`."""
    while isinstance(env, gymnasium.Wrapper):
        env = env.env
        if isinstance(env, FlattenObservation):
            return env.env.observation_space
    return env.observation_space


def in_own_space(space: spaces.Space, rows: np.ndarray) -> Any:
    """Turn rows of sensors back into what the environment shows, a batch.

    Args:
        space: As of `own_space`.
        rows: One for each of L environments.

    Returns:
        An array with a leading axis L; of a Dict or Tuple one for each part.
    """
    if isinstance(space, spaces.Box):
        return rows
    return concatenate(space, each_in_own_space(space, rows), create_empty_array(space, len(rows)))


def each_in_own_space(space: spaces.Space, rows: np.ndarray) -> list[Any]:
    """Turn rows of sensors back into what each environment shows; arguments as of `in_own_space`."""
    return (
        list(rows)
        if isinstance(space, spaces.Box)
        else [spaces.unflatten(space, row) for row in rows]
    )


def sensor_names(space: spaces.Space) -> tuple[str, ...]:
    """Name the sensors that `in_a_row` makes: `position[0]`, `gear=2`; none of a Box, which says nothing."""
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
