"""Images of the worlds, drawn with NumPy: no window, no graphics library."""

import numpy as np
from jaxtyping import UInt8

Image = UInt8[np.ndarray, "height width 3"]

_SKY, _TRACK, _CART, _POLE, _BOB = (
    np.array(colour, np.float32)
    for colour in ((250, 250, 248), (90, 90, 90), (43, 80, 120), (214, 104, 48), (120, 50, 20))
)


def draw_cartpole(
    position: float,
    angle: float,
    *,
    track: float,
    pole_length: float,
    width: int = 600,
    height: int = 400,
) -> Image:
    """Draw the cart on its track and the pole, smooth at the edges.

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
    rows, columns = np.mgrid[0:height, 0:width].astype(np.float32)
    image = np.broadcast_to(_SKY, (height, width, 3)).copy()
    ground = height * 0.62

    def paint(distance: np.ndarray, colour: np.ndarray) -> None:
        cover = np.clip(0.5 - distance, 0, 1)[..., None]  # one pixel of soft edge
        image[:] = image * (1 - cover) + colour * cover

    def segment(x0: float, y0: float, x1: float, y1: float, radius: float) -> np.ndarray:
        dx, dy = x1 - x0, y1 - y0
        along = ((columns - x0) * dx + (rows - y0) * dy) / max(dx * dx + dy * dy, 1e-9)
        along = np.clip(along, 0, 1)
        return np.hypot(columns - x0 - along * dx, rows - y0 - along * dy) - radius

    middle = width / 2
    end = track * scale
    paint(segment(middle - end, ground + 16, middle + end, ground + 16, 1.5), _TRACK)
    for side in (-1, 1):
        paint(
            segment(middle + side * end, ground + 6, middle + side * end, ground + 26, 1.5), _TRACK
        )
    x = middle + position * scale
    paint(segment(x - 20, ground, x + 20, ground, 12.0), _CART)
    # Positive angles lean to the left: the pole turns counter-clockwise from upright
    length = pole_length * scale
    tip_x = x - length * np.sin(angle)
    tip_y = ground - length * np.cos(angle)
    paint(segment(x, ground, tip_x, tip_y, 4.0), _POLE)
    paint(segment(tip_x, tip_y, tip_x, tip_y, 7.0), _BOB)
    return np.rint(image).astype(np.uint8)
