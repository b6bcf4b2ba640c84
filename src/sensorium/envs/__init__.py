"""Worlds written in JAX."""

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

from sensorium.envs.arm import Arm as Arm
from sensorium.envs.arm import ArmParams as ArmParams
from sensorium.envs.arm import ArmState as ArmState
from sensorium.envs.base import Environment as Environment
from sensorium.envs.base import World as World
from sensorium.envs.car_racing import CarRacing as CarRacing
from sensorium.envs.car_racing import CarRacingParams as CarRacingParams
from sensorium.envs.car_racing import CarRacingRoad as CarRacingRoad
from sensorium.envs.car_racing import CarRacingState as CarRacingState
from sensorium.envs.cartpole_swingup import CartPoleMotors as CartPoleMotors
from sensorium.envs.cartpole_swingup import CartPoleParams as CartPoleParams
from sensorium.envs.cartpole_swingup import CartPoleState as CartPoleState
from sensorium.envs.cartpole_swingup import CartPoleSwingUpHarder as CartPoleSwingUpHarder
from sensorium.envs.entities import Entities as Entities
from sensorium.envs.perturbed import Perturbed as Perturbed
from sensorium.envs.thrusters import Thrusters as Thrusters
from sensorium.envs.thrusters import ThrustersParams as ThrustersParams
from sensorium.envs.thrusters import ThrustersState as ThrustersState
from sensorium.errors import ConfigError, did_you_mean
from sensorium.perturbations import Identity, Perturbation
from sensorium.registry import Parts, register_all
from sensorium.world_names import split_options

register_all(globals(), Environment, but=(Perturbed,))

WORLDS: Mapping[str, type[Environment]] = Parts(Environment)
"""Every registered world by its name."""
_LARGEST = 2**53  # whole numbers below are numbers of floating point, too


def is_world(name: str) -> bool:
    """Check whether a name is that of one of `WORLDS`, perhaps with options."""
    return name.partition("?")[0] in WORLDS


def make(
    name: str, perturbation: Perturbation | None = None, *, training: bool = False
) -> Environment:
    """Build a world.

    Args:
        name: One of `WORLDS`, such as `"CartPoleSwingUpHarder"`; perhaps with `Environment.options`, as
            `"Thrusters?motors=64&least=64"`.
        perturbation: Of its observations; None for nothing.
        training: The variant that agents are trained in: see `Environment.for_training`.

    Returns:
        The world, wrapped in `Perturbed` if there is a perturbation.

    Raises:
        UnknownNameError: There is no such world, or option of it.
        ConfigError: An option is of another type or out of range; or training is asked for in a world that
            has no variant for it.
    """
    identifier, options = split_options(name)
    if identifier not in WORLDS:
        raise did_you_mean("world", name, WORLDS)
    world = _with(WORLDS[identifier](), options, name)
    world = world.for_training() if training else world
    if perturbation is None or perturbation == Identity():
        return world
    return Perturbed(world, perturbation)


def _with(world: Environment, options: dict[str, Any], name: str) -> Environment:
    """Return the world with options of its name."""
    changes: dict[str, Any] = {}
    for option, value in options.items():
        if option not in world.options:
            if not world.options:
                raise ConfigError(f"{name}: {world.id} has no options.")
            raise did_you_mean(f"option of {world.id}", option, world.options)
        kind = type(getattr(world, option))
        if kind is float and type(value) is int and abs(value) < _LARGEST:
            value = float(value)
        if type(value) is not kind:
            raise ConfigError(f"{name}: {option} is of type {kind.__name__}, not {value!r}.")
        changes[option] = value
    return dataclasses.replace(cast(Any, world), **changes) if changes else world
