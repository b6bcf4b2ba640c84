"""Our worlds under Gymnasium's names: `sensorium/CartPoleSwingUpHarder-v0` and so on.

`import sensorium` registers them, so nothing here may import JAX: an environment is named by a string, and
imported when it is made.
"""

import gymnasium

MAX_STEPS = {
    "CartPoleSwingUpHarder": 1000,
    "CarRacing": 1000,
    "CarRacingRoad": 1000,
    "Entities": 20,
}
"""`max_steps` of every world of `sensorium.envs`, by its name."""
TAKE_COVER = "sensorium/TakeCover-v0"


def register() -> None:
    """Register every world as `sensorium/NAME-v0`; twice does no harm."""
    for name, max_steps in MAX_STEPS.items():
        identifier = f"sensorium/{name}-v0"
        if identifier not in gymnasium.registry:
            gymnasium.register(
                identifier,
                entry_point="sensorium.bridges.to_gymnasium:WorldEnv",
                kwargs={"world": name},
                max_episode_steps=max_steps,
            )
    # On the host, with the extra `doom`
    if TAKE_COVER not in gymnasium.registry:
        gymnasium.register(
            TAKE_COVER,
            entry_point="sensorium.bridges.take_cover:TakeCover",
            max_episode_steps=2100,
        )
