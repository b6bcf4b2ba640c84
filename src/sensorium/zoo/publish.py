"""Put the best agent of a run into the zoo: weights, and a card with what it cost and scores.

python -m sensorium.zoo.publish runs/cartpole-pi
python -m sensorium.zoo.publish --again cartpole-pi
"""

import dataclasses
import os
import platform
import sys
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console

from sensorium.errors import ConfigError, SensoriumError
from sensorium.evaluation import Scores, evaluate
from sensorium.perturbations import (
    MODIFICATIONS,
    SCENES,
    Background,
    CutMotors,
    Duplicate,
    Identity,
    NoiseChannels,
    Occlude,
    Perturbation,
    Reshuffle,
    RewireMotors,
    Shuffle,
    ShufflePatches,
)
from sensorium.policies import num_parameters
from sensorium.recipes import Recipe, find
from sensorium.rollout import make_world, open_engine
from sensorium.serialisation import read_header, write_json
from sensorium.terminal import say, significant
from sensorium.training import RunDirectory
from sensorium.training.checkpoints import BEST
from sensorium.training.run_directory import describe_versions
from sensorium.types import num_sensors_of
from sensorium.world_names import with_options
from sensorium.zoo.agent import Agent, load, zoo_directory

OF_FIXED_SENSORS: tuple[Perturbation, ...] = (Identity(), Shuffle())
"""What agents are scored under that know sensors by their places."""
OF_SENSORS = (
    *OF_FIXED_SENSORS,
    Duplicate(2),
    NoiseChannels(5),
    Reshuffle(25),
    Reshuffle(100),
)
"""What all other agents of sensors are scored under."""
OF_HOST_SENSORS = (Reshuffle(500),)
"""And the ant beyond that (AN Table 6)."""
OF_MOTORS = (RewireMotors(signed=True), RewireMotors(100, signed=True), CutMotors(0.25))
"""And agents with motor neurons."""
OF_IMAGES: tuple[Perturbation, ...] = (
    Identity(),
    *(Background(scene) for scene in SCENES),
    *MODIFICATIONS.values(),
    ShufflePatches(),
)
"""What every agent of CarRacing is scored under."""
OF_OTHER_IMAGES: tuple[Perturbation, ...] = (Identity(), ShufflePatches(), Occlude(0.05))
"""And every one of images in other worlds."""
OF_PATCHES = (ShufflePatches(every=25), ShufflePatches(every=100))
"""And those beyond that which do not know patches by their places."""


def publish(run: Path, episodes: int | None = None, seed: int = 0, machine: str = "") -> Path:
    """Score the best agent of a run and write it to the zoo.

    Args:
        run: A run directory.
        episodes: Episodes of each score; 1,000, or 100 where the world is on the host.
        seed: Of the evaluation; its starts are never those of training.
        machine: Where it was trained, in words.

    Returns:
        The weights file; the card is beside it as JSON.
    """
    agent = load(run)
    training = _training(run)
    recipe = _check_made_by_recipe(run, agent)
    world = make_world(agent.recipe.env)
    episodes = episodes or world.scored_episodes
    card: dict[str, Any] = {
        "name": agent.name,
        "summary": agent.recipe.summary,
        "parameters": num_parameters(agent.policy),
        "seed": agent.recipe.seed,
        **training,
        "machine": machine or f"{platform.machine()}, CPU",
        "evaluation": {"episodes": episodes, "seed": seed},
    }
    card["scores"] = _score(agent, episodes, seed)
    target = zoo_directory() / f"{agent.name}.safetensors"
    Agent(agent.policy, recipe, {}).save(target)
    write_json(target.with_suffix(".json"), card)
    return target


def score_again(name: str, episodes: int | None = None, seed: int = 0) -> Path:
    """Measure the scores of a shipped agent anew, and write them into its card.

    Args:
        name: Of the agent.
        episodes: Episodes of each score; as many as the card has by default.
        seed: Of the evaluation.

    Returns:
        The card.
    """
    agent = load(name)
    episodes = episodes or agent.card["evaluation"]["episodes"]
    card = agent.card | {
        "evaluation": {"episodes": episodes, "seed": seed},
        "scores": _score(agent, episodes, seed),
    }
    target = zoo_directory() / f"{name}.json"
    write_json(target, card)
    return target


