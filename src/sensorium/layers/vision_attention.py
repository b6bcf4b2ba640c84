"""AttentionNeuron for images (AN sections 3.2 and 4): every patch is a sensor without a place.

The keys of a patch come from the changes of its pixels, its values from the pixels themselves:

    K = [differences of consecutive frames, a] W_k,    V = LayerNorm(frames) W_v,    Q = table W_q
    m = LayerNorm(relu(softmax(Q Kᵀ / √D) V))

The code is a sum over patches, so it depends neither on their order nor on their number. A patch that is
absent (NaN) adds nothing. As in the authors' agents, layer norms have weights of their own in Pong only, and
keys list pixels before frames, values frames first.

Most patches of an Atari screen are alike. Equal ones can be merged into one, whose score is larger by the
logarithm of their number: the same code, from a seventh of the patches (`distinct`).

Keys can go through the nonlinear map of NLA (`nonlinear_keys.py`); as published, it ties the layer to a
number and an order of patches.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sensorium.errors import ConfigError
from sensorium.layers.linear import Linear
from sensorium.layers.nonlinear_keys import NonlinearKeys, PublishedNonlinearKeys
from sensorium.layers.positional import positional_table
from sensorium.types import Action, Key, PyTree


class LayerNorm(eqx.Module):
    """`layer_norm`, then weights and biases that are learned, as PyTorch has them."""

    weight: Float[Array, " D"]
    bias: Float[Array, " D"]

    def __init__(self, size: int):
        """Start without effect on rows of `size` numbers."""
        self.weight, self.bias = jnp.ones(size), jnp.zeros(size)

    def __call__(self, values: Float[Array, "*rows D"]) -> Float[Array, "*rows D"]:
        """Normalise along the last axis."""
        return layer_norm(values) * self.weight + self.bias


class VisionAttentionNeuron(eqx.Module):
    """From a few frames to a code of M x D, whatever the order of their patches."""

    query: Linear
    key: Linear
    value: Linear
    norms: tuple[LayerNorm, LayerNorm] | None
    """Of patches, and of the code; None for norms without weights."""
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
        learned_norms: bool = False,
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
            learned_norms: Give the layer norms weights.
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
        self.norms = (LayerNorm(pixels), LayerNorm(message_size)) if learned_norms else None
        self.nonlinear_keys = nonlinear_keys
        self.num_queries, self.patch_size, self.num_frames = num_queries, patch_size, num_frames
        self.motion_scale = motion_scale

    def __call__(
        self,
        frames: Float[Array, "F H W"],
        previous_action: Action,
        distinct_patches: int | None = None,
    ) -> tuple[Float[Array, "M D"], Float[Array, "M patches"]]:
        """Compute the code, and how much each query attends to each patch.

        Args:
            frames: Grey, from 0 to 1, the newest last.
            previous_action: What the agent did last.
            distinct_patches: Merge equal patches where no more than so many differ; None for not.
                The code is the same. With nonlinear keys as published none are merged.
        """
        patches = self.split(frames)
        code, attention = self.attend(patches, previous_action)
        # What is not read is not computed
        tied = isinstance(self.nonlinear_keys, PublishedNonlinearKeys)
        if distinct_patches is not None and not tied:
            code = self._merged(frames, previous_action, distinct_patches)
        return code, attention

    def split(self, frames: Float[Array, "F H W"]) -> Float[Array, "patches F pixels"]:
        """Cut frames into patches."""
        patches = self._side_by_side(frames).transpose(1, 3, 0, 2, 4)
        return patches.reshape(-1, self.num_frames, self.patch_size**2)

    def _side_by_side(
        self, frames: Float[Array, "F H W"]
    ) -> Float[Array, "F rows size columns size"]:
        """Divide frames into patches where they are."""
        rows, columns = grid(frames.shape[1], frames.shape[2], self.patch_size)
        return frames.reshape(-1, rows, self.patch_size, columns, self.patch_size)

    def attend(
        self,
        patches: Float[Array, "patches F pixels"],
        previous_action: Action,
        counts: Float[Array, " patches"] | None = None,
    ) -> tuple[Float[Array, "M D"], Float[Array, "M patches"]]:
        """Compute the code from any patches, and how much each query attends to each.

        Args:
            patches: From 0 to 1; a patch with NaN is absent.
            previous_action: What the agent did last.
            counts: How often each is there; once, if None.
        """
        absent = jnp.isnan(patches).any((1, 2))
        patches = jnp.where(absent[:, None, None], 0.0, patches)
        moved = jnp.diff(patches, axis=1).transpose(0, 2, 1).reshape(len(patches), -1)
        action = jnp.broadcast_to(previous_action, (len(patches), previous_action.shape[0]))
        keys = self.key(jnp.concatenate([self.motion_scale * moved, action], 1))
        queries = self.query(
            jnp.asarray(positional_table(self.num_queries, self.query.weight.shape[1]))
        )
        if self.nonlinear_keys is not None:
            keys = self.nonlinear_keys(queries.T, keys.T).T
        of_patches, of_code = self.norms or (layer_norm, layer_norm)
        values = self.value(of_patches(patches).reshape(len(patches), -1))
        scores = queries @ keys.T / keys.shape[1] ** 0.5
        if counts is not None:
            absent |= counts == 0
            scores += jnp.log(jnp.maximum(counts, 1.0))
        # Not minus infinity, which has no gradient where all patches are absent
        scores = jnp.where(absent, -1e9, scores)
        attention = jax.nn.softmax(scores, -1)
        return of_code(jax.nn.relu(attention @ values)), attention

    def _merged(
        self, frames: Float[Array, "F H W"], previous_action: Action, limit: int
    ) -> Float[Array, "M D"]:
        """Compute the code from distinct patches, or from all where more than `limit` differ."""
        first, counts, number = distinct(frames, self.patch_size, limit)
        patches = self._side_by_side(frames)
        row, column = jnp.divmod(first, patches.shape[3])
        few = patches[:, row, :, column].reshape(limit, self.num_frames, -1)
        weights, others = eqx.partition(self, eqx.is_inexact_array)

        def merging(operands: tuple) -> Array:
            weights, _, few, counts, action = operands
            return eqx.combine(weights, others).attend(few, action, counts)[0]

        def plain(operands: tuple) -> Array:
            weights, frames, _, _, action = operands
            layer = eqx.combine(weights, others)
            return layer.attend(layer.split(frames), action)[0]

        # One choice for a whole batch: where each had its own, both branches would be computed for all
        too_many = anywhere(number > limit)
        return _either(too_many, plain, merging, (weights, frames, few, counts, previous_action))


def _either(
    flag: Bool[Array, ""],
    yes: Callable[[PyTree], Array],
    no: Callable[[PyTree], Array],
    operands: PyTree,
) -> Array:
    """Choose as `jax.lax.cond` does, but compute the branch anew for its gradient.

    What each branch keeps for its gradient would be copied and filled with zeros for the other one: a third
    of the time of a gradient.
    """

    @jax.custom_vjp
    def chosen(flag: Array, operands: PyTree) -> Array:
        return jax.lax.cond(flag, yes, no, operands)

    def forward(flag: Array, operands: PyTree) -> tuple[Array, tuple]:
        return chosen(flag, operands), (flag, operands)

    def backward(kept: tuple, change: Array) -> tuple[None, PyTree]:
        flag, operands = kept
        yes_back, no_back = (
            lambda operands, change, of=of: jax.vjp(of, operands)[1](change)[0] for of in (yes, no)
        )
        return None, jax.lax.cond(flag, yes_back, no_back, operands, change)

    chosen.defvjp(forward, backward)
    return chosen(flag, operands)


def distinct(
    frames: Float[Array, "F H W"], patch_size: int, limit: int
) -> tuple[Int[Array, " limit"], Float[Array, " limit"], Int[Array, ""]]:
    """Find the patches that differ.

    Args:
        frames: All.
        patch_size: Pixels each way.
        limit: How many to return.

    Returns:
        A place of each, how often each is there (zero times those that are none), and how many differ.
    """
    rows, columns = grid(frames.shape[1], frames.shape[2], patch_size)
    bits = jax.lax.bitcast_convert_type(frames, jnp.uint32)
    # Two hashes of 32 bits: words mixed as in MurmurHash3, times odd numbers, and added; over rows first,
    # as a CPU adds whole rows at once
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits ^= bits >> 13
    strips = bits.reshape(-1, rows, patch_size, frames.shape[2]).swapaxes(0, 1)
    strips = strips.reshape(rows, -1, frames.shape[2])
    shape = 2, strips.shape[1], patch_size
    odd = np.random.default_rng(0).integers(2**31, size=shape, dtype=np.uint32) * 2 + 1
    sums = (strips * np.tile(odd, columns)[:, None]).sum(2, dtype=jnp.uint32)
    one, other = sums.reshape(2, -1, patch_size).sum(-1, dtype=jnp.uint32)
    order = jnp.lexsort((one, other))
    one, other = one[order], other[order]
    new = (one[1:] != one[:-1]) | (other[1:] != other[:-1])
    group = jnp.concatenate([jnp.zeros(1, int), jnp.cumsum(new)])
    first = jnp.zeros(limit, int).at[group].set(order, mode="drop")
    counts = jnp.zeros(limit).at[group].add(1.0, mode="drop")
    return first, counts, group[-1] + 1


@jax.custom_batching.custom_vmap
def anywhere(flag: Bool[Array, ""]) -> Bool[Array, ""]:
    """Return a flag; under `vmap`, whether it is set anywhere in the batch."""
    return flag


@anywhere.def_vmap
def _anywhere_of_batch(size: int, batched: list[bool], flag: Array) -> tuple[Array, bool]:
    del size
    return anywhere(flag.any()) if batched[0] else flag, False


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
