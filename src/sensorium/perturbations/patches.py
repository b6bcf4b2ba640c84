"""Patches of an image that change places or are hidden."""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from sensorium.errors import ConfigError, check_counts
from sensorium.layers.vision_attention import grid
from sensorium.perturbations.image import ImagePerturbation
from sensorium.types import Image, Key, ObservationSpec


class PatchOrder(NamedTuple):
    """Which patch is in each place, and for how many steps that has held."""

    order: Int[Array, " patches"]
    age: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class ShufflePatches(ImagePerturbation):
    """A random order of the patches, drawn at the start of each episode (AN section 4.4).

    Patches are of `size` x `size` pixels. With `every`, a new order each so many steps.
    """

    size: int = 6
    every: int = 0

    def __post_init__(self) -> None:
        check_counts(0, "ShufflePatches", every=self.every)

    def check(self, height: int, width: int, channels: int) -> None:
        """Raise ConfigError if patches do not divide the image."""
        del channels
        grid(height, width, self.size)

    def init(self, key: Key, spec: ObservationSpec) -> PatchOrder:
        """Draw the first order."""
        height, width, _ = self.shape_of(spec)
        rows, columns = grid(height, width, self.size)
        return PatchOrder(jax.random.permutation(key, rows * columns), jnp.zeros((), jnp.int32))

    def apply(self, key: Key, state: PatchOrder, observation: Image) -> tuple[Image, PatchOrder]:
        """Put the patches in their order, in a new one if it is time."""
        order = state.order
        if self.every:
            fresh = jax.random.permutation(key, order.shape[0])
            order = jnp.where((state.age > 0) & (state.age % self.every == 0), fresh, order)
        patches = to_patches(observation, self.size)
        shown = from_patches(patches[order], observation.shape[0], observation.shape[1])
        return shown, PatchOrder(order, state.age + 1)

    def within(self, steps: int) -> "ShufflePatches":
        """Return the same without a new order, if it comes later."""
        return self if self.every < steps else dataclasses.replace(self, every=0)

    def __str__(self) -> str:
        when = f"reshuffled every {self.every}" if self.every else "shuffled"
        return when if self.size == ShufflePatches.size else f"{when} by patches of {self.size}"


@dataclasses.dataclass(frozen=True)
class Occlude(ImagePerturbation):
    """A `share` of the patches, drawn for each episode, is black, or `removed`.

    Patches that are removed read NaN, and images are of float32 then. AttentionNeuron receives nothing of
    them (AN section 4.3: a list of fewer patches); agents that need the whole image see them black.
    """

    share: float = 0.3
    size: int = 6
    removed: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            nearest = (
                f"; say {self.share / 100:g} for {self.share:g}%" if 2 <= self.share < 100 else ""
            )
            raise ConfigError(
                f"Occlude hides a share of the patches, from 0 to less than 1 (all), got {self.share:g}"
                f"{nearest}."
            )

    def check(self, height: int, width: int, channels: int) -> None:
        """Raise ConfigError if patches do not divide the image, or none would be visible."""
        del channels
        count = math.prod(grid(height, width, self.size))
        if round(self.share * count) >= count:
            raise ConfigError(
                f"To hide {self.share:g} of {count} patches would leave none; hide at most "
                f"{math.floor(1000 * (count - 1) / count) / 1000:g} of them."
            )

    def init(self, key: Key, spec: ObservationSpec) -> Bool[Array, " patches"]:
        """Draw which patches are hidden."""
        height, width, _ = self.shape_of(spec)
        count = math.prod(grid(height, width, self.size))
        return jax.random.permutation(key, count) < round(self.share * count)

    def apply(
        self, key: Key, state: Bool[Array, " patches"], observation: Image
    ) -> tuple[Image, Bool[Array, " patches"]]:
        """Blacken or remove them."""
        del key
        height, width, _ = observation.shape
        hidden = state.reshape(grid(height, width, self.size))
        hidden = jnp.repeat(jnp.repeat(hidden, self.size, 0), self.size, 1)
        if self.removed:
            return jnp.where(hidden[..., None], jnp.nan, observation.astype(jnp.float32)), state
        return jnp.where(hidden[..., None], 0, observation), state

    def carried(self, key: Key, state: Bool[Array, " patches"], marks: Image) -> Image:
        """Blacken the marks: they are whole numbers."""
        return dataclasses.replace(self, removed=False).apply(key, state, marks)[0]

    def __str__(self) -> str:
        return f"{self.share:.0%} {'removed' if self.removed else 'occluded'}"


def to_patches(image: Image, size: int) -> Array:
    """Cut an image (H, W, C) into patches (N, size, size, C), row by row."""
    height, width, channels = image.shape
    rows, columns = grid(height, width, size)
    cut = image.reshape(rows, size, columns, size, channels)
    return cut.swapaxes(1, 2).reshape(rows * columns, size, size, channels)


def from_patches(patches: Array, height: int, width: int) -> Image:
    """Put patches (N, size, size, C) together again, row by row, to an image (H, W, C)."""
    size, channels = patches.shape[1], patches.shape[3]
    rows, columns = grid(height, width, size)
    joined = patches.reshape(rows, columns, size, size, channels).swapaxes(1, 2)
    return joined.reshape(height, width, channels)
