"""Perturbations of the images of CarRacing in the papers: backgrounds, colours, and objects in the way.

All of them read pixels only, so they work on our `CarRacing` and on Gymnasium's `CarRacing-v3` alike.
Distances are of a frame of 96 x 96 pixels, and grow with the frame.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sensorium.errors import ConfigError
from sensorium.perturbations.backgrounds import frames_of, is_video
from sensorium.perturbations.image import ImagePerturbation
from sensorium.types import Image, Key, ObservationSpec

GRASS = ((100, 202, 100), (100, 228, 100))
"""Red, green and blue of the ground beside the road, as frames of Gymnasium show it."""
_ROUNDING = 3  # of 255: Gymnasium paints 102, 204 or 230; scaling makes them darker by 2
_SIDE = 96  # pixels of the frame that places below are given in
_BAR = 12  # rows of it that show speed and steering


@dataclasses.dataclass(frozen=True)
class HideRows(ImagePerturbation):
    """The lowest `rows` are black: the bar that shows speed and steering.

    The AttentionNeuron agent of CarRacing was trained without it, as the authors' code has it. It has to be
    hidden before patches are shuffled, so this cannot be left to the agent.
    """

    rows: int = _BAR

    def check(self, height: int, width: int, channels: int) -> None:
        """Raise ConfigError if the image has fewer rows."""
        del width, channels
        if not 0 <= self.rows < height:
            raise ConfigError(f"Cannot hide {self.rows} of the {height} rows of an image.")

    def apply(self, key: Key, state: tuple, observation: Image) -> tuple[Image, tuple]:
        """Blacken them."""
        del key
        return observation.at[observation.shape[0] - self.rows :].set(0), state

    def __str__(self) -> str:
        return f"{self.rows} rows hidden"


@dataclasses.dataclass(frozen=True)
class Background(ImagePerturbation):
    """Images where the grass was (AN section 4.4, Table 5): pixels of its two colours are replaced.

    `source` is one of `SCENES`, a file of an image or a video, or a folder of images, of which every
    episode draws one. A video goes on by a frame each step from a random one, and begins anew at its end.
    """

    source: str
    needs_colour = True

    def check(self, height: int, width: int, channels: int) -> None:
        """Raise ConfigError if `source` cannot be read."""
        del channels
        frames_of(self.source, height, width)

    def init(self, key: Key, spec: ObservationSpec) -> Int[Array, ""]:
        """Draw the frame to begin with."""
        height, width, _ = self.shape_of(spec)
        return jax.random.randint(key, (), 0, len(frames_of(self.source, height, width)))

    def apply(
        self, key: Key, state: Int[Array, ""], observation: Image
    ) -> tuple[Image, Int[Array, ""]]:
        """Replace the grass."""
        del key
        height, width, _ = observation.shape
        frames = jnp.asarray(frames_of(self.source, height, width))
        frame = frames[state].astype(observation.dtype)
        after = (state + 1) % len(frames) if is_video(self.source) else state
        return jnp.where(on_grass(observation), frame, observation), after

    def __str__(self) -> str:
        return f"background {self.source.rstrip('/').rsplit('/', 1)[-1]}"


@dataclasses.dataclass(frozen=True)
class NoiseBackground(ImagePerturbation):
    """Uniform noise where the grass was, new in each pixel at every step (AttentionAgent section 6)."""

    needs_colour = True

    def apply(self, key: Key, state: tuple, observation: Image) -> tuple[Image, tuple]:
        """Replace the grass."""
        noise = jax.random.bits(key, observation.shape, jnp.uint8).astype(observation.dtype)
        return jnp.where(on_grass(observation), noise, observation), state

    def __str__(self) -> str:
        return "background noise"


@dataclasses.dataclass(frozen=True)
class Colour(ImagePerturbation):
    """Other shades of road and grass each episode (AttentionAgent section 5.5).

    To the road, and to the darker of the two greens, a number is added, drawn from -`amount` to `amount`
    of full brightness; the same for red, green and blue, or one for each if `each_channel`.
    """

    amount: float = 0.2
    each_channel: bool = False
    needs_colour = True

    def init(self, key: Key, spec: ObservationSpec) -> Float[Array, "2 3"]:
        """Draw what is added to road and grass, of 255."""
        self.shape_of(spec)
        shape = (2, 3) if self.each_channel else (2, 1)
        drawn = jax.random.uniform(key, shape, minval=-self.amount, maxval=self.amount)
        return jnp.broadcast_to(255 * drawn, (2, 3))

    def apply(
        self, key: Key, state: Float[Array, "2 3"], observation: Image
    ) -> tuple[Image, Float[Array, "2 3"]]:
        """Add it, in parts where a pixel is partly road and partly grass."""
        del key
        image = observation.astype(jnp.float32)
        road, grass = state
        green = image[..., 1, None]
        # All of the road's up to 105, all of the grass's at 202, nothing from 228 on, and lines between
        to_grass = jnp.clip((green - 105) / (202 - 105), 0, 1)
        to_light = jnp.clip((green - 202) / (228 - 202), 0, 1)
        added = road + to_grass * (grass - road) - to_light * grass
        shifted = jnp.clip(jnp.round(image + added), 0, 255)
        return jnp.where(_on_ground(image), shifted, image).astype(observation.dtype), state

    def __str__(self) -> str:
        return "colour of each channel" if self.each_channel else "colour"


@dataclasses.dataclass(frozen=True)
class Bars(ImagePerturbation):
    """A black bar on the left and one on the right, above the one below (AttentionAgent section 5.5)."""

    width: float = 7.2
    """Of each, in pixels."""

    def apply(self, key: Key, state: tuple, observation: Image) -> tuple[Image, tuple]:
        """Blacken them, in part where they end within a pixel."""
        del key
        height, width, _ = observation.shape
        place = np.arange(width)
        inner = self.width * width / _SIDE
        covered = np.clip(inner - np.minimum(place, width - 1 - place), 0, 1)
        return _cover(observation, np.outer(_above_bar(height), covered), (0, 0, 0)), state

    def __str__(self) -> str:
        return "bars"


@dataclasses.dataclass(frozen=True)
class Blob(ImagePerturbation):
    """A red square to the right of the car, where the paper has it (AttentionAgent section 5.5)."""

    top: float = 41.7
    left: float = 80.7
    height: float = 15.5
    width: float = 12.4
    needs_colour = True

    def apply(self, key: Key, state: tuple, observation: Image) -> tuple[Image, tuple]:
        """Paint it."""
        del key

        def share(count: int, begin: float, length: float) -> np.ndarray:
            scale, place = count / _SIDE, np.arange(count)
            ends = np.minimum(place + 1, (begin + length) * scale)
            return np.clip(ends - np.maximum(place, begin * scale), 0, 1)

        rows, columns, _ = observation.shape
        down = share(rows, self.top, self.height)
        across = share(columns, self.left, self.width)
        return _cover(observation, np.outer(down, across), (204, 0, 0)), state

    def __str__(self) -> str:
        return "blob"


@dataclasses.dataclass(frozen=True)
class FakeLane(ImagePerturbation):
    """A second road beside the first, of the same shape, which leads nowhere and earns nothing.

    On the ground, each pixel becomes the darker of itself and of the pixel `offset` to its left, unless that
    one is grass.
    """

    offset: float = 32.0
    """Pixels to the right; negative for a lane on the left."""
    needs_colour = True

    def apply(self, key: Key, state: tuple, observation: Image) -> tuple[Image, tuple]:
        """Paint it."""
        del key
        height, width, _ = observation.shape
        scale = width / _SIDE
        rows, columns = (np.arange(count) + 0.5 for count in (height, width))
        near = (abs(rows - 72 * scale) < 7 * scale)[:, None] & (
            abs(columns - 48 * scale) < 5 * scale
        )
        ground = _on_ground(observation)
        # The car is always there, and is not copied
        car, left_of_it = near[..., None] & ~ground, round(42 * scale)
        empty = jnp.where(car, observation[:, left_of_it : left_of_it + 1], observation)
        source = np.arange(width) - round(self.offset * scale)
        inside = ((source >= 0) & (source < width))[:, None]
        beside = empty[:, np.clip(source, 0, width - 1)]
        road = _on_ground(beside) & (beside[..., 1:2] < GRASS[0][1] - _ROUNDING)
        painted = road & inside & ground
        return jnp.where(painted, jnp.minimum(observation, beside), observation), state

    def __str__(self) -> str:
        return "fake lane"


def _above_bar(height: int) -> Bool[np.ndarray, " height"]:
    """Return which rows show the world."""
    return np.arange(height) < height * (_SIDE - _BAR) / _SIDE


def on_grass(image: Image) -> Bool[Array, "height width 1"]:
    """Return which pixels are of the ground beside the road."""
    apart = jnp.abs(image[..., None, :].astype(jnp.float32) - jnp.array(GRASS, jnp.float32))
    return jnp.any(jnp.all(apart <= _ROUNDING, -1), -1, keepdims=True)


def _on_ground(image: Image) -> Bool[Array, "height width 1"]:
    """Return which pixels are of road, grass, or blends of both."""
    red, green, blue = jnp.moveaxis(image.astype(jnp.float32), -1, 0)
    # The road has greys from 100 to 105; all there is between them and the greens is a blend
    ground = (jnp.abs(red - 102.5) < 5) & (jnp.abs(blue - 102.5) < 5) & (green > 98)
    return (ground & _above_bar(image.shape[0])[:, None])[..., None]


def _cover(image: Image, share: np.ndarray, colour: tuple[int, ...]) -> Image:
    """Paint over a share of each pixel."""
    part = jnp.asarray(share, jnp.float32)[..., None]
    paint = jnp.array(colour[: image.shape[2]], jnp.float32)
    mixed = image.astype(jnp.float32) * (1 - part) + paint * part
    # Bytes are rounded; where nothing is painted, floats pass unchanged
    return jnp.where(part > 0, jnp.round(mixed), image).astype(image.dtype)
