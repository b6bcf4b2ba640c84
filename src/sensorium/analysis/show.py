"""`sensorium show`: an episode as a video, a figure, or a few lines in the terminal."""

from pathlib import Path

import numpy as np
from rich.console import Console

from sensorium.analysis import figures
from sensorium.analysis.traces import trace_episode
from sensorium.analysis.video import write_video
from sensorium.envs import make
from sensorium.errors import ConfigError
from sensorium.evaluation import evaluation_keys
from sensorium.perturbations import NoiseChannels, Perturbation, Reshuffle, compose
from sensorium.zoo import Agent


def show(
    agent: Agent,
    *,
    video: Path | None,
    figure: Path | None,
    steps: int,
    seed: int,
    shuffle_at: int | None,
    noise_channels: int | None,
) -> None:
    """Run one episode that goes on to the last step, if there is one, and show it.

    Args:
        agent: Whom to watch.
        video: An mp4 to write.
        figure: A PNG to write.
        steps: How many steps.
        seed: Decides the start and all noise.
        shuffle_at: Reshuffle the sensors every so many steps; None for never.
        noise_channels: This many more channels of noise.

    Raises:
        ConfigError: A number is out of range.
        WriteError: A file could not be written.
    """
    world = make(agent.recipe.env)
    if not 1 <= steps <= world.max_steps:
        raise ConfigError(f"steps must be between 1 and {world.max_steps}, got {steps}.")
    parts: list[Perturbation] = []
    if noise_channels:
        parts.append(NoiseChannels(noise_channels))
    if shuffle_at:
        parts.append(Reshuffle(shuffle_at))
    perturbation = compose(*parts)
    # Many starts are lost whatever one does, and would show nothing: take the first that lasts
    for key in evaluation_keys(seed, 20):
        trace = trace_episode(agent.policy, world, perturbation, key, steps)
        if bool(np.asarray(trace.alive)[-1]):
            break
    console = Console()
    console.print(
        f"{agent.name}, {perturbation}: return {float(trace.reward.sum()):.0f} "
        f"in {int(trace.alive.sum())} steps",
        highlight=False,
    )
    if video is not None:
        count = write_video(video, trace, world.sensor_names, f"{agent.name}, {perturbation}")
        console.print(f"Wrote {video} ({count} frames).", highlight=False)
    if figure is not None:
        figures.episode(figure, trace, world.sensor_names)
        console.print(f"Wrote {figure}.", highlight=False)
    if video is None and figure is None:
        console.print("Add --video out.mp4 or --figure out.png to see it.")
