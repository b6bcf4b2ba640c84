"""The tracks of CarRacing: a path from checkpoint to checkpoint, cut into tiles.

The generator of Gymnasium's `car_racing.py` as a scan: twelve checkpoints around the middle, and a point
that moves by constant steps, with bounded turns, to one after the other. Its last whole lap is the track.
The same random numbers give the same track.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sensorium.types import Key

SCALE = 6.0
TRACK_WIDTH = 40 / SCALE
"""m from the middle of the road to its edge."""
CURB_WIDTH = 8 / SCALE
"""m of the red and white stripes outside of hard turns."""
PLAYFIELD = 2000 / SCALE
"""m from the middle to where the world ends."""
MAX_TILES = 448
"""Most tiles that a track may have here; of 10,000 that Gymnasium drew, none had more."""

_RADIUS = 900 / SCALE
_STEP = 21 / SCALE
_TURN = 0.31
_CHECKPOINTS = 12
_START = 2 * jnp.pi * -0.5 / _CHECKPOINTS
_MOST_STEPS = 2500
_LAPS = 5
_CURB_TILES = 4


class Track(NamedTuple):
    """A closed road of quadrilateral tiles; entries past `size` are padding."""

    size: Int[Array, ""]
    """How many tiles there are."""
    middle: Float[Array, "K 2"]
    """m, middle of the road where tile k begins."""
    heading: Float[Array, " K"]
    """rad, zero facing up (+y)."""
    curb: Int[Array, " K"]
    """-1 or 1 where the tile has a curb on that side, else 0."""

    @property
    def previous(self) -> Int[Array, " K"]:
        """Where tile k ends: the tile before it, around the lap."""
        index = jnp.arange(self.heading.shape[0])
        return jnp.where(index == 0, self.size - 1, index - 1)

    @property
    def real(self) -> Bool[Array, " K"]:
        """Which entries are tiles."""
        return jnp.arange(self.heading.shape[0]) < self.size

    @property
    def centres(self) -> Float[Array, "K 2"]:
        """m, the middle of each tile."""
        return (self.middle + self.middle[self.previous]) / 2


class _Walker(NamedTuple):
    place: Float[Array, "2"]
    heading: Float[Array, ""]
    target: Int[Array, ""]
    laps: Int[Array, ""]
    other_side: Bool[Array, ""]


def draw_track(key: Key) -> Track:
    """Draw checkpoints until their track closes, which nineteen in twenty do at once."""

    def attempt(now: tuple[Key, Track, Array]) -> tuple[Key, Track, Array]:
        key, key_now = jax.random.split(now[0])
        turns, radii = jax.random.uniform(key_now, (2, _CHECKPOINTS))
        track, closed = lay_track(turns, radii)
        return key, track, closed

    blank, _ = lay_track(*jnp.zeros((2, _CHECKPOINTS)))
    return jax.lax.while_loop(lambda now: ~now[2], attempt, (key, blank, jnp.zeros((), bool)))[1]


def lay_track(
    turns: Float[Array, "12"], radii: Float[Array, "12"]
) -> tuple[Track, Bool[Array, ""]]:
    """Lay the track of twelve checkpoints.

    Args:
        turns: In [0, 1): how far each checkpoint is turned beyond its twelfth of the circle.
        radii: In [0, 1): how far out it is, from a third of the radius to all of it.

    Returns:
        The track, and whether it closes. One that does not is not a track.
    """
    checkpoints, angles = _checkpoints(turns, radii)

    def walk(now: _Walker, _: None) -> tuple[_Walker, tuple[Array, ...]]:
        now, point = _walk(now, checkpoints, angles)
        return now, (*point, now.laps)

    zero = jnp.zeros((), jnp.int32)
    first = _Walker(jnp.array([1.5 * _RADIUS, 0.0]), jnp.zeros(()), zero, zero, jnp.zeros((), bool))
    _, (around, heading, place, laps) = jax.lax.scan(walk, first, length=_MOST_STEPS)
    # The original stops at the first point of the fifth lap
    walked = jnp.concatenate([jnp.ones(1, bool), laps[:-1] < _LAPS])
    passes = walked & (around > _START) & (jnp.roll(around, 1) <= _START)
    passes = passes.at[0].set(False)
    index = jnp.arange(_MOST_STEPS)
    last = jnp.max(jnp.where(passes, index, -1))
    begin = jnp.max(jnp.where(passes & (index < last), index, -1))
    size = last - 1 - begin
    closed = (begin >= 0) & (size > 2 * _CURB_TILES) & (size <= MAX_TILES)
    begin, size = jnp.where(closed, begin, 0), jnp.where(closed, size, MAX_TILES)
    chosen = jnp.minimum(begin + jnp.arange(MAX_TILES), begin + size - 1)
    middle, heading = place[chosen], heading[chosen]
    jump = middle[0] - middle[size - 1]
    across = jnp.stack([jnp.cos(heading[0]), jnp.sin(heading[0])])
    closed &= jnp.sqrt(jnp.sum((across * jump) ** 2)) <= _STEP
    return Track(size, middle, heading, _curbs(heading, size)), closed


def _checkpoints(turns: Array, radii: Array) -> tuple[Float[Array, "12 2"], Float[Array, "12"]]:
    place = jnp.arange(_CHECKPOINTS)
    angles = 2 * jnp.pi * (place + turns) / _CHECKPOINTS
    radii = _RADIUS * (1 + 2 * radii) / 3
    # The first and the last stand still: the start is between them
    ends = (place == 0) | (place == _CHECKPOINTS - 1)
    angles = jnp.where(ends, 2 * jnp.pi * place / _CHECKPOINTS, angles)
    radii = jnp.where(ends, 1.5 * _RADIUS, radii)
    return radii[:, None] * jnp.stack([jnp.cos(angles), jnp.sin(angles)], -1), angles


def _walk(
    now: _Walker, checkpoints: Array, angles: Array
) -> tuple[_Walker, tuple[Array, Array, Array]]:
    """Move one step towards the next checkpoint; return angle around the middle, heading and place."""
    around = jnp.arctan2(now.place[1], now.place[0])
    lap = now.other_side & (around > 0)
    other_side = (now.other_side & ~lap) | (around < 0)
    around = jnp.where(around < 0, around + 2 * jnp.pi, around)
    ahead = (around <= angles) & (jnp.arange(_CHECKPOINTS) >= now.target)
    found = jnp.any(ahead)
    target = jnp.where(found, jnp.argmax(ahead), 0)
    around = jnp.where(found, around, around - 2 * jnp.pi)
    # The heading goes on around the circle with the point
    lead = now.heading - around
    turns = jnp.ceil(jnp.maximum(lead - 1.5 * jnp.pi, 0) / (2 * jnp.pi)) - jnp.ceil(
        jnp.maximum(-lead - 1.5 * jnp.pi, 0) / (2 * jnp.pi)
    )
    before = now.heading - 2 * jnp.pi * turns
    across = jnp.stack([jnp.cos(before), jnp.sin(before)])
    offset = SCALE * jnp.sum(across * (checkpoints[target] - now.place))
    turn = jnp.minimum(_TURN, jnp.abs(0.001 * offset)) * jnp.sign(offset)
    heading = before - jnp.where(jnp.abs(offset) > 0.3, turn, 0.0)
    place = now.place + _STEP * jnp.stack([-across[1], across[0]])
    walker = _Walker(place, heading, target, now.laps + lap, other_side)
    return walker, (around, (before + heading) / 2, place)


def _curbs(heading: Float[Array, " K"], size: Array) -> Int[Array, " K"]:
    """Find the tiles with a curb: those of hard turns to one side, and the three before."""
    index = jnp.arange(heading.shape[0])

    def back(values: Array, tiles: int) -> Array:
        return values[(index - tiles) % size]

    turn = heading - back(heading, 1)
    hard = jnp.abs(turn) > 0.2 * _TURN
    side = jnp.sign(turn)
    bent = jnp.stack([back(hard * side, tiles) for tiles in range(_CURB_TILES)])
    curb = jnp.abs(jnp.sum(bent, 0)) == _CURB_TILES
    ahead = jnp.stack([curb[(index + tiles) % size] for tiles in range(_CURB_TILES)])
    return jnp.where(jnp.any(ahead, 0), -side, 0).astype(jnp.int32)
