"""AttentionNeuron for images (AN sections 4.3 and 4.4, Pong and CarRacing).

The layer turns the patches of the last frames, in any order, into a code. In CarRacing the paper's agent
computes patch importance on the code as if it were an image; as in an AttentionAgent, the places of the best
go through an LSTM to the actions. Gradients through the choice of places are approximate, so there is also a
policy that reads the whole code. A small network decides at each step how much of the old code to blend with
the new. In Pong the code goes through convolutions, as if it were an image of M pixels and D channels, and
there is no memory.
"""

import dataclasses
import enum
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from sensorium.errors import ConfigError
from sensorium.layers import (
    LSTM,
    Convolution,
    KeyMap,
    Linear,
    PublishedNonlinearKeys,
    VisionAttentionNeuron,
    convolved,
)
from sensorium.layers.lstm import Memory
from sensorium.layers.patch_attention import patch_importance
from sensorium.layers.top_places import top_places
from sensorium.layers.vision_attention import grid
from sensorium.policies.action_distributions import (
    ActionDistribution,
    Gaussian,
    Outputs,
    distribution_of,
)
from sensorium.policies.controller import Controller, draw_output
from sensorium.policies.observations import check_image, size_of_images
from sensorium.policies.policy import Policy, PolicyConfig, Trace
from sensorium.types import Action, Actions, Image, Key, ObservationSpec, Scalar, count_of

_IMPORTANCE_SIZE = 4  # width of queries and keys of the importance of the places of the code
_BLEND_SIZE = 16  # units of the network that says how much of the old code to blend in
_CHANNELS = 64  # of each convolution that reads the code
_WINDOWS = ((4, 2), (3, 1))  # pixels of their windows, and from each window to the next
_LEAST_SIDE = 8  # pixels of the smallest image that they can read
_IMAGES = 3, 1  # channels
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # of red, green and blue


class VisionCarry(NamedTuple):
    """The recurrent state of the agent."""

    frames: Float[Array, "F H W"]
    """The last frames, grey, from 0 to 255."""
    fresh: Bool[Array, ""]
    """Whether there was no frame yet; the first one then fills all."""
    action: Action
    code: Float[Array, "M D"] | None
    """Before; this and the next are None for an agent that does not blend."""
    blend: Scalar | None
    """Part of the old code in the next."""
    memory: Memory | None
    """None for an agent without memory."""


class Reading(enum.Enum):
    """What of the code goes to the LSTM."""

    PLACES = "places"
    """Where it is most important, as published."""
    WHOLE = "whole"
    """All of it, through a layer with tanh."""
    CONVOLUTIONS = "convolutions"
    """All of it, as an image, through two convolutions and a layer with ReLU; as published for Pong."""


class PlacesReader(eqx.Module):
    """Reads the code as an image of M pixels: the places of the most important ones."""

    query: Linear
    key: Linear
    top: int = eqx.field(static=True)

    def __call__(self, code: Float[Array, "M D"]) -> Float[Array, " features"]:
        """Return row and column of each, the best first."""
        side = round(code.shape[0] ** 0.5)
        centres = np.stack(np.divmod(np.arange(side**2), side), -1) / side
        importance = patch_importance(self.query(code), self.key(code))
        return top_places(importance, jnp.asarray(centres, jnp.float32), self.top).reshape(-1)


class WholeReader(eqx.Module):
    """A layer that reads the whole code."""

    layer: Linear

    def __call__(self, code: Float[Array, "M D"]) -> Float[Array, " features"]:
        """Compute its units."""
        return jnp.tanh(self.layer(code.reshape(-1)))


class ConvolutionReader(eqx.Module):
    """Reads the code as an image of M pixels through convolutions (AN appendix A.4.3)."""

    convolutions: tuple[Convolution, ...]
    layer: Linear

    def __call__(self, code: Float[Array, "M D"]) -> Float[Array, " features"]:
        """Compute the units of the layer."""
        side = round(code.shape[0] ** 0.5)
        seen = jax.nn.relu(code).reshape(side, side, -1)
        return jax.nn.relu(self.layer(convolved(self.convolutions, seen)))


