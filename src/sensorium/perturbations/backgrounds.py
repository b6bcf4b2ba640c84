"""Images to put behind a world: files, folders, videos, and some that are drawn here.

The drawn ones (`SCENES`) are free to use and to ship, and come in four kinds that are hard in different ways:
large shapes, stripes, small shapes in all colours, and shades that look like a road.
"""

import functools
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from sensorium.errors import ConfigError, did_you_mean, needs

_VIDEOS = {".mp4", ".avi", ".gif", ".mkv", ".mov", ".webm"}
_IMAGES = {".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}
_MOST_FRAMES = 1000  # as many as an episode has steps

Frames = UInt8[np.ndarray, "frames height width 3"]


def frames_of(source: str, height: int, width: int) -> Frames:
    """Read a background: a frame for an image or scene, all of them for a folder or a video.

    Args:
        source: A name of `SCENES`, or a path.
        height: Of the resized frames, in pixels.
        width: Of the resized frames, in pixels.

    Raises:
        UnknownNameError: It is neither a scene nor something that exists.
        ConfigError: It cannot be read, is not in colour (RGB), or is a folder without images.
    """
    path = Path(source)
    changed = os.stat(path).st_mtime_ns if path.exists() else 0
    return _frames_of(source, changed, height, width)


def each_background(source: str) -> dict[str, str]:
    """List backgrounds to try in turn, by name: each scene (`scenes`), or each file of a folder.

    Raises:
        ConfigError: It is neither, or there are no images and videos in the folder.
    """
    if source == "scenes":
        return {name: name for name in SCENES}
    if not Path(source).is_dir():
        raise ConfigError(
            f"There is no folder {source} of backgrounds; `scenes` are those drawn here."
        )
    files = _files_in(source, _IMAGES | _VIDEOS)
    stems = [file.stem for file in files]
    return {file.stem if stems.count(file.stem) == 1 else file.name: str(file) for file in files}


def is_video(source: str) -> bool:
    """Check whether frames of `source` follow one another; those of a folder are images to choose from."""
    return Path(source).suffix.lower() in _VIDEOS


@functools.lru_cache(maxsize=32)
def _frames_of(source: str, changed: int, height: int, width: int) -> Frames:
    del changed  # a file that has changed is read again
    path = Path(source)
    if source in SCENES:
        frames = SCENES[source](height, width)[None]
    elif path.is_dir():
        files = _files_in(source, _IMAGES)
        frames = np.stack([_read_image(file, height, width) for file in files])
    elif path.is_file() and is_video(source):
        frames = _read_video(path, height, width)
    elif path.is_file():
        frames = _read_image(path, height, width)[None]
    elif path.suffix or os.sep in source:
        raise ConfigError(f"There is no file {source} to use as background.")
    else:
        raise did_you_mean("background", source, SCENES)
    frames.flags.writeable = False
    return frames


def _files_in(folder: str, kinds: set[str]) -> list[Path]:
    found = sorted(file for file in Path(folder).iterdir() if file.suffix.lower() in kinds)
    if not found:
        raise ConfigError(
            f"The folder {folder} has nothing to use as background ({', '.join(sorted(kinds))})."
        )
    return found


def _read_image(path: Path, height: int, width: int) -> UInt8[np.ndarray, "height width 3"]:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as opened:
            # A palette of colours is as good
            image = opened.convert("RGB") if opened.mode == "P" else opened
            if image.mode != "RGB":
                raise ConfigError(
                    f"{path} is an image of mode {image.mode}; a background must be RGB, "
                    "8 bits a colour and without transparency."
                )
            return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
    except UnidentifiedImageError as error:
        raise ConfigError(f"{path} is not an image that can be read.") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ConfigError(f"{path} cannot be read as an image: {error}.") from error


def _read_video(path: Path, height: int, width: int) -> Frames:
    """Read the first frames, resized, by ffmpeg itself: readers around it leave pipes open when it fails."""
    with needs("draw", f"Reading the video {path}"):
        import imageio_ffmpeg

    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(path.absolute())]
    command += ["-frames:v", str(_MOST_FRAMES), "-vf", f"scale={width}:{height}:flags=area"]
    command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode or not done.stdout:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise ConfigError(f"{path} cannot be read as a video: {said[-1] if said else 'no frames'}.")
    return np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3)


def _hills(height: int, width: int) -> UInt8[np.ndarray, "height width 3"]:
    """Draw ranges of hills, paler the farther away, under a sky."""
    y, x = _grid(height, width)
    image = _blend((96, 150, 214), (240, 222, 196), y)
    for number in range(5):
        near = number / 4
        waves = np.sin(x * (5 + 3 * number) + 2.1 * number) + 0.4 * np.sin(x * 17 + number)
        ridge = 0.35 + 0.13 * number - 0.06 * waves
        colour = np.array((150, 165, 190)) * (1 - near) + np.array((46, 62, 40)) * near
        image = np.where((y > ridge)[..., None], colour, image)
    return _bytes(image)


def _waves(height: int, width: int) -> UInt8[np.ndarray, "height width 3"]:
    """Draw bent stripes of blue and white."""
    y, x = _grid(height, width)
    phase = 30 * y + 3 * np.sin(9 * x) + 2 * np.sin(4 * x + 7 * y)
    return _bytes(_blend((22, 60, 128), (236, 240, 232), 0.5 + 0.5 * np.sin(phase)))


def _mosaic(height: int, width: int) -> UInt8[np.ndarray, "height width 3"]:
    """Draw many small pieces in all colours."""
    random = np.random.default_rng(0)
    centres, colours = random.uniform(size=(160, 2)), random.uniform(20, 250, size=(160, 3))
    y, x = _grid(height, width)
    distance = (y[..., None] - centres[:, 0]) ** 2 + (x[..., None] - centres[:, 1]) ** 2
    return _bytes(colours[distance.argmin(-1)])


def _crossroads(height: int, width: int) -> UInt8[np.ndarray, "height width 3"]:
    """Draw bands of the grey of a road on earth of many shades."""
    random = np.random.default_rng(1)
    y, x = _grid(height, width)
    earth = _blend((120, 92, 60), (190, 168, 110), 0.5 + 0.5 * np.sin(21 * x + 13 * y))
    image = earth + random.normal(0, 10, size=(height, width, 1))
    for across, offset in ((x - 0.6 * y, 0.1), (y + 0.3 * x, 0.5), (x + y, 1.3)):
        image = np.where((np.abs(across - offset) < 0.06)[..., None], 105.0, image)
    return _bytes(image)


SCENES: dict[str, Callable[[int, int], UInt8[np.ndarray, "height width 3"]]] = {
    "hills": _hills,
    "waves": _waves,
    "mosaic": _mosaic,
    "crossroads": _crossroads,
}
"""Backgrounds that are drawn here, by name."""


def _grid(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute row and column of each pixel, from 0 to 1."""
    y, x = np.meshgrid(
        (np.arange(height) + 0.5) / height, (np.arange(width) + 0.5) / width, indexing="ij"
    )
    return y, x


def _blend(first: tuple[int, ...], second: tuple[int, ...], share: np.ndarray) -> np.ndarray:
    part = share[..., None]
    return np.array(first) * (1 - part) + np.array(second) * part


def _bytes(image: np.ndarray) -> UInt8[np.ndarray, "height width 3"]:
    return np.clip(np.round(image), 0, 255).astype(np.uint8)
