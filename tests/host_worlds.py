"""Tiny Gymnasium environments, each with one vice; `gym:tests.host_worlds:Name-v0`."""

import os
import signal
import time
from pathlib import Path
from typing import ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces


class Walk(gymnasium.Env):
    """A random walk of two readings; a reward for following the first; ends after 5 to 14 steps."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = spaces.Box(-10, 10, (2,), np.float64)
        self.action_space = spaces.Box(np.float32([-3, 0]), np.float32([3, 1]))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.end = 0, int(self.np_random.integers(5, 15))
        self.reading = self.np_random.normal(size=2)
        return self.reading, {}

    def step(self, action):
        assert self.action_space.contains(np.asarray(action, np.float32)), action
        reward = float(-abs(self.reading[0] - action[0]) + 0.1 * action[1])
        self.reading = self.reading + self.np_random.normal(size=2) * 0.5
        self.time += 1
        return self.reading, reward, self.time == self.end, False, {}

    def render(self):
        return np.full((8, 8, 3), self.time, np.uint8)


class Mute(Walk):
    """Has no image of itself."""

    def render(self):
        return None


class Undrawable(Walk):
    """Lacks what it would draw itself with."""

    def render(self):
        raise ImportError("no graphics library")


class Mortal(Walk):
    """Kills its process at its seventh step, as often as the file in SENSORIUM_TEST_LIVES has lines."""

    def step(self, action):
        lives = Path(os.environ["SENSORIUM_TEST_LIVES"])
        if self.time == 4 and lives.read_text():
            lives.write_text(lives.read_text()[1:])
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class Hanging(Walk):
    """Never comes back from its third step."""

    def step(self, action):
        while self.time == 2:
            time.sleep(1)
        return super().step(action)


class Raising(Walk):
    """Raises at its third step."""

    def step(self, action):
        if self.time == 2:
            raise ValueError("the left knee\nis missing")
        return super().step(action)


class ShowingNaN(Walk):
    """Shows NaN at its third step."""

    def step(self, action):
        _, *others = super().step(action)
        return (self.reading if self.time < 3 else self.reading * np.nan), *others


class Unopenable(Walk):
    """Opens in the first process that asks, and in no worker."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        if os.environ.get("SENSORIUM_TEST_PARENT") != str(os.getpid()):
            raise RuntimeError("no display")


class Images(gymnasium.Env):
    """A grey image; the reward is its brightness times the action."""

    def __init__(self, render_mode=None):
        self.observation_space = spaces.Box(0, 255, (4, 5, 3), np.uint8)
        self.action_space = spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.grey = int(self.np_random.integers(256))
        return np.full((4, 5, 3), self.grey, np.uint8), {}

    def step(self, action):
        observation, _ = self.reset()
        return observation, float(self.grey / 255 * action[0]), False, False, {}


class Choices(Walk):
    """A random walk whose first reading asks for one of three, its second for one of two."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.action_space = spaces.MultiDiscrete([3, 2])

    def step(self, action):
        assert self.action_space.contains(action), action
        wanted = np.searchsorted([-0.5, 0.5], self.reading[0]), self.reading[1] > 0
        self.reading = self.reading + self.np_random.normal(size=2) * 0.5
        self.time += 1
        reward = float(np.mean(np.equal(action, wanted)))
        return self.reading, reward, self.time == self.end, False, {}


class Shades(Images):
    """A grey image; pays where the action says whether it is bright."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.observation_space = spaces.Box(0, 255, (8, 8, 3), np.uint8)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        _, info = super().reset(seed=seed)
        return np.full((8, 8, 3), self.grey, np.uint8), info

    def step(self, action):
        reward = float(action == (self.grey > 127))
        observation, _ = self.reset()
        return observation, reward, False, False, {}