class VisionPolicy(Policy):
    """The layer, a reader of its code, an LSTM if the agent has memory, and what makes outputs of that."""

    layer: VisionAttentionNeuron
    reader: PlacesReader | WholeReader | ConvolutionReader
    lstm: LSTM | None
    output: Linear | Controller
    blend: tuple[Linear, Linear] | None
    num_actions: int = eqx.field(static=True)
    hidden_rows: int = eqx.field(static=True, default=12)
    distinct_patches: int | None = eqx.field(static=True, default=None)
    distribution: ActionDistribution = eqx.field(static=True, default=Gaussian())

    def initial_carry(self, spec: ObservationSpec) -> VisionCarry:
        """Return a blank recurrent state.

        Args:
            spec: (H, W, 3) of images in colour, or (H, W, 1) of grey ones.

        Raises:
            ConfigError: They are no images, do not divide into patches, or into another number of them
                than nonlinear keys as published were built for.
        """
        size = size_of_images(spec, _IMAGES)
        rows, columns = grid(*size, self.layer.patch_size)
        if isinstance(self.layer.nonlinear_keys, PublishedNonlinearKeys):
            known = self.layer.nonlinear_keys.weight.shape[0]
            if rows * columns != known:
                raise ConfigError(
                    f"NLA as published was built for {known} patches, not for {rows * columns}."
                )
        blends = self.blend is not None
        code = jnp.zeros((self.layer.num_queries, self.layer.value.bias.shape[0]))
        return VisionCarry(
            frames=jnp.zeros((self.layer.num_frames, *size)),
            fresh=jnp.ones((), bool),
            action=jnp.zeros(self.num_actions),
            code=code if blends else None,
            blend=jnp.zeros(()) if blends else None,
            memory=self.lstm.initial_memory() if self.lstm else None,
        )

    def check(self, observation: Any, carry: VisionCarry) -> Image:
        """Check an image: of the size that its memory is for, in colour or grey."""
        channels = 1 if np.ndim(observation) == 3 and np.shape(observation)[2] == 1 else 3
        height, width = carry.frames.shape[1:]
        return check_image(observation, (height, width, channels))

    def encode(
        self, observation: Image, carry: VisionCarry
    ) -> tuple[Float[Array, "M D"], VisionCarry, Trace]:
        """Compute a new code."""
        image = observation.astype(jnp.float32)
        # Whole numbers, as the authors' agents received them
        grey = jnp.floor(image @ _LUMA) if image.shape[-1] == 3 else image[..., 0]
        frames = jnp.where(carry.fresh, grey, jnp.concatenate([carry.frames[1:], grey[None]]))
        return self.look_at(frames, carry._replace(fresh=jnp.zeros((), bool)))

    def look_at(
        self, frames: Float[Array, "F H W"], carry: VisionCarry
    ) -> tuple[Float[Array, "M D"], VisionCarry, Trace]:
        """Compute a new code from frames that are already grey and stacked, 0 to 255."""
        new, attention = self.layer(frames / 255, carry.action, self.distinct_patches)
        return new, carry._replace(frames=frames), Trace(attention=attention)

    def decide(
        self, features: Float[Array, "M D"], carry: VisionCarry
    ) -> tuple[Outputs, VisionCarry]:
        """Mix the new code with the old one, read it, advance the LSTM, compute the outputs."""
        code = features
        if carry.blend is not None and carry.code is not None:
            code = (1 - carry.blend) * features + carry.blend * carry.code
        read = self.reader(code)
        if self.lstm is None or carry.memory is None:
            return self.output(read), carry
        memory = self.lstm(read, carry.memory)
        outputs = self.output(memory.hidden)
        carry = carry._replace(memory=memory)
        if self.blend is None:
            return outputs, carry
        action = self.distribution.feedback(self.distribution.action(outputs))
        first, second = self.blend
        hidden = jnp.tanh(first(jnp.concatenate([memory.hidden, action])))
        return outputs, carry._replace(code=code, blend=jax.nn.sigmoid(second(hidden)[0]))

    def memory_features(self, carry: VisionCarry) -> Float[Array, " H"]:
        """Return the hidden units of its LSTM."""
        return jnp.zeros(0) if carry.memory is None else carry.memory.hidden

    def patches(self, height: int, width: int) -> tuple[np.ndarray, int]:
        """Return the patches that its layer reads, side by side."""
        size = self.layer.patch_size
        rows, columns = grid(height, width, size)
        return np.stack(np.divmod(np.arange(rows * columns), columns), -1) * size, size

    def without_shortcuts(self) -> "VisionPolicy":
        """Take patches one by one."""
        return dataclasses.replace(self, distinct_patches=None)

    def after_action(self, carry: VisionCarry, action: Action) -> VisionCarry:
        """Feed back the action: the keys of the next step receive it."""
        return carry._replace(action=self.distribution.feedback(action))


