"""Open a Gymnasium environment by its name. Imports no JAX, so that worker processes start fast.

A name is an id as `gymnasium.make` takes it, and options behind a `?`, joined by `&`:

| option | meaning |
|---|---|
| `observe=entities` | the rows of a matrix are entities, of which a row with NaN is absent |
| `presence=0` | with it: the feature, counted from 0, that is 0 where an entity is absent |
| `mask=KEY` | with it: the part of a Dict that is 0 where an entity is absent; its other part is the matrix |
| `observe=flat` | each number of an array is a scalar sensor |
| any other | a keyword argument of `gymnasium.make`, in JSON or as plain text |

Such as `highway_env:highway-v0?observe=entities&presence=0&config={"observation":{"type":"Kinematics"}}`.
"""

import dataclasses
import functools
from typing import Any

import gymnasium

from sensorium.bridges import atari, bullet, fast_car_racing
from sensorium.bridges.checked import checked, described
from sensorium.bridges.observations import Layout, lay_out
from sensorium.bridges.spaces import check_spaces
from sensorium.errors import ConfigError, SensoriumError, did_you_mean
from sensorium.registry import find_modules_here
from sensorium.world_names import split_options


@dataclasses.dataclass(frozen=True)
class EnvName:
    """The parts of an environment's name."""

    id: str
    """As `gymnasium.make` takes it: `"Pendulum-v1"`, or `"module:Name-v0"`."""
    layout: Layout
    """Of its observations."""
    settings: dict[str, Any]
    """Other arguments of `gymnasium.make`."""

    @classmethod
    def parse(cls, name: str) -> "EnvName":
        """Read a name.

        Raises:
            ConfigError: Options are not of the form `name=value`, or do not go together.
            UnknownNameError: There is no such way to observe.
        """
        identifier, options = split_options(name)
        observe = options.pop("observe", "")
        presence, mask = options.pop("presence", None), options.pop("mask", "")
        if observe not in ("", *_LAYOUTS):
            raise did_you_mean("way to observe", str(observe), _LAYOUTS)
        if (presence is not None or mask) and observe != "entities":
            raise ConfigError(f"{name}: presence and mask go with observe=entities.")
        if presence is not None and (type(presence) is not int or presence < 0):
            raise ConfigError(
                f"{name}: presence is the place of a feature, counted from 0, not {presence!r}."
            )
        if "render_mode" in options:
            raise ConfigError(
                f"{name}: render_mode is chosen by what is to be drawn; leave it out."
            )
        return cls(identifier, Layout(observe, presence, str(mask)), options)


_LAYOUTS = ("entities", "flat")


def open_env(
    name: str, training_reward: bool = False, render_mode: str | None = None
) -> gymnasium.Env:
    """Open an environment that agents can work with; what it returns is checked, see `checked`.

    Args:
        name: An id as `gymnasium.make` takes it, `"Pendulum-v1"` or `"module:Name-v0"`, perhaps with options.
        training_reward: Pay the reward that agents are trained with, where there is one for that.
        render_mode: As `gymnasium.make` takes it; `rgb_array` for images.

    Raises:
        UnknownNameError: There is no such environment; the nearest names are given.
        MissingExtraError: It needs packages that are not installed.
        ConfigError: It cannot be opened, or its spaces are of a kind that agents cannot work with.
    """
    parsed = EnvName.parse(name)
    make = functools.partial(_make, parsed.id, render_mode)
    if bullet.knows(parsed.id):
        open_it = functools.partial(make, parsed.settings)
        env = bullet.open_env(parsed.id, open_it, training_reward)
    else:
        if training_reward:
            raise ConfigError(f"{name} has no reward of its own for training.")
        if atari.knows(parsed.id):
            env = atari.open_game(parsed.id, parsed.settings, make)
        else:
            env = make(parsed.settings)
    env = lay_out(name, env, parsed.layout)
    check_spaces(name, env)
    return checked(env)


def env_ids() -> list[str]:
    """List every id that Gymnasium has so far; a module may register more when it is imported."""
    return list(gymnasium.registry)


def _make(name: str, render_mode: str | None, settings: dict[str, Any]) -> gymnasium.Env:
    # Environments that draw nothing need not take a render mode
    drawing = {} if render_mode is None else {"render_mode": render_mode}
    if ":" in name:
        find_modules_here()
    try:
        settings = {"disable_env_checker": True, **drawing, **settings}
        env: gymnasium.Env = gymnasium.make(name, **settings)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.NamespaceNotFound) as error:
        module, _, identifier = name.rpartition(":")
        note = f"the module {module} does not register it"
        if not module:
            note = f"register one of your own in a module, and name it module:{identifier}"
        raise did_you_mean("Gymnasium environment", name, gymnasium.registry, note) from error
    except SensoriumError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"Gymnasium cannot open {name}: {described(error)}") from error
    fast_car_racing.quicken(env)
    return env
