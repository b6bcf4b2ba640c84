"""The ground of CarRacing as a texture, painted once for each track.

A frame is 9,216 look-ups in it. The texture is filtered beforehand over about the width of a pixel of a
frame, so one look-up gives an edge its share of either side; for the first second, in which the camera
comes down, there are coarser copies of it.

A texel is a `uint16`: a byte of green, in which grass and road differ, and above it four bits of red and
four of blue, in steps of 17, which are enough for the curbs. All else is grass, of one red and blue, or road,
which is grey.

Colours are those of the frame, not of the window: pygame scales down in whole numbers and cuts off fractions,
so each comes out darker by `LOSS`. An agent can learn to tell 102 from 104 and fail where both are 100.
One difference is left: a tile that has been driven over turns to the darkest of the three greys.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt16

from sensorium.envs.car_racing.track import CURB_WIDTH, PLAYFIELD, TRACK_WIDTH, Track

TEXEL = 0.25
"""m, of the finest level."""
LEVELS = 5
"""Each has texels twice as wide as the one before."""

Canvas = UInt16[Array, "H W"]

_SIZE = 2688  # texels of the finest level, each way: a little more than the playfield
_PIXEL = 0.58  # m, about the width of a pixel of a frame once the camera is down
_GRASS = PLAYFIELD / 20  # m, side of a patch
LOSS = 2
"""What each colour loses on the way from the window to the frame, of 255."""
_GREEN, _LIGHT_GREEN = 204.0 - LOSS, 230.0 - LOSS
_ROADS = np.array([102, 104.55, 107.1], np.float32) - LOSS  # one tile after the other
_STEP, _GROUND = 17, 6  # of the codes of red and blue, and the code of grass and road
_OTHER, _BRIGHT = 102.0 - LOSS, 255.0 - LOSS
_REACH = 18.0  # m: no tile with its curb is wider or longer


# Of a batch one track after the other: patches are written in place, which a batch of them would not be
@jax.custom_batching.sequential_vmap
def paint(track: Track) -> Canvas:
    """Paint grass, road and curbs, on all levels: (4032, 2688), the coarser ones below the finest."""
    canvas = jnp.zeros((_SIZE + _SIZE // 2, _SIZE), jnp.uint16)
    for level in range(LEVELS):
        canvas = jax.lax.dynamic_update_slice(canvas, _grass(level), corner(level))
    outlines = _outlines(track)
    firsts = [_first_texel(track.centres, level) for level in range(LEVELS)]

    def tile(number: Array, canvas: Canvas) -> Canvas:
        outline = jax.tree.map(lambda values: values[number], outlines)
        for level, first in enumerate(firsts):
            canvas = _paint_tile(canvas, level, first[number], outline)
        return canvas

    return jax.lax.fori_loop(0, track.size, tile, canvas)


def corner(level: Any) -> tuple[Any, Any]:
    """Return row and column of a level's first texel; works for traced levels."""
    if isinstance(level, int):
        return (0, 0) if level == 0 else (_SIZE, _SIZE - (_SIZE >> (level - 1)))
    column = jnp.where(level == 0, 0, _SIZE - (2 * _SIZE >> level))
    return jnp.where(level == 0, 0, _SIZE), column


def look_up(
    canvas: Canvas, level: Int[Array, ""], x: Float[Array, "..."], y: Float[Array, "..."]
) -> UInt16[Array, "..."]:
    """Look up the texels under places of the world.

    Args:
        canvas: From `paint`.
        level: 0 to 4.
        x: m.
        y: m.
    """
    size = _SIZE >> level
    per_metre = jnp.exp2(-level.astype(jnp.float32)) / TEXEL

    def texel(place: Array) -> Array:
        return jnp.clip((place * per_metre + size / 2).astype(jnp.int32), 0, size - 1)

    row, column = corner(level)
    index = (texel(y) + row) * _SIZE + texel(x) + column
    return canvas.reshape(-1).at[index].get(mode="promise_in_bounds")


def colours(texels: UInt16[Array, "..."]) -> tuple[Array, Array, Array]:
    """Compute red, green and blue of texels, from 0 to 255."""
    texels = texels.astype(jnp.uint32)
    green = texels & 255
    ground = jnp.where(green <= int(_ROADS.max()), green, int(_OTHER))

    def seen(code: Array) -> Array:
        return jnp.where(code == _GROUND, ground, jnp.maximum(_STEP * code, LOSS) - LOSS)

    return seen(texels >> 8 & 15), green, seen(texels >> 12)


def level_of(pixel: Float[Array, ""]) -> Int[Array, ""]:
    """Return the level for pixels of that width in m."""
    return jnp.clip(jnp.round(jnp.log2(pixel / _PIXEL)), 0, LEVELS - 1).astype(jnp.int32)


@functools.cache
def _grass_shares(level: int) -> np.ndarray:
    """Compute how far each row (or column) lies in a row of light patches, and -1 outside of the world."""
    size, texel, width = _SIZE >> level, TEXEL * 2**level, _PIXEL * 2**level
    place = (np.arange(size) + 0.5) * texel - size * texel / 2
    # Light from 0 to one side, dark from there to two
    from_middle = np.abs((place + _GRASS / 2) % (2 * _GRASS) - _GRASS)
    share = np.clip(0.5 + (_GRASS / 2 - from_middle) / width, 0, 1)
    return np.where(np.abs(place) > PLAYFIELD, -1.0, share).astype(np.float32)


