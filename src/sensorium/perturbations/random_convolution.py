"""NetRand's random layer, as a perturbation of images.

Lee et al. 2020, "Network Randomization: A Simple Technique for Generalization in Deep Reinforcement
Learning", section 3.

There it is the first layer of a convolutional agent in training. As a perturbation it stands in front of any
agent, in every engine. Departures: the result is an image again, so it is brought back to bytes; and the
paper's loss that pulls the features of changed and plain images together belongs to a trainer, not here.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sensorium.errors import ConfigError, check_counts
from sensorium.layers import convolve_by_product
from sensorium.perturbations.image import ImagePerturbation
from sensorium.types import Image, Key, ObservationSpec

_SIZE = 3  # pixels each way
_COLOURS = 3

Kernel = Float[Array, "rows columns inputs outputs"]


class Drawn(NamedTuple):
    """What images pass through, and for how many of them it has held."""

    kernel: Kernel
    plain: Bool[Array, ""]
    """Whether they pass unchanged instead."""
    age: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class RandomConvolution(ImagePerturbation):
    """Images pass through a 3 x 3 convolution from three colours to three, of random weights without bias.

    The weights are Xavier-normal. They are drawn at the start of an episode, and anew every `every` steps;
    with `every=0` they stay for the episode. The default is the authors': once in each iteration of PPO,
    which is 256 steps of each of their worlds. Each time, with probability `alpha`, images pass unchanged
    until the next draw.

    A convolution may give any number. All numbers of a channel are moved and scaled alike, until no even
    surface, whatever its colour, leaves 0 to 255; what an edge has beyond that is cut off. The image is
    surrounded by black.
    """

    alpha: float = 0.1
    every: int = 256
    needs_colour = True

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ConfigError(
                f"RandomConvolution needs an alpha (a probability) from 0 to 1, got {self.alpha:g}."
            )
        check_counts(0, "RandomConvolution", every=self.every)

    def init(self, key: Key, spec: ObservationSpec) -> Drawn:
        """Draw the first weights."""
        self.shape_of(spec)
        return self._draw(key)

    def apply(self, key: Key, state: Drawn, observation: Image) -> tuple[Image, Drawn]:
        """Convolve the image, with new weights if it is time."""
        if self.every:
            expired = state.age == self.every
            fresh = self._draw(key)
            state = jax.tree.map(lambda new, old: jnp.where(expired, new, old), fresh, state)
        shown = _in_bytes(_convolve(observation, state.kernel), state.kernel)
        shown = jnp.where(state.plain, observation, shown.astype(observation.dtype))
        return shown, state._replace(age=state.age + 1)

    def carried(self, key: Key, state: Drawn, marks: Image) -> Image:
        """Leave each mark where it is."""
        del key, state
        return marks

    def within(self, steps: int) -> "RandomConvolution":
        """Return the same without new weights, if they come later."""
        return self if self.every < steps else dataclasses.replace(self, every=0)

    def _draw(self, key: Key) -> Drawn:
        key_kernel, key_plain = jax.random.split(key)
        xavier = jax.nn.initializers.glorot_normal()
        kernel = xavier(key_kernel, (_SIZE, _SIZE, _COLOURS, _COLOURS))
        plain = jax.random.bernoulli(key_plain, self.alpha)
        return Drawn(kernel, plain, jnp.zeros((), jnp.int32))

    def __str__(self) -> str:
        when = "" if self.every == RandomConvolution.every else f" every {self.every}"
        return "random convolution" + (when if self.every else "")


def _convolve(image: Image, kernel: Kernel) -> Float[Array, "height width 3"]:
    # As a product, which XLA computes once. A sum of shifted planes would be computed anew by each part of
    # a convolutional agent that reads the image: 20 ms a step of 8 episodes instead of 2 on one core. XLA's
    # own convolutions are slower still where weights differ in each episode of a batch
    border = (_SIZE // 2,) * 2
    padded = jnp.pad(image, (border, border, (0, 0))).astype(jnp.float32)
    return convolve_by_product(padded, kernel.transpose(3, 2, 0, 1), 1, precision="highest")


def _in_bytes(
    values: Float[Array, "height width 3"], kernel: Kernel
) -> Float[Array, "height width 3"]:
    """Scale to whole numbers from 0 to 255; darkest and brightest are what even surfaces can become."""
    weights = jnp.sum(kernel, (0, 1))  # of each colour in each channel, on an even surface
    darkest = 255 * jnp.sum(jnp.minimum(weights, 0), 0)
    reach = jnp.sum(jnp.abs(weights), 0)
    return jnp.clip(jnp.round((values - darkest) / reach), 0, 255)
