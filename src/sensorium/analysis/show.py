"""`sensorium show`: an episode as a video, a figure, or a few lines in the terminal."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console

from sensorium.analysis import attention, figures
from sensorium.analysis.traces import trace_episode
from sensorium.analysis.video import write_video
from sensorium.envs import World
from sensorium.errors import ConfigError
from sensorium.evaluation import as_shown, evaluation_keys
from sensorium.flags import NO_FLAGS, PerturbationFlags
from sensorium.perturbations import Perturbation, each_background
from sensorium.rollout import make_world
from sensorium.serialisation import check_writable
from sensorium.terminal import shown
from sensorium.types import num_sensors_of
from sensorium.zoo import Agent

_STEPS = 500  # unless others are asked for
_RESHUFFLE_EVERY = 250  # steps


class _Episode(NamedTuple):
    """An episode that was run, and how to draw it."""

    title: str
    total: float
    steps: int
    write_video: Callable[[Path], int]
    """Writes an mp4 and says how many frames it has."""
    write_figure: Callable[[Path], None]


def show(
    agent: Agent,
    *,
    video: Path | None,
    figure: Path | None,
    seed: int,
    steps: int | None = None,
    flags: PerturbationFlags = NO_FLAGS,
    plain: bool = False,
    backgrounds: str | None = None,
) -> None:
    """Run one episode that goes on to the last step, if there is one, and show it.

    Args:
        agent: The agent to show.
        video: An mp4 to write; a folder of them with `backgrounds`.
        figure: A PNG to write; a folder of them with `backgrounds`.
        seed: Decides the start and all noise.
        steps: How many steps; 500 by default, or as many as an episode has.
        flags: The perturbation. If there is none, sensors are reshuffled every 250 steps; motors, of agents
            that find out what they do, are rewired in the middle.
        plain: Without any perturbation.
        backgrounds: `scenes`, or a folder: an episode for each of its backgrounds.

    Raises:
        ConfigError: A number is out of range, or the world does not fit what is asked.
        WriteError: A file could not be written.
    """
    world = make_world(agent.recipe.env)
    if steps is None:
        steps = min(_STEPS, world.max_steps)
    if not 1 <= steps <= world.max_steps:
        raise ConfigError(f"steps must be between 1 and {world.max_steps}, got {steps}.")
    if plain and flags != NO_FLAGS:
        raise ConfigError("--plain goes without flags that perturb: choose.")
    sensors = num_sensors_of(world.observation_spec) is not None
    if sensors and not plain and flags == NO_FLAGS:
        flags = PerturbationFlags(reshuffle_every=_RESHUFFLE_EVERY)
        if not agent.policy.fixed_outputs:
            flags = PerturbationFlags(rewire_motors_every=world.max_steps // 2)
    if backgrounds is None:
        cases = [(flags.build(world.observation_spec), video, figure)]
    elif flags.background is not None:
        raise ConfigError("--background is one of them and --backgrounds is each: choose.")
    else:
        cases = [
            (
                dataclasses.replace(flags, background=source).build(world.observation_spec),
                video and video / f"{name}.mp4",
                figure and figure / f"{name}.png",
            )
            for name, source in each_background(backgrounds).items()
        ]
    for perturbation, *files in cases:  # says what does not fit before anything is run
        perturbation.output_spec(world.observation_spec)
        for file in files:
            if file is not None:
                check_writable(file)
    console = Console(highlight=False)
    for perturbation, to_video, to_figure in cases:
        run = _sensor_episode if sensors else _image_episode
        _tell(console, run(agent, world, perturbation, steps, seed), to_video, to_figure)
    if video is None and figure is None:
        console.print("Add --video out.mp4 or --figure out.png to see it.")


def _tell(console: Console, episode: _Episode, video: Path | None, figure: Path | None) -> None:
    console.print(
        f"{episode.title}: return {shown(episode.total)} in {episode.steps} steps",
        markup=False,
        soft_wrap=True,
    )
    if video is not None:
        console.print(f"Wrote {video} ({episode.write_video(video)} frames).", soft_wrap=True)
    if figure is not None:
        episode.write_figure(figure)
        console.print(f"Wrote {figure}.", soft_wrap=True)


def _title(agent: Agent, perturbation: Perturbation, steps: int) -> str:
    """Name the agent, and what happened to its observations in so many steps."""
    return f"{agent.name}, {perturbation.within(steps)}"


def _sensor_episode(
    agent: Agent, world: World, perturbation: Perturbation, steps: int, seed: int
) -> _Episode:
    """Run an episode of sensors or entities: what arrives, attention and code are shown."""
    # Many starts are lost whatever an agent does, and would show nothing: take the first that lasts
    for key in evaluation_keys(seed, 20):
        trace = trace_episode(agent.policy, world, perturbation, key, steps)
        if int(np.asarray(trace.alive).sum()) == steps:
            break
    title = _title(agent, perturbation, int(trace.alive.sum()))
    return _Episode(
        title,
        float(trace.reward.sum()),
        int(trace.alive.sum()),
        lambda path: write_video(path, trace, world, title),
        lambda path: figures.episode(path, trace, world.sensor_names),
    )


def _image_episode(
    agent: Agent, world: World, perturbation: Perturbation, steps: int, seed: int
) -> _Episode:
    """Run an episode of images: the attended patches are shown."""
    (key,) = evaluation_keys(seed, 1)
    policy = agent.policy
    episode = attention.trace_images(policy, world, as_shown(policy, perturbation), key, steps)
    title = _title(agent, perturbation, int(episode.alive.sum()))
    return _Episode(
        title,
        float(episode.reward.sum()),
        int(episode.alive.sum()),
        lambda path: attention.write_image_video(
            path,
            policy,
            episode,
            title,
            world.steps_per_second,
            world.option_names or world.motor_names,
        ),
        lambda path: attention.importance_figure(path, policy, episode, title),
    )
