"""A new random background for each episode: to train with, not to test.

Domain randomisation (Tobin et al. 2017, "Domain Randomization for Transferring Deep Neural Networks from
Simulation to the Real World"): to a policy that was trained on a thousand textures any background is one more
texture.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt8

from sensorium.perturbations.image import ImagePerturbation
from sensorium.perturbations.racing import on_grass
from sensorium.types import Image, Key, ObservationSpec

_CELLS = (2, 4, 8, 16, 32)  # coarse to fine, along each side


@dataclasses.dataclass(frozen=True)
class RandomBackground(ImagePerturbation):
    """Spots of all sizes and colours where CarRacing has grass, drawn for each episode.

    Noise of five sizes is added up; how much finer noise counts, how much the three colours differ, contrast
    and brightness are drawn. In half of the episodes there are a few shades only, with edges between them.
    """

    needs_colour = True

    def init(self, key: Key, spec: ObservationSpec) -> UInt8[Array, "height width 3"]:
        """Draw the image of the episode."""
        height, width, _ = self.shape_of(spec)
        return _draw(key, height, width)

    def apply(
        self, key: Key, state: UInt8[Array, "height width 3"], observation: Image
    ) -> tuple[Image, UInt8[Array, "height width 3"]]:
        """Replace the grass."""
        del key
        shown = jnp.where(on_grass(observation), state.astype(observation.dtype), observation)
        return shown, state

    def __str__(self) -> str:
        return "random background"


def _draw(key: Key, height: int, width: int) -> UInt8[Array, "height width 3"]:
    keys = jax.random.split(key, 8)
    fineness = jax.random.uniform(keys[0], minval=0.3, maxval=1.2)
    spots: Float[Array, "height width 3"] = jnp.zeros((height, width, 3))
    for octave, cells in enumerate(_CELLS):
        noise = jax.random.normal(jax.random.fold_in(keys[1], octave), (cells, cells, 3))
        spots += fineness**octave * jax.image.resize(noise, (height, width, 3), "linear")
    # From grey, where all colours are their mean, to three that have nothing to do with one another
    colourful = jax.random.uniform(keys[2])
    spots = colourful * spots + (1 - colourful) * jnp.mean(spots, -1, keepdims=True)
    spots = (spots - jnp.mean(spots)) / jnp.std(spots)
    step = jax.random.uniform(keys[3], minval=0.4, maxval=1.5)
    spots = jnp.where(jax.random.bernoulli(keys[4]), jnp.round(spots / step) * step, spots)
    # Often hardly any: against one flat shade, only the edges of the road are visible
    contrast = 80.0 * jax.random.uniform(keys[5]) ** 2
    tint = colourful * jax.random.uniform(keys[6], (3,), minval=-75.0, maxval=75.0)
    # More than half are darker than the road, which CarRacing's own grass never is
    brightness = tint + 20.0 + 215.0 * jax.random.uniform(keys[7]) ** 1.5
    return jnp.clip(jnp.round(brightness + contrast * spots), 0, 255).astype(jnp.uint8)
