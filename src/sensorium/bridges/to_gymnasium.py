"""Our worlds as Gymnasium environments, registered as `sensorium/CartPoleSwingUpHarder-v0` and so on.

`gymnasium.make` finds them wherever Sensorium is installed, through Gymnasium's plug-in entry point;
from a source tree call `register` first.
"""

from typing import Any, ClassVar

import gymnasium
import jax
import numpy as np
from gymnasium import spaces

from sensorium.envs import WORLDS, CartPoleState, CartPoleSwingUpHarder, Environment, make
from sensorium.envs.drawing import draw_cartpole
from sensorium.errors import ConfigError, ObservationError


class WorldEnv(gymnasium.Env):
    """One of our worlds behind Gymnasium's interface.

    ```python
    env = gymnasium.make("sensorium/CartPoleSwingUpHarder-v0", render_mode="rgb_array")
    observation, info = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
    ```
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 100}

    def __init__(self, world: str = CartPoleSwingUpHarder.id, render_mode: str | None = None):
        """Open a world.

        Raises:
            ConfigError: The render mode is not one of `metadata["render_modes"]`.
            UnknownNameError: There is no such world.
        """
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ConfigError(f"There is no render mode {render_mode!r}; there is 'rgb_array'.")
        self.render_mode = render_mode
        self._world: Environment = make(world)
        self._advance = jax.jit(self._world.advance)
        self._state: Any = None
        self._key = jax.random.key(0)
        shape = self._world.observation_shape
        if len(shape) == 1:
            self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)
        else:
            self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.action_space = spaces.Box(-1.0, 1.0, (self._world.num_actions,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; the same seed gives the same start."""
        super().reset(seed=seed, options=options)
        self._key = jax.random.key(int(self.np_random.integers(2**31)))
        observation, self._state = self._world.reset(self._next_key())
        return np.asarray(observation), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Advance by one step.

        Raises:
            ObservationError: The action has another shape, or holds NaN or infinity.
            ConfigError: `reset` was never called.
        """
        if self._state is None:
            raise ConfigError("Call reset before step.")
        action = np.asarray(action, np.float32)
        if action.shape != self.action_space.shape or not np.isfinite(action).all():
            raise ObservationError(
                f"An action must be {self.action_space.shape[0]} finite number(s), got {action}."
            )
        observation, self._state, reward, terminated, truncated, _ = self._advance(
            self._next_key(), self._state, action
        )
        return np.asarray(observation), float(reward), bool(terminated), bool(truncated), {}

    def render(self) -> np.ndarray | None:
        """An RGB picture, if the render mode is `rgb_array`.

        Returns:
            400 x 600 pixels; 384 x 384 where the world shows pictures itself, each pixel four times as wide.
        """
        if self.render_mode is None or self._state is None:
            return None
        if isinstance(self._state, CartPoleState):
            return draw_cartpole(self._state)
        return np.asarray(self._world.observe(self._state)).repeat(4, 0).repeat(4, 1)

    def _next_key(self) -> jax.Array:
        self._key, key = jax.random.split(self._key)
        return key


def register() -> None:
    """Register every world as `sensorium/NAME-v0`; twice does no harm."""
    for name, world in WORLDS.items():
        identifier = f"sensorium/{name}-v0"
        if identifier not in gymnasium.registry:
            gymnasium.register(
                identifier,
                entry_point="sensorium.bridges.to_gymnasium:WorldEnv",
                kwargs={"world": name},
                max_episode_steps=world.max_steps,
            )
