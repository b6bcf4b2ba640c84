"""A player of Atari Pong that reads the game's memory, an expert for agents that see pictures.

    sensorium train pong-pi --expert sensorium.bridges.pong:player

How the game works, in pixels, as its memory tells (ALE's `Pong`, the right paddle):

- A held direction turns the knob by 5.75 a frame, between 14.7 and 205.4. In every second frame the paddle
  takes half of its way to where the knob points, the next even number below, but not above 38.
- The ball turns above 46 and below 206, one pixel further on. Where it meets the paddle, at x = 188, decides
  its vertical speed: -2 at the upper end of the paddle, then -1, 0, 1, and 2 at the lower end. The opponent
  is too slow for some of the balls of speed -2 and 2, and returns all others.

So while a ball is on its way, a table of values is made backwards from where it will arrive: of each move
from each place of the knob at each action until then, under sticky actions too.
"""

import functools
import itertools
import math
import weakref
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from jaxtyping import Float, UInt8

from sensorium.bridges.atari import FRAMES

UNIT = 40.0
"""Pixels that the places which the player says are in units of."""

_BALL_X, _BALL_Y, _SPEED_X, _SPEED_Y = 49, 54, 58, 56  # addresses in the memory
_KNOB, _PADDLE, _CLOCK = 4, 60, 8
_TOP, _BOTTOM, _RIGHT = 46, 206, 188  # where the ball turns
_STEP = 5.75  # pixels that the knob turns in a frame
_LOWEST, _HIGHEST = 14.69, 205.38  # of the knob
_UPMOST = 38  # of the paddle
_RESTS = (_HIGHEST, _LOWEST)  # where the knob waits, for so many returns of a rally each
_RETURNS = 48  # for without chance a rally may repeat itself
_NEAR = 15.0  # that is near enough
_FINE = 6  # cells of a table for each step of the knob
_CELLS = round((_HIGHEST - _LOWEST) * _FINE / _STEP) + 1
_MIDDLE = 120.0  # of the places that are said
_LAST = 2  # actions before a ball arrives, which are tried out frame by frame
_LONGEST = 50  # actions while a ball is on its way, at most
_OF_STUDENTS = 7  # pixels that a student errs by (docs/experiments.md)
_STAKES = 0.3  # of a point, beyond which a step matters as much as any
_LEAST_WEIGHT = 0.05  # of a step at which all moves are alike
_EFFORT = 0.01  # the cost of moving, so that a player does not without need
_MOVES = (-1, 0, 1)  # up, nothing, down
_PLANS = np.array(list(itertools.product(_MOVES, repeat=_LAST)))
_MOVE_OF_ACTION = (0, 0, -1, 1, -1, 1)
_ACTION_OF_MOVE = (2, 0, 3)
_ONLY = np.eye(len(_MOVES))  # a move that is worth more than all others


def player(
    env: gymnasium.Env, observation: Any, info: dict[str, Any]
) -> tuple[Float[np.ndarray, " actions"], Float[np.ndarray, " privileged"]]:
    """Choose an action, and say where things are: an expert as of `sensorium.bridges.advised`.

    The advice is how likely each action is, near ties alike. Places are in units of 40 pixels around the
    middle of the field.
    """
    del observation
    return _advice(env, info, None)


def teacher(env: gymnasium.Env, observation: Any, info: dict[str, Any]) -> tuple[Any, Any]:
    """Do the same for a student that errs: allow for seven pixels, as if its errors were one's own."""
    del observation
    return _advice(env, info, _OF_STUDENTS)


player.privileged = teacher.privileged = (  # type: ignore[attr-defined]
    "x of the ball",
    "y of the ball",
    "y of the paddle",
    "y of the knob",
    "y of the ball where it meets the paddle",
)
player.weighs = teacher.weighs = True  # type: ignore[attr-defined]

_players: weakref.WeakKeyDictionary[gymnasium.Env, tuple[int, "Player"]] = (
    weakref.WeakKeyDictionary()
)
"""Who plays in an environment, and the frame of its last action."""


def _advice(
    env: gymnasium.Env, info: dict[str, Any], error: int | None
) -> tuple[Float[np.ndarray, " actions"], Float[np.ndarray, " privileged"]]:
    """Return how likely each action is, the places and the weight; `error` as of `Player`."""
    ale = env.unwrapped.ale
    frame = ale.getEpisodeFrameNumber()
    last, known = _players.get(env, (0, None))
    if known is None or frame != last + FRAMES:  # another game
        known = Player(ale.getFloat("repeat_action_probability"), error)
    _players[env] = frame, known
    worth = known.worth(info["memory"], info["action"])
    stake = min(float(np.ptp(worth)) / _STAKES, 1.0)
    likely = np.zeros(len(_MOVE_OF_ACTION), np.float32)
    likely[list(_ACTION_OF_MOVE)] = np.exp((worth - worth.max()) / known.care.softness)
    weight = (
        _LEAST_WEIGHT + stake if known.care.sticky else 1.0
    )  # games known by heart matter throughout
    return likely / likely.sum(), np.append(known.places(info["memory"]), weight)


