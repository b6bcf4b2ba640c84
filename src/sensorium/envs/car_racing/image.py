"""The image of CarRacing: 96 x 96 pixels from above, the car always upright.

Gymnasium draws 1,000 x 800 pixels and averages them down. Here the ground is looked up in a texture
(`canvas.py`); the car, which is always in the same place, and its wheels come from small images that are
drawn once; bars and digits are added where they are.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8, UInt32

from sensorium.envs.car_racing.canvas import LOSS, Canvas, colours, level_of, look_up
from sensorium.envs.car_racing.dynamics import SIZE, WHEEL_HALF, WHEEL_PLACES, Car
from sensorium.envs.car_racing.track import SCALE

PIXELS = 96
BAR_ROWS = 12
"""Rows at the bottom that show speed, wheels, steering and turning."""

Frame = UInt8[Array, "96 96 3"]

Packed = UInt32[Array, "96 96"]
"""A frame with red, green and blue in the lowest three bytes of each number."""

_WIDTH, _HEIGHT = 1000, 800  # of the window that Gymnasium draws
_ZOOM = 2.7 * SCALE  # pixels of the window for each m, once the camera is down
_FRAMES_PER_SECOND = 50
_ACROSS, _DOWN = _WIDTH / PIXELS, _HEIGHT / PIXELS  # pixels of the window for each of the frame

_SHIFTS = (0, 8, 16)  # of red, green and blue in a number
_ROWS, _COLUMNS = slice(66, 78), slice(44, 52)  # where the car is
_CAR = (_ROWS.start, _COLUMNS.start)
_CAR_SHAPE = (_ROWS.stop - _ROWS.start, _COLUMNS.stop - _COLUMNS.start)
_ANGLES, _PHASES = 17, 24
_STEEPEST = 0.44  # rad, a little more than the limit of the steering
_HULL = (
    ((-60, 130), (60, 130), (60, 110), (-60, 110)),
    ((-15, 120), (15, 120), (20, 20), (-20, 20)),
    ((25, 20), (50, -10), (50, -40), (20, -90), (-20, -90), (-50, -40), (-50, -10), (-25, 20)),
    ((-50, -120), (50, -120), (50, -90), (-50, -90)),
)
_RED, _WHITE, _BRIGHT = 204 - LOSS, 77 - LOSS, 255 - LOSS
_TEXT_ROWS, _TEXT_COLUMNS = slice(87, 93), slice(0, 12)
_SPEED_COLUMNS, _SIDEWAYS_ROWS = slice(12, 27), slice(86, 92)
_STEER_COLUMNS, _TURN_COLUMNS = slice(34, 62), slice(62, 96)
# Pixels of the window: corner of the first digit, and from each digit to the next
_TEXT, _TEXT_STEP = (15, 735), 23


def zoom_of(time: Int[Array, ""]) -> Float[Array, ""]:
    """Return pixels of the window for each m, `time` frames after the start: the camera comes down in 1 s."""
    seconds = (time + 1) / _FRAMES_PER_SECOND
    return 0.1 * SCALE * jnp.maximum(1 - seconds, 0) + _ZOOM * jnp.minimum(seconds, 1)


def draw(canvas: Canvas, car: Car, time: Int[Array, ""], total: Float[Array, ""]) -> Packed:
    """Draw a frame.

    Args:
        canvas: Of the track.
        car: Where it is.
        time: Steps since the start.
        total: Return so far, which the frame shows in digits.
    """
    zoom = zoom_of(time)
    image = _ground(canvas, car, zoom)
    image = jax.lax.dynamic_update_slice(image, _car(image, car, zoom), _CAR)
    for part, place in _bar(car, total):
        image = jax.lax.dynamic_update_slice(image, part, place)
    return image


def unpack(image: Packed) -> Frame:
    """Unpack three bytes for each pixel."""
    return jax.lax.bitcast_convert_type(image, jnp.uint8)[..., :3]


def _pack(red: Array, green: Array, blue: Array) -> UInt32[Array, "..."]:
    """Pack three colours of 0 to 255 into one number."""
    parts = (
        value.astype(jnp.uint32) << shift
        for value, shift in zip((red, green, blue), _SHIFTS, strict=True)
    )
    return functools.reduce(jnp.bitwise_or, parts)


def _ground(canvas: Canvas, car: Car, zoom: Array) -> Packed:
    """Look up what lies under each pixel; black under the bar."""
    rows = np.arange(PIXELS)[:, None]
    across = (np.arange(PIXELS)[None, :] + 0.5) * _ACROSS - _WIDTH / 2
    up = _HEIGHT * 3 / 4 - (rows + 0.5) * _DOWN
    right, ahead = (jnp.asarray(place, jnp.float32) / zoom for place in (across, up))
    sine, cosine = jnp.sin(car.angle), jnp.cos(car.angle)
    x, y = car.position
    texels = look_up(
        canvas,
        level_of(_ACROSS / zoom),
        x + cosine * right - sine * ahead,
        y + sine * right + cosine * ahead,
    )
    return jnp.where(rows < PIXELS - BAR_ROWS, _pack(*colours(texels)), 0)


def _car(image: Packed, car: Car, zoom: Array) -> UInt32[Array, "12 8"]:
    """Draw hull and wheels over the ground."""
    hull, wheels = (jnp.asarray(shares) for shares in _sprites())
    near = jnp.clip((zoom / _ZOOM - 0.75) * 4, 0, 1)  # far away, it is less than a few pixels
    covered, white = hull, jnp.zeros(hull.shape)
    for place, wheel in enumerate(car.wheels):
        angle = (wheel.angle - car.angle + _STEEPEST) / (2 * _STEEPEST) * (_ANGLES - 1)
        angle = jnp.clip(jnp.round(angle), 0, _ANGLES - 1).astype(jnp.int32)
        turns = wheel.phase / (2 * np.pi)
        phase = ((turns - jnp.floor(turns)) * _PHASES).astype(jnp.int32) % _PHASES
        seen = wheels[place, angle, phase]
        covered, white = covered + seen[0] / 255, white + seen[1] / 255
    ground = jax.lax.dynamic_slice(image, _CAR, _CAR_SHAPE)
    body = (near * (_RED * hull + _WHITE * white), near * _WHITE * white, near * _WHITE * white)
    drawn = (
        ((ground >> shift) & 255).astype(jnp.float32) * (1 - near * covered) + part + 0.5
        for shift, part in zip(_SHIFTS, body, strict=True)
    )
    return _pack(*drawn)


def _bar(car: Car, total: Array) -> list[tuple[UInt32[Array, "rows columns"], tuple[int, int]]]:
    """Draw return so far, speed, spin of the wheels, steering and turning: return what, and where."""
    unit, step = _HEIGHT / 40, _WIDTH / 40
    bottom = _HEIGHT - unit

    def share(begins: Array, width: float, end: Array | float, other: Array | float) -> Array:
        """Compute the share of each row or column between two ends in pixels of the window, ends included."""
        low = jnp.floor(jnp.minimum(end, other))
        high = jnp.floor(jnp.maximum(end, other)) + 1
        covered = jnp.minimum(begins + width, high) - jnp.maximum(begins, low)
        return jnp.clip(covered / width, 0, 1)

    def upright(place: int, value: Array, columns: slice) -> Array:
        begins = jnp.arange(columns.start, columns.stop) * _ACROSS
        wide = share(begins, _ACROSS, place * step, (place + 1) * step)
        rows = jnp.arange(PIXELS - BAR_ROWS, PIXELS) * _DOWN
        return share(rows, _DOWN, bottom - unit * value, bottom)[:, None] * wide[None, :]

    def sideways(place: int, value: Array, columns: slice) -> Array:
        begins = jnp.arange(columns.start, columns.stop) * _ACROSS
        wide = share(begins, _ACROSS, place * step, (place + value) * step)
        rows = jnp.arange(_SIDEWAYS_ROWS.start, _SIDEWAYS_ROWS.stop) * _DOWN
        high = share(rows, _DOWN, _HEIGHT - 4 * unit, _HEIGHT - 2 * unit)
        return high[:, None] * wide[None, :]

    def shade(*colours: Array) -> Array:
        return _pack(*(_BRIGHT * jnp.clip(colour, 0, 1) + 0.5 for colour in colours))

    top = PIXELS - BAR_ROWS
    text = _text(total)
    speed = upright(5, 0.02 * jnp.sqrt(car.vx**2 + car.vy**2), _SPEED_COLUMNS)
    spins = [
        upright(7 + place, 0.01 * wheel.spin, _SPEED_COLUMNS)
        for place, wheel in enumerate(car.wheels)
    ]
    none = jnp.zeros(())
    steer = sideways(20, -10 * car.steering, _STEER_COLUMNS)
    turn = sideways(30, -0.8 * car.turning, _TURN_COLUMNS)
    rear = 0.2 * (spins[2] + spins[3])
    return [
        (shade(text, text, text), (_TEXT_ROWS.start, _TEXT_COLUMNS.start)),
        (shade(speed + rear, speed, speed + sum(spins)), (top, _SPEED_COLUMNS.start)),
        (shade(none, steer, none), (_SIDEWAYS_ROWS.start, _STEER_COLUMNS.start)),
        (shade(turn, none, none), (_SIDEWAYS_ROWS.start, _TURN_COLUMNS.start)),
    ]


def _text(total: Array) -> Float[Array, "rows columns"]:
    """Draw four digits of the return; of one below zero, its size."""
    value = jnp.round(jnp.abs(total)).astype(jnp.int32)
    digits = jnp.asarray(_digits())
    shown = [digits[place, value // 10 ** (3 - place) % 10] for place in range(4)]
    return jnp.sum(jnp.stack(shown), 0)


@functools.cache
def _sprites() -> tuple[np.ndarray, np.ndarray]:
    """Compute how much of the pixels around it the car covers.

    Returns:
        Shares of the hull, (12, 8), and in 255ths those of a wheel and of its stripe, for each wheel, angle
        and phase, (4, angles, phases, 2, 12, 8).
    """
    rows, columns = _shares(_ROWS, _DOWN), _shares(_COLUMNS, _ACROSS)
    body = np.zeros((rows.shape[1], columns.shape[1]), bool)
    for polygon in _HULL:
        body |= _fill(np.array(polygon))
    wheels = np.zeros((4, _ANGLES, _PHASES, 2, *_CAR_SHAPE), np.uint8)
    radius = WHEEL_HALF[1]
    for place, centre in enumerate(WHEEL_PLACES):
        for a, angle in enumerate(np.linspace(-_STEEPEST, _STEEPEST, _ANGLES)):

            def share(
                low: float, high: float, centre: Any = centre, angle: float = angle
            ) -> np.ndarray:
                """Compute the share of each pixel, of the wheel from `low` to `high` along it, in m."""
                half = WHEEL_HALF[0]
                box = np.array([(-half, low), (half, low), (half, high), (-half, high)])
                turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
                mask = _fill((centre + box @ turn) / SIZE) & ~body
                return np.round(255 * rows @ mask @ columns.T)

            wheels[place, a, :, 0] = share(-radius, radius)
            for p in range(_PHASES):
                ends = _stripe((p + 0.5) / _PHASES * 2 * np.pi)
                if ends is not None:
                    wheels[place, a, p, 1] = share(ends[0] * radius, ends[1] * radius)
    return (rows @ body @ columns.T).astype(np.float32), wheels


def _shares(pixels: slice, size: float) -> np.ndarray:
    """Compute how much of each pixel of the frame each of the window's rows or columns makes up."""
    begins = np.arange(pixels.start, pixels.stop)[:, None] * size
    window = np.arange(int(pixels.start * size), int(np.ceil(pixels.stop * size)))[None, :]
    return np.clip(np.minimum(begins + size, window + 1) - np.maximum(begins, window), 0, 1) / size


