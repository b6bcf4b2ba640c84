"""Experts that act on the host: models of Stable-Baselines3, and any function of observations."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.pytorch import as_function, one_thread
from sensorium.bridges.sb3 import (
    check_spaces,
    check_statistics,
    logits_of,
    num_frames,
    tells_logits,
)
from sensorium.bridges.spaces import CHOICES
from sensorium.errors import ConfigError
from sensorium.policies.action_distributions import distribution_of
from sensorium.rollout.acting import Actor


class FrameStack:
    """The last images of each of L lanes along the channels, the newest last."""

    def __init__(self, number: int, fills: bool = False):
        """Keep that many.

        Args:
            number: How many.
            fills: Let the first image of an episode stand for those before it, as FrameStackObservation does;
                else they are black, as of VecFrameStack.
        """
        self._number, self._fills = number, fills
        self._frames: np.ndarray | None = None

    def __call__(self, started: Bool[np.ndarray, " L"], images: np.ndarray) -> np.ndarray:
        """Add an image to each lane; forget those before it where an episode has started."""
        if self._number == 1:
            return images
        first = np.tile(images, self._number - 1) if self._fills else np.uint8(0)
        if self._frames is None:
            self._frames = np.zeros((*images.shape[:-1], images.shape[-1] * self._number), np.uint8)
        before = np.where(
            started.reshape(-1, 1, 1, 1), first, self._frames[..., images.shape[-1] :]
        )
        self._frames = np.concatenate([before, images], axis=-1)
        return self._frames

    def keep(self, lanes: Int[np.ndarray, " kept"]) -> None:
        """Forget all lanes but these, as an actor does."""
        if self._frames is not None:
            self._frames = self._frames[lanes]


class Sb3Actor(Actor):
    """A model of Stable-Baselines3 or sb3-contrib, with its recurrent state if it has one."""

    def __init__(self, model: Any, world: HostWorld, statistics: Any = None):
        """Take a model as the expert of a world.

        Args:
            model: From `sb3.load_model`.
            world: Whose observations and actions it takes.
            statistics: The `VecNormalize` that it was trained behind; None if there was none.

        Raises:
            ConfigError: It, or its statistics, were made for other spaces.
        """
        check_spaces(model, world)
        if statistics is not None:
            check_statistics(statistics, world)
        self._model, self._world = model, world
        self._stacked = FrameStack(num_frames(model, world), world.fills_stack)
        self._normalised = getattr(statistics, "normalize_obs", lambda shown: shown)
        self._state: Any = None
        self._tells_logits = tells_logits(model)
        self._advice = jax.jit(jax.vmap(distribution_of(world.actions).advice))

    def act(
        self,
        started: Bool[np.ndarray, " L"],
        episodes: Int[np.ndarray, " L"],
        observations: np.ndarray,
    ) -> Float[np.ndarray, "L A"]:
        shown = self._stacked(started, self._world.to_own_observations(observations))
        shown = self._normalised(shown)
        with one_thread():
            if self._tells_logits:
                return np.asarray(self._advice(logits_of(self._model, shown)))
            actions, self._state = self._model.predict(
                shown, self._state, started, deterministic=True
            )
        return self._world.from_env_actions(actions)

    def keep(self, lanes: Int[np.ndarray, " kept"]) -> None:
        self._stacked.keep(lanes)
        if self._state is not None:
            self._state = tuple(array[:, lanes] for array in self._state)


class PythonActor(Actor):
    """Any function `observation -> action`, of one environment or of a batch; PyTorch modules too.

    It receives what the environment shows (a Dict where that is one) and returns what the environment takes;
    of a Discrete it may return as many numbers as there are options, of which the largest counts. Whether it
    takes a batch is tested on a few first observations.
    """

    def __init__(self, function: Callable[[Any], Any], world: HostWorld, name: str = "expert"):
        """Take a function as the expert of a world.

        Args:
            function: What to call; deterministic, or else it gets the observations of a batch one by one.
            world: Whose observations and actions it takes.
            name: For errors.

        Raises:
            ConfigError: It raises, or returns anything but actions.
        """
        self._function, self._world, self._name = as_function(function), world, name
        self._options = getattr(world.action_space, "n", None)
        first = _first_observations(world, 3)
        self._batched = False
        try:
            alone = self._one_by_one(first)
        except ConfigError as error:
            self._batched = True
            try:
                self._together(first)
            except ConfigError:
                raise error from None
            return
        try:
            together = self._together(first)
            self._batched = bool(np.allclose(alone, together, rtol=1e-3, atol=1e-4))
        except ConfigError:
            pass

    def act(
        self,
        started: Bool[np.ndarray, " L"],
        episodes: Int[np.ndarray, " L"],
        observations: np.ndarray,
    ) -> Float[np.ndarray, "L A"]:
        actions = self._together(observations) if self._batched else self._one_by_one(observations)
        return self._world.from_env_actions(actions)

    def _together(self, observations: np.ndarray) -> np.ndarray:
        return self._ask(self._world.to_own_observations(observations), (len(observations),))

    def _one_by_one(self, observations: np.ndarray) -> np.ndarray:
        each = self._world.to_each_own_observation(observations)
        return np.stack([self._ask(one, ()) for one in each])

    def _ask(self, shown: Any, lead: tuple[int, ...]) -> np.ndarray:
        """Compute one action, or a batch; ConfigError unless it is of the action space."""
        try:
            with one_thread():
                returned = self._function(shown)
        except Exception as error:  # of whatever kind the code of others raises
            first_line = (str(error).strip().splitlines() or [""])[0]
            raise ConfigError(
                f"The expert {self._name} raised {type(error).__name__}: {first_line}"
            ) from error
        space = self._world.action_space
        try:
            actions = np.asarray(returned)
        except (ValueError, TypeError):
            actions = np.empty(0, object)
        wanted = (*lead, *space.shape)
        if self._options and not space.shape and actions.shape == (*lead, self._options):
            actions = np.asarray(actions.argmax(axis=-1) + getattr(space, "start", 0))
        if actions.dtype.kind not in "biuf" or actions.size != np.prod(wanted, dtype=int):
            what = f"shape {actions.shape}" if actions.dtype.kind in "biuf" else repr(returned)[:60]
            raise self._not_an_action(what)
        actions = np.reshape(actions, wanted)
        for action in actions if lead else [actions]:
            if isinstance(space, CHOICES) and not space.contains(action.astype(space.dtype)):
                raise self._not_an_action(action)
        return actions

    def _not_an_action(self, what: Any) -> ConfigError:
        world = self._world
        return ConfigError(
            f"The expert {self._name} returned {what}; an action of {world.name} is of {world.action_space}."
        )


def _first_observations(world: HostWorld, count: int) -> np.ndarray:
    env = world.opener()()
    try:
        return np.stack([env.reset(seed=seed)[0] for seed in range(count)])
    finally:
        env.close()


def arguments_of(function: Callable) -> int | None:
    """Count the arguments that a function must be given; None if Python cannot tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.default is each.empty and each.kind in kinds for each in parameters)
