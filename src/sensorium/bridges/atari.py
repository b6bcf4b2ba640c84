"""Atari games of ALE as both papers' agents see them: one grey picture of 84 x 84 pixels for four frames.

The picture is the maximum of the last two frames, resized by the mean of areas; a pixel of Pong's picture is
2.5 rows and 40/21 columns of the screen. This is what `gymnasium.wrappers.AtariPreprocessing` shows, pixel
for pixel, without the pictures that it draws and throws away; `?wrapper=AtariWrapper` shows what
Stable-Baselines3's wrapper does (`make_atari_env`). A game starts after 1 to 30 frames without an action, and
is over when all lives are lost. `gym:ALE/Pong-v5` repeats the last action in a quarter of all frames ("sticky
actions", Machado et al. 2018); the papers' game is `gym:ALE/Pong-v5?repeat_action_probability=0`.

They come from ale-py, the extra `atari`.
"""

import re
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import UInt8

from sensorium.errors import ConfigError, did_you_mean, needs

FRAMES = 4
"""Of the emulator in a step."""
SIZE = 84
"""Pixels of a picture, each way."""

_STARTS, _WRAPPER, _STICKY = "random_starts", "wrapper", "repeat_action_probability"
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


def open_game(
    name: str, settings: dict[str, Any], make: Callable[[dict[str, Any]], gymnasium.Env]
) -> "AtariGame":
    """Open one of ALE's games.

    Args:
        name: Such as `"ALE/Pong-v5"`.
        settings: The options. `random_starts`, 0 by default: take up to so many random actions before an
            episode, so that it starts in mid-game. `wrapper`: `AtariPreprocessing`, the default, or
            `AtariWrapper`. Others are arguments of `gymnasium.make`.
        make: Calls `gymnasium.make` with arguments.

    Raises:
        MissingExtraError: ale-py or OpenCV is not installed.
        UnknownNameError: There is no such wrapper.
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
    settings = {_STARTS: 0, _WRAPPER: AtariGame.wrapper, **settings, **_FIXED}
    starts, wrapper = settings.pop(_STARTS), settings.pop(_WRAPPER)
    sticky = settings.get(_STICKY, 0)
    if (game := _GAMES.get(str(wrapper))) is None:
        raise did_you_mean(_WRAPPER, str(wrapper), _GAMES)
    if type(starts) is not int or starts < 0:
        raise ConfigError(f"{name}: {_STARTS} counts actions, from 0 on, not {starts!r}.")
    if not isinstance(sticky, int | float) or not 0 <= sticky < 1:
        raise ConfigError(
            f"{name}: {_STICKY} is a probability, from 0 to less than 1, not {sticky!r}."
        )
    return game(make(settings), starts)


class AtariGame(gymnasium.Wrapper):
    """A game in steps of four frames, as `AtariPreprocessing` of Gymnasium shows it.

    `info` has the number of `lives`, the last `action`, and the `memory` after each of the last two frames.
    """

    wrapper: ClassVar[str] = "AtariPreprocessing"
    """Whose pictures it shows."""
    _facts: ClassVar[dict[str, Any]] = {
        "fills_stack": True,  # as FrameStackObservation
        "note": "pictures of AtariPreprocessing; for a model behind AtariWrapper of Stable-Baselines3 "
        "(make_atari_env) add ?wrapper=AtariWrapper",
    }
    _channels: ClassVar[tuple[int, ...]] = ()  # of a frame

    def __init__(self, env: gymnasium.Env, random_starts: int = 0):
        """Wrap a game of ALE; see `open_game`."""
        super().__init__(env)
        self.observation_space = spaces.Box(0, 255, (SIZE, SIZE, 1), np.uint8)
        facts = {**self._facts, "render_fps": _FRAMES_PER_SECOND // FRAMES}
        if frames := env.unwrapped.spec.kwargs.get("max_num_frames_per_episode"):
            facts["max_episode_steps"] = -(-frames // FRAMES)
        self.metadata = {**env.metadata, **facts}
        self._ale, self._actions = env.unwrapped.ale, env.unwrapped._action_set
        self._random_starts = random_starts
        self._frames = np.zeros((2, *self._ale.getScreenDims(), *self._channels), np.uint8)
        self._memory = np.zeros((2, self._ale.getRAMSize()), np.uint8)

    @property
    def option_names(self) -> tuple[str, ...]:
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
        action, _ = self._take(self._opening())
        for _ in range(random.integers(self._random_starts + 1) if self._random_starts else 0):
            action = int(random.integers(len(self._actions)))
            self._advance(action)
            if self._ale.game_over():
                return self.reset()
        return self._picture(), self._info(action)

    def step(self, action: Any) -> tuple[Picture, float, bool, bool, dict[str, Any]]:
        """Take an action for four frames, or until the game is over."""
        last, lives = int(action), self._ale.lives()
        reward = self._advance(last)
        if 0 < self._ale.lives() < lives:
            last, more = self._take(self._opening(lost=True), last)
            reward += more
        ends = self._ale.game_over(with_truncation=False), self._ale.game_truncated()
        return self._picture(), reward, *ends, self._info(last)

    def _opening(self, lost: bool = False) -> tuple[int, ...]:
        """Return the actions that begin a game, or the next life where one was lost."""
        return ()

    def _take(self, actions: tuple[int, ...], last: int = 0) -> tuple[int, float]:
        """Take actions; return the last one, and what they earned."""
        reward = sum(map(self._advance, actions), 0.0)
        return (last, *actions)[-1], reward

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
        self._draw(self._frames[place])
        self._memory[place] = self._ale.getRAM()

    def _info(self, action: int) -> dict[str, Any]:
        return {"lives": self._ale.lives(), "action": action, "memory": self._memory.copy()}

    def _draw(self, frame: np.ndarray) -> None:
        self._ale.getScreenGrayscale(frame)

    def _picture(self) -> Picture:
        import cv2

        grey = self._to_grey(np.maximum(*self._frames))
        return cv2.resize(grey, (SIZE, SIZE), interpolation=cv2.INTER_AREA)[..., None]

    def _to_grey(self, frame: np.ndarray) -> np.ndarray:
        return frame


class Sb3AtariGame(AtariGame):
    """A game as `AtariWrapper` of Stable-Baselines3 shows it, but in episodes of all lives, for all points.

    The maximum of two frames is taken in colour, not in grey: where things move, pixels differ. In games with
    a button it is pressed first, then the next action is taken, in each life: `FireResetEnv`.
    """

    wrapper: ClassVar[str] = "AtariWrapper"
    _facts: ClassVar[dict[str, Any]] = {"note": "pictures and starts of AtariWrapper"}
    _channels: ClassVar[tuple[int, ...]] = (3,)

    def _opening(self, lost: bool = False) -> tuple[int, ...]:
        fires = "FIRE" in self.env.unwrapped.get_action_meanings()
        return (0,) * lost + (1, 2) * fires  # `EpisodicLifeEnv`, then `FireResetEnv`

    def _draw(self, frame: np.ndarray) -> None:
        self._ale.getScreenRGB(frame)

    def _to_grey(self, frame: np.ndarray) -> np.ndarray:
        import cv2

        return cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)


_GAMES = {game.wrapper: game for game in (AtariGame, Sb3AtariGame)}