def _fill(polygon: np.ndarray) -> np.ndarray:
    """Find the pixels of the window around the car in a convex polygon.

    As pygame fills it: corners are cut to whole pixels, edges are included.
    """
    rows = np.arange(int(_ROWS.start * _DOWN), int(np.ceil(_ROWS.stop * _DOWN)))
    x = np.arange(int(_COLUMNS.start * _ACROSS), int(np.ceil(_COLUMNS.stop * _ACROSS)))[None, :]
    y = (_HEIGHT - 1 - rows)[:, None]
    corners = np.trunc(polygon * SIZE * _ZOOM + (_WIDTH / 2, _HEIGHT / 4))
    left, right = np.ones((2, y.size, x.size), bool)
    for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, -1, 0), strict=True):
        side = (x1 - x0) * (y - y0) - (y1 - y0) * (x - x0)
        left &= side >= 0
        right &= side <= 0
    return left | right


def _stripe(phase: float) -> tuple[float, float] | None:
    """Find where a wheel's white stripe begins and ends, in parts of its radius; None on the far side."""
    angles = np.array([phase, phase + 1.2])
    ends = np.where(np.sin(angles) > 0, np.sign(np.cos(angles)), np.cos(angles))
    return None if (np.sin(angles) > 0).all() else (float(ends.min()), float(ends.max()))


