"""What environments return is checked against their spaces and Gymnasium's interface, once, where it arrives.

Whatever an environment gets wrong, or raises, is a WorldError that names it, the step and the value:
`Foo-v0 step 17: the reward is nan; it must be a finite number.` Imports no JAX, as worker processes do.
"""

import functools
import logging
import traceback
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sensorium.bridges.spaces import EntityBox
from sensorium.errors import WorldError

_LARGEST = float(np.finfo(np.float32).max)  # agents compute in float32
_LARGEST_SQUARED = _LARGEST**2
_RETURNS = {
    "reset": "an observation and a dictionary",
    "step": "an observation, a reward, terminated, truncated and a dictionary",
}


class CheckedEnv(gymnasium.Wrapper):
    """An environment that keeps to its observation space and to the interface, or raises WorldError.

    NaN is an error but in rows of entities that are absent.

    Observations are arrays of the declared dtype, rewards floats, ends booleans.
    """

    def __init__(self, env: gymnasium.Env):
        """Check an environment whose observations are a Box."""
        super().__init__(env)
        self._name = name_of(env)
        self._space = env.observation_space
        self._step = 0  # 0 is the reset

    @property
    def spec(self) -> Any:
        """That of the environment, which is made without this wrapper."""
        return self.env.spec

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Reset the environment; WorldError if it raises, or returns anything else."""
        self._step = 0
        try:
            returned = self.env.reset(seed=seed, options=options)
        except (Exception, SystemExit) as error:
            raise self._raised("reset", error) from error
        try:
            observation, info = self._parts(returned, 2, "reset")
            return _observation_in(self._space, observation), info
        except _Broken as broken:
            raise self._error(str(broken)) from None

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Step the environment; WorldError if it raises, or returns anything else."""
        self._step += 1
        try:
            returned = self.env.step(action)
        except (Exception, SystemExit) as error:
            raise self._raised("step", error) from error
        try:
            observation, reward, terminated, truncated, info = self._parts(returned, 5, "step")
            return (
                _observation_in(self._space, observation),
                _reward(reward),
                _end("terminated", terminated),
                _end("truncated", truncated),
                info,
            )
        except _Broken as broken:
            raise self._error(str(broken)) from None

    def close(self) -> None:
        """Close the environment; what it raises then comes too late to matter, and is logged."""
        try:
            self.env.close()
        except Exception as error:
            _log_once(f"{self._name} close: it raised {described(error)}")

    def _raised(self, function: str, error: BaseException) -> WorldError:
        sentence = f"it raised {described(error)}"
        if isinstance(error, ValueError) and "values to unpack" in str(error):
            sentence += f"; {function} must return {_RETURNS[function]}."  # to a wrapper
        failure = self._error(sentence)
        failure.add_note(traceback.format_exc())
        return failure

    def _parts(self, returned: Any, count: int, function: str) -> Any:
        if not isinstance(returned, tuple | list) or len(returned) != count:
            what = f"{len(returned)} values" if isinstance(returned, tuple | list) else "one value"
            raise _Broken(f"{function} returned {what}; it must return {_RETURNS[function]}.")
        if not isinstance(returned[-1], dict):
            raise _Broken(f"the info is {_shown(returned[-1])}; it must be a dictionary.")
        return returned

    def _error(self, sentence: str) -> WorldError:
        when = f"step {self._step}" if self._step else "reset"
        return WorldError(f"{self._name} {when}: {sentence}")


@functools.cache
def _log_once(sentence: str) -> None:
    """Log a sentence once for the many environments of a pool."""
    logging.getLogger("sensorium").warning(sentence)


class _Broken(Exception):
    """A breach of the interface: a sentence."""


def checked(env: gymnasium.Env) -> gymnasium.Env:
    """Return `env`, checked once."""
    if isinstance(env, CheckedEnv) or not isinstance(env.observation_space, spaces.Box):
        return env
    return CheckedEnv(env)


def check_observation(space: spaces.Box, observation: Any, name: str) -> np.ndarray:
    """Convert an observation to an array of the dtype of its space.

    Args:
        space: What the environment declared.
        observation: What it showed.
        name: Of the environment.

    Raises:
        WorldError: It is of another shape, or of values that the space or a float32 cannot hold.
    """
    try:
        return _observation_in(space, observation)
    except _Broken as broken:
        raise WorldError(f"{name}: {broken}") from None


def name_of(env: gymnasium.Env) -> str:
    """Return the id of an environment, or its class."""
    return env.spec.id if env.spec else type(env.unwrapped).__name__


def described(error: BaseException) -> str:
    """Describe what was raised, in one line."""
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text}"


def _observation_in(space: Any, observation: Any) -> np.ndarray:
    try:
        seen = np.asarray(observation)
    except Exception:  # rows of several lengths, say
        raise _Broken(f"the observation is {_shown(observation)}; {_declared(space)}") from None
    if seen.dtype.kind not in "biuf":
        raise _Broken(f"the observation is {_shown(observation)}; {_declared(space)}")
    if seen.shape != space.shape:
        raise _Broken(f"the observation is of shape {seen.shape}; {_declared(space)}")
    if seen.dtype != space.dtype:
        with np.errstate(over="ignore", invalid="ignore"):
            cast = seen.astype(space.dtype)
        if space.dtype.kind != "f" and not np.array_equal(cast, seen):
            value = seen[cast != seen].flat[0]
            raise _Broken(f"the observation holds {value}; {_declared(space)}")
        if space.dtype.kind == "f" and seen.dtype.kind == "f":
            _check_size(space, seen)
        seen = cast
    _check_size(space, seen)
    return seen


def _check_size(space: Any, seen: np.ndarray) -> None:
    # The sum of squares is found three times sooner than whether all are finite
    if seen.dtype.kind != "f" or float(np.vdot(seen, seen)) <= _LARGEST_SQUARED:
        return
    wrong = ~(np.abs(seen) <= _LARGEST)
    if isinstance(space, EntityBox):
        wrong &= ~np.isnan(seen).all(axis=1, keepdims=True)  # absent
    if wrong.any():
        value = seen[wrong].flat[0]
        raise _Broken(f"the observation holds {value}; numbers must be finite as float32.")


def _reward(reward: Any) -> float:
    if not isinstance(reward, float | int):
        array = _array_of_one(reward)
        if array is None:
            raise _Broken(f"the reward is {_shown(reward)}; it must be a finite number.")
        reward = array.item()
    if not -_LARGEST <= reward <= _LARGEST:
        raise _Broken(f"the reward is {_shown(reward)}; it must be finite as float32.")
    return float(reward)


def _end(which: str, value: Any) -> bool:
    if value is True or value is False:
        return value
    array = _array_of_one(value)
    if array is None or array.item() not in (0, 1):
        raise _Broken(f"{which} is {_shown(value)}; it must be True or False.")
    return bool(array.item())


def _array_of_one(value: Any) -> np.ndarray | None:
    """Return the number in an array of any shape; None if it is anything else."""
    try:
        array = np.asarray(value)
    except Exception:
        return None
    return array if array.size == 1 and array.dtype.kind in "biuf" else None


def _shown(value: Any) -> str:
    """Format a value for a sentence: short, and in one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"a {type(value).__name__}"


def _declared(space: Any) -> str:
    return f"its space declares {space.dtype} of shape {space.shape}."