@dataclasses.dataclass(frozen=True)
class VisionAttentionNeuronConfig(PolicyConfig):
    """An AttentionNeuron agent for images; the defaults are the paper's for CarRacing, 7,212 parameters."""

    may_be_zero = ("hidden_rows",)

    num_queries: int = 1024
    """M; a square number, if the code is read as an image."""
    patch_size: int = 6
    """Pixels each way; patches lie side by side."""
    num_frames: int = 4
    """How many frames are stacked."""
    message_size: int = 16
    """Width of queries, keys and values, and so of the code."""
    position_size: int = 8
    """Width of the positional table that makes the queries."""
    motion_scale: float = 1.0
    """What keys multiply the differences of frames by."""
    reading: Reading = Reading.PLACES
    """What of the code goes on."""
    top: int = 10
    """How many places of the code it attends to."""
    reader_size: int = 32
    """Units of the layer that reads the whole code."""
    hidden_size: int | None = 16
    """Units of the LSTM; None for an agent without memory, which blends nothing either."""
    head_size: int | None = None
    """Units of a layer with tanh between that and the outputs; None for none, as published."""
    blends: bool = True
    """Blend the old code into the new one, as published for CarRacing; it starts with halves."""
    learned_norms: bool = False
    """Give the layer norms weights, as published for Pong."""
    distinct_patches: int | None = None
    """Merge equal patches where no more than so many differ: the same actions, sooner; None for not."""
    hidden_rows: int = 12
    """Lowest rows of the image that it is not shown: of CarRacing's bar."""
    key_map: KeyMap = KeyMap.LINEAR
    """The NLA switch."""

    def build(self, spec: ObservationSpec, actions: Actions, key: Key) -> VisionPolicy:
        """Draw an agent; ConfigError if `spec` is not that of images that it can read."""
        num_actions = count_of(actions)
        keys = jax.random.split(key, 8)
        reader, num_features = self._draw_reader(keys[1], keys[2])
        height, width = size_of_images(spec, _IMAGES)
        num_patches = math.prod(grid(height, width, self.patch_size))
        lstm = blend = None
        if self.hidden_size is not None:
            lstm = LSTM(num_features, self.hidden_size, key=keys[3])
        if self.hidden_size is not None and self.blends:
            blend = (
                Linear(self.hidden_size + num_actions, _BLEND_SIZE, key=keys[5]),
                Linear(_BLEND_SIZE, 1, key=keys[6]),
            )
        return VisionPolicy(
            layer=VisionAttentionNeuron(
                num_actions,
                num_queries=self.num_queries,
                patch_size=self.patch_size,
                num_frames=self.num_frames,
                message_size=self.message_size,
                position_size=self.position_size,
                motion_scale=self.motion_scale,
                learned_norms=self.learned_norms,
                nonlinear_keys=self.key_map.draw(self.num_queries, num_patches, keys[7]),
                key=keys[0],
            ),
            reader=reader,
            lstm=lstm,
            output=draw_output(
                self.hidden_size or num_features, self.head_size, num_actions, key=keys[4]
            ),
            blend=blend,
            num_actions=num_actions,
            hidden_rows=self.hidden_rows,
            distinct_patches=self.distinct_patches,
            distribution=distribution_of(actions),
        )

    def _draw_reader(
        self, *keys: Key
    ) -> tuple[PlacesReader | WholeReader | ConvolutionReader, int]:
        """Draw the reader; also return how many features it reads."""
        units = self.reader_size
        if self.reading is Reading.WHOLE:
            layer = Linear(self.num_queries * self.message_size, units, key=keys[0])
            return WholeReader(layer), units
        side = round(self.num_queries**0.5)
        least = self.top if self.reading is Reading.PLACES else _LEAST_SIDE**2
        if side**2 != self.num_queries or self.num_queries < least:
            raise ConfigError(
                f"num_queries must be a square number of at least {least}, got {self.num_queries}; "
                f"{max(side, math.ceil(least**0.5)) ** 2} is one."
            )
        if self.reading is Reading.PLACES:
            query, key = (Linear(self.message_size, _IMPORTANCE_SIZE, key=key) for key in keys)
            return PlacesReader(query, key, self.top), 2 * self.top
        channels, convolutions = self.message_size, []
        for (size, stride), key in zip(_WINDOWS, jax.random.split(keys[0]), strict=True):
            convolutions.append(Convolution(channels, _CHANNELS, size, stride, key=key))
            channels, side = _CHANNELS, (side - size) // stride + 1
        layer = Linear(_CHANNELS * side**2, units, key=keys[1])
        return ConvolutionReader(tuple(convolutions), layer), units
