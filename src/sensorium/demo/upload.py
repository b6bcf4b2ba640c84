"""Decode uploaded images, with limits."""

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
    """Decode an image, cut and scaled to fill a size.

    Args:
        data: Of its file; of an animation the first frame is taken.
        height: Pixels.
        width: Pixels.

    Raises:
        MessageError: It is too large, or no image of a known format.
    """
    from PIL import Image, ImageOps

    if len(data) > LARGEST_FILE:
        raise MessageError(f"An image may have {LARGEST_FILE >> 20} MB, this one has more.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Pillow's, of decompression bombs
            with Image.open(io.BytesIO(data), formats=_FORMATS) as opened:
                if opened.width * opened.height > _MOST_PIXELS:
                    raise MessageError(
                        f"An image may have {_MOST_PIXELS:,} pixels; "
                        f"this one has {opened.width} x {opened.height}."
                    )
                opened.draft("RGB", (2 * width, 2 * height))  # JPEGs are decoded smaller
                image = ImageOps.fit(opened.convert("RGB"), (width, height))
    except (OSError, ValueError, SyntaxError, EOFError, TypeError, struct.error, Warning) as error:
        if isinstance(error, MessageError):
            raise
        raise MessageError(
            f"That is no image of a known format ({', '.join(_FORMATS)})."
        ) from error
    except (Image.DecompressionBombError, MemoryError) as error:
        raise MessageError("That image is too large once decompressed.") from error
    return np.asarray(image)
