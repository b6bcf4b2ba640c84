"""Patch importance of agents of images: an episode as a video, and as a histogram.

The video shows the observation before and after the perturbation, side by side; attended patches are bright
in both, the more important the whiter. To follow pixels, an image of their places goes through the same
perturbation.
"""

import functools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt8
from PIL import Image, ImageDraw, ImageFont

from sensorium.analysis import style
from sensorium.analysis.traces import run_on_host
from sensorium.analysis.video import write_frames
from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.envs import Environment, World
from sensorium.perturbations import Perturbation, begin
from sensorium.policies import Categorical, Policy
from sensorium.rollout import by_kind
from sensorium.rollout.acting import begin_perturbation, noise_key, perturb_action, sense
from sensorium.terminal import shown
from sensorium.types import Key, PyTree, in_colour

_ZOOM = 4  # pixels of the video for each of a frame
_EDGE = 10
_HEAD, _STRIP = 24, 56  # rows above and below the images
_DIM = 0.4  # brightness of patches without attention
_GLARE = 0.6  # how white the most important patch is
_INK, _GREY, _PAPER = (40, 40, 40), (200, 200, 196), (250, 250, 248)


class ImageTrace(NamedTuple):
    """T steps of an agent of images; after the end of the episode `alive` is False."""

    world: UInt8[Array, "T H W C"]
    """The observation before the perturbation."""
    arrived: UInt8[Array, "T H W C"]
    """The same after it."""
    places: UInt8[Array, "T H W 2"]
    """Row and column before the perturbation of each pixel after it."""
    importance: Float[Array, "T patches"]
    """Of each patch after the perturbation: attention summed over all queries, or over all patches."""
    action: Float[Array, "T A"]
    """Numbers in [-1, 1]; of choices 1 for those that are taken, and 0 for all others."""
    reward: Float[Array, " T"]
    alive: Bool[Array, " T"]


def trace_images(
    policy: Policy, world: World, perturbation: Perturbation, key: Key, steps: int
) -> ImageTrace:
    """Run one episode and keep its observations, patch importance, actions and rewards.

    Args:
        policy: An agent that attends to patches.
        world: An unperturbed world of images of at most 256 x 256 pixels.
        perturbation: Of the images.
        key: Decides the start and all noise.
        steps: T, how many steps to keep.

    Returns:
        The trace; on the host it is shorter if the episode ends earlier.

    Raises:
        ConfigError: The agent does not attend to patches.
    """
    policy.patches(*world.observation_shape[:2])
    return by_kind(
        world,
        lambda device: _trace_on_device(policy, device, perturbation, key, steps),
        lambda host: _trace_on_host(policy, host, perturbation, key, steps),
    )


@eqx.filter_jit
def _trace_on_device(
    policy: Policy, world: Environment, perturbation: Perturbation, key: Key, steps: int
) -> ImageTrace:
    key_reset, key_perturbation, key_steps = jax.random.split(key, 3)
    params = world.default_params
    image, state = world.reset_env(key_reset, params)
    perturbation_state = begin(
        perturbation, key_perturbation, world.observation_spec, world.num_actions
    )
    places = _places(*world.observation_shape[:2])

    def step(now: tuple, time: Array) -> tuple[tuple, ImageTrace]:
        image, state, perturbation_state, carry, alive = now
        key_apply, key_world = jax.random.split(jax.random.fold_in(key_steps, time))
        arrived, after = perturbation.apply(key_apply, perturbation_state, image)
        origin = perturbation.carried(key_apply, perturbation_state, places)
        action, carry, inside = policy.step(arrived, carry)
        command, after = perturb_action(perturbation, key_steps, time, after, action)
        following, state, reward, terminated, truncated, _ = world.advance(
            key_world, state, command, params
        )
        kept = _kept(policy, image, arrived, origin, action, inside.attention)
        kept = kept._replace(reward=jnp.where(alive, reward, 0.0), alive=alive)
        return (following, state, after, carry, alive & ~terminated & ~truncated), kept

    start = (
        image,
        state,
        perturbation_state,
        policy.initial_carry(world.observation_spec),
        jnp.ones((), bool),
    )
    return jax.lax.scan(step, start, jnp.arange(steps))[1]


def _trace_on_host(
    policy: Policy, world: HostWorld, perturbation: Perturbation, key: Key, steps: int
) -> ImageTrace:
    def act(_: Any, time: Array, image: Array, memory: PyTree) -> tuple:
        return _look(policy, perturbation, key, time, image, *memory)

    carry = policy.initial_carry(world.raw_observation_spec)
    state = begin_perturbation(perturbation, key, world.raw_observation_spec, world.num_actions)
    return run_on_host(world, key, steps, act, (carry, state))