class Drive(gymnasium.Env):
    """Images as large as CarRacing's, of noise and grass; pays for steering."""

    def __init__(self, render_mode=None):
        self.observation_space = spaces.Box(0, 255, (96, 96, 3), np.uint8)
        self.action_space = spaces.Box(-1, 1, (3,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        image = self.np_random.integers(0, 256, (96, 96, 3), np.uint8)
        image[:48] = 100, 202, 100
        return image, {}

    def step(self, action):
        observation, _ = self.reset()
        return observation, float(action[0]), False, False, {}


class Floats(Drive):
    """Shows numbers from 0 to 1 where images are bytes."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.observation_space = spaces.Box(0, 1, (96, 96, 3), np.float32)


class Unbounded(Walk):
    """Takes any numbers at all."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.action_space = spaces.Box(-np.inf, np.inf, (2,))


class Words(Walk):
    """Observes text among other things."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.observation_space = spaces.Dict({"a": self.observation_space, "b": spaces.Text(5)})


class Scales(gymnasium.Env):
    """Three readings of different sizes, of a Dict; pays for following the smallest. 20 steps."""

    def __init__(self, render_mode=None):
        self.observation_space = spaces.Dict(
            {
                "large": spaces.Box(-np.inf, np.inf, (2,), np.float64),
                "small": spaces.Box(-1, 1, (), np.float32),
            }
        )
        self.action_space = spaces.Box(-2, 2, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._look(), {}

    def step(self, action):
        reward = float(abs(float(action[0]) - 2.0 * float(self.small)) < 0.7)
        self.time += 1
        return self._look(), reward, False, self.time == 20, {}

    def _look(self):
        self.small = np.asarray(self.np_random.uniform(-1, 1), np.float32)
        return {"large": np.array([3.0, 4.0]), "small": self.small}


def follow(shown):
    """The best action in `Scales`, of one environment or a batch."""
    return 2.0 * np.reshape(shown["small"], (-1, 1) if np.ndim(shown["small"]) else (1,))


class Pairs(Walk):
    """Takes a pair of actions, of a Tuple."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.action_space = spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3)))


class Rows(gymnasium.Env):
    """Up to `count` things of (presence, x, y), of which some are there; a reward for naming how many.

    `show` says how what is absent is told: by the first column, by NaN, or by a mask beside the matrix.
    """

    def __init__(self, count=4, show="presence", limit=6):
        self.count, self.show, self.limit = count, show, limit
        matrix = spaces.Box(-2, 2, (count, 3), np.float32)
        self.observation_space = matrix
        if show == "mask":
            self.observation_space = spaces.Dict(
                {"things": matrix, "there": spaces.MultiBinary(count)}
            )
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._look(), {}

    def step(self, action):
        reward = float(action == self.there.sum() % 3)
        self.time += 1
        return self._look(), reward, False, self.time == self.limit, {}

    def _look(self):
        self.there = self.np_random.random(self.count) < 0.6
        rows = self.np_random.uniform(-1, 1, (self.count, 3)).astype(np.float32)
        rows[:, 0] = 1
        if self.show == "mask":
            return {"things": rows, "there": self.there.astype(np.int8)}
        rows[~self.there] = np.nan if self.show == "nan" else 0
        return rows


class Grid(gymnasium.Env):
    """A picture in grey without an axis of channels."""

    def __init__(self):
        self.observation_space = spaces.Box(0, 255, (6, 7), np.uint8)
        self.action_space = spaces.Discrete(2)


class Stripes(gymnasium.Env):
    """An image of stripes; the action is rewarded if it is 1 where they stand, and -1 where they lie."""

    def __init__(self):
        self.observation_space = spaces.Box(0, 255, (12, 18, 3), np.uint8)
        self.action_space = spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._draw(), {}

    def step(self, action):
        reward = 1 - abs(float(action[0]) - (1 if self.standing else -1)) / 2
        return self._draw(), reward, False, False, {}

    def _draw(self):
        self.standing = self.np_random.random() < 0.5
        image = np.zeros((12, 18, 3), np.uint8)
        image[:, ::2] = 200
        if not self.standing:
            image = np.zeros_like(image)
            image[::2] = 200
        return image


class GreyStripes(Stripes):
    """The same without colours."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Box(0, 255, (12, 18, 1), np.uint8)

    def _draw(self):
        return super()._draw()[..., :1]


def name_stripes(shown):
    """What pays in `Stripes`, but where patches were exchanged: it reads two pixels."""
    return np.where(shown[..., 0, 0, 0] == shown[..., 11, 0, 0], 1.0, -1.0)[..., None]


VICES = (Mute, Undrawable, Mortal, Hanging, Raising, ShowingNaN, Unopenable, Words, Pairs)
for kind in (
    Walk,
    *VICES,
    Choices,
    Images,
    Shades,
    Drive,
    Floats,
    Unbounded,
    Scales,
    Rows,
    Grid,
    Stripes,
    GreyStripes,
):
    gymnasium.register(
        f"{kind.__name__}-v0", f"tests.host_worlds:{kind.__name__}", max_episode_steps=20
    )
gymnasium.register("Endless-v0", "tests.host_worlds:Walk")  # tells no time limit
