"""Perturbations as Gymnasium wrappers, for any environment that shows a flat Box, entities or images.

```python
import gymnasium

from sensorium import NoiseChannels, Shuffle, compose
from sensorium.bridges.wrappers import PerturbObservation

env = PerturbObservation(gymnasium.make("Pendulum-v1"), compose(NoiseChannels(5), Shuffle()))
readings, _ = env.reset(seed=0)  # eight of them, in any order
```

Of images, such as CarRacing-v3's, `compose(Background("hills"), ShufflePatches())`. A matrix whose rows are
entities is first wrapped in `sensorium.bridges.observations.EntityObservation`.
"""

from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding

from sensorium.bridges.checked import check_observation, name_of
from sensorium.bridges.spaces import CHOICES, ActionMap, EntityBox, action_map, num_actions
from sensorium.errors import ConfigError
from sensorium.perturbations import Perturbation, begin
from sensorium.seeding import Seed, check_seed, key_of, stream
from sensorium.types import shape_of, spec_of


class PerturbObservation(gymnasium.Wrapper):
    """Every observation, and action if it acts on them, passes through a perturbation drawn at each reset.

    The seed given to `reset` decides the perturbation as well as the environment. Without one, each wrapper
    draws its own from the operating system, and leaves the random numbers of the environment alone.
    """

    def __init__(self, env: gymnasium.Env, perturbation: Perturbation):
        """Wrap an environment.

        Raises:
            ConfigError: Observations are neither a flat Box, entities nor images of bytes, the perturbation
                cannot be applied to them, or it perturbs actions that are neither a Box nor Discrete.
        """
        super().__init__(env)
        space = env.observation_space
        if isinstance(space, spaces.Box) and len(space.shape) == 2 and type(space) is not EntityBox:
            raise ConfigError(
                f"{env} observes a matrix of {space.shape[0]} x {space.shape[1]}: wrap it in "
                "sensorium.bridges.observations.EntityObservation if its rows are things, such as vehicles, "
                "or in gymnasium.wrappers.FlattenObservation for scalar sensors."
            )
        if not isinstance(space, spaces.Box) or len(space.shape) not in (1, 2, 3):
            raise ConfigError(
                f"PerturbObservation needs a flat Box of observations, entities or images; {env} has {space}."
            )
        if len(space.shape) == 3 and space.dtype != np.uint8:
            raise ConfigError(
                f"PerturbObservation needs images of uint8; those of {env} are {space.dtype}."
            )
        self.perturbation = perturbation
        self._shown = spec_of(space.shape)
        output_spec = perturbation.output_spec(self._shown)
        if len(space.shape) == 3:
            self.observation_space = spaces.Box(0, 255, shape_of(output_spec), np.uint8)
        else:
            box = EntityBox if len(space.shape) == 2 else spaces.Box
            self.observation_space = box(-np.inf, np.inf, shape_of(output_spec), np.float32)
        self._depth = 0
        while isinstance(env, gymnasium.Wrapper):
            self._depth += isinstance(env, PerturbObservation)
            env = env.env
        self._apply = jax.jit(perturbation.apply)
        self._actions: ActionMap | None = None
        if perturbation.perturbs_actions:
            if not isinstance(self.action_space, spaces.Box | CHOICES):
                raise ConfigError(
                    f"{str(perturbation)!r} perturbs actions of a Box or of choices; {self.env} takes "
                    f"{self.action_space}."
                )
            self._actions = action_map(self.action_space)
            self._perturb_action = jax.jit(perturbation.perturb_action)
        self._key: jax.Array | None = None  # until the first reset
        self._state: Any = None

    def reset(
        self, *, seed: Seed | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Reset the environment, and draw the perturbation of this episode.

        Raises:
            ConfigError: The seed is no whole number from 0 on.
            WorldError: The observation is not what the environment declared.
        """
        seed = None if seed is None else check_seed(seed)
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None or self._key is None:
            entropy = seeding.np_random()[1] if seed is None else seed
            # One wrapper around another is reset with the same seed, and draws something else
            self._key = stream(key_of(entropy), f"perturbation {self._depth}")
        count = 0 if self._actions is None else num_actions(self.action_space)
        self._state = begin(self.perturbation, self._next_key(), self._shown, count)
        return self._perturb(observation), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        """Step the environment and perturb what it shows; WorldError if that is not what it declared."""
        if self._actions is not None:
            given = self._actions.from_env(np.asarray(action)[None])[0]
            done, self._state = self._perturb_action(self._next_key(), self._state, given)
            (action,) = self._actions.to_env(np.asarray(done)[None])
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._perturb(observation), reward, terminated, truncated, info

    def _perturb(self, observation: Any) -> np.ndarray:
        space = self.env.observation_space
        assert isinstance(space, spaces.Box)
        shown = check_observation(space, observation, name_of(self.env))
        shown = shown.astype(self.observation_space.dtype)
        arrived, self._state = self._apply(self._next_key(), self._state, shown)
        return np.array(arrived)

    def _next_key(self) -> jax.Array:
        assert self._key is not None  # `reset` came first
        self._key, key = jax.random.split(self._key)
        return key
