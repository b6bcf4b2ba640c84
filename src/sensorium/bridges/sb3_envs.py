"""Vectors of Gymnasium's environments as Stable-Baselines3 takes them.

model = stable_baselines3.PPO("CnnPolicy", to_vec_env(WorldVectorEnv("CarRacing", 16)))
"""

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from sensorium.bridges.sb3 import import_sb3
from sensorium.errors import check_counts


def to_vec_env(env: VectorEnv, action_repeat: int = 1) -> Any:
    """Make a `VecEnv` of Stable-Baselines3, which starts each environment anew when it has ended.

    Args:
        env: One that starts nothing by itself (`AutoresetMode.DISABLED`), as `WorldVectorEnv` and
            `PoolVectorEnv`.
        action_repeat: Steps that an action is held, whose rewards are added up; an episode ends at most that
            much late. More than 1 only for worlds that can be stepped past an end, as ours can.

    Raises:
        MissingExtraError: Stable-Baselines3 is not installed.
        ConfigError: `action_repeat` is below 1.
    """
    sb3 = import_sb3()
    check_counts(action_repeat=action_repeat)

    class GymnasiumVecEnv(sb3.common.vec_env.VecEnv):
        """`env` behind the older interface of Stable-Baselines3."""

        def __init__(self) -> None:
            super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
            self._actions = np.zeros(env.action_space.shape, np.float32)

        def reset(self) -> np.ndarray:
            observations, _ = env.reset(seed=self._seeds[0])
            self._reset_seeds()
            return observations

        def step_async(self, actions: np.ndarray) -> None:
            self._actions = actions

        def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
            rewards = np.zeros(self.num_envs, np.float32)
            ended = truncated = np.zeros(self.num_envs, bool)
            for _ in range(action_repeat):
                observations, earned, terminates, truncates, _ = env.step(self._actions)
                rewards = rewards + np.where(ended, 0.0, earned)
                # Only how an episode ends first counts
                truncated = truncated | (truncates & ~terminates & ~ended)
                ended = ended | terminates | truncates
            infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
            for index in np.flatnonzero(ended):
                infos[index] = {
                    "terminal_observation": observations[index],
                    "TimeLimit.truncated": bool(truncated[index]),
                }
            if ended.any():
                observations, _ = env.reset(options={"reset_mask": ended})
            return observations, rewards, ended, infos

        def close(self) -> None:
            env.close()

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [getattr(env, attr_name)] * len(self._get_indices(indices))

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            raise NotImplementedError("Environments that are stepped together have no attributes.")

        def env_method(self, method_name: str, *args: Any, indices: Any = None, **more: Any) -> Any:
            raise NotImplementedError("Environments that are stepped together have no methods.")

        def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
            return [False] * len(self._get_indices(indices))

    return GymnasiumVecEnv()
