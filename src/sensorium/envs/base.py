"""Worlds that live on the device, in the shape of gymnax's interface but without depending on it.

    observation, state = world.reset(key)
    observation, state, reward, terminated, truncated, info = world.step(key, state, action)

A world writes `reset_env`, `step_env` and a few facts; this base adds the time limit, and the auto-reset
with `info["final_observation"]`. Rollout engines, which run one episode per key, call `reset_env` and
`advance`, where nothing is reset. Transitions keep their gradients.

What the demo, videos and tables ask of a world, wherever it runs, is in `World`, with defaults: they know no
world by its name.
"""

import abc
import math
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from sensorium.errors import ConfigError
from sensorium.perturbations import Identity, Perturbation
from sensorium.types import (
    Action,
    Actions,
    Flag,
    Key,
    ObservationSpec,
    PyTree,
    Scalar,
    Sensed,
    as_vector,
    num_sensors_of,
    spec_of,
)

StepResult = tuple[Sensed, PyTree, Scalar, Flag, Flag, dict[str, Any]]


_MOST_MOTORS = 10_000  # in the name of a world


def check_motors(count: int) -> None:
    """Raise ConfigError unless a world can have so many motors."""
    if not 1 <= count <= _MOST_MOTORS:
        raise ConfigError(f"A world has 1 to {_MOST_MOTORS:,} motors, not {count}.")


class World(abc.ABC):
    """The facts about a world, wherever it runs; what is not abstract has a default."""

    perturbation: Perturbation = Identity()
    """What happens to observations and actions."""

    @property
    @abc.abstractmethod
    def num_sensors(self) -> int:
        """N, channels of an observation, or entities."""

    @property
    @abc.abstractmethod
    def observation_shape(self) -> tuple[int, ...]:
        """(N,) for scalar sensors, (N, F) for entities, (H, W, C) for images."""

    @property
    def observation_spec(self) -> ObservationSpec:
        """What `Policy.initial_carry` asks for: N, or the shape of entities or images."""
        return spec_of(self.observation_shape)

    @property
    def raw_observation_spec(self) -> ObservationSpec:
        """The same before any perturbation."""
        return self.observation_spec

    @property
    def sensor_names(self) -> tuple[str, ...]:
        """What each channel of an unperturbed observation is; none where images are shown."""
        spec = self.raw_observation_spec
        kind = "sensor" if isinstance(spec, int) else "entity"
        return tuple(f"{kind} {index}" for index in range(num_sensors_of(spec) or 0))

    @property
    @abc.abstractmethod
    def num_actions(self) -> int:
        """A, the length of an action: numbers in [-1, 1], or the logits of choices."""

    @property
    def actions(self) -> Actions:
        """What `PolicyConfig.build` asks for: A, or the numbers of options of discrete choices."""
        return self.num_actions

    @property
    def motor_names(self) -> tuple[str, ...]:
        """What each number of an action moves; none where actions are choices."""
        count = self.actions if isinstance(self.actions, int) else 0
        return tuple(f"motor {index + 1}" for index in range(count))

    @property
    def option_names(self) -> tuple[str, ...]:
        """What each option of a choice does, in a word or two; nothing where that is not known."""
        return ()

    @property
    @abc.abstractmethod
    def max_steps(self) -> int:
        """T, the step at which an episode is truncated."""

    @property
    def has_time_limit(self) -> bool:
        """Whether T is the world's own, rather than ours for a world that may never end."""
        return True

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of its looks, the plain one first, in each of which agents are scored; empty if it has one.

        The user of the demo can choose one; `text` shows what the user types.
        """
        return ()

    @property
    def solved_return(self) -> float:
        """A return from which on an episode counts as solved; infinity if none is set."""
        return math.inf

    @property
    def scored_episodes(self) -> int:
        """How many episodes a score is usually over."""
        return 1000

    @property
    def steps_per_second(self) -> int:
        """Of the world's own time, for videos and the demo; 50 if a world does not say."""
        return 50

    @property
    def on_host(self) -> bool:
        """Whether it is simulated in processes of the host, rather than on the device."""
        return False

    @property
    def host_twin(self) -> str | None:
        """The name of the same world on the host (`gym:` and an id), where agents are scored too; or None."""
        return None

    @property
    def drawing(self) -> str:
        """How the demo's page draws `pose` (`demo/page/world.js`); empty to show images by the world."""
        return ""

    @property
    def failure(self) -> str:
        """What it means that the world, and not its time limit, ends an episode: "left the track"."""
        return "ended"

    @property
    def can_be_pushed(self) -> bool:
        """Whether `push` does something."""
        return False


class Environment(World):
    """A world on the device. Instances are immutable and hashable; all state is passed around."""

    id: ClassVar[str]
    """Name in `sensorium.envs.make`."""
    options: ClassVar[tuple[str, ...]] = ()
    """Which of its fields may stand behind that name: `"Thrusters?motors=64&least=64"`."""

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """(N,) for scalar sensors and (N, F) for entities, of float32; (H, W, 3) for images, of uint8."""
        return (self.num_sensors,)

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
            action: A numbers, which the world clips to [-1, 1]; of choices it takes the largest.
            params: Physical constants.

        Returns:
            Observation, state (its `time` one larger), reward, terminated, info.
        """

    @abc.abstractmethod
    def observe(self, state: PyTree) -> Sensed:
        """Return what the sensors read in `state`, before any perturbation."""

    def sensor_of_channel(self, state: PyTree) -> Int[Array, " N"]:
        """Return the sensor that each channel of the observation of `state` carries, -1 for noise."""
        del state
        return jnp.arange(self.num_sensors)

    def draw(self, state: PyTree) -> UInt8[np.ndarray, "height width 3"] | None:
        """Draw an RGB image of `state`; None, as here, if the world does not draw itself."""
        del state
        return None

    def pose(self, state: PyTree) -> Float[Array, " numbers"]:
        """Return where the body is, in numbers that `drawing` understands; none by default."""
        del state
        return jnp.zeros(0)

    def scenery(self, state: PyTree) -> Float[np.ndarray, "points 2"]:
        """Return what stays in its place during an episode: points (m) of a road; none by default."""
        del state
        return np.zeros((0, 2), np.float32)

    def push(self, state: PyTree, strength: float) -> PyTree:
        """Push the body.

        Args:
            state: Of the world.
            strength: From -1 (full strength to the left) to 1.

        Returns:
            The state after it; the same by default.
        """
        del strength
        return state

    def split(self, state: PyTree) -> tuple[PyTree, PyTree]:
        """Separate what steps change from what stays for an episode, so that the latter is not copied.

        By default everything may change.
        """
        return state, ()

    def join(self, changing: PyTree, constant: PyTree) -> PyTree:
        """Put both parts of `split` together."""
        del constant
        return changing

    def critic_features(self, state: PyTree) -> Float[Array, " F"]:
        """Return the true state for critics and experts: unperturbed, in fixed order, of size about 1.

        By default the unperturbed readings, where absent entities read zero; none, of size 0, where images
        are shown.
        """
        if num_sensors_of(self.observation_spec) is None:
            return jnp.zeros(0)
        return as_vector(self.observe(state))

    @property
    def num_plain_actions(self) -> int:
        """How many actions a policy gives that leaves it to `to_motors` which motors carry them out."""
        return self.num_actions

    def to_motors(self, state: PyTree, plain: Float[Array, " P"]) -> Action:
        """Return what the motors should get, so that they do together what a plain action would."""
        del state
        return plain

    def from_motors(self, state: PyTree, command: Action) -> Float[Array, " P"]:
        """Return the plain action that does what motors do that get `command`."""
        del state
        return command

    @property
    def unperturbed(self) -> "Environment":
        """Return the world without the perturbation."""
        return self

    def for_training(self) -> "Environment":
        """Return the variant that agents are trained in; ConfigError if there is none."""
        raise ConfigError(f"{self.id} has no reward of its own for training.")

    def advance(self, key: Key, state: PyTree, action: Action, params: Any = None) -> StepResult:
        """Take one step with the time limit but without auto-reset; same results as `step`."""
        params = self.default_params if params is None else params
        observation, state, reward, terminated, info = self.step_env(key, state, action, params)
        truncated = (self.time(state) >= self.max_steps) & ~terminated
        return observation, state, reward, terminated, truncated, info

    @staticmethod
    def time(state: PyTree) -> Array:
        """Return the steps since the start of the episode."""
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
