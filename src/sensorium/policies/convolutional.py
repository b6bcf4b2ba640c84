"""The convolutional baseline: an agent that reads images as most in the field do.

The network of Mnih et al. 2015, "Human-level control through deep reinforcement learning": three convolutions
and a layer, with ReLU. Departures: by default one frame in colour instead of four grey ones, as CarRacing
shows speed and turning in its bar; and actions may be numbers.
"""

import dataclasses
import itertools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sensorium.errors import ConfigError
from sensorium.layers import Convolution, Linear, convolved
from sensorium.policies.action_distributions import (
    ActionDistribution,
    Gaussian,
    Outputs,
    distribution_of,
)
from sensorium.policies.observations import check_image
from sensorium.policies.policy import Policy, PolicyConfig, Trace
from sensorium.types import Actions, Image, Key, ObservationSpec, count_of, in_words


class Frames(NamedTuple):
    """The last frames, and whether there was none yet; the first one then fills all."""

    images: Float[Array, "F H W C"]
    fresh: Bool[Array, ""]


class ConvolutionalPolicy(Policy):
    """Convolutions and linear layers with ReLU, the last layer linear; of memory only the last frames."""

    fixed_inputs = True

    convolutions: tuple[Convolution, ...]
    layers: tuple[Linear, ...]
    image_shape: tuple[int, int, int] = eqx.field(static=True)
    num_frames: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    distribution: ActionDistribution = eqx.field(static=True, default=Gaussian())

    def initial_carry(self, spec: ObservationSpec) -> Frames | tuple[()]:
        """Return blank frames; nothing for an agent that sees one at a time.

        Args:
            spec: (H, W, C) of the images.

        Raises:
            ConfigError: They are not of the shape that the agent was built for.
        """
        if spec != self.image_shape:
            height, width, channels = self.image_shape
            raise ConfigError(
                f"A convolutional agent takes images of the size that it was built for, "
                f"{height} x {width} x {channels}, not {spec}."
            )
        if self.num_frames == 1:
            return ()
        return Frames(jnp.zeros((self.num_frames, *spec)), jnp.ones((), bool))

    def check(self, observation: Any, carry: Frames | tuple[()]) -> Image:
        """Check an image: of the size that the agent was built for."""
        del carry
        return check_image(observation, self.image_shape)

    def encode(
        self, observation: Image, carry: Frames | tuple[()]
    ) -> tuple[Float[Array, " features"], Frames | tuple[()], Trace]:
        """Apply all layers but the last."""
        seen = jnp.nan_to_num(observation.astype(jnp.float32)) / 255  # what is removed is black
        if isinstance(carry, Frames):
            later = jnp.concatenate([carry.images[1:], seen[None]])
            carry = Frames(jnp.where(carry.fresh, seen, later), jnp.zeros((), bool))
            seen = jnp.concatenate([*carry.images], -1)
        features = convolved(self.convolutions, seen)
        for layer in self.layers[:-1]:
            features = jax.nn.relu(layer(features))
        return features, carry, Trace()

    def decide(
        self, features: Float[Array, " features"], carry: Frames | tuple[()]
    ) -> tuple[Outputs, Frames | tuple[()]]:
        """Apply the last layer."""
        return self.layers[-1](features), carry


@dataclasses.dataclass(frozen=True)
class ConvolutionalConfig(PolicyConfig):
    """A convolutional agent; the defaults are the sizes of Mnih et al. 2015."""

    channels: tuple[int, ...] = (32, 64, 64)
    """Of what each convolution gives."""
    windows: tuple[int, ...] = (8, 4, 3)
    """Pixels of the window of each convolution, each way."""
    strides: tuple[int, ...] = (4, 2, 1)
    """Pixels from each window to the next."""
    hidden_sizes: tuple[int, ...] = (512,)
    """Units of the layers between convolutions and actions."""
    num_frames: int = 1
    """How many frames are stacked."""
    clipped: bool = False
    """Cut actions off at -1 and 1, as agents of Stable-Baselines3's PPO do, instead of a tanh."""

    def build(self, spec: ObservationSpec, actions: Actions, key: Key) -> ConvolutionalPolicy:
        """Draw an agent for images of exactly that size.

        Raises:
            ConfigError: `spec` is not that of images, or too small for the windows; settings do not fit.
        """
        if not isinstance(spec, tuple) or len(spec) != 3:
            raise ConfigError(
                f"A convolutional agent takes images of height x width x channels, not "
                f"{in_words(spec)}."
            )
        if not len(self.channels) == len(self.windows) == len(self.strides):
            raise ConfigError(
                f"A convolutional agent needs as many channels as windows and strides, got "
                f"{len(self.channels)}, {len(self.windows)} and {len(self.strides)}."
            )
        keys = iter(jax.random.split(key, len(self.channels) + len(self.hidden_sizes) + 1))
        height, width, inputs = spec
        inputs *= self.num_frames
        convolutions = []
        for outputs, size, stride in zip(self.channels, self.windows, self.strides, strict=True):
            convolutions.append(Convolution(inputs, outputs, size, stride, key=next(keys)))
            height, width = ((side - size) // stride + 1 for side in (height, width))
            if min(height, width) < 1:
                raise ConfigError(
                    f"Images of {spec[0]} x {spec[1]} are too small for convolutions with windows "
                    f"of {', '.join(map(str, self.windows))} pixels."
                )
            inputs = outputs
        sizes = (height * width * inputs, *self.hidden_sizes, count_of(actions))
        return ConvolutionalPolicy(
            convolutions=tuple(convolutions),
            layers=tuple(
                Linear(before, after, key=next(keys)) for before, after in itertools.pairwise(sizes)
            ),
            image_shape=spec,
            num_frames=self.num_frames,
            num_actions=count_of(actions),
            distribution=distribution_of(actions, clipped=self.clipped),
        )
