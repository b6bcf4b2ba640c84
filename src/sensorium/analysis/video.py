"""An episode of scalar sensors as a video: the world, what arrives, attention and code, or digests."""

import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from sensorium.analysis.style import NOISE, sensor_colours
from sensorium.analysis.traces import EpisodeTrace, image
from sensorium.envs import World
from sensorium.errors import ConfigError, WriteError
from sensorium.serialisation import atomic_write
from sensorium.terminal import shown
from sensorium.types import digest_levels, levels

_FRAMES_PER_SECOND = 30  # of steps that come as fast, every second one is a frame


def write_video(path: Path | str, trace: EpisodeTrace, world: World, title: str) -> int:
    """Write an mp4 in real time.

    Args:
        path: The file to create or replace; nothing is left if it fails.
        trace: What to show; the video ends with the episode.
        world: The unperturbed world of the trace.
        title: Shown above the image.

    Returns:
        How many frames were written.

    Raises:
        ConfigError: The world does not draw itself.
        WriteError: The file could not be written.
    """
    if image(world, trace, 0) is None:
        raise ConfigError(
            "The world does not draw itself, so there is no video of it; a figure shows its sensors."
        )
    count = max(int(np.asarray(trace.alive).sum()), 1)
    panel = _Panel(trace, world, title)
    try:
        return write_frames(path, panel.frame, count, world.steps_per_second)
    finally:
        panel.close()


def write_frames(
    path: Path | str, draw: Callable[[int], np.ndarray], count: int, steps_per_second: int
) -> int:
    """Write an mp4 in real time of the images (RGB) of `count` steps.

    Returns:
        How many frames were written: one for each step, or for every second one of fast worlds.

    Raises:
        WriteError: The file could not be written; nothing is left of it.
    """
    stride = 2 if steps_per_second >= _FRAMES_PER_SECOND else 1
    steps = range(0, count, stride)
    with atomic_write(path) as file, tempfile.TemporaryDirectory() as folder:
        encoded = Path(folder) / "video.mp4"  # ffmpeg goes by the end of the name
        try:
            with warnings.catch_warnings(), _writer(encoded, steps_per_second / stride) as video:
                warnings.simplefilter("ignore", RuntimeWarning)  # JAX's, of forks: this is ffmpeg
                for step in steps:
                    video.append_data(draw(step))
        except RuntimeError as error:
            raise WriteError(f"Could not write {path}: {error}.") from error
        with encoded.open("rb") as whole:
            shutil.copyfileobj(whole, file)
    return len(steps)


def _writer(path: Path, fps: float) -> Any:
    import imageio.v2 as imageio

    return imageio.get_writer(path, fps=fps, codec="libx264", quality=7)


class _Panel:
    """The figure, drawn once and then only updated."""

    def __init__(self, trace: EpisodeTrace, world: World, title: str):
        self._trace: Any = jax.tree.map(np.asarray, trace)
        spec = world.raw_observation_spec
        self._shown = levels(trace.channels, spec)
        self._world = world
        self._names = world.sensor_names
        self._hues = sensor_colours(len(self._names))
        # A bar is of full length where its sensor reads the most of all the episode
        self._spans = np.maximum(np.abs(levels(trace.sensors, spec)).max(axis=0), 1e-6)
        self._figure = plt.figure(figsize=(9.6, 5.44), dpi=100, constrained_layout=True)
        grid = self._figure.add_gridspec(2, 3, width_ratios=(2.2, 1.3, 1.3), height_ratios=(3, 1))
        self._figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        view = self._figure.add_subplot(grid[0, 0])
        view.axis("off")
        self._image = view.imshow(image(world, self._trace, 0))
        self._caption = view.set_title("", fontsize=9, loc="left")
        count = self._trace.channels.shape[1]
        channels = self._figure.add_subplot(grid[0, 1])
        self._bars = channels.barh(np.arange(count), np.zeros(count))
        channels.set(xlim=(-1, 1), ylim=(count - 0.5, -0.5), xticks=[])
        channels.set_title("what arrives", fontsize=9, loc="left")
        channels.set_yticks(np.arange(count))
        channels.tick_params(length=0, labelsize=7 if count <= 16 else 5.5)
        channels.axvline(0, color="0.5", linewidth=0.6)
        self._channels = channels
        # Beside each channel what the agent makes of it, and what it has kept or done of late
        self._beside, title = None, "attention of the queries"
        if self._trace.attention is not None:
            self._beside = self._trace.attention.swapaxes(1, 2)
        elif self._trace.digest is not None:
            title = "digests of the motors"
            self._beside = np.stack([digest_levels(each, count) for each in self._trace.digest])
        beside = self._figure.add_subplot(grid[0, 2])
        beside.set_title(title, fontsize=9, loc="left")
        beside.set(xticks=[], yticks=[])
        if self._beside is not None:
            self._matrix = beside.imshow(
                self._beside[0], aspect="auto", cmap="RdBu_r", vmin=-1, vmax=1
            )
        coded = self._trace.code is not None
        self._past = self._trace.code if coded else self._trace.action
        past = self._figure.add_subplot(grid[1, :])
        past.set_title(f"{'code' if coded else 'actions'}, last 200 steps", fontsize=9, loc="left")
        past.set(xticks=[], yticks=[])
        empty = np.zeros((self._past.shape[1], 200))
        self._strip = past.imshow(empty, aspect="auto", cmap="RdBu_r", vmin=-1, vmax=1)

    def frame(self, step: int) -> np.ndarray:
        """Draw one step, RGB."""
        trace = self._trace
        self._image.set_data(image(self._world, trace, step))
        total = trace.reward[: step + 1].sum()
        self._caption.set_text(f"step {step}   return {shown(float(total))}")
        source = trace.source[step]
        spans = np.where(source >= 0, self._spans[source], 1.0)
        for bar, value, index in zip(self._bars, self._shown[step] / spans, source, strict=True):
            bar.set_width(float(np.clip(value, -1, 1)))
            bar.set_color(self._hues[index] if index >= 0 else NOISE)
        self._channels.set_yticklabels(
            [self._names[index] if index >= 0 else "noise" for index in source]
        )
        if self._beside is not None:
            self._matrix.set_data(self._beside[step])
        past = self._past[max(0, step - 199) : step + 1].T
        self._strip.set_data(np.pad(past, ((0, 0), (200 - past.shape[1], 0))))
        self._figure.canvas.draw()
        return np.asarray(self._figure.canvas.buffer_rgba())[..., :3].copy()

    def close(self) -> None:
        plt.close(self._figure)
