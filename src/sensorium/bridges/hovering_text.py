"""Text in a box that hovers on a screen, which no agent should mind."""

import functools
import string
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

Screen = UInt8[np.ndarray, "height width 3"]
Colour = tuple[int, int, int]

_LETTER = 1 / 15  # height of letters, in parts of the screen's
_FILLED = 0.9  # of the width of the box, at most
_WIDTHS, _HEIGHTS = (0.15, 0.5), (0.06, 0.15)  # of boxes that are drawn, in parts of the screen
_LOWEST = 0.35  # where the bottom of one can be, above all that matters


class HoveringText(NamedTuple):
    """What it says, where it is, and its colours."""

    text: str
    box: tuple[float, float, float, float]
    """Left, top, right and bottom, in parts of the screen."""
    background: Colour = (0, 0, 255)
    letters: Colour = (255, 255, 255)

    def on(self, screen: Screen) -> Screen:
        """Return a screen with it."""
        height, width, _ = screen.shape
        sides = np.array(self.box) * [width, height, width, height]
        left, top, right, bottom = sides.round().astype(int).tolist()
        shown = screen.copy()
        shown[top:bottom, left:right] = _drawn(self, bottom - top, right - left, height * _LETTER)
        return shown


@functools.lru_cache(256)  # for each step shows it again, and fonts are slow
def _drawn(of: HoveringText, height: int, width: int, letter: float) -> Screen:
    """Draw a box of so many pixels; letters are smaller if the text would be too long."""
    image = Image.new("RGB", (width, height), of.background)
    font = ImageFont.load_default(letter)
    if (length := font.getlength(of.text)) > _FILLED * width:
        font = ImageFont.load_default(letter * _FILLED * width / length)
    middle = width / 2, height / 2
    ImageDraw.Draw(image).text(middle, of.text, fill=of.letters, font=font, anchor="mm")
    return np.asarray(image)


def drawn_text(rng: np.random.Generator) -> HoveringText:
    """Draw letters, colours and a box."""
    text = "".join(rng.choice(list(string.ascii_uppercase + " "), size=rng.integers(3, 15)))
    width, height = rng.uniform(*_WIDTHS), rng.uniform(*_HEIGHTS)
    left, top = rng.uniform(0, 1 - width), rng.uniform(0, _LOWEST - height)
    background, letters = rng.integers(0, 256, (2, 3)).tolist()
    return HoveringText(
        text, (left, top, left + width, top + height), tuple(background), tuple(letters)
    )
