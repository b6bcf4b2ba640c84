"""Walkers stepped with few calls, against the environment as its authors wrote it."""

import gymnasium
import numpy as np
import pytest

pytest.importorskip("pybullet_envs_gymnasium", reason="the extra `ant` is not installed")

from sensorium.bridges.fast_bullet import QuickStep
from sensorium.bridges.open_env import open_env

_WALKERS = [f"{robot}BulletEnv-v0" for robot in ("Ant", "HalfCheetah", "Hopper", "Walker2D")]


@pytest.mark.parametrize("name", _WALKERS)
def test_the_same_numbers_as_the_environment_itself(name: str) -> None:
    quick = open_env(name)
    assert isinstance(quick.unwrapped.step, QuickStep)
    original = gymnasium.make(name, disable_env_checker=True)
    original.reset(seed=0)  # the first episode of a world is another, see `bullet`
    random = np.random.default_rng(0)
    episodes, ended = 0, True
    for step in range(1200):
        if ended:
            episodes += 1
            starts = [env.reset(seed=step)[0] for env in (original, quick)]
            np.testing.assert_array_equal(*starts)
        action = random.uniform(-1.2, 1.2, quick.action_space.shape).astype(np.float32)
        expected, got = original.step(action), quick.step(action)
        np.testing.assert_array_equal(got[0], expected[0], strict=True)
        assert got[1:] == expected[1:]
        assert quick.unwrapped.rewards == original.unwrapped.rewards
        ended = expected[2] or expected[3]
    assert episodes > 1


def test_a_robot_with_ways_of_its_own_keeps_them() -> None:
    env = open_env("HumanoidBulletEnv-v0")
    assert not isinstance(env.unwrapped.step, QuickStep)
    env.reset(seed=0)
    assert len(env.step(env.action_space.sample())) == 5