class Player:
    """Plays one game."""

    def __init__(self, sticky: float, error: int | None = None):
        """Begin a game.

        Args:
            sticky: The share of frames that repeat the action before.
            error: Pixels that it allows all to be wrong by; None for what plays best.
        """
        self.care = _care(sticky, error)
        self._knob: float | None = None
        self._arrives: int | None = None  # where it will meet the paddle
        self._returns = 0  # of this rally

    def act(self, memory: UInt8[np.ndarray, "2 128"], last: int) -> int:
        """Choose the best action; arguments as of `worth`."""
        return _ACTION_OF_MOVE[np.argmax(self.worth(memory, last))]

    def worth(self, memory: UInt8[np.ndarray, "2 128"], last: int) -> Float[np.ndarray, " moves"]:
        """Compute what each move is worth: up, nothing, down.

        Args:
            memory: Of the game after the last two frames.
            last: The action before.
        """
        before, now = memory.tolist()
        x, y, clock = now[_BALL_X], now[_BALL_Y], now[_CLOCK]
        speed_x, speed_y = -_signed(now[_SPEED_X]), _signed(now[_SPEED_Y])
        held = _MOVE_OF_ACTION[last]
        knob = self._follow(before if clock % 2 else now, clock % 2, held)
        coming = 0 < x < _RIGHT and speed_x > 0
        returned = self._arrives is not None and not coming
        self._returns = (self._returns + returned) * (x > 0)
        self._arrives = None
        if not x or not speed_x:
            return _ONLY[1]
        if not coming:
            away = _RESTS[self._returns // _RETURNS % len(_RESTS)] - knob
            return _ONLY[1 + int(np.sign(away)) * (abs(away) > _NEAR)]
        frames = -((x - _RIGHT) // speed_x)
        arrives = self._arrives = _arrives(y, speed_y, frames)
        sooner = max(-(-frames // FRAMES) - _LAST, 0)  # actions before the last ones
        if sooner:
            left = frames - FRAMES * sooner
            table = _table(arrives, left, (clock + frames - left) % 2, self.care)
            cell = round((knob - _LOWEST) * _FINE / _STEP)
            return table[sooner - 1, 1 + held, :, cell]
        start = np.array([knob]), np.array([float(now[_PADDLE])])
        of_plans = _tried_out(start, held, clock, frames, arrives, self.care)[0]
        return of_plans.reshape(len(_MOVES), -1).max(1)  # whatever follows the first of these

    def places(self, memory: UInt8[np.ndarray, "2 128"]) -> Float[np.ndarray, " places"]:
        """Return what `player.privileged` names, after `act`; NaN if there is no ball, or none that comes."""
        now = memory[1].tolist()
        x, y = (float(now[at]) or np.nan for at in (_BALL_X, _BALL_Y))
        arrives = np.nan if self._arrives is None else self._arrives
        places = np.array([x, y, now[_PADDLE], self._knob, arrives], np.float32)
        return (places - _MIDDLE) / UNIT

    def _follow(self, shown: list[int], since: int, held: int) -> float:
        """Return where the knob is, given the memory some frames ago.

        The memory has our knob, as an even number, after every second frame (after the others the
        opponent's); above the paddle's end it is not to be seen.
        """
        lowest = float(shown[_KNOB])
        knob = lowest if self._knob is None else self._knob + _STEP * held * (FRAMES - since)
        knob = float(np.clip(knob, _LOWEST, _HIGHEST))
        if lowest > _UPMOST:
            knob = knob if lowest <= knob < lowest + 2 else lowest + 1.0
        else:
            knob = min(knob, _UPMOST + 1.0)
        knob = float(np.clip(knob + _STEP * held * since, _LOWEST, _HIGHEST))
        self._knob = knob
        return knob


@functools.lru_cache(1280)  # of one player about all, 460 MB in each worker
def _table(
    arrives: int, frames: int, clock: int, care: "_Care"
) -> Float[np.ndarray, "actions held moves cells"]:
    """Return what moves are worth, some actions before the last ones, after each move and from each place.

    Args:
        arrives: The height of the ball when it arrives.
        frames: Of the last actions.
        clock: Of the game before these, modulo 2.
        care: How it allows for what it cannot foresee.
    """
    knob = _LOWEST + np.arange(_CELLS) * _STEP / _FINE
    start = knob, np.maximum(knob, _UPMOST)
    values = np.array(
        [_tried_out(start, held, clock, frames, arrives, care).max(1) for held in _MOVES]
    )
    away = np.abs(np.arange(_CELLS) - values[1].argmax()) / _CELLS
    table = np.zeros((_LONGEST, len(_MOVES), len(_MOVES), _CELLS), np.float32)
    for worth in table:
        worth[:] = _one_more(values, care.sticky)
        values = worth.max(1) - care.wait * away
    return table


def _one_more(
    values: Float[np.ndarray, "held cells"], sticky: float
) -> Float[np.ndarray, "held moves cells"]:
    """Return what each move is worth, one action before `values`."""
    worth = np.zeros((len(_MOVES), len(_MOVES), _CELLS))
    cells = np.arange(_CELLS)
    for (i, held), (j, move) in itertools.product(enumerate(_MOVES), enumerate(_MOVES)):
        for late, share in enumerate(_shares(sticky)):
            turned = _FINE * (held * late + move * (FRAMES - late))
            worth[i, j] += share * values[j, (cells + turned).clip(0, _CELLS - 1)]
        worth[i, j] -= _EFFORT * abs(move)
    return worth


def _tried_out(
    start: tuple[np.ndarray, np.ndarray],
    held: int,
    clock: int,
    frames: int,
    arrives: int,
    care: "_Care",
) -> Float[np.ndarray, "starts plans"]:
    """Return what each plan of the last actions is worth, from some places of knob and paddle."""
    shares = _shares(care.sticky)
    lates = np.array(list(itertools.product(range(len(shares)), repeat=_LAST)))
    knob, paddle = (
        np.broadcast_to(place[:, None, None], (len(place), len(_PLANS), len(lates)))
        for place in start
    )
    for frame in range(frames):
        number = frame // FRAMES
        move = _PLANS[:, number, None]
        before = _PLANS[:, number - 1, None] if number else np.full_like(move, held)
        turning = np.where(lates[:, number] > frame % FRAMES, before, move)
        knob = np.clip(knob + _STEP * turning, _LOWEST, _HIGHEST)
        drawn = paddle  # the ball meets what is drawn, a frame later than it was computed
        if (clock + frame + 1) % 2 == 0:
            paddle = (paddle + np.maximum(2 * (knob // 2), _UPMOST)) // 2
    around = sum(w * _reward(arrives - drawn + off, arrives) for off, w in care.unsure)
    return around @ shares[lates].prod(1) - _EFFORT * np.abs(_PLANS).sum(1)


class _Care(NamedTuple):
    """How a player allows for what it cannot foresee."""

    sticky: float
    """The share of frames that repeat the action before."""
    wait: float
    """The cost of an action's time at the other end from where the knob should be."""
    unsure: tuple[tuple[int, float], ...]
    """How many pixels all may be wrong by, and how likely that is."""
    softness: float
    """How much more a move must be worth to be e times as likely in the advice."""


@functools.cache
def _care(sticky: float, error: int | None) -> _Care:
    """Return more of it for sticky actions; without them rallies repeat themselves, and could never end.

    Without them a student may also know all games by heart, which a tie in the advice would lead it out of.
    """
    wait, least, softness = (0.1, 3, 0.02) if sticky else (0.003, 1, 1e-5)
    most = (least if error is None else error) + 1
    unsure = tuple((off, (most - abs(off)) / most**2) for off in range(1 - most, most))
    return _Care(sticky, wait, unsure, softness)


def _reward(on_paddle: Float[np.ndarray, "*places"], height: int) -> Float[np.ndarray, "*places"]:
    """Return 1 where the opponent will not reach the ball, 0 where it will, -1 where the paddle misses it.

    The heights are those where that was seen to happen.
    """
    hit = (on_paddle >= -1) & (on_paddle <= 15)
    steep_up = (on_paddle <= 0) & (height < 78 or 120 <= height < 158)
    steep_down = (on_paddle >= 13) & (height < 119)
    return np.where(hit, np.where(steep_up | steep_down, 1.0, 0.0), -1.0)


@functools.cache
def _shares(sticky: float) -> Float[np.ndarray, " lates"]:
    """Return how likely it is that an action begins so many frames late."""
    shares = [(1 - sticky) * sticky**late for late in range(FRAMES)] + [sticky**FRAMES]
    return np.array(shares if sticky else shares[:1])


@functools.lru_cache(100_000)
def _arrives(y: int, speed: int, frames: int) -> int:
    """Return the height of a ball after some frames."""
    for _ in range(frames):
        if (y < _TOP and speed < 0) or (y >= _BOTTOM and speed > 0):
            speed = -speed
            y += int(math.copysign(1, speed))
        y += speed
    return y


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte
