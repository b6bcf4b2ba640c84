"""AttentionNeuron for images (AN sections 3.2 and 4): every patch is a sensor without a place.

The keys of a patch come from the changes of its pixels, its values from the pixels themselves:

    K = [differences of consecutive frames, a] W_k,    V = LayerNorm(frames) W_v,    Q = table W_q
    m = LayerNorm(relu(softmax(Q Kᵀ / √D) V))

The code is a sum over patches, so it depends neither on their order nor on their number. As in the authors'
agents, layer norms have no weights of their own, and keys list pixels before frames, values frames first.

Keys can go through the nonlinear map of NLA (`nonlinear_keys.py`); as published, it ties the layer to a
number and an order of patches.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.errors import ConfigError
from sensorium.layers.linear import Linear
from sensorium.layers.nonlinear_keys import NonlinearKeys
from sensorium.layers.positional import positional_table
from sensorium.types import Action, Key


class VisionAttentionNeuron(eqx.Module):
    """From a few frames to a code of M x D, whatever the order of their patches."""

    query: Linear
    key: Linear
    value: Linear
    nonlinear_keys: NonlinearKeys | None
    num_queries: int = eqx.field(static=True)
    patch_size: int = eqx.field(static=True)
    num_frames: int = eqx.field(static=True)
    motion_scale: float = eqx.field(static=True)

    def __init__(
        self,
        num_actions: int,
        *,
        num_queries: int,
        patch_size: int,
        num_frames: int,
        message_size: int,
        position_size: int,
        motion_scale: float = 1.0,
        nonlinear_keys: NonlinearKeys | None = None,
        key: Key,
    ):
        """Draw a layer with random weights.

        Args:
            num_actions: A, the length of the previous action, which every patch receives.
            num_queries: M, rows of the code.
            patch_size: Pixels each way; patches lie side by side.
            num_frames: F, how many frames are stacked.
            message_size: D, width of queries, keys and values.
            position_size: Width of the positional table.
            motion_scale: What keys multiply the differences of frames by. With 1, as published, they are so
                small that a layer with random weights attends to all patches alike, and learns slowly.
            nonlinear_keys: A nonlinear map of the keys (NLA), or None for the plain layer.
            key: Random key.

        Raises:
            ConfigError: A size is less than 1, or there are fewer than two frames.
        """
        if min(num_queries, patch_size, message_size, position_size) < 1 or num_frames < 2:
            raise ConfigError("Patches need sizes of at least 1, and two frames to compare.")
        key_query, key_key, key_value = jax.random.split(key, 3)
        pixels = patch_size**2
        self.query = Linear(position_size, message_size, key=key_query)
        self.key = Linear(pixels * (num_frames - 1) + num_actions, message_size, key=key_key)
        self.value = Linear(pixels * num_frames, message_size, key=key_value)
        self.nonlinear_keys = nonlinear_keys
        self.num_queries, self.patch_size, self.num_frames = num_queries, patch_size, num_frames
        self.motion_scale = motion_scale

    def __call__(
        self, frames: Float[Array, "F H W"], previous_action: Action
    ) -> tuple[Float[Array, "M D"], Float[Array, "M patches"]]:
        """Compute the code, and how much each query attends to each patch.

        Args:
            frames: Grey, from 0 to 1, the newest last.
            previous_action: What the agent did last.
        """
        size = self.patch_size
        rows, columns = grid(frames.shape[1], frames.shape[2], size)
        count = rows * columns
        patches = frames.reshape(self.num_frames, rows, size, columns, size)
        patches = patches.transpose(1, 3, 0, 2, 4).reshape(count, self.num_frames, size**2)
        moved = jnp.diff(patches, axis=1).transpose(0, 2, 1).reshape(count, -1)
        action = jnp.broadcast_to(previous_action, (count, previous_action.shape[0]))
        keys = self.key(jnp.concatenate([self.motion_scale * moved, action], 1))
        queries = self.query(
            jnp.asarray(positional_table(self.num_queries, self.query.weight.shape[1]))
        )
        if self.nonlinear_keys is not None:
            keys = self.nonlinear_keys(queries.T, keys.T).T
        values = self.value(layer_norm(patches).reshape(count, -1))
        scores = queries @ keys.T / keys.shape[1] ** 0.5
        attention = jax.nn.softmax(scores, -1)
        return layer_norm(jax.nn.relu(attention @ values)), attention


def grid(height: int, width: int, patch_size: int) -> tuple[int, int]:
    """Count rows and columns of patches; ConfigError if patches do not divide the image."""
    if patch_size < 1 or height % patch_size or width % patch_size or not min(height, width):
        common = math.gcd(height, width)
        dividing = [size for size in range(1, common + 1) if common % size == 0]
        nearest = min(dividing, key=lambda size: abs(size - patch_size), default=None)
        raise ConfigError(
            f"Patches of {patch_size} pixels do not divide an image of {height} x {width}"
            + (f"; {nearest} would." if nearest else ".")
        )
    return height // patch_size, width // patch_size


def layer_norm(values: Float[Array, "*rows D"]) -> Float[Array, "*rows D"]:
    """Normalise to mean 0 and variance 1 along the last axis; 1e-5 is added to the variance."""
    centred = values - jnp.mean(values, -1, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5)