@functools.cache
def _digits() -> np.ndarray:
    """Compute the shares that each digit covers of the pixels of four places: (4, 10, rows, columns)."""
    segments = {  # of seven: top, the two below it, middle, the two below that, bottom
        "top": (0, 0, 20, 6), "upper left": (0, 0, 7, 16), "upper right": (13, 0, 20, 16),
        "middle": (0, 12, 20, 18), "lower left": (0, 15, 7, 30), "lower right": (13, 15, 20, 30),
        "bottom": (0, 24, 20, 30),
    }  # fmt: skip
    lit = (
        "1110111", "0010010", "1011101", "1011011", "0111010",
        "1101011", "1101111", "1010010", "1111111", "1111011",
    )  # fmt: skip
    rows, columns = _shares(_TEXT_ROWS, _DOWN), _shares(_TEXT_COLUMNS, _ACROSS)
    left, top = int(_TEXT_COLUMNS.start * _ACROSS), int(_TEXT_ROWS.start * _DOWN)
    shown = np.zeros((4, 10, rows.shape[0], columns.shape[0]), np.float32)
    for place in range(4):
        for digit, pattern in enumerate(lit):
            mask = np.zeros((rows.shape[1], columns.shape[1]))
            x, y = _TEXT[0] + place * _TEXT_STEP - left, _TEXT[1] - top
            for (x0, y0, x1, y1), on in zip(segments.values(), pattern, strict=True):
                if on == "1":
                    mask[y + y0 : y + y1, x + x0 : x + x1] = 1
            shown[place, digit] = rows @ mask @ columns.T
    return shown