def _score(agent: Agent, episodes: int, seed: int) -> dict[str, Any]:
    """Measure all scores of a card."""
    world = make_world(agent.recipe.env)
    fixed = agent.policy.fixed_inputs
    if num_sensors_of(world.observation_spec) is None:
        asked = OF_IMAGES if world.host_twin else OF_OTHER_IMAGES
        asked += () if fixed else OF_PATCHES
    elif fixed:
        asked = OF_FIXED_SENSORS
    else:
        asked = OF_SENSORS + (OF_HOST_SENSORS if world.on_host else ())
    asked += () if agent.policy.fixed_outputs else OF_MOTORS
    policy, env, found = agent.policy, agent.recipe.env, {}
    with open_engine(world) as engine:
        for perturbation in asked:
            # NLA as published takes a fixed number of sensors
            if policy.takes(make_world(env, perturbation).observation_spec):
                scores = evaluate(
                    policy, env, perturbation, episodes=episodes, seed=seed, engine=engine
                )
                found[str(perturbation)] = _written(scores)
    for variant in world.variants[1:]:
        changed = with_options(env, variant=variant)
        scores = evaluate(policy, changed, episodes=episodes, seed=seed)
        found[f"variant {variant}"] = _written(scores)
    if world.host_twin is not None:
        scores = evaluate(policy, world.host_twin, episodes=episodes, seed=seed)
        found[f"in {world.host_twin.partition(':')[2]}"] = _written(scores)
    return found


def _written(scores: Scores) -> dict[str, Any]:
    """Write a score as the card has it."""
    returns = [significant(value) for value in scores.returns.tolist()]
    return dataclasses.asdict(scores.summary) | {"returns": returns}


def _check_made_by_recipe(run: Path, agent: Agent) -> Recipe:
    """Return the recipe of an agent, experts named as in the zoo; it must be that of its name."""
    recipe = dataclasses.replace(
        agent.recipe,
        stages=tuple(
            dataclasses.replace(stage, expert=_name(stage.expert), start=_name(stage.start))
            for stage in agent.recipe.stages
        ),
    )
    if recipe != find(agent.name):
        ours, theirs = find(agent.name).to_json(), recipe.to_json()
        changed = next(name for name in theirs if theirs[name] != ours.get(name))
        raise ConfigError(
            f"{run} is not what the recipe {agent.name} makes today: its {changed!r} differs."
        )
    versions = {stage["version"] for stage in RunDirectory.open(run).history()}
    if versions != {this := describe_versions().get("sensorium")}:
        raise ConfigError(
            f"{run} was trained by Sensorium {' and '.join(map(str, versions))}, and this is {this}."
        )
    return recipe


def _name(source: str) -> str:
    """Name an agent, wherever it lay."""
    is_agent = os.sep in source and not source.endswith(".zip")
    return load(source).name if is_agent else Path(source).name


def _training(run: Path) -> dict[str, Any]:
    """Read what the training of a run cost, stage by stage, and the versions that it was made with."""
    best = read_header(run / BEST)
    return {
        "generation": best["generation"],
        **RunDirectory.open(run).cost(),
        "versions": best["versions"],
    }


def main(
    run: tyro.conf.Positional[str],
    episodes: int | None = None,
    machine: str = "",
    again: bool = False,
) -> None:
    """Publish the best agent of a run.

    Args:
        run: A run directory; with --again the name of a shipped agent.
        episodes: Episodes of each score.
        machine: Where it was trained, in words.
        again: Only measure the scores of a shipped agent anew.
    """
    target = score_again(run, episodes) if again else publish(Path(run), episodes, machine=machine)
    Console().print(f"Wrote {target}.", highlight=False)


if __name__ == "__main__":
    try:
        tyro.cli(main)
    except SensoriumError as error:
        say(str(error))
        sys.exit(2)
