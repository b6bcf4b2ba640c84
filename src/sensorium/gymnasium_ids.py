"""Our worlds under Gymnasium's names: `sensorium/CartPoleSwingUpHarder-v0` and so on.

`import sensorium` registers them, so nothing here may import JAX: an environment is named by a string, and
imported when it is made.
"""

from typing import Any

import gymnasium

MAX_STEPS = {
    "Arm": 120,
    "CartPoleMotors": 1000,
    "CartPoleSwingUpHarder": 1000,
    "CarRacing": 1000,
    "CarRacingRoad": 1000,
    "Entities": 20,
    "Thrusters": 200,
}
"""`max_steps` of every world of `sensorium.envs`, by its name."""
TAKE_COVER, TAKE_COVER_STEPS = "sensorium/TakeCover-v0", 2100
"""DoomTakeCover, on the host, with the extra `doom`."""
WALKER, WALKER_STEPS = "sensorium/Walker-v0", 1000
"""Bodies with any number of legs, on the host, with the extra `mujoco`."""


def register() -> None:
    """Register every world as `sensorium/NAME-v0`; twice does no harm."""
    for name, max_steps in MAX_STEPS.items():
        _register(f"sensorium/{name}-v0", "to_gymnasium:WorldEnv", max_steps, world=name)
    _register(TAKE_COVER, "take_cover:TakeCover", TAKE_COVER_STEPS)
    _register(WALKER, "walker:Walker", WALKER_STEPS)


def _register(identifier: str, made_by: str, max_steps: int, **arguments: Any) -> None:
    if identifier not in gymnasium.registry:
        gymnasium.register(
            identifier,
            entry_point=f"sensorium.bridges.{made_by}",
            kwargs=arguments,
            max_episode_steps=max_steps,
        )
