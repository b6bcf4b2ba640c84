"""Environments as experts are trained in."""

import gymnasium
import numpy as np
import pytest

from sensorium.bridges.training_envs import for_training


class Recorded(gymnasium.Env):
    """Keeps the actions that arrive."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(
        np.float32([-1, 0, -3, -1, -1, -1]), np.float32([1, 2, 3, 1, 1, 1])
    )

    def reset(self, *, seed=None, options=None):
        self.arrived = []
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.arrived.append(action)
        return np.zeros(1, np.float32), 1.0, False, False, {}


GIVEN = np.float32([0.25, 0.5, -0.75, 0.75, 0.125, -0.875])


def lived(seed, steps=10, every=30, length=400):
    env = for_training(Recorded(), 1.0, steps, every)
    env.reset(seed=seed)
    paid = [env.step(GIVEN)[1] for _ in range(length)]
    arrived = np.array(env.unwrapped.arrived)
    return arrived, ~np.isclose(arrived, GIVEN).all(1), paid


@pytest.mark.parametrize("seed", range(8))
def test_motors_do_something_else_at_the_start_and_now_and_then(seed):
    arrived, other, paid = lived(seed)
    starts = np.flatnonzero(np.diff(np.concatenate([[False], other]).astype(int)) == 1)
    ends = np.flatnonzero(np.diff(np.concatenate([other, [False]]).astype(int)) == -1) + 1
    assert starts[0] == 0
    lengths, pauses = (ends - starts)[:-1], starts[1:] - ends[:-1]
    assert lengths.min() >= 5
    assert lengths.max() <= 10
    assert pauses.min() >= 15
    assert pauses.max() <= 60
    space = Recorded.action_space
    assert all(space.contains(action) for action in arrived)
    assert paid == [1.0] * len(paid)  # for what the agent does, which is steady
    again, _, _ = lived(seed)
    np.testing.assert_array_equal(again, arrived)


def test_some_motors_get_the_action_of_another_and_some_a_random_one():
    scaled = [
        (lived(seed, length=1)[0][0] - [0, 1, 0, 0, 0, 0]) / [1, 1, 3, 1, 1, 1]
        for seed in range(200)
    ]
    swapped = [
        np.allclose(np.sort(each), [-0.875, -0.5, -0.25, 0.125, 0.25, 0.75]) for each in scaled
    ]
    assert 0.15 < np.mean(swapped) < 0.4


def test_without_steps_of_that_kind_actions_arrive_as_they_are():
    env = for_training(Recorded(), 0.5)
    env.reset(seed=0)
    assert env.step(GIVEN)[1] == 1.0
    assert env.step(GIVEN + np.float32([0.5, 0, 0, 0, 0, 0]))[1] == pytest.approx(
        1 - 0.5 * 0.25 / 6
    )
    assert len(env.unwrapped.arrived) == 2
