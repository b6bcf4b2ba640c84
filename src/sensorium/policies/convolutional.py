"""The convolutional baseline: an agent that reads images as most in the field do.

The network of Mnih et al. 2015, "Human-level control through deep reinforcement learning": three convolutions
and a layer, with ReLU. Departures: one frame in colour instead of four grey ones, as CarRacing shows speed
and turning in its bar; and actions are numbers.
"""

import dataclasses
import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

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


class ConvolutionalPolicy(Policy):
    """Convolutions and linear layers with ReLU, the last layer linear; no memory."""

    fixed_inputs = True

    convolutions: tuple[Convolution, ...]
    layers: tuple[Linear, ...]
    image_shape: tuple[int, int, int] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    distribution: ActionDistribution = eqx.field(static=True, default=Gaussian())

    def initial_carry(self, spec: ObservationSpec) -> tuple[()]:
        """Return nothing: the agent has no recurrent state.

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
        return ()

    def check(self, observation: Any, carry: tuple[()]) -> Image:
        """Check an image: of the size that the agent was built for."""
        del carry
        return check_image(observation, self.image_shape)

    def encode(
        self, observation: Image, carry: tuple[()]
    ) -> tuple[Float[Array, " features"], tuple[()], Trace]:
        """Apply all layers but the last."""
        seen = jnp.nan_to_num(observation.astype(jnp.float32)) / 255  # what is removed is black
        features = convolved(self.convolutions, seen)
        for layer in self.layers[:-1]:
            features = jax.nn.relu(layer(features))
        return features, carry, Trace()

    def decide(
        self, features: Float[Array, " features"], carry: tuple[()]
    ) -> tuple[Outputs, tuple[()]]:
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
            num_actions=count_of(actions),
            distribution=distribution_of(actions, clipped=self.clipped),
        )
