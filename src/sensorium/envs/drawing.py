"""Images of the worlds, drawn with NumPy: no window, no graphics library."""

import itertools

import numpy as np
from jaxtyping import Float, UInt8

Image = UInt8[np.ndarray, "height width 3"]

_SKY, _TRACK, _CART, _POLE, _BOB, _TARGET = (
    np.array(colour, np.float32)
    for colour in (
        (250, 250, 248),
        (90, 90, 90),
        (43, 80, 120),
        (214, 104, 48),
        (120, 50, 20),
        (79, 133, 50),
    )
)
_JET = 0.7  # m a newton


class _Canvas:
    """An image to paint lines and discs on, smooth at the edges; pixels (x, y), y downwards."""

    def __init__(self, width: int, height: int):
        self._image = np.broadcast_to(_SKY, (height, width, 3)).copy()

    def segment(
        self, start: np.ndarray, end: np.ndarray, radius: float, colour: np.ndarray
    ) -> None:
        """Paint a line with round ends; a disc if it has no length."""
        low = np.maximum(np.floor(np.minimum(start, end) - radius - 1), 0).astype(int)
        high = np.maximum(np.ceil(np.maximum(start, end) + radius + 2), 0).astype(int)
        part = self._image[low[1] : high[1], low[0] : high[0]]
        rows, columns = np.mgrid[: part.shape[0], : part.shape[1]].astype(np.float32)
        x, y = columns + low[0] - start[0], rows + low[1] - start[1]
        dx, dy = end - start
        along = np.clip((x * dx + y * dy) / max(dx * dx + dy * dy, 1e-9), 0, 1)
        distance = np.hypot(x - along * dx, y - along * dy) - radius
        cover = np.clip(0.5 - distance, 0, 1)[..., None]  # one pixel of soft edge
        part[:] = part * (1 - cover) + colour * cover

    def disc(self, centre: np.ndarray, radius: float, colour: np.ndarray) -> None:
        """Paint a disc."""
        self.segment(centre, centre, radius, colour)

    def target(self, centre: np.ndarray, radius: float) -> None:
        """Paint a ring with a dot in its middle."""
        self.disc(centre, radius, _TARGET)
        self.disc(centre, radius - 3, _SKY)
        self.disc(centre, 3.0, _TARGET)

    def image(self) -> Image:
        """Return what was painted."""
        return np.rint(self._image).astype(np.uint8)


def draw_cartpole(
    position: float,
    angle: float,
    *,
    track: float,
    pole_length: float,
    width: int = 600,
    height: int = 400,
) -> Image:
    """Draw the cart on its track and the pole.

    Args:
        position: Of the cart, in m from the middle, positive to the right.
        angle: Of the pole, in rad, zero upright, positive counter-clockwise.
        track: m from the middle to either end.
        pole_length: m.
        width: Pixels.
        height: Pixels.

    Returns:
        An RGB image of 8 bits.
    """
    scale = width / (2 * track + 0.6)  # pixels a metre
    canvas = _Canvas(width, height)
    middle = np.array([width / 2, height * 0.62])
    end = np.array([track * scale, 0.0])
    down = np.array([0.0, 16.0])
    canvas.segment(middle - end + down, middle + end + down, 1.5, _TRACK)
    for side in (-end, end):
        canvas.segment(middle + side + [0, 6], middle + side + [0, 26], 1.5, _TRACK)
    cart = middle + [position * scale, 0]
    canvas.segment(cart - [20, 0], cart + [20, 0], 12.0, _CART)
    # Positive angles lean to the left: the pole turns counter-clockwise from upright
    tip = cart - pole_length * scale * np.array([np.sin(angle), np.cos(angle)])
    canvas.segment(cart, tip, 4.0, _POLE)
    canvas.disc(tip, 7.0, _BOB)
    return canvas.image()


def draw_thrusters(pose: Float[np.ndarray, " numbers"], *, close: float, size: int = 480) -> Image:
    """Draw a body with a jet behind each motor that is connected, as long as it pushes, and the target.

    Args:
        pose: As `Thrusters.pose`.
        close: m from the target, within which the body is at it.
        size: Pixels each way.

    Returns:
        An RGB image of 8 bits: 2.8 m from the middle to each side, or more if the body is further out.
    """
    body, angle, target, motors = pose[:2], pose[2], pose[3:5], pose[5:].reshape(-1, 5)
    scale = size / 2 / max(2.8, np.abs(body).max() + 1.3)
    cosine, sine = np.cos(angle), np.sin(angle)
    turn = np.array([[cosine, -sine], [sine, cosine]])
    canvas = _Canvas(size, size)

    def place(point: np.ndarray) -> np.ndarray:
        return size / 2 + scale * point * [1, -1]

    canvas.target(place(target), close * scale)
    for motor in motors:
        at, force, thrust = body + turn @ motor[:2], turn @ motor[2:4], motor[4]
        if not force.any():
            continue  # it is not connected
        canvas.segment(place(body), place(at), 0.03 * scale, _TRACK)
        canvas.segment(place(at), place(at - _JET * thrust * force), 0.05 * scale, _POLE)
        canvas.disc(place(at), 0.08 * scale, _CART)
    canvas.disc(place(body), 0.22 * scale, _CART)
    return canvas.image()


def draw_arm(pose: Float[np.ndarray, " numbers"], *, close: float, size: int = 480) -> Image:
    """Draw the links and joints of an arm, its hand, and the target.

    Args:
        pose: As `Arm.pose`.
        close: m from the target, within which the hand is at it.
        size: Pixels each way.

    Returns:
        An RGB image of 8 bits: 2.2 m from the shoulder to each side.
    """
    target, ends = pose[:2], pose[2:].reshape(-1, 4)[:, :2]
    scale = size / 4.4
    points = size / 2 + scale * np.vstack([np.zeros(2), ends]) * [1, -1]
    canvas = _Canvas(size, size)
    canvas.target(size / 2 + scale * target * [1, -1], close * scale)
    for start, end in itertools.pairwise(points):
        canvas.segment(start, end, 0.05 * scale, _CART)
    canvas.disc(points[0], 0.1 * scale, _TRACK)
    for joint in points[:-1]:
        canvas.disc(joint, 0.03 * scale, _SKY)
    canvas.disc(points[-1], 0.07 * scale, _POLE)
    return canvas.image()
