"""A picture that a visitor drops onto the page, decoded with limits."""

import io
import struct
import warnings

import numpy as np
from jaxtyping import UInt8

from sensorium.errors import MessageError

LARGEST_FILE = 4 * 2**20
"""Bytes."""
_MOST_PIXELS = 25_000_000
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")


def decode(data: bytes, height: int, width: int) -> UInt8[np.ndarray, "height width 3"]:
    """The picture in a file, cut and scaled to fill a size.

    Args:
        data: The file; of an animation the first frame is taken.
        height: Pixels.
        width: Pixels.

    Raises:
        MessageError: It is too large, or no picture of a format that is read here.
    """
    from PIL import Image, ImageOps

    if len(data) > LARGEST_FILE:
        raise MessageError(f"A picture may have {LARGEST_FILE >> 20} MB, this one has more.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of Pillow's, about pictures that would unfold too far
            with Image.open(io.BytesIO(data), formats=_FORMATS) as opened:
                if opened.width * opened.height > _MOST_PIXELS:
                    raise MessageError(
                        f"A picture may have {_MOST_PIXELS:,} pixels; "
                        f"this one has {opened.width} x {opened.height}."
                    )
                opened.draft("RGB", (2 * width, 2 * height))  # JPEGs need not unfold whole
                picture = ImageOps.fit(opened.convert("RGB"), (width, height))
    except (OSError, ValueError, SyntaxError, EOFError, TypeError, struct.error, Warning) as error:
        if isinstance(error, MessageError):
            raise
        raise MessageError(
            f"That is no picture that can be read ({', '.join(_FORMATS)})."
        ) from error
    except (Image.DecompressionBombError, MemoryError) as error:
        raise MessageError("That picture unfolds to more than can be read.") from error
    return np.asarray(picture)