@eqx.filter_jit
def _look(
    policy: Policy,
    perturbation: Perturbation,
    key: Key,
    time: Array,
    image: Array,
    carry: PyTree,
    state: PyTree,
) -> tuple[Array, ImageTrace, PyTree]:
    """Take a step in a world on the host, as of `run_on_host`."""
    arrived, after = sense(perturbation, key, time, state, image)
    origin = perturbation.carried(noise_key(key, time), state, _places(*image.shape[:2]))
    action, carry, inside = policy.step(arrived, carry)
    kept = _kept(policy, image, arrived, origin, action, inside.attention)
    command, after = perturb_action(perturbation, key, time, after, action)
    return command, kept, (carry, after)


def _kept(
    policy: Policy,
    image: Array,
    arrived: Array,
    origin: Array,
    action: Array,
    attention: Array | None,
) -> ImageTrace:
    """Make what is kept of a step of an episode that goes on, without its reward."""
    assert attention is not None  # the agent attends to patches
    return ImageTrace(
        world=image,
        arrived=jnp.nan_to_num(arrived).astype(image.dtype),
        places=origin[..., :2],
        importance=jnp.sum(attention, 0),
        action=policy.distribution.feedback(action),
        reward=jnp.zeros(()),
        alive=jnp.ones((), bool),
    )


def _places(height: int, width: int) -> UInt8[Array, "H W 3"]:
    """Return an image of the places of pixels: row, column, nothing."""
    rows, columns = jnp.meshgrid(jnp.arange(height), jnp.arange(width), indexing="ij")
    return jnp.stack([rows, columns, jnp.zeros_like(rows)], -1).astype(jnp.uint8)


def write_image_video(
    path: Path,
    policy: Policy,
    episode: ImageTrace,
    title: str,
    steps_per_second: int,
    names: Sequence[str] = (),
) -> int:
    """Write an mp4 in real time.

    Args:
        path: The file to create or replace.
        policy: The agent of the episode.
        episode: What to show; the video ends with the episode.
        title: Written below the images.
        steps_per_second: Of the world's own time.
        names: What each number of an action moves, or what each option of a choice does.

    Returns:
        How many frames were written.

    Raises:
        WriteError: The file could not be written.
    """
    episode = jax.tree.map(np.asarray, episode)
    count = max(int(episode.alive.sum()), 1)
    height, width = episode.world.shape[1:3]
    corners, size = policy.patches(height, width)
    totals = np.cumsum(episode.reward)
    choices = isinstance(policy.distribution, Categorical)
    draw_actions = partial(_draw_choices if choices else _draw_actions, names=names)

    def draw(step: int) -> np.ndarray:
        best = np.argsort(-episode.importance[step], kind="stable")[: policy.num_attended]
        light = _light(height, width, corners[best], size)
        line = f"{title}   step {step}   return {shown(float(totals[step]))}"
        return _draw(episode, step, light, line, draw_actions)

    return write_frames(path, draw, count, steps_per_second)


