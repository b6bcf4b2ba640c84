"""`sensorium show`: an episode as a video, a figure, or a few lines in the terminal."""

from pathlib import Path

import numpy as np
from rich.console import Console

from sensorium.analysis import figures, seeing
from sensorium.analysis.traces import trace_episode, trace_on_host
from sensorium.analysis.video import write_video
from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.envs import CartPoleSwingUpHarder, Environment
from sensorium.errors import ConfigError
from sensorium.evaluation import as_shown, evaluation_keys
from sensorium.perturbations import (
    Identity,
    NoiseChannels,
    Perturbation,
    Reshuffle,
    ShufflePatches,
    compose,
)
from sensorium.rollout import make_world
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
    background: Perturbation = Identity(),
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
        background: What happens to pictures before their patches are shuffled.

    Raises:
        ConfigError: A number is out of range.
        WriteError: A file could not be written.
    """
    world = make_world(agent.recipe.env)
    if not 1 <= steps <= world.max_steps:
        raise ConfigError(f"steps must be between 1 and {world.max_steps}, got {steps}.")
    if isinstance(world, Environment) and not isinstance(world.senses, int):
        if noise_channels:
            raise ConfigError(
                f"{agent.recipe.env} shows pictures, which have no channels to add to."
            )
        order = ShufflePatches(every=shuffle_at) if shuffle_at else Identity()
        _show_pictures(agent, world, compose(background, order), video, figure, steps, seed)
        return
    if background != Identity():
        raise ConfigError(f"{agent.recipe.env} shows no pictures, and has no background.")
    assert isinstance(world, CartPoleSwingUpHarder | HostWorld)
    parts: list[Perturbation] = []
    if noise_channels:
        parts.append(NoiseChannels(noise_channels))
    if shuffle_at:
        parts.append(Reshuffle(shuffle_at))
    perturbation = compose(*parts)
    # Many starts are lost whatever one does, and would show nothing: take the first that lasts
    for key in evaluation_keys(seed, 20):
        if isinstance(world, HostWorld):
            trace = trace_on_host(agent.policy, world, perturbation, key, steps)
        else:
            trace = trace_episode(agent.policy, world, perturbation, key, steps)
        if int(np.asarray(trace.alive).sum()) == steps:
            break
    console = Console()
    console.print(
        f"{agent.name}, {perturbation}: return {float(trace.reward.sum()):.0f} "
        f"in {int(trace.alive.sum())} steps",
        highlight=False,
    )
    if video is not None:
        title = f"{agent.name}, {perturbation}"
        speed = world.steps_per_second if isinstance(world, HostWorld) else 100
        count = write_video(video, trace, world.sensor_names, title, speed)
        console.print(f"Wrote {video} ({count} frames).", highlight=False)
    if figure is not None:
        figures.episode(figure, trace, world.sensor_names)
        console.print(f"Wrote {figure}.", highlight=False)
    if video is None and figure is None:
        console.print("Add --video out.mp4 or --figure out.png to see it.")


def _show_pictures(
    agent: Agent,
    world: Environment,
    perturbation: Perturbation,
    video: Path | None,
    figure: Path | None,
    steps: int,
    seed: int,
) -> None:
    """The same for an agent that sees."""
    (key,) = evaluation_keys(seed, 1)
    title = f"{agent.name}, {perturbation}"
    episode = seeing.watch(agent.policy, world, as_shown(agent.policy, perturbation), key, steps)
    console = Console()
    console.print(
        f"{title}: return {float(episode.reward.sum()):.0f} in {int(episode.alive.sum())} steps",
        highlight=False,
    )
    if video is not None:
        count = seeing.video(video, agent.policy, episode, title)
        console.print(f"Wrote {video} ({count} frames).", highlight=False)
    if figure is not None:
        seeing.importance_figure(figure, agent.policy, episode, title)
        console.print(f"Wrote {figure}.", highlight=False)
    if video is None and figure is None:
        console.print("Add --video out.mp4 or --figure out.png to see it.")
