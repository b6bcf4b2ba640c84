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
from sensorium.evaluation import evaluate
from sensorium.perturbations import (
    Duplicate,
    Identity,
    NoiseChannels,
    Perturbation,
    Reshuffle,
    Shuffle,
)
from sensorium.policies import FeedForwardPolicy, num_parameters
from sensorium.rollout import make_world
from sensorium.serialisation import read_header, write_json
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


def publish(run: Path, episodes: int = 1000, seed: int = 0, machine: str = "") -> Path:
    """Score the best agent of a run and write it to the zoo.

    Args:
        run: A run directory.
        episodes: Episodes of each score.
        seed: Of the evaluation; its starts are never those of training.
        machine: Where it was trained, in words.

    Returns:
        The weights file; the card is beside it as JSON.
    """
    agent = load(run)
    best, last = read_header(run / BEST), read_header(run / LAST)
    card: dict[str, Any] = {
        "name": agent.name,
        "summary": agent.recipe.summary,
        "parameters": num_parameters(agent.policy),
        "seed": agent.recipe.seed,
        "generation": best["generation"],
        "training_generations": last["generation"],
        "training_seconds": round(last["seconds"], 1),
        "machine": machine or f"{platform.machine()}, CPU",
        "versions": best["versions"],
        "evaluation": {"episodes": episodes, "seed": seed},
        "scores": {},
    }
    fixed = isinstance(agent.policy, FeedForwardPolicy)
    for senses in SENSES[:2] if fixed else SENSES:
        if not _takes(agent, senses):
            continue
        scores = evaluate(agent.policy, agent.recipe.env, senses, episodes=episodes, seed=seed)
        returns = [round(float(value), 2) for value in scores.returns]
        card["scores"][str(senses)] = dataclasses.asdict(scores.summary) | {"returns": returns}
    target = zoo_directory() / f"{agent.name}.safetensors"
    Agent(agent.policy, agent.recipe, {}).save(target)
    write_json(target.with_suffix(".json"), card)
    return target


def _takes(agent: Agent, senses: Perturbation) -> bool:
    """Whether an agent works with that many channels; NLA as published has a fixed number."""
    try:
        agent.initial_carry(make_world(agent.recipe.env, senses).num_sensors)
    except ConfigError:
        return False
    return True


def main(run: tyro.conf.Positional[Path], episodes: int = 1000, machine: str = "") -> None:
    """Publish the best agent of RUN."""
    target = publish(run, episodes, machine=machine)
    Console().print(f"Wrote {target} and its card.", highlight=False)


if __name__ == "__main__":
    tyro.cli(main)
