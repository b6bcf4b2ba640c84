"""A reward for steady actions, for training experts that can be imitated."""

from typing import Any

import gymnasium
import numpy as np


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
