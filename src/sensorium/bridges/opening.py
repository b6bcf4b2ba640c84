"""Open a Gymnasium environment by its id. Imports no JAX, so that worker processes start fast."""

import gymnasium

from sensorium.bridges import bullet, roadside
from sensorium.bridges.spaces import check_spaces
from sensorium.errors import ConfigError, did_you_mean


def open_env(
    name: str, training_reward: bool = False, render_mode: str | None = None
) -> gymnasium.Env:
    """Open an environment that agents can work with.

    Args:
        name: As `gymnasium.make` takes it: `"Pendulum-v1"`, or `"module:Name-v0"`.
        training_reward: Pay the reward that agents are trained with, where there is one for that.
        render_mode: As `gymnasium.make` takes it; `rgb_array` for pictures.

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
    check_spaces(name, env)
    return env


def _make(name: str, render_mode: str | None) -> gymnasium.Env:
    try:
        env: gymnasium.Env = gymnasium.make(name, disable_env_checker=True, render_mode=render_mode)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.NamespaceNotFound) as error:
        raise did_you_mean("Gymnasium environment", name, gymnasium.registry) from error
    except (gymnasium.error.Error, ImportError) as error:
        raise ConfigError(f"Gymnasium cannot open {name}: {error}") from error
    roadside.quicken(env)
    return env
