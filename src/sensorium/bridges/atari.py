"""Atari games of ALE as both papers' agents see them: one grey picture of 84 x 84 pixels for four frames.

The picture is the maximum of the last two frames, resized by the mean of areas; a pixel of Pong's picture is
2.5 rows and 40/21 columns of the screen. This is what `gymnasium.wrappers.AtariPreprocessing` shows, pixel
for pixel, without the pictures that it draws and throws away. A game starts after 1 to 30 frames without an
action, and is over when all lives are lost. `gym:ALE/Pong-v5` repeats the last action in a quarter of all
frames ("sticky actions", Machado et al. 2018); the papers' game is
`gym:ALE/Pong-v5?repeat_action_probability=0`.

They come from ale-py, the extra `atari`.
"""

import re
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import UInt8

from sensorium.errors import ConfigError, needs

FRAMES = 4
"""Of the emulator in a step."""
SIZE = 84
"""Pixels of a picture, each way."""

_STARTS, _STICKY = "random_starts", "repeat_action_probability"
_FIXED = {"frameskip": 1, "obs_type": "ram", "continuous": False, "sound_obs": False}
_MOST_NOOPS = 30
_PARTS = re.compile("NOOP|UP|DOWN|LEFT|RIGHT|FIRE")  # of the name of an action
_OTHERS = {part: part.lower() for part in _PARTS.pattern.split("|")} | {"NOOP": "nothing"}
_PONG = _OTHERS | {"RIGHT": "up", "LEFT": "down"}
_FRAMES_PER_SECOND = 60

Picture = UInt8[np.ndarray, "84 84 1"]


def knows(name: str) -> bool:
    """Check whether `name` is one of ALE's games, or meant to be."""
    identifier = name.rpartition(":")[2]
    return identifier.startswith("ALE/") or "NoFrameskip-v" in identifier


def prepare(name: str, settings: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Register ALE's games, and check the options of one.

    Args:
        name: Such as `"ALE/Pong-v5"`.
        settings: The options. `random_starts`, 0 by default: take up to so many random actions before an
            episode, so that it starts in mid-game; others are arguments of `gymnasium.make`.

    Returns:
        `random_starts`, and all arguments of `gymnasium.make`.

    Raises:
        MissingExtraError: ale-py or OpenCV is not installed.
        ConfigError: An option is of the wrong kind, or cannot be chosen.
    """
    with needs("atari", name):
        import ale_py
        import cv2  # noqa: F401  # resizes
    gymnasium.register_envs(ale_py)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no greetings
    if fixed := _FIXED.keys() & settings.keys():
        raise ConfigError(
            f"{name}: {min(fixed)} cannot be chosen; agents see a grey picture after each {FRAMES} frames."
        )
    settings = {_STARTS: 0, **settings, **_FIXED}
    starts, sticky = settings.pop(_STARTS), settings.get(_STICKY, 0)
    if type(starts) is not int or starts < 0:
        raise ConfigError(f"{name}: {_STARTS} counts actions, from 0 on, not {starts!r}.")
    if not isinstance(sticky, int | float) or not 0 <= sticky < 1:
        raise ConfigError(
            f"{name}: {_STICKY} is a probability, from 0 to less than 1, not {sticky!r}."
        )
    return starts, settings


class AtariGame(gymnasium.Wrapper):
    """A game in steps of four frames.

    `info` has the number of `lives`, the last `action`, and the `memory` after each of the last two frames.
    """

    def __init__(self, env: gymnasium.Env, random_starts: int = 0):
        """Wrap a game of ALE that was opened as `prepare` says."""
        super().__init__(env)
        self.observation_space = spaces.Box(0, 255, (SIZE, SIZE, 1), np.uint8)
        self.metadata = {**env.metadata, "render_fps": _FRAMES_PER_SECOND // FRAMES}
        self._ale, self._actions = env.unwrapped.ale, env.unwrapped._action_set
        self._random_starts = random_starts
        self._frames = np.zeros((2, *self._ale.getScreenDims()), np.uint8)
        self._memory = np.zeros((2, self._ale.getRAMSize()), np.uint8)

    @property
    def action_names(self) -> tuple[str, ...]:
        """What each action does, in a word or two; the first does nothing."""
        meanings = self.env.unwrapped.get_action_meanings()
        # The paddles of Pong go up and down by a knob that turns right and left
        words = _PONG if "pong" in self.env.unwrapped.spec.id.lower() else _OTHERS
        return tuple(" ".join(words[part] for part in _PARTS.findall(each)) for each in meanings)

    def reset(self, *, seed: int | None = None, **options: Any) -> tuple[Picture, dict[str, Any]]:
        """Start a game: frames without an action, then random actions if starts are random."""
        self.env.reset(seed=seed, **options)
        random = self.unwrapped.np_random
        for _ in range(random.integers(1, _MOST_NOOPS + 1)):
            self._memory[0] = self._ale.getRAM()
            self._ale.act(self._actions[0])
        self._frames[0] = 0
        self._look(1)
        action = 0
        for _ in range(random.integers(self._random_starts + 1) if self._random_starts else 0):
            action = int(random.integers(len(self._actions)))
            self._advance(action)
            if self._ale.game_over():
                return self.reset()
        return self._picture(), self._info(action)

    def step(self, action: Any) -> tuple[Picture, float, bool, bool, dict[str, Any]]:
        """Take an action for four frames, or until the game is over."""
        reward = self._advance(int(action))
        ends = self._ale.game_over(with_truncation=False), self._ale.game_truncated()
        return self._picture(), reward, *ends, self._info(int(action))

    def _advance(self, action: int) -> float:
        ale, chosen, reward = self._ale, self._actions[action], 0.0
        for left in reversed(range(FRAMES)):
            reward += ale.act(chosen)
            if ale.game_over():
                break
            if left < len(self._frames):
                self._look(1 - left)
        return reward

    def _look(self, place: int) -> None:
        self._ale.getScreenGrayscale(self._frames[place])
        self._memory[place] = self._ale.getRAM()

    def _info(self, action: int) -> dict[str, Any]:
        return {"lives": self._ale.lives(), "action": action, "memory": self._memory.copy()}

    def _picture(self) -> Picture:
        import cv2

        both = np.maximum(*self._frames)
        return cv2.resize(both, (SIZE, SIZE), interpolation=cv2.INTER_AREA)[..., None]