def _grass(level: int) -> UInt16[Array, "S S"]:
    share = jnp.asarray(_grass_shares(level))
    inside = (share >= 0)[:, None] & (share >= 0)[None, :]
    light = jnp.maximum(share, 0)[:, None] * jnp.maximum(share, 0)[None, :]
    green = _GREEN + (_LIGHT_GREEN - _GREEN) * light
    return jnp.where(inside, _texel(_OTHER, green, _OTHER), 0).astype(jnp.uint16)


class _Outline(NamedTuple):
    """Edges and colours of a tile. Lines are (..., 3): m that (x, y, 1) is beyond them."""

    end: Float[Array, "... 3"]
    """Ahead of the line where the tile before begins, which is where this one ends."""
    begin: Float[Array, "... 3"]
    """Ahead of the line where this tile begins; its road lies behind."""
    left: Float[Array, "... 3"]
    """To the right of the left edge of the road."""
    right: Float[Array, "... 3"]
    """To the right of the right edge of the road."""
    curb_left: Float[Array, "... 3"]
    """To the right of the left edge of the curb."""
    curb_right: Float[Array, "... 3"]
    """To the right of its right edge."""
    curb: Bool[Array, "..."]
    white: Bool[Array, "..."]
    road: Float[Array, "..."]
    """Its grey."""


def _outlines(track: Track) -> _Outline:
    """Compute the outlines of all tiles."""
    sine, cosine = jnp.sin(track.heading), jnp.cos(track.heading)
    ahead = _line(track.middle, jnp.stack([-sine, cosine], -1))
    rightward = jnp.stack([cosine, sine], -1)

    def right_of(offset: Float[Array, " K"]) -> Float[Array, "K 3"]:
        """Return the line along a tile, `offset` m to the right of its middle; beyond it is to the right."""
        begins = track.middle + offset[:, None] * rightward
        ends = track.middle[track.previous] + offset[:, None] * rightward[track.previous]
        along = begins - ends
        along = along / (jnp.sqrt(jnp.sum(along**2, -1, keepdims=True)) + 1e-6)
        return _line(begins, jnp.stack([along[:, 1], -along[:, 0]], -1))

    side = track.curb.astype(jnp.float32)
    edge, rim = side * TRACK_WIDTH, side * (TRACK_WIDTH + CURB_WIDTH)
    width = jnp.full_like(side, TRACK_WIDTH)
    return _Outline(
        end=ahead[track.previous],
        begin=ahead,
        left=right_of(-width),
        right=right_of(width),
        curb_left=right_of(jnp.minimum(edge, rim)),
        curb_right=right_of(jnp.maximum(edge, rim)),
        curb=track.curb != 0,
        white=jnp.arange(side.shape[0]) % 2 == 0,
        road=jnp.asarray(_ROADS)[jnp.arange(side.shape[0]) % 3],
    )


def _line(through: Float[Array, "K 2"], normal: Float[Array, "K 2"]) -> Float[Array, "K 3"]:
    return jnp.concatenate([normal, -jnp.sum(through * normal, -1, keepdims=True)], -1)


def _patch(level: int) -> int:
    """Count the texels across that a tile may touch."""
    return int(np.ceil((_REACH + 2 * _PIXEL * 2**level) / (TEXEL * 2**level)))


def _first_texel(middle: Float[Array, "K 2"], level: int) -> Int[Array, "K 2"]:
    """Find row and column where the patch of each tile begins."""
    size, patch = _SIZE >> level, _patch(level)
    first = jnp.round(middle[:, ::-1] / (TEXEL * 2**level) + (size - patch) / 2)
    return jnp.clip(first.astype(jnp.int32), 0, size - patch)


def _paint_tile(canvas: Canvas, level: int, first: Int[Array, "2"], outline: _Outline) -> Canvas:
    """Paint road and curb of one tile, blended with what is there."""
    texel, width, size = TEXEL * 2**level, _PIXEL * 2**level, _SIZE >> level
    patch, (above, left) = _patch(level), corner(level)
    begin = (first[0] + above, first[1] + left)
    old = jax.lax.dynamic_slice(canvas, begin, (patch, patch))
    index = jnp.arange(patch) + 0.5 - size / 2
    x, y = (first[1] + index)[None, :] * texel, (first[0] + index)[:, None] * texel

    def beyond(line: Float[Array, "3"]) -> Array:
        return x * line[0] + y * line[1] + line[2]

    def share(line: Float[Array, "3"]) -> Array:
        """Compute how much of a texel's filter is beyond."""
        return jnp.clip(0.5 + beyond(line) / width, 0, 1)

    inside = (beyond(outline.end) >= 0) & (beyond(outline.begin) < 0)
    road = jnp.where(inside, share(outline.left) - share(outline.right), 0.0)
    curb = jnp.where(
        inside & outline.curb, share(outline.curb_left) - share(outline.curb_right), 0.0
    )
    rest = 1 - road - curb
    red, green, blue = (value.astype(jnp.float32) for value in colours(old))
    stripe = jnp.where(outline.white, _BRIGHT, 0.0)
    new = _texel(
        rest * red + road * _OTHER + curb * _BRIGHT,
        rest * green + road * outline.road + curb * stripe,
        rest * blue + road * _OTHER + curb * stripe,
    )
    new = jnp.where((road + curb > 0) & (old > 0), new, old)
    return jax.lax.dynamic_update_slice(canvas, new, begin)


def _texel(red: Array | float, green: Array, blue: Array | float) -> UInt16[Array, "..."]:
    codes = (red + LOSS) / _STEP, green, (blue + LOSS) / _STEP
    parts = [jnp.round(jnp.asarray(code)).astype(jnp.uint16) for code in codes]
    return parts[0] << 8 | parts[1] | parts[2] << 12
