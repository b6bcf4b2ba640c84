"""Perturbations as Gymnasium wrappers, for any environment with a flat Box of observations.

```python
env = PerturbObservation(gymnasium.make("Pendulum-v1"), compose(NoiseChannels(5), Shuffle()))
```
"""

from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces

from sensorium.errors import ConfigError
from sensorium.perturbations import Perturbation


class PerturbObservation(gymnasium.Wrapper):
    """Every observation passes through a perturbation, drawn anew at each reset.

    The seed given to `reset` decides the perturbation as well as the environment.
    """

    def __init__(self, env: gymnasium.Env, perturbation: Perturbation):
        """Wrap an environment.

        Raises:
            ConfigError: Observations are not a flat Box, or too few for the perturbation.
        """
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise ConfigError(
                f"PerturbObservation needs a flat Box of observations, {env} has {space}."
            )
        self.perturbation = perturbation
        self._num_sensors = space.shape[0]
        channels = perturbation.num_channels(self._num_sensors)
        self.observation_space = spaces.Box(-np.inf, np.inf, (channels,), np.float32)
        self._apply = jax.jit(perturbation.apply)
        self._key = jax.random.key(0)
        self._state: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Reset the environment, and draw the perturbation of this episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self._key = jax.random.key(seed)
        self._state = self.perturbation.init(self._next_key(), self._num_sensors)
        return self._perturb(observation), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        """Step the environment and perturb what it shows."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._perturb(observation), reward, terminated, truncated, info

    def _perturb(self, observation: Any) -> np.ndarray:
        readings = np.asarray(observation, np.float32)
        channels, self._state = self._apply(self._next_key(), self._state, readings)
        return np.asarray(channels)

    def _next_key(self) -> jax.Array:
        self._key, key = jax.random.split(self._key)
        return key
