"""Who shows a student what to do: a model of Stable-Baselines3, or any agent of ours."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.sb3 import check_spaces
from sensorium.errors import ConfigError
from sensorium.perturbations import Identity
from sensorium.policies import Policy, as_population
from sensorium.rollout.acting import Actor, PolicyActor


class Teacher(abc.ABC):
    """Acts in the unperturbed world, and says what it would have done in somebody else's place."""

    @abc.abstractmethod
    def make_actor(self) -> Actor:
        """An actor for the host engine."""

    @abc.abstractmethod
    def label(
        self, observations: Float[np.ndarray, "E T N"], previous: Float[np.ndarray, "E T A"]
    ) -> Float[np.ndarray, "E T A"]:
        """What it would do at each step of E episodes, having seen all that came before.

        Args:
            observations: At each step, unperturbed.
            previous: The action before each step, whoever chose it; zeros at the start.
        """


class Sb3Teacher(Teacher):
    """A model of Stable-Baselines3 or sb3-contrib, with its recurrent state if it has one."""

    def __init__(self, model: Any, world: HostWorld, statistics: Any = None):
        """Take a model as the teacher of a world.

        Args:
            model: From `sb3.load_model`.
            world: Whose observations and actions it takes.
            statistics: The `VecNormalize` that it was trained behind; None if there was none.

        Raises:
            ConfigError: It, or its statistics, were made for other spaces.
        """
        check_spaces(model, world)
        if statistics is not None:
            _check_statistics(statistics, world)
        self._model = model
        self._world = world
        self._normalised = statistics.normalize_obs if statistics is not None else np.asarray

    def make_actor(self) -> Actor:
        return _Sb3Actor(self._predict)

    def label(
        self, observations: Float[np.ndarray, "E T N"], previous: Float[np.ndarray, "E T A"]
    ) -> Float[np.ndarray, "E T A"]:
        episodes, steps = observations.shape[:2]
        actions, state = [], None
        for step in range(steps):
            started = np.full(episodes, step == 0)
            action, state = self._predict(observations[:, step], state, started)
            actions.append(action)
        return np.stack(actions, axis=1)

    def _predict(
        self, observations: np.ndarray, state: Any, started: Bool[np.ndarray, " L"]
    ) -> tuple[Float[np.ndarray, "L A"], Any]:
        actions, state = self._model.predict(
            self._normalised(observations), state, started, deterministic=True
        )
        return self._world.from_env_actions(actions), state


class _Sb3Actor(Actor):
    def __init__(self, predict: Callable[[np.ndarray, Any, np.ndarray], tuple[np.ndarray, Any]]):
        self._predict = predict
        self._state: Any = None

    def act(
        self,
        started: Bool[np.ndarray, " L"],
        episodes: Int[np.ndarray, " L"],
        observations: np.ndarray,
    ) -> Float[np.ndarray, "L A"]:
        actions, self._state = self._predict(observations, self._state, started)
        return actions


def _check_statistics(statistics: Any, world: HostWorld) -> None:
    """Refuse what VecNormalize noted of other observations, or what cannot be used."""
    if not statistics.norm_obs:
        return
    noted, shape = statistics.obs_rms, world.raw_observation_shape
    if not hasattr(noted, "mean") or np.shape(noted.mean) != shape:
        whose = f"shape {np.shape(noted.mean)}" if hasattr(noted, "mean") else "a Dict"
        raise ConfigError(
            f"The statistics of VecNormalize are of observations of {whose}, and {world.name} shows {shape}: "
            "name others with --vecnormalize FILE, or say none."
        )
    if not np.isfinite(statistics.normalize_obs(np.zeros((1, *shape), np.float32))).all():
        raise ConfigError(
            "The statistics of VecNormalize hold NaN or infinity, or a variance below zero."
        )


class AgentTeacher(Teacher):
    """One of our agents."""

    def __init__(self, policy: Policy, world: HostWorld):
        """Take an agent as the teacher of a world.

        Raises:
            ConfigError: It works with another number of sensors or actions.
        """
        policy.initial_carry(world.num_sensors)
        check_fit("The teacher", world, world.observation_shape, policy.num_actions)
        self._policy = policy
        self._world = world

    def make_actor(self) -> Actor:
        return PolicyActor(
            as_population(self._policy), self._world, jax.random.split(jax.random.key(0), 1)
        )

    def label(
        self, observations: Float[np.ndarray, "E T N"], previous: Float[np.ndarray, "E T A"]
    ) -> Float[np.ndarray, "E T A"]:
        return np.asarray(
            _act_along(self._policy, jnp.asarray(observations), jnp.asarray(previous))
        )


@eqx.filter_jit
def _act_along(
    policy: Policy, observations: Float[Array, "E T N"], previous: Float[Array, "E T A"]
) -> Float[Array, "E T A"]:
    def episode(what: tuple[Array, Array]) -> Array:
        def step(carry: Any, now: tuple[Array, Array]) -> tuple[Any, Array]:
            observation, done = now
            action, carry, _ = policy.step(observation, policy.told(carry, done))
            return carry, action

        return jax.lax.scan(step, policy.initial_carry(what[0].shape[1]), what)[1]

    return jax.lax.map(episode, (observations, previous), batch_size=64)


class Sb3Model(NamedTuple):
    """A model of Stable-Baselines3 as an expert."""

    model: Any
    statistics: Any = None
    """The `VecNormalize` that it was trained behind; None if there was none."""


Expert = Policy | Sb3Model | Teacher
"""What a stage can learn from: a policy of ours, or a model of Stable-Baselines3."""


def as_teacher(expert: Expert | None, world: HostWorld) -> Teacher:
    """An expert as the teacher of a world on the host.

    Raises:
        ConfigError: There is none, or it was made for other observations or actions.
    """
    world = dataclasses.replace(world, perturbation=Identity())
    if expert is None:
        raise ConfigError("Cloning needs an expert; name one with --expert.")
    if isinstance(expert, Teacher):
        return expert
    if isinstance(expert, Sb3Model):
        return Sb3Teacher(expert.model, world, expert.statistics)
    return AgentTeacher(expert, world)


def check_fit(
    who: str, world: HostWorld, observation_shape: tuple[int, ...] | None, num_actions: int
) -> None:
    """Refuse who senses or does something else than a world takes; ConfigError says what."""
    if observation_shape != world.raw_observation_shape or num_actions != world.num_actions:
        raise ConfigError(
            f"{who} senses {observation_shape} and has {num_actions} action(s); {world.name} shows "
            f"{world.raw_observation_shape} and takes {world.num_actions}."
        )
