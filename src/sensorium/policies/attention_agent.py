"""AttentionAgent: attend to the few most important patches of an image, act on their places.

Tang, Nguyen & Ha 2020, "Neuroevolution of Self-Interpretable Agents".

Self-attention gives each patch an importance (`PatchAttention`); the places of the K most important ones, and
nothing else, go through an LSTM to the actions. What the patches show is discarded, so other colours matter
little.

Gradients through the choice of places are approximate, and ten places say little where there is much to
watch. So there is also an agent that reads the importance of all patches, through two layers with tanh. Its
LSTM may receive the previous action, too: an agent that moves its own camera needs it to see what else moves.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sensorium.errors import ConfigError, ObservationError
from sensorium.layers import LSTM, Linear, PatchAttention
from sensorium.layers.lstm import Memory
from sensorium.layers.top_places import top_places
from sensorium.policies.action_distributions import (
    ActionDistribution,
    Gaussian,
    Outputs,
    distribution_of,
)
from sensorium.policies.controller import Controller, draw_output
from sensorium.policies.observations import check_image, size_of_images
from sensorium.policies.policy import Policy, PolicyConfig, Trace
from sensorium.types import Action, Actions, Image, Key, ObservationSpec, count_of

_NAME = "An AttentionAgent"
_LEAST_IMPORTANCE = 0.05  # below it the logarithm tells nothing


class AttentionAgentCarry(NamedTuple):
    """What the agent remembers."""

    memory: Memory
    action: Action | None
    """Of the step before; None for an agent that does not receive it."""


class AttentionAgent(Policy):
    """Patch importance, the best K places or layers that read all, an LSTM and a linear layer."""

    fixed_inputs = True

    look: PatchAttention
    reader: Controller | None
    """Reads the importance of all patches; None for the places alone."""
    lstm: LSTM
    output: Linear | Controller
    top: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    distribution: ActionDistribution = eqx.field(static=True, default=Gaussian())
    action_feedback: bool = eqx.field(static=True, default=False)
    """Whether the LSTM receives the previous action."""

    def initial_carry(self, spec: ObservationSpec) -> AttentionAgentCarry:
        """Return a blank recurrent state.

        Args:
            spec: (H, W, C) of the images.

        Raises:
            ConfigError: They are no images, of another number of channels than the agent was made for, or
                of fewer patches than it attends to.
        """
        self._check_size(*size_of_images(spec, (self.channels,), _NAME))
        action = jnp.zeros(self.num_actions) if self.action_feedback else None
        return AttentionAgentCarry(self.lstm.initial_memory(), action)

    def check(self, observation: Any, carry: AttentionAgentCarry) -> Image:
        """Check an image: of any size, with the channels that the agent was made for."""
        del carry
        image = check_image(observation, (None, None, self.channels))
        try:
            self._check_size(*image.shape[:2])
        except ConfigError as error:
            raise ObservationError(str(error)) from error
        return image

    def _check_size(self, height: int, width: int) -> None:
        rows, columns = self.look.grid(height, width)
        if rows * columns < self.top:
            raise ConfigError(
                f"An image of {height} x {width} has {rows * columns} patches, fewer than the {self.top} "
                "that the agent attends to."
            )
        if self.reader is not None:
            known = self.reader.layers[0].weight.shape[1]
            if rows * columns != known:
                raise ConfigError(
                    f"The agent reads {known} patches; {height} x {width} pixels make {rows * columns}."
                )

    @property
    def channels(self) -> int:
        """Of the images that it takes."""
        return self.look.query.weight.shape[1] // self.look.patch_size**2

    def fitted_to(self, wanted: Policy) -> Policy:
        """Return it with as many places as `wanted` attends to, if that is an AttentionAgent too."""
        return self.with_top(wanted.top) if isinstance(wanted, AttentionAgent) else self

    def with_top(self, top: int) -> "AttentionAgent":
        """Return the same policy with another number of places.

        Of more: the new ones have weights of zero, so it acts as before. Of fewer: the best remain.

        Args:
            top: K, at least 1.

        Raises:
            ConfigError: There would be none.
        """
        _check_top(top)
        if self.reader is not None:  # which reads all
            return dataclasses.replace(self, top=top)
        from_places, rest = jnp.split(self.lstm.weight_ih, [2 * self.top], -1)
        missing = max(0, 2 * (top - self.top))
        from_places = jnp.pad(from_places, ((0, 0), (0, missing)))[:, : 2 * top]
        weight = jnp.concatenate([from_places, rest], -1)
        agent = eqx.tree_at(lambda agent: agent.lstm.weight_ih, self, weight)
        return dataclasses.replace(agent, top=top)

    def patches(self, height: int, width: int) -> tuple[np.ndarray, int]:
        """Return the patches whose importance is computed."""
        size = self.look.patch_size
        return self.look.centres(height, width) - size // 2, size

    @property
    def num_attended(self) -> int:
        """Those whose places go to the LSTM."""
        return self.top

    def encode(
        self, observation: Image, carry: AttentionAgentCarry
    ) -> tuple[Float[Array, " features"], AttentionAgentCarry, Trace]:
        """Find the places of the most important patches, the best first; or how important each is."""
        height, width = observation.shape[:2]
        importance = self.look(jnp.nan_to_num(observation))  # what is removed is black
        if self.reader is None:
            sides = jnp.array([height, width], jnp.float32)
            features = top_places(importance, self.look.centres(height, width) / sides, self.top)
        else:
            features = jnp.log(importance + _LEAST_IMPORTANCE) / 2
        return features.reshape(-1), carry, Trace(attention=importance[None])

    def memory_features(self, carry: AttentionAgentCarry) -> Float[Array, " H"]:
        """Return the hidden units of its LSTM."""
        return carry.memory.hidden

    def decide(
        self, features: Float[Array, " features"], carry: AttentionAgentCarry
    ) -> tuple[Outputs, AttentionAgentCarry]:
        """Advance the LSTM, and compute the outputs."""
        if self.reader is not None:
            features = jnp.tanh(self.reader(features))
        if carry.action is not None:
            features = jnp.concatenate([features, carry.action])
        memory = self.lstm(features, carry.memory)
        return self.output(memory.hidden), carry._replace(memory=memory)

    def after_action(self, carry: AttentionAgentCarry, action: Action) -> AttentionAgentCarry:
        """Remember the action, if the LSTM receives it."""
        if carry.action is None:
            return carry
        return carry._replace(action=self.distribution.feedback(action))


def _check_top(top: int) -> None:
    if top < 1:
        raise ConfigError(f"An AttentionAgent attends to 1 patch or more, not {top}.")


@dataclasses.dataclass(frozen=True)
class AttentionAgentConfig(PolicyConfig):
    """An AttentionAgent; the defaults are the paper's for CarRacing, 3,667 parameters."""

    patch_size: int = 7
    """Pixels each way."""
    stride: int = 4
    """Pixels from each patch to the next."""
    message_size: int = 4
    """Width of queries and keys."""
    top: int = 10
    """K, how many patches it attends to."""
    hidden_size: int = 16
    """Units of the LSTM."""
    channels: int = 3
    """Of the images."""
    scale: float = 2.0
    """What products of queries and keys are divided by: √message_size; √147 in the agents of 2020."""
    reader_size: int | None = None
    """Units of each of two layers that read the importance of all patches; None for places alone, as
    published."""
    head_size: int | None = None
    """Units of a layer with tanh between the LSTM and the outputs; None for none, as published."""
    action_feedback: bool = False
    """Give the LSTM the previous action, which published agents do not receive."""

    def build(self, spec: ObservationSpec, actions: Actions, key: Key) -> AttentionAgent:
        """Draw an agent; ConfigError if `spec` is not that of images it can read, or `top` does not fit."""
        _check_top(self.top)
        key_look, key_lstm, key_output = jax.random.split(key, 3)
        look = PatchAttention(
            channels=self.channels,
            patch_size=self.patch_size,
            stride=self.stride,
            message_size=self.message_size,
            scale=self.scale,
            key=key_look,
        )
        reader, num_features = None, 2 * self.top
        if self.reader_size is not None:
            num_patches = math.prod(look.grid(*size_of_images(spec, (self.channels,), _NAME)))
            sizes = num_patches, self.reader_size, self.reader_size
            reader = Controller(sizes, key=jax.random.fold_in(key, 0))
            num_features = self.reader_size
        if self.action_feedback:
            num_features += count_of(actions)
        agent = AttentionAgent(
            look=look,
            reader=reader,
            lstm=LSTM(num_features, self.hidden_size, key=key_lstm),
            output=draw_output(self.hidden_size, self.head_size, count_of(actions), key=key_output),
            top=self.top,
            num_actions=count_of(actions),
            distribution=distribution_of(actions),
            action_feedback=self.action_feedback,
        )
        agent.initial_carry(spec)
        return agent
