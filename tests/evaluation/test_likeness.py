"""Sensors that are the same in all but their role are found, and no others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorium.evaluation.likeness import alike

EPISODES, STEPS = 40, 30


def episodes(seed=0):
    """Two goals that stay, two positions that one action moves each, and louder noise."""
    random = np.random.default_rng(seed)
    actions = random.uniform(-1, 1, (EPISODES, STEPS, 2))
    goals = np.broadcast_to(random.normal(size=(EPISODES, 1, 2)), (EPISODES, STEPS, 2))
    moved = np.concatenate([np.zeros((EPISODES, 1, 2)), np.cumsum(actions, axis=1)[:, :-1]], axis=1)
    noise = 3 * random.normal(size=(EPISODES, STEPS, 1))
    lengths = random.integers(5, STEPS + 1, EPISODES)
    return np.concatenate([goals, moved, noise], axis=2), actions, lengths


@given(st.permutations(range(5)))
def test_goals_are_alike_wherever_they_are(order):
    observations, actions, lengths = episodes()
    ((first, second, told_apart),) = alike(observations[:, :, order], actions, lengths)
    assert {order[first], order[second]} == {0, 1}
    assert told_apart < 0.75


def test_what_comes_after_the_end_is_not_read():
    observations, actions, lengths = episodes()
    later = np.arange(STEPS) >= lengths[:, None]
    pairs = alike(observations, actions, lengths)
    assert pairs == alike(np.where(later[..., None], 1e3, observations), actions, lengths)


@pytest.mark.parametrize("constant", [False, True])
def test_what_reads_the_same_does_no_harm(constant):
    observations, actions, lengths = episodes()
    observations = observations[:, :, 1:]
    more = np.ones_like(observations[:, :, :2]) if constant else observations[:, :, [0, 3]]
    assert alike(np.concatenate([observations, more], axis=2), actions, lengths) == ()


def test_two_episodes_say_nothing():
    observations, actions, lengths = episodes()
    assert alike(observations[:2], actions[:2], lengths[:2]) == ()
