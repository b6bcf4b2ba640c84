"""Put the best agent of a run into the zoo: weights, and a card with what it cost and scores.

python -m sensorium.zoo.publish runs/cartpole-pi
"""

import dataclasses
import platform
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console

from sensorium.errors import ConfigError
from sensorium.evaluation import Scores, evaluate
from sensorium.perturbations import (
    MODIFICATIONS,
    SCENES,
    Background,
    Duplicate,
    Identity,
    NoiseChannels,
    Perturbation,
    Reshuffle,
    Shuffle,
    ShufflePatches,
)
from sensorium.policies import FeedForwardPolicy, VisionPolicy, num_parameters
from sensorium.recipes import Recipe
from sensorium.rollout import make_world
from sensorium.serialisation import read_header, write_json
from sensorium.terminal import significant
from sensorium.training.checkpoints import BEST, LAST
from sensorium.zoo.agent import Agent, load, zoo_directory

SENSES: tuple[Perturbation, ...] = (
    Identity(),
    Shuffle(),
    Duplicate(2),
    NoiseChannels(5),
    Reshuffle(25),
    Reshuffle(100),
)
"""What every agent is scored under."""
HOST_SENSES = (Reshuffle(500),)
"""And the ant beyond that (AN Table 6)."""
OF_PICTURES: tuple[Perturbation, ...] = (
    Identity(),
    *(Background(scene) for scene in SCENES),
    *MODIFICATIONS.values(),
    ShufflePatches(),
)
"""What every agent of pictures is scored under."""
OF_PATCHES = (ShufflePatches(every=25), ShufflePatches(every=100))
"""And those that do not mind the order of patches beyond that."""


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
    recipe = _without_paths(agent.recipe)
    world = make_world(agent.recipe.env)
    episodes = episodes or world.scored_episodes
    card: dict[str, Any] = {
        "name": agent.name,
        "summary": agent.recipe.summary,
        "parameters": num_parameters(agent.policy),
        "seed": agent.recipe.seed,
        **_training(run),
        "machine": machine or f"{platform.machine()}, CPU",
        "evaluation": {"episodes": episodes, "seed": seed},
        "scores": {},
    }
    fixed = isinstance(agent.policy, FeedForwardPolicy)
    pictures = not isinstance(world.senses, int)
    asked = OF_PICTURES if pictures else SENSES + (HOST_SENSES if world.on_host else ())
    asked += OF_PATCHES if isinstance(agent.policy, VisionPolicy) else ()
    for senses in asked[:2] if fixed else asked:
        if not _takes(agent, senses):
            continue
        scores = evaluate(agent.policy, agent.recipe.env, senses, episodes=episodes, seed=seed)
        card["scores"][str(senses)] = _written(scores)
    if world.host_twin is not None:
        scores = evaluate(agent.policy, world.host_twin, episodes=episodes, seed=seed)
        card["scores"][f"in {world.host_twin.partition(':')[2]}"] = _written(scores)
    target = zoo_directory() / f"{agent.name}.safetensors"
    Agent(agent.policy, recipe, {}).save(target)
    write_json(target.with_suffix(".json"), card)
    return target


def _written(scores: Scores) -> dict[str, Any]:
    """A score as the card has it."""
    returns = [significant(value) for value in scores.returns.tolist()]
    return dataclasses.asdict(scores.summary) | {"returns": returns}


def _without_paths(recipe: Recipe) -> Recipe:
    """The recipe with the agents that it names named as in the zoo, not by where they lay."""
    recipe = recipe.override(start=_name(recipe.start))
    for part in ("teacher", "student"):
        if source := getattr(recipe.trainer, part, ""):
            recipe = recipe.override(**{part: _name(source)})
    return recipe


def _name(source: str) -> str:
    return load(source).name if source and not source.endswith(".zip") else Path(source).name


def _training(run: Path) -> dict[str, Any]:
    """What the training of a run cost, and with which versions it was made."""
    best = read_header(run / BEST)
    if not (run / LAST).exists():  # a teacher
        return {name: value for name, value in best["card"].items() if name != "name"}
    last = read_header(run / LAST)
    return {
        "generation": best["generation"],
        "training_generations": last["generation"],
        "training_seconds": round(last["seconds"], 1),
        "versions": best["versions"],
    }


def _takes(agent: Agent, senses: Perturbation) -> bool:
    """Whether an agent works with that many channels; NLA as published has a fixed number."""
    try:
        agent.initial_carry(make_world(agent.recipe.env, senses).senses)
    except ConfigError:
        return False
    return True


def main(run: tyro.conf.Positional[Path], episodes: int | None = None, machine: str = "") -> None:
    """Publish the best agent of RUN."""
    target = publish(run, episodes, machine=machine)
    Console().print(f"Wrote {target} and its card.", highlight=False)


if __name__ == "__main__":
    tyro.cli(main)
