"""Worlds written in JAX."""

from collections.abc import Mapping

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
from sensorium.errors import did_you_mean
from sensorium.perturbations import Identity, Perturbation
from sensorium.registry import Parts, register_all

register_all(globals(), Environment, but=(Perturbed,))

WORLDS: Mapping[str, type[Environment]] = Parts(Environment)
"""Every registered world by its name."""


def make(
    name: str, perturbation: Perturbation | None = None, *, training: bool = False
) -> Environment:
    """Build a world.

    Args:
        name: One of `WORLDS`, such as `"CartPoleSwingUpHarder"`.
        perturbation: Of its observations; None for nothing.
        training: The variant that agents are trained in: see `Environment.for_training`.

    Returns:
        The world, wrapped in `Perturbed` if there is a perturbation.

    Raises:
        UnknownNameError: There is no such world.
        ConfigError: Training is asked for in a world that has no variant for it.
    """
    if name not in WORLDS:
        raise did_you_mean("world", name, WORLDS)
    world = WORLDS[name]()
    world = world.for_training() if training else world
    if perturbation is None or perturbation == Identity():
        return world
    return Perturbed(world, perturbation)
