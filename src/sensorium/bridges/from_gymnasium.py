"""Any Gymnasium environment as a world that runs on the host: `gym:Pendulum-v1`.

What agents receive of its observations, as float32, is in `observations`; a Box of four axes or more is given
to them as it is. The options of a name are in `open_env`.

What the agent's A numbers in [-1, 1] become is in `spaces`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Float

from sensorium.bridges.bullet_body import Body, Points, body_of
from sensorium.bridges.observations import (
    Layout,
    each_in_own_space,
    in_own_space,
    own_space,
    sensor_names,
)
from sensorium.bridges.open_env import EnvName, open_env
from sensorium.bridges.spaces import ActionMap, action_map, actions_of
from sensorium.envs import World
from sensorium.errors import ConfigError
from sensorium.perturbations import Identity, Perturbation
from sensorium.types import (
    Actions,
    ObservationSpec,
    count_of,
    in_words,
    num_sensors_of,
    shape_of,
    spec_of,
)

_NO_TIME_LIMIT = 10_000  # steps, where an environment sets none itself
_STEPS_PER_SECOND = 60  # as PyBullet's worlds and most others
_IMAGES = "rgb_array"


@dataclasses.dataclass(frozen=True)
class HostWorld(World):
    """A Gymnasium environment and a perturbation of its observations. A value: it opens nothing by itself."""

    name: str
    """As of `open_env`: `"Pendulum-v1"`, or `"module:Name-v0?observe=entities"`."""
    perturbation: Perturbation = Identity()
    """Of the observations."""
    training_reward: bool = False
    """Pay the reward that agents are trained with, where the world has one of its own for that."""
    time_limit: int | None = None
    """End episodes after so many steps, if the environment does not end them before."""

    @property
    def num_sensors(self) -> int:
        """N after the perturbation; ConfigError if the observations are neither a flat Box nor entities."""
        count = num_sensors_of(self.observation_spec)
        if count is None:
            raise ConfigError(
                f"{self.name} shows {in_words(self.observation_spec)}; an agent of scalar sensors needs a "
                "flat Box."
            )
        return count

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of an observation, after the perturbation.

        Raises:
            ConfigError: The perturbation cannot be applied to what the environment shows.
        """
        return shape_of(self.perturbation.output_spec(self.raw_observation_spec))

    @property
    def sensor_names(self) -> tuple[str, ...]:
        """What each channel of an unperturbed flat observation is, as far as that is known.

        An environment that shows a Box may say so in its attribute `sensor_names`, a tuple.
        """
        known = self._body.sensor_names or self._facts.sensor_names
        return known or super().sensor_names

    @property
    def option_names(self) -> tuple[str, ...]:
        """What each option of a choice does; an environment may say so in its attribute of that name."""
        return self._facts.option_names

    @property
    def raw_observation_shape(self) -> tuple[int, ...]:
        """Shape of an observation before the perturbation."""
        return self._facts.observation_shape

    @property
    def observation_space(self) -> spaces.Box:
        """The space of observations that the environment declares, before the perturbation."""
        return self._facts.observation_space

    @property
    def own_observation_space(self) -> gymnasium.Space:
        """The same before it is laid out for agents: what policies of other libraries receive."""
        return self._facts.own_observation_space

    @property
    def action_space(self) -> gymnasium.Space:
        """What the environment takes, before the mapping of `to_env_actions`."""
        return self._facts.action_space

    @property
    def raw_observation_spec(self) -> ObservationSpec:
        """What the environment shows before the perturbation: N, or the shape of entities or images."""
        return spec_of(self.raw_observation_shape)

    @property
    def num_actions(self) -> int:
        """A."""
        return count_of(self._facts.takes)

    @property
    def actions(self) -> Actions:
        """A, or how many options each choice of the environment has."""
        return self._facts.takes

    @property
    def max_steps(self) -> int:
        """The time limit of the environment, 10,000 steps if it has none, or ours if it is shorter."""
        limits = (self._facts.time_limit, self.time_limit)
        return min((limit for limit in limits if limit), default=_NO_TIME_LIMIT)

    @property
    def has_time_limit(self) -> bool:
        """Whether the environment or `time_limit` says how long an episode lasts at most."""
        return bool(self._facts.time_limit or self.time_limit)

    @property
    def solved_return(self) -> float:
        """The environment's `reward_threshold`; infinity if it has none."""
        return self._facts.solved_return

    @property
    def scored_episodes(self) -> int:
        """As the papers score the ant."""
        return 100

    @property
    def steps_per_second(self) -> int:
        """Of its own time, as far as that is known; 60 otherwise."""
        return self._facts.steps_per_second

    @property
    def fills_stack(self) -> bool:
        """Whether the first image of an episode fills a stack of frames, or black images do."""
        return self._facts.fills_stack

    @property
    def note(self) -> str:
        """What else is to be known of what it shows."""
        return self._facts.note

    @property
    def variants(self) -> tuple[str, ...]:
        """Other looks of it: what its option `variant` may be, as its metadata say."""
        return self._facts.variants

    @property
    def on_host(self) -> bool:
        """True: it is simulated in worker processes."""
        return True

    @property
    def drawing(self) -> str:
        """How the demo's page draws `pose`."""
        return self._body.drawing

    @property
    def failure(self) -> str:
        """What it means that the environment ends an episode, as far as that is known."""
        return self._body.failure

    @property
    def can_be_pushed(self) -> bool:
        """Whether `push` does something."""
        return self._body.push is not None

    def pose(self, env: gymnasium.Env) -> Points:
        """Compute points of a figure (m) of the body in an environment; none if it is not known."""
        return self._body.pose(env)

    def push(self, env: gymnasium.Env, strength: float) -> None:
        """Push the body in an environment of this world by a part of full strength, from -1 to 1."""
        if self._body.push is not None:
            self._body.push(env, strength)

    @property
    def render_mode(self) -> str | None:
        """`rgb_array` if the environment says that it can draw itself so; see `open_env.open_env`."""
        return self._facts.render_mode

    def opener(self) -> Callable[[], gymnasium.Env]:
        """Return what opens the environment itself, unperturbed, in any process; see `open_env`."""
        return functools.partial(open_env, self.name, self.training_reward)

    def to_own_observations(self, observations: np.ndarray) -> Any:
        """Turn observations of L environments to what `own_observation_space` says, a batch."""
        return in_own_space(self.own_observation_space, observations, self._facts.layout)

    def to_each_own_observation(self, observations: np.ndarray) -> list[Any]:
        """Turn observations of L environments to what `own_observation_space` says, one by one."""
        return each_in_own_space(self.own_observation_space, observations, self._facts.layout)

    def to_env_actions(self, actions: Float[np.ndarray, "L A"]) -> np.ndarray:
        """Map A numbers in [-1, 1] for each of L environments to what they take."""
        return self._facts.actions.to_env(actions)

    def from_env_actions(self, actions: np.ndarray) -> Float[np.ndarray, "L A"]:
        """Map actions of L environments back to the numbers in [-1, 1] that become them."""
        return self._facts.actions.from_env(actions)

    @property
    def _facts(self) -> "_Facts":
        return _facts(self.name)

    @property
    def _body(self) -> Body:
        return body_of(EnvName.parse(self.name).id)


