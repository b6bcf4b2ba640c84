"""Our worlds as Gymnasium environments.

`import sensorium` registers them as `sensorium/CartPoleSwingUpHarder-v0` and so on, see
`sensorium.gymnasium_ids`; `gymnasium.make("sensorium:sensorium/CartPoleSwingUpHarder-v0")` imports it too.
"""

from typing import Any, ClassVar

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from sensorium.bridges.spaces import EntityBox, action_map
from sensorium.envs import CartPoleSwingUpHarder, Environment, make
from sensorium.errors import ConfigError, ObservationError
from sensorium.seeding import Seed, check_seed, key_of


class WorldEnv(gymnasium.Env):
    """One of our worlds behind Gymnasium's interface.

    ```python
    import gymnasium, sensorium

    env = gymnasium.make("sensorium/CartPoleSwingUpHarder-v0", render_mode="rgb_array")
    observation, info = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
    ```
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}

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
        self.metadata = {**self.metadata, "render_fps": self._world.steps_per_second}
        self._advance = jax.jit(self._world.advance)
        self._state: Any = None
        self.observation_space, self.action_space = _spaces_of(self._world)

    def reset(
        self, *, seed: Seed | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; the same seed gives the same start.

        Raises:
            ConfigError: The seed is no whole number from 0 on.
        """
        super().reset(seed=None if seed is None else check_seed(seed), options=options)
        self._key = _drawn_key(self.np_random)
        observation, self._state = self._world.reset(self._next_key())
        return np.array(observation), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Advance by one step.

        Raises:
            ObservationError: The action has another shape, or holds NaN or infinity.
            ConfigError: `reset` was never called.
        """
        if self._state is None:
            raise ConfigError("Call reset before step.")
        chosen = _for_world(action, self.action_space)
        if chosen is None:
            expected = self.action_space
            if isinstance(expected, spaces.Box):
                expected = f"{expected.shape[0]} finite number(s)"
            raise ObservationError(f"An action must be {expected}, got {action}.")
        observation, self._state, reward, terminated, truncated, _ = self._advance(
            self._next_key(), self._state, chosen
        )
        return np.array(observation), float(reward), bool(terminated), bool(truncated), {}

    def render(self) -> np.ndarray | None:
        """Return an RGB image as the world draws it, if it does and the render mode is `rgb_array`.

        Returns:
            400 x 600 pixels of cart-pole, 384 x 384 of CarRacing.
        """
        if self.render_mode is None or self._state is None:
            return None
        return self._world.draw(self._state)

    def _next_key(self) -> jax.Array:
        self._key, key = jax.random.split(self._key)
        return key


class WorldVectorEnv(VectorEnv):
    """Many of one of our worlds, perturbed or not, on the device: a compiled call steps all.

    As in `PoolVectorEnv` nothing starts anew by itself:

    ```python
    from sensorium.bridges.to_gymnasium import WorldVectorEnv

    env = WorldVectorEnv("CartPoleSwingUpHarder", num_envs=16)
    observations, _ = env.reset(seed=0)
    observations, rewards, terminated, truncated, _ = env.step(env.action_space.sample())
    observations, _ = env.reset(options={"reset_mask": terminated | truncated})
    ```
    """

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.DISABLED}

    def __init__(self, world: str | Environment, num_envs: int = 1):
        """Open `num_envs` of a world; UnknownNameError if there is none of that name."""
        self._world: Environment = make(world) if isinstance(world, str) else world
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = _spaces_of(self._world)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._start_all = jax.jit(jax.vmap(self._world.reset))
        self._start_one = jax.jit(self._start_in_place, donate_argnums=(1, 2))
        self._advance = jax.jit(jax.vmap(self._world.advance), donate_argnums=1)
        self._now: tuple[Any, Any] | None = None  # observations and states

    def reset(
        self, *, seed: Seed | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start all episodes, or those of `options["reset_mask"]`; the same seed gives the same starts.

        Raises:
            ConfigError: The seed is no whole number from 0 on.
        """
        super().reset(seed=None if seed is None else check_seed(seed))
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        if seed is not None or self._now is None:
            self._key = _drawn_key(self.np_random)
        if self._now is None or mask.all():
            self._now = self._start_all(self._next_keys())
        else:
            # One by one: few end at a time, and some worlds take long to start
            for index, key in zip(np.flatnonzero(mask), self._next_keys(), strict=False):
                self._now = self._start_one(key, *self._now, index)
        return np.array(self._now[0]), {}

    def step(
        self, actions: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Advance all by one step.

        Returns:
            Observations, rewards, terminated and truncated, with a leading axis of `num_envs`.

        Raises:
            ObservationError: The actions are of another shape, or hold NaN or infinity.
            ConfigError: `reset` was never called.
        """
        if self._now is None:
            raise ConfigError("Call reset before step.")
        chosen = _for_world(actions, self.action_space, self.single_action_space)
        if chosen is None:
            raise ObservationError(
                f"Actions must be finite numbers of shape {self.action_space.shape}, got "
                f"{np.shape(actions)}."
            )
        seen, states, *ends, _ = self._advance(self._next_keys(), self._now[1], chosen)
        self._now = seen, states
        # Copies: the buffers themselves are given to the next step
        rewards, terminated, truncated = (np.array(end) for end in ends)
        return np.array(seen), rewards, terminated, truncated, {}

    def _start_in_place(self, key: Any, seen: Any, states: Any, index: Any) -> tuple[Any, Any]:
        started = self._world.reset(key)
        return jax.tree.map(lambda old, new: old.at[index].set(new), (seen, states), started)

    def _next_keys(self) -> jax.Array:
        self._key, key = jax.random.split(self._key)
        return jax.random.split(key, self.num_envs)


def _drawn_key(random: np.random.Generator) -> jax.Array:
    return key_of(random.integers(2**63))


def _for_world(
    action: Any, space: gymnasium.Space, single: gymnasium.Space | None = None
) -> np.ndarray | None:
    """Convert to what a world takes: numbers as they are, choices to logits; None if not of the space.

    Args:
        action: Of one environment, or of many.
        space: Of `action`.
        single: Of one environment, where there are many.
    """
    numbers = np.asarray(action, np.float32)
    if numbers.shape != space.shape or not np.isfinite(numbers).all():
        return None
    if isinstance(single or space, spaces.Box):
        return numbers
    if not space.contains(numbers.astype(space.dtype)):
        return None
    rows = action_map(single or space).from_env(numbers if single else numbers[None])
    return rows if single else rows[0]


def _spaces_of(world: Environment) -> tuple[spaces.Box, gymnasium.Space]:
    """Return the spaces of observations and actions."""
    shape = world.observation_shape
    images = len(shape) == 3
    low, high, dtype = (0, 255, np.uint8) if images else (-np.inf, np.inf, np.float32)
    box = EntityBox if len(shape) == 2 else spaces.Box
    actions: gymnasium.Space = spaces.Box(-1.0, 1.0, (world.num_actions,), np.float32)
    if isinstance(world.actions, tuple):
        one, *more = world.actions
        actions = spaces.MultiDiscrete(list(world.actions)) if more else spaces.Discrete(one)
    return box(low, high, shape, dtype), actions
