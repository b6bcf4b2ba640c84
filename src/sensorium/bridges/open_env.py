"""Open a Gymnasium environment by its id. Imports no JAX, so that worker processes start fast."""

import gymnasium

from sensorium.bridges import bullet, fast_car_racing
from sensorium.bridges.checked import checked, described
from sensorium.bridges.observations import in_a_row
from sensorium.bridges.spaces import check_spaces
from sensorium.errors import ConfigError, SensoriumError, did_you_mean


def open_env(
    name: str, training_reward: bool = False, render_mode: str | None = None
) -> gymnasium.Env:
    """Open an environment that agents can work with; what it returns is checked, see `checked`.

    Args:
        name: As `gymnasium.make` takes it: `"Pendulum-v1"`, or `"module:Name-v0"`.
        training_reward: Pay the reward that agents are trained with, where there is one for that.
        render_mode: As `gymnasium.make` takes it; `rgb_array` for images.

    Raises:
        UnknownNameError: There is no such environment; the nearest names are given.
        MissingExtraError: It needs packages that are not installed.
        ConfigError: It cannot be opened, or its spaces are of a kind that agents cannot work with.
    """
    if bullet.knows(name):
        env = bullet.open_env(name, training_reward, render_mode)
    else:
        if training_reward:
            raise ConfigError(f"{name} has no reward of its own for training.")
        env = _make(name, render_mode)
    env = in_a_row(name, env)
    check_spaces(name, env)
    return checked(env)


def env_ids() -> list[str]:
    """List every id that Gymnasium has so far; a module may register more when it is imported."""
    return list(gymnasium.registry)


def _make(name: str, render_mode: str | None) -> gymnasium.Env:
    # Environments that draw nothing need not take a render mode
    drawing = {} if render_mode is None else {"render_mode": render_mode}
    try:
        env: gymnasium.Env = gymnasium.make(name, disable_env_checker=True, **drawing)
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
