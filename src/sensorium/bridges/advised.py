"""An expert beside an environment: a function of all that it holds, such as its `info` or RAM.

It runs in the worker process of the environment, so that nothing but its advice travels: its action, and
privileged information, if it has any. That is what it knows and a student has to infer, such as where a ball
is; an expert names these numbers in its attribute `privileged`, and returns them beside the action. It may
also say where in a picture to look: its attribute `boxes` is how many places it gives, as four more numbers
each. And it may say how much its advice matters at the moment, in one more number, if its attribute `weighs`
is true: where all actions are alike there is nothing to learn.
"""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from sensorium.bridges.spaces import action_map, num_actions
from sensorium.errors import ConfigError

EnvExpert = Callable[[gymnasium.Env, Any, dict[str, Any]], Any]
"""Computes an action, as the environment takes it, from the environment, its observation and its `info`.

Where actions are choices, it may return how likely each option is instead of one of them. If it has an
attribute `privileged`, `boxes` or `weighs`, it returns the action and an array: a number for each name in
there; top, left, bottom and right of each box, in pixels; and the weight of the step, from 0 on. NaN stands
where there is no such thing at the moment.
"""


def privileged(expert: Any) -> tuple[str, ...]:
    """Return the names of the numbers that an expert gives beside its action."""
    return tuple(getattr(expert, "privileged", ()))


def num_boxes(expert: Any) -> int:
    """Return how many boxes an expert gives after these."""
    return int(getattr(expert, "boxes", 0))


def weighs(expert: Any) -> bool:
    """Return whether the last number says how much the advice matters."""
    return bool(getattr(expert, "weighs", False))


class Advised(gymnasium.Wrapper):
    """An environment that gives after each step, in `advice`, what an expert would do next."""

    def __init__(self, env: gymnasium.Env, expert: EnvExpert):
        """Wrap an environment; to be pickled, `expert` must be a function of a module."""
        super().__init__(env)
        self._expert = expert
        self._map = action_map(env.action_space)
        self._options = getattr(env.action_space, "n", None)  # of a single choice
        self._num_known = len(privileged(expert)) + 4 * num_boxes(expert) + weighs(expert)
        size = num_actions(env.action_space) + self._num_known
        self.advice = np.zeros(size, np.float32)
        """The action in A numbers, as a policy would give them; what is privileged; boxes; the weight."""

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode, and compute the advice."""
        observation, info = self.env.reset(**options)
        self._ask(observation, info)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step, and compute the advice."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if not (terminated or truncated):
            self._ask(observation, info)
        return observation, reward, terminated, truncated, info

    def _ask(self, observation: Any, info: dict[str, Any]) -> None:
        action, known = self._expert(self.env.unwrapped, observation, info), ()
        if self._num_known:
            action, known = action
        if np.shape(known) != (self._num_known,):
            names, boxes = privileged(self._expert), num_boxes(self._expert)
            raise ConfigError(
                f"The expert has {len(names)} names in `privileged`"
                + (f" and {boxes} boxes of 4 numbers" if boxes else "")
                + (" and weighs its advice" if weighs(self._expert) else "")
                + f", but gave numbers of shape {np.shape(known)}."
            )
        action = np.asarray(action)
        if self._options and action.dtype.kind == "f" and action.shape == (self._options,):
            if not np.isfinite(action).all():
                raise ConfigError(f"The expert finds options {action.tolist()} likely.")
            numbers = 2 * action - 1
        else:
            numbers = self._map.from_env(action[None])[0]
        self.advice = np.append(numbers, known).astype(np.float32)
