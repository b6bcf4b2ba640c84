"""Worlds that live on the device, in the shape of gymnax's interface but without depending on it.

    observation, state = world.reset(key)
    observation, state, reward, terminated, truncated, info = world.step(key, state, action)

A world writes `reset_env`, `step_env` and a few facts; this base adds the time limit, and the auto-reset
with `info["final_observation"]`. Rollout engines, which run one episode per key, call `reset_env` and
`advance`, where nothing is reset. Transitions keep their gradients.
"""

import abc
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from sensorium.errors import ConfigError
from sensorium.types import Action, Flag, Key, PyTree, Scalar, Sensed, Senses, senses_of

StepResult = tuple[Sensed, PyTree, Scalar, Flag, Flag, dict[str, Any]]


class World(abc.ABC):
    """What every world says of itself, wherever it runs."""

    @property
    @abc.abstractmethod
    def num_sensors(self) -> int:
        """N, channels of an observation."""

    @property
    @abc.abstractmethod
    def observation_shape(self) -> tuple[int, ...]:
        """(N,) for scalar sensors, (H, W, C) for pictures."""

    @property
    def senses(self) -> Senses:
        """What `Policy.initial_carry` asks for: N, or the shape of pictures."""
        return senses_of(self.observation_shape)

    @property
    @abc.abstractmethod
    def num_actions(self) -> int:
        """A, each in [-1, 1]."""

    @property
    @abc.abstractmethod
    def max_steps(self) -> int:
        """T, the step at which an episode is truncated."""

    @property
    def steps_per_second(self) -> int:
        """Of the world's own time, for videos; 50 if a world does not say."""
        return 50

    @property
    @abc.abstractmethod
    def solved_return(self) -> float:
        """A return from which on an episode counts as solved."""


class Environment(World):
    """A world on the device. Instances are immutable and hashable; all state is passed around."""

    id: ClassVar[str]
    """Name in `sensorium.envs.make`."""

    scored_episodes: ClassVar[int] = 1000
    """How many episodes a score is usually over."""

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """(N,) for scalar sensors, of float32; (H, W, 3) for pictures, of uint8."""
        return (self.num_sensors,)

    @property
    @abc.abstractmethod
    def sensor_names(self) -> tuple[str, ...]:
        """What each channel of an unperturbed observation is."""

    @property
    @abc.abstractmethod
    def default_params(self) -> Any:
        """Physical constants; pass others to `reset` and `step` to change the world."""

    @abc.abstractmethod
    def reset_env(self, key: Key, params: Any) -> tuple[Sensed, PyTree]:
        """Draw a start.

        Args:
            key: Random key.
            params: Physical constants.

        Returns:
            First observation and state. The state has an integer field `time`, zero.
        """

    @abc.abstractmethod
    def step_env(
        self, key: Key, state: PyTree, action: Action, params: Any
    ) -> tuple[Sensed, PyTree, Scalar, Flag, dict[str, Any]]:
        """Advance without a time limit.

        Args:
            key: Random key.
            state: From `reset_env` or the step before.
            action: A numbers; the world clips them to [-1, 1].
            params: Physical constants.

        Returns:
            Observation, state (its `time` one larger), reward, terminated, info.
        """

    @abc.abstractmethod
    def observe(self, state: PyTree) -> Sensed:
        """What the sensors read in `state`, before any perturbation."""

    def sources(self, state: PyTree) -> Int[Array, " N"]:
        """Which sensor each channel of the observation of `state` carries, -1 for noise."""
        del state
        return jnp.arange(self.num_sensors)

    def draw(self, state: PyTree) -> UInt8[np.ndarray, "height width 3"] | None:
        """A picture of `state` to look at, RGB; None, as here, if the world does not draw itself."""
        del state
        return None

    def critic_features(self, state: PyTree) -> Float[Array, " F"]:
        """The true state for a critic in training, unperturbed and in fixed order, of size about 1.

        Raises:
            NotImplementedError: The world does not offer it, and cannot be trained by gradients.
        """
        raise NotImplementedError

    def for_training(self) -> "Environment":
        """The world that agents are trained in, where that is another one; ConfigError if it is not."""
        raise ConfigError(f"{self.id} has no reward of its own for training.")

    def advance(self, key: Key, state: PyTree, action: Action, params: Any = None) -> StepResult:
        """One step with the time limit but without auto-reset; same results as `step`."""
        params = self.default_params if params is None else params
        observation, state, reward, terminated, info = self.step_env(key, state, action, params)
        truncated = (self.time(state) >= self.max_steps) & ~terminated
        return observation, state, reward, terminated, truncated, info

    @staticmethod
    def time(state: PyTree) -> Array:
        """Steps since the start of the episode."""
        return state.time

    @partial(jax.jit, static_argnames="self")
    def reset(self, key: Key, params: Any = None) -> tuple[Sensed, PyTree]:
        """Draw a start: first observation (N) and state."""
        return self.reset_env(key, self.default_params if params is None else params)

    @partial(jax.jit, static_argnames="self")
    def step(self, key: Key, state: PyTree, action: Action, params: Any = None) -> StepResult:
        """Advance, and start anew where the episode ended.

        Args:
            key: Random key.
            state: From `reset` or the step before.
            action: A numbers in [-1, 1].
            params: Physical constants; None for the default.

        Returns:
            Observation, state, reward, terminated, truncated and info. After an end, observation and
            state are those of a new start, and `info["final_observation"]` is the last of the old.
        """
        params = self.default_params if params is None else params
        key_step, key_reset = jax.random.split(key)
        last, state, reward, terminated, truncated, info = self.advance(
            key_step, state, action, params
        )
        # A condition, as some worlds take long to start; in a batch both are computed all the same
        observation, state = jax.lax.cond(
            terminated | truncated,
            lambda: self.reset_env(key_reset, params),
            lambda: (last, state),
        )
        info = {**info, "final_observation": last}
        return observation, state, reward, terminated, truncated, info