def _draw(
    episode: ImageTrace,
    step: int,
    light: np.ndarray,
    line: str,
    draw_actions: Callable[[ImageDraw.ImageDraw, int, np.ndarray], None],
) -> np.ndarray:
    height, width, _ = episode.world.shape[1:]
    world, arrived = in_colour(episode.world[step]), in_colour(episode.arrived[step])
    # Of several pixels from one place, the brightest counts
    before = np.zeros((height, width))
    origin = episode.places[step]
    np.maximum.at(before, (origin[..., 0], origin[..., 1]), light)
    changed = not np.array_equal(world, arrived)
    images = {
        "before the perturbation" if changed else "observation": (
            _lit(world, before) if changed else world
        ),
        "after the perturbation" if changed else "attended patches": _lit(arrived, light),
    }
    # Videos are made of blocks of 16 pixels
    across = -(-(2 * width * _ZOOM + 3 * _EDGE) // 16) * 16
    down = -(-(height * _ZOOM + 2 * _EDGE + _HEAD + _STRIP) // 16) * 16
    canvas = Image.new("RGB", (across, down), _PAPER)
    pen, font = ImageDraw.Draw(canvas), _font(15)
    for place, (caption, image) in enumerate(images.items()):
        left = _EDGE + place * (width * _ZOOM + _EDGE)
        pen.text((left, _EDGE // 2), caption, _INK, font)
        size = width * _ZOOM, height * _ZOOM
        large = Image.fromarray(image).resize(size, Image.Resampling.NEAREST)
        canvas.paste(large, (left, _EDGE // 2 + _HEAD))
    top = height * _ZOOM + _EDGE + _HEAD
    pen.text((_EDGE, top), line, _INK, font)
    draw_actions(pen, top + 34, np.asarray(episode.action[step]))
    return np.asarray(canvas)


def _draw_choices(
    pen: ImageDraw.ImageDraw, base: int, action: np.ndarray, names: Sequence[str]
) -> None:
    """Draw a box for each option, with its number where names do not fit; those taken are filled."""
    font, space = _font(15), 10
    numbers = [str(number) for number in range(len(action))]
    labels = list(names) or numbers
    widths = [round(font.getlength(label)) for label in labels]
    if sum(widths) + 3 * space * len(widths) > pen.im.size[0]:
        labels, widths, space = numbers, [20] * len(numbers), 4
    left = _EDGE
    for label, width, taken in zip(labels, widths, action, strict=True):
        right = left + width + 2 * space
        pen.rectangle((left, base - 4, right, base + 14), style.COLOURS[0] if taken else _GREY)
        pen.text((left + space, base - 4), label, _PAPER if taken else _INK, font)
        left = right + space


def _draw_actions(
    pen: ImageDraw.ImageDraw, base: int, action: np.ndarray, names: Sequence[str]
) -> None:
    """Draw each action from -1 to 1, from the middle of its bar."""
    for number, value in enumerate(action[:3]):
        left = _EDGE + 260 * number
        name = names[number] if names else f"action {number}"
        pen.text((left, base - 4), name, _INK, _font(15))
        pen.rectangle((left + 65, base, left + 245, base + 14), fill=_GREY)
        ends = sorted(left + 155 + 90 * part for part in (0.0, float(np.clip(value, -1, 1))))
        pen.rectangle((ends[0], base, ends[1], base + 14), fill=style.COLOURS[number])


@functools.cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size)


def _light(
    height: int, width: int, corners: Int[np.ndarray, "best 2"], size: int
) -> Float[np.ndarray, "H W"]:
    """Rank each pixel: 1 in the most important patch, less in each after it, and 0 elsewhere."""
    light = np.zeros((height, width))
    for rank, (row, column) in reversed(list(enumerate(corners))):
        light[row : row + size, column : column + size] = 1 - rank / len(corners)
    return light


def _lit(image: np.ndarray, light: np.ndarray) -> UInt8[np.ndarray, "H W 3"]:
    """Dim the image where `light` is 0, and whiten it the more the larger it is."""
    white = _GLARE * light[..., None]
    lit = np.where(white > 0, image * (1 - white) + 255 * white, _DIM * image)
    return lit.astype(np.uint8)


def importance_figure(path: Path, policy: Policy, episode: ImageTrace, title: str) -> None:
    """Draw a histogram of patch importance with samples of each bin (AttentionAgent Figure 6), as a PNG.

    Raises:
        WriteError: The file could not be written.
    """
    episode = jax.tree.map(np.asarray, episode)
    alive = episode.alive
    corners, size = policy.patches(*episode.world.shape[1:3])
    importance, arrived = episode.importance[alive], in_colour(episode.arrived[alive])
    levels = np.log10(importance / importance.mean() + 1e-3)
    edges = np.linspace(levels.min(), levels.max() + 1e-6, 13)
    where = np.clip(np.digitize(levels, edges) - 1, 0, len(edges) - 2)
    counts = np.bincount(where.reshape(-1), minlength=len(edges) - 1) / len(arrived)
    random, samples = np.random.default_rng(0), 6
    with style.figure(path, 8.0, 5.2) as figure:
        grid = figure.add_gridspec(2, len(counts), height_ratios=(1.6, 1.4))
        axis = figure.add_subplot(grid[0, :])
        axis.bar(np.arange(len(counts)), np.maximum(counts, 1e-3), width=0.92)
        axis.set(yscale="log", ylabel="patches in a frame", xlim=(-0.5, len(counts) - 0.5))
        middles = 10 ** ((edges[:-1] + edges[1:]) / 2)
        axis.set_xticks(np.arange(len(counts)), [_short(float(middle)) for middle in middles])
        axis.set_xlabel("importance, of the mean")
        axis.set_title(title)
        for number in range(len(counts)):
            column = figure.add_subplot(grid[1, number])
            column.axis("off")
            steps, patches = np.nonzero(where == number)
            if not len(steps):
                continue
            chosen = random.choice(len(steps), samples)
            cut = [
                np.pad(
                    arrived[steps[i], r : r + size, c : c + size],
                    ((0, 1), (0, 0), (0, 0)),
                    constant_values=255,
                )
                for i in chosen
                for r, c in [corners[patches[i]]]
            ]
            column.imshow(np.concatenate(cut))


def _short(value: float) -> str:
    """Format with two significant digits, without an exponent."""
    return f"{float(f'{value:.2g}'):g}"
