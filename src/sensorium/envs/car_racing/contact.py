"""Which tiles the wheels of CarRacing touch.

A wheel and a tile are convex: they overlap unless a line along an edge of one of them parts them. Only a few
tiles need to be checked: a map of the playfield, made once for each track, tells which ones are near.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int16

from sensorium.envs.car_racing.dynamics import WHEEL_HALF, Car
from sensorium.envs.car_racing.track import MAX_TILES, PLAYFIELD, TRACK_WIDTH, Track

_SKIN = 0.02  # m: Box2D calls two polygons touching from here on
_AROUND = 4  # tiles to either side of the nearest to the middle of a cell that a wheel may touch
_CELL = 6.0  # m
_CELLS = int(np.ceil(2 * PLAYFIELD / _CELL))
_FAR = np.iinfo(np.int32).max
_FINE = 4  # parts of a square metre to which distances are compared


class Road(NamedTuple):
    """A track, prepared for tests of contact."""

    size: Int[Array, ""]
    """How many tiles there are."""
    lines: Float[Array, "4 K"]
    """Where each tile begins: x and y (m) of the middle, sine and cosine of the heading."""
    near: Int16[Array, "2 C C"]
    """For each cell of the playfield (row, column) the nearest tile, and the nearest of another stretch
    of the road, which may pass by."""


def survey(track: Track) -> Road:
    """Make the map of a track."""
    lines = jnp.stack(
        [
            track.middle[:, 0],
            track.middle[:, 1],
            jnp.sin(track.heading),
            jnp.cos(track.heading),
        ]
    )
    tiles = track.centres
    centre = (jnp.arange(_CELLS) + 0.5 - _CELLS / 2) * _CELL
    across = (centre[:, None] - tiles[:, 0]) ** 2
    up = (centre[:, None] - tiles[:, 1]) ** 2
    number = jnp.arange(MAX_TILES)
    # The tile's number in the lowest bits: the least of single numbers is found much sooner than where it is
    distance = ((up[:, None, :] + across[None, :, :]) * _FINE).astype(
        jnp.int32
    ) * MAX_TILES + number
    distance = jnp.where(track.real, distance, _FAR)
    nearest = jnp.min(distance, -1) % MAX_TILES
    apart = jnp.abs(number - nearest[..., None])
    apart = jnp.minimum(apart, track.size - apart)
    other = jnp.min(jnp.where(apart > 2 * _AROUND, distance, _FAR), -1) % MAX_TILES
    return Road(track.size, lines, jnp.stack([nearest, other]).astype(jnp.int16))


def nearby(road: Road, car: Car) -> Int[Array, "2 L"]:
    """Find the 10 lines between tiles around the car, on each of two stretches of road that may be near."""
    cell = [
        jnp.clip((place / _CELL + _CELLS / 2).astype(jnp.int32), 0, _CELLS - 1)
        for place in (car.y, car.x)
    ]
    near = road.near[:, *cell].astype(jnp.int32)
    return (near[:, None] + np.arange(-_AROUND - 1, _AROUND + 1)) % road.size


def touched(road: Road, car: Car) -> tuple[Int[Array, " C"], Bool[Array, "C 4"]]:
    """Find the tiles that may be touched, and which wheel touches which.

    Returns:
        C = 18 tiles, all different, and for each of them which wheels touch it.
    """
    tiles = nearby(road, car)
    touches = _overlap(road.lines[:, tiles], car)
    return tiles[:, 1:].reshape(-1), touches.reshape(-1, 4)


def _overlap(lines: Float[Array, "4 S L"], car: Car) -> Bool[Array, "S L-1 4"]:
    """Check whether wheels overlap the tiles between lines, along S stretches of the road."""
    x, y, sine, cosine = (values[..., None] for values in lines)
    wheel_x = jnp.stack([wheel.x for wheel in car.wheels])
    wheel_y = jnp.stack([wheel.y for wheel in car.wheels])
    angles = jnp.stack([wheel.angle for wheel in car.wheels])
    wheel_sine, wheel_cosine = jnp.sin(angles), jnp.cos(angles)
    half_width, radius = WHEEL_HALF

    def reach(normal_x: Array, normal_y: Array) -> Array:
        """Compute how far a wheel stretches from its centre in that direction."""
        right = normal_x * wheel_cosine + normal_y * wheel_sine
        ahead = normal_y * wheel_cosine - normal_x * wheel_sine
        return half_width * jnp.abs(right) + radius * jnp.abs(ahead) + _SKIN

    # Across the lines on which tiles begin and end
    dx, dy = wheel_x - x, wheel_y - y
    past, around = dy * cosine - dx * sine, reach(-sine, cosine)
    apart = (past[:, :-1] < -around[:, :-1]) | (past[:, 1:] > around[:, 1:])
    corners = []
    for side in (-1, 1):
        edge_x = dx - side * TRACK_WIDTH * cosine
        edge_y = dy - side * TRACK_WIDTH * sine
        # Across the edge of the road
        along_x = edge_x[:, :-1] - edge_x[:, 1:]
        along_y = edge_y[:, :-1] - edge_y[:, 1:]
        length = jnp.sqrt(along_x**2 + along_y**2) + 1e-6
        out_x, out_y = side * along_y / length, -side * along_x / length
        beyond = out_x * edge_x[:, 1:] + out_y * edge_y[:, 1:]
        apart |= beyond > reach(out_x, out_y)
        corners.append(
            (
                edge_x * wheel_cosine + edge_y * wheel_sine,
                edge_y * wheel_cosine - edge_x * wheel_sine,
            )
        )
    # Across the edges of the wheel, as far as the corners of the tile are beyond them
    for axis, half in ((0, half_width), (1, radius)):
        seen = [corner[axis][:, part] for corner in corners for part in (slice(-1), slice(1, None))]
        least = jnp.minimum(jnp.minimum(seen[0], seen[1]), jnp.minimum(seen[2], seen[3]))
        most = jnp.maximum(jnp.maximum(seen[0], seen[1]), jnp.maximum(seen[2], seen[3]))
        apart |= (least > half + _SKIN) | (most < -half - _SKIN)
    return ~apart
