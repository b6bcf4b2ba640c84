"""Players of DoomTakeCover that read where balls are: experts for agents that see pictures.

    sensorium train takecover-attention-agent --expert sensorium.bridges.take_cover_player:teacher

They roll the known motion ahead for each plan "hold one direction for so many tics, then another", and find
what each action is worth: how long the player lives, then how far it stays away from balls, then how near it
is to the middle. A ball hits within 22 units; a held direction adds 0.75 to the velocity before each tic,
which keeps 29/32 of it after.

`player` plays as well as it can. `teacher` wants to stay further away, holds its first direction for at least
12 tics, and would rather go on as it went: its advice comes early, forgives a student that is late, and does
not waver where both ways are as good. `watcher` is the same for students that remember little: it only counts
balls within the 90 degrees that the picture shows. `spotter` is `teacher`, and says where balls are to be
seen.
"""

import dataclasses
import functools
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float

from sensorium.errors import ConfigError

_LOW, _HIGH = 16.0, 752.0  # where the middle of the player can be
_THRUST, _FRICTION = 0.75, 29 / 32
_BALL = 6.0  # half its width
_REACH = 16.0 + _BALL  # and of the player
_NEAR = 2.0  # more along the way of a ball, for which tics it is counted as there
_HORIZON = 70  # tics
_MOVES = (0, 1, -1)  # nothing, left, right: as the actions of a game that takes one of three
_MIDDLE = 384.0
_WHEN = 30  # tics ahead, when it should be near the middle
_CENTRING = 0.02  # of the worth, for each unit away from it
_LIFE = 10.0  # worth of a tic
_SHARPNESS = 8.0  # of the advice
_BALLS = 3  # that are named, the next ones first
_LEAST_WEIGHT = 0.03  # of a step at which all actions are alike
_STAKES = 200.0  # worth whose loss costs as much as anything can
UNIT = 100.0
"""Units of the map that the places which a player says are in."""


@dataclasses.dataclass(frozen=True)
class Plans:
    """What a player considers."""

    margin: float
    """How far from a ball is far enough, in units."""
    holds: tuple[int, ...]
    """For how many tics it may hold its first direction."""
    going_on: float = 0.0
    """What the direction of the last action is worth more, in units."""

    @functools.cached_property
    def thrust(self) -> Float[np.ndarray, "plans T"]:
        """Added to the velocity before each tic."""
        rows = []
        for first in _MOVES:
            rows.append(np.full(_HORIZON, first))
            for then in _MOVES:
                rows += [
                    np.repeat((first, then), (hold, _HORIZON - hold))
                    for hold in self.holds
                    if then != first
                ]
        return _THRUST * np.array(rows)

    @functools.cached_property
    def _from_rest(self) -> Float[np.ndarray, "plans T"]:
        """How far each goes, where no wall is in the way."""
        return _rolled(self.thrust, 0.0, 0.0, walls=False)

    def places(self, y: float, velocity: float) -> Float[np.ndarray, "plans T"]:
        """Return where the player is after each tic of each plan."""
        places = y + velocity * _DRIFT + self._from_rest
        stopped = (places.min(1) < _LOW) | (places.max(1) > _HIGH)
        if stopped.any():
            places[stopped] = _rolled(self.thrust[stopped], y, velocity, walls=True)
        return places

    def worth(self, info: dict[str, Any]) -> Float[np.ndarray, " actions"]:
        """Return what each action is worth: nothing, left, right."""
        x, y, velocity = info["player"]
        balls = info["balls"]
        places = self.places(y, velocity)
        first, clear = np.full(len(places), _HORIZON), np.full(len(places), self.margin)
        if len(balls):
            ball_x, ball_y, speed_x, speed_y = (balls[:, [column]] for column in range(4))
            near = np.abs(ball_x + speed_x * _TICS - x) < _REACH + _NEAR
            whose, when = np.nonzero(near)
            if len(whose):
                there = ball_y[whose, 0] + speed_y[whose, 0] * (when + 1)
                gaps = np.abs(there - places[:, when]) - _REACH
                hit = gaps < 1.0
                first = np.where(hit, when, _HORIZON).min(1)
                clear = np.minimum(gaps.min(1), self.margin)
        values = _LIFE * first + clear - _CENTRING * np.abs(places[:, _WHEN] - _MIDDLE)
        worth = values.reshape(len(_MOVES), -1).max(1)
        if info["action"]:
            worth[info["action"]] += self.going_on
        return worth

    def cost(self, worth: Float[np.ndarray, " actions"]) -> Float[np.ndarray, " actions"]:
        """Return what actions of such worth cost, from 0 to 1: a shorter life more than less clearance."""
        lack = worth.max() - worth
        of_life = np.clip((lack - self.margin) / _STAKES, 0.0, 1.0)
        return (np.minimum(lack, self.margin) / self.margin + of_life) / 2