@dataclasses.dataclass(frozen=True)
class _Facts:
    """Facts that are read once from an environment."""

    observation_space: spaces.Box
    own_observation_space: gymnasium.Space
    layout: Layout
    sensor_names: tuple[str, ...]
    option_names: tuple[str, ...]
    action_space: gymnasium.Space
    observation_shape: tuple[int, ...]
    takes: Actions
    actions: ActionMap
    time_limit: int | None
    solved_return: float
    steps_per_second: int
    fills_stack: bool
    note: str
    variants: tuple[str, ...]
    render_mode: str | None


def make_host_world(
    name: str, perturbation: Perturbation | None = None, training_reward: bool = False
) -> HostWorld:
    """Build a world, and check at once whether agents can work with it.

    Args:
        name: As of `open_env`.
        perturbation: Of its observations; None for nothing.
        training_reward: Pay the reward that agents are trained with, where there is one for that.

    Raises:
        UnknownNameError: There is no such environment; the nearest names are given.
        MissingExtraError: It needs packages that are not installed.
        ConfigError: Its spaces are of a kind that agents cannot work with, or it has no reward of its
            own for training.
    """
    world = HostWorld(name, perturbation or Identity(), training_reward)
    if training_reward:
        world.opener()().close()
    _ = world.observation_shape
    return world


@functools.cache
def _facts(name: str) -> _Facts:
    env = open_env(name)
    try:
        spec = env.spec
        # Actions that are held make an episode shorter than what the environment is registered with
        limits = (spec and spec.max_episode_steps, env.metadata.get("max_episode_steps"))
        threshold = spec.reward_threshold if spec else None
        observations = env.observation_space
        assert isinstance(observations, spaces.Box)
        if len(observations.shape) == 3 and observations.dtype != np.uint8:
            raise ConfigError(
                f"{name} shows images of {observations.dtype}; agents of images need uint8, 0 to 255."
            )
        return _Facts(
            observation_space=observations,
            own_observation_space=own_space(env),
            layout=EnvName.parse(name).layout,
            sensor_names=_names_of_sensors(env),
            option_names=_names_of_options(env),
            action_space=env.action_space,
            observation_shape=observations.shape,
            takes=actions_of(env.action_space),
            actions=action_map(env.action_space),
            time_limit=min((limit for limit in limits if limit), default=None),
            solved_return=math.inf if threshold is None else float(threshold),
            steps_per_second=max(round(env.metadata.get("render_fps") or _STEPS_PER_SECOND), 1),
            fills_stack=bool(env.metadata.get("fills_stack")),
            note=str(env.metadata.get("note", "")),
            variants=tuple(map(str, env.metadata.get("variants") or ())),
            render_mode=_IMAGES if _IMAGES in (env.metadata.get("render_modes") or ()) else None,
        )
    finally:
        env.close()


def _names_of_sensors(env: gymnasium.Env) -> tuple[str, ...]:
    """Return what the space or else the environment says that each sensor is; nothing if neither does."""
    said = sensor_names(own_space(env)) or _said_by(env, "sensor_names")
    fits = isinstance(said, tuple) and (len(said),) == env.observation_space.shape
    return said if fits else ()


def _names_of_options(env: gymnasium.Env) -> tuple[str, ...]:
    """Return what the environment says that each option does; nothing if it says nothing that fits."""
    said = _said_by(env, "option_names")
    fits = isinstance(said, tuple) and len(said) == getattr(env.action_space, "n", None)
    return said if fits else ()


def _said_by(env: gymnasium.Env, attribute: str) -> Any:
    """Return an attribute of an environment, within wrappers too; None if it has none of that name."""
    return env.get_wrapper_attr(attribute) if env.has_wrapper_attr(attribute) else None
