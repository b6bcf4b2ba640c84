"""CarRacing drawn with few calls, against the environment as its authors wrote it."""

import warnings

import gymnasium
import numpy as np
import pytest

pytest.importorskip("Box2D", reason="the extra `racing` is not installed")
pytest.importorskip("pygame", reason="the extra `racing` is not installed")

from sensorium.bridges.fast_car_racing import QuickRoad
from sensorium.bridges.open_env import open_env


def test_the_same_pixels_as_the_environment_itself() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quick = open_env("CarRacing-v3")
        original = gymnasium.make("CarRacing-v3", disable_env_checker=True)
    assert isinstance(quick.unwrapped._render_road, QuickRoad)
    random = np.random.default_rng(0)
    for seed in range(3):
        starts = [env.reset(seed=seed)[0] for env in (original, quick)]
        np.testing.assert_array_equal(*starts, strict=True)
        for step in range(
            80
        ):  # the camera comes down for 50; then bends, the grass and visited tiles
            action = np.array([random.uniform(-1, 1), step < 60, 0.1 * (step > 70)], np.float32)
            expected, got = original.step(action), quick.step(action)
            np.testing.assert_array_equal(got[0], expected[0], strict=True)
            assert got[1:] == expected[1:]


def test_tracks_of_the_other_kinds_keep_their_colours() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        envs = [
            gymnasium.make("CarRacing-v3", disable_env_checker=True, domain_randomize=True)
            for _ in range(2)
        ]
    racing = envs[1].unwrapped
    racing._render_road = QuickRoad(racing)
    frames = []
    for env in envs:
        env.reset(seed=0)
        env.reset(seed=1)  # new colours, and a new track
        frames.append([env.step(np.float32([0.3, 1, 0]))[0] for _ in range(10)])
    np.testing.assert_array_equal(*frames)


def test_other_worlds_are_left_alone() -> None:
    assert not hasattr(open_env("Pendulum-v1").unwrapped, "_render_road")