def _rolled(
    thrust: Float[np.ndarray, "plans T"], y: float, velocity: float, *, walls: bool
) -> Float[np.ndarray, "plans T"]:
    """Roll plans out tic by tic, between walls that stop the player or without any."""
    places = np.empty(thrust.shape)
    now, speed = np.full(len(thrust), float(y)), np.full(len(thrust), float(velocity))
    low, high = (_LOW, _HIGH) if walls else (-np.inf, np.inf)
    for tic in range(thrust.shape[1]):
        speed += thrust[:, tic]
        now += speed
        stopped = (now < low) | (now > high)
        np.minimum(np.maximum(now, low, out=now), high, out=now)  # np.clip is slower
        speed *= _FRICTION
        speed[stopped] = 0.0
        places[:, tic] = now
    return places


_TICS = np.arange(1, _HORIZON + 1)
_DRIFT = _rolled(np.zeros((1, _HORIZON)), 0.0, 1.0, walls=False)[0]
_BEST = Plans(8.0, (1, 2, 4, 7, 11, 16, 24, 34))
_FORGIVING = Plans(60.0, (12, 16, 24, 34), going_on=15.0)


def player(env: gymnasium.Env, observation: Any, info: dict[str, Any]) -> Any:
    """Choose the best action: an expert as of `sensorium.bridges.advised`."""
    del observation
    return _advised(env, _BEST, info)


def teacher(env: gymnasium.Env, observation: Any, info: dict[str, Any]) -> Any:
    """Choose an action that leaves room for errors; the same otherwise."""
    del observation
    return _advised(env, _FORGIVING, info)


def watcher(env: gymnasium.Env, observation: Any, info: dict[str, Any]) -> Any:
    """Choose as `teacher` would among the balls that are in the picture."""
    x, y, _ = info["player"]
    ahead, aside = info["balls"][:, 0] - x, np.abs(info["balls"][:, 1] - y)
    return teacher(env, observation, {**info, "balls": info["balls"][aside - _BALL < ahead]})


def spotter(env: gymnasium.Env, observation: Any, info: dict[str, Any]) -> Any:
    """Do as `teacher` does, and say where balls are to be seen, in a world with `boxes=true`."""
    action, known = teacher(env, observation, info)
    if "boxes" not in info:
        raise ConfigError("The spotter says where balls are in TakeCover-v0?boxes=true only.")
    boxes = np.full((spotter.boxes, 4), np.nan, np.float32)  # type: ignore[attr-defined]
    seen = info["boxes"][: len(boxes)]
    boxes[: len(seen)] = seen
    return action, np.concatenate([known[:-1], boxes.ravel()])  # to look it is worth at any time


def _advised(env: gymnasium.Env, plans: Plans, info: dict[str, Any]) -> tuple[Any, np.ndarray]:
    """Return how likely each of three actions is, or their mean as a number; what is known; the weight."""
    cost = plans.cost(plans.worth(info)).astype(np.float32)
    likely = np.exp(-_SHARPNESS * cost)
    likely /= likely.sum()
    known = np.append(_known(info), _LEAST_WEIGHT + cost.max())
    if isinstance(env.action_space, gymnasium.spaces.Discrete):
        return likely, known
    return -likely[None] @ np.array(_MOVES, np.float32), known


def _known(info: dict[str, Any]) -> Float[np.ndarray, " known"]:
    """Return what `player.privileged` names; NaN where there are not so many balls."""
    x, y, velocity = info["player"]
    balls = info["balls"]
    tics = (x - balls[:, 0]) / balls[:, 2]  # until each arrives
    places = balls[:, 1] + balls[:, 3] * tics - y
    nearest = [n for n in np.argsort(tics) if tics[n] > 0][:_BALLS]
    known = np.full(2 + 2 * _BALLS, np.nan, np.float32)
    known[:2] = (y - _MIDDLE) / UNIT, velocity / 10
    for place, n in enumerate(nearest):
        known[2 + 2 * place : 4 + 2 * place] = tics[n] / _HORIZON, places[n] / UNIT
    return known


_PRIVILEGED = (
    "place",
    "velocity",
    *(f"{what} of ball {n + 1}" for n in range(_BALLS) for what in ("arrival", "place")),
)
for _player in (player, teacher, watcher, spotter):
    _player.privileged = _PRIVILEGED  # type: ignore[attr-defined]
    _player.weighs = _player is not spotter  # type: ignore[attr-defined]
spotter.boxes = 8  # type: ignore[attr-defined]
