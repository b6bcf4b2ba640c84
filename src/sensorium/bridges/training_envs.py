"""Environments as experts are trained in: steady actions pay more, motors do something else at times."""

from typing import Any

import gymnasium
import numpy as np

_DEVIATION = 0.6  # of random actions


def for_training(
    env: gymnasium.Env, jerk_penalty: float, jostled_steps: int = 0, jostled_every: int = 1
) -> gymnasium.Env:
    """Wrap an environment by `Jostle`, if there are steps for that, and by `PenaliseJerk`."""
    jostled = Jostle(env, jostled_steps, jostled_every) if jostled_steps else env
    return PenaliseJerk(jostled, jerk_penalty)


class PenaliseJerk(gymnasium.Wrapper):
    """Takes `penalty * mean((action - previous action)²)` from every reward but an episode's first."""

    def __init__(self, env: gymnasium.Env, penalty: float):
        """Wrap an environment whose action space is a Box."""
        super().__init__(env)
        self._penalty = penalty
        self._previous: np.ndarray | None = None

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode: there is no previous action."""
        self._previous = None
        return self.env.reset(**options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step, and pay less for a sudden change."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        now = np.asarray(action, np.float64)
        change = now - (now if self._previous is None else self._previous)
        self._previous = now
        paid = float(reward) - self._penalty * float(np.mean(change**2))
        return observation, paid, terminated, truncated, info


class Jostle(gymnasium.Wrapper):
    """Acts in place of the agent at the start of an episode, and again and again later.

    In 3 of 10 times each motor gets the action of another, else a random one: what an agent does that does
    not know its motors yet. An expert learns so to go on from there.
    """

    def __init__(self, env: gymnasium.Env, steps: int, every: int):
        """Wrap an environment whose action space is a Box.

        Args:
            env: The environment.
            steps: For how many steps at most; at least half of them.
            every: After how many steps again; from half to twice as many.
        """
        super().__init__(env)
        self._steps, self._every = steps, every
        self._random = np.random.default_rng()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self._begin()
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step by `action`, or by another."""
        if self._left == -self._pause:
            self._begin()
        if self._left > 0:
            action = self._other(np.asarray(action))
        self._left -= 1
        return self.env.step(action)

    def _begin(self) -> None:
        steps, every = self._steps, self._every
        self._left = int(self._random.integers((steps + 1) // 2, steps + 1))
        self._pause = int(self._random.integers((every + 1) // 2, 2 * every + 1))
        swapped = self._random.random() < 0.3
        self._order = self._random.permutation(self.action_space.shape[0]) if swapped else None

    def _other(self, action: np.ndarray) -> np.ndarray:
        space = self.action_space
        middle, half = (space.high + space.low) / 2, (space.high - space.low) / 2
        if self._order is not None:
            drawn = ((action - middle) / half)[self._order]
        else:
            drawn = _DEVIATION * self._random.standard_normal(action.shape)
        return (middle + half * np.clip(drawn, -1, 1)).astype(action.dtype)
