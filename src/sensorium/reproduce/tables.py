"""What tables of scores have in common: agents x perturbations, ours beside a paper's."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType

from sensorium.errors import ConfigError
from sensorium.evaluation import Scores, paired_difference
from sensorium.evaluation.report import score_table, watched
from sensorium.perturbations import Identity, Perturbation, Shuffle
from sensorium.policies import Policy, to_vector
from sensorium.recipes import Recipe
from sensorium.reproduce.counterparts import Row
from sensorium.rollout import Engine, make_world, open_engine
from sensorium.serialisation import parse_json, write_json
from sensorium.training import RunDirectory
from sensorium.types import num_sensors_of
from sensorium.zoo import load, names, read_published, resume, train

_PUBLISHED = "SENSORIUM_PUBLISHED"  # the variable with the folder of the authors' weights

Result = tuple[Any, RenderableType | None]
"""Figures for JSON, and what the terminal shows."""


def present(*wanted: str, needed: bool = True) -> dict[str, Policy]:
    """Load those of the wanted agents that are in the zoo; ConfigError if none is, and one is needed."""
    agents = {name: load(name).policy for name in wanted if name in names()}
    if needed and not agents:
        raise ConfigError(f"None of {', '.join(wanted)} is in the zoo; train one first.")
    return agents


def all_of(published: tuple[str, ...], *ours: str, needed: bool = True) -> dict[str, Policy]:
    """Load the authors' agents, where their weights are at hand, and those of ours that are in the zoo."""
    authors = {name: read_published(name) for name in published if _PUBLISHED in os.environ}
    return authors | present(*ours, needed=needed and not authors)


def trained(recipe: Recipe, directory: Path) -> Policy:
    """Train by a recipe, or go on with its run in the directory."""
    if RunDirectory.exists(directory):
        return resume(directory, quiet=True)
    return train(recipe, directory, quiet=True)


def score_tables(
    agents: Mapping[str, Policy],
    env: str,
    perturbations: tuple[Perturbation, ...],
    paper: Mapping[str, Row],
    episodes: int,
    seed: int,
    out: Path,
) -> Result:
    """Score every agent, beside the paper and compared with its own plain score.

    Those in a world on the host, which take minutes each, are kept in `out`: a table that was interrupted
    goes on where it was.

    Args:
        agents: By their names.
        env: The world.
        perturbations: A row for each; agents that know sensors by their places skip some.
        paper: The paper's scores, by the name of the agent.
        episodes: Of each score.
        seed: Decides the starts and all noise.
        out: Folder of what is kept.
    """
    world = make_world(env)
    of_sensors = num_sensors_of(world.observation_spec) is not None
    rows, tables = [], []
    with open_engine(world) as engine:
        for name, policy in agents.items():
            fixed = policy.fixed_inputs and of_sensors
            asked = [p for p in perturbations if not fixed or p in (Identity(), Shuffle())]
            scores = {
                perturbation: _scored(policy, name, env, perturbation, episodes, seed, out, engine)
                for perturbation in dict.fromkeys((Identity(), *asked))
            }
            plain, wanted = scores[Identity()], [scores[perturbation] for perturbation in asked]
            published, weights = paper.get(name, {}), fingerprint(policy)
            rows += [_row(score, plain, published, weights) for score in wanted]
            tables.append(score_table(wanted, published, plain))
    return rows, Group(*tables)


def _row(score: Scores, plain: Scores, published: Row, weights: str) -> dict[str, Any]:
    """Return a score for JSON, beside the paper and compared with the plain one."""
    difference, interval = paired_difference(score.returns, plain.returns)
    return score.to_json() | {
        "paper": str(published.get(score.perturbation, "-")),
        "difference": difference,
        "difference_ci95": interval,
        "weights": weights,
    }


def fingerprint(policy: Policy, asked: str = "") -> str:
    """Identify weights, as those of a name may be others later, and what was `asked` of them."""
    weights = np.asarray(to_vector(policy)).tobytes()
    return hashlib.sha256(asked.encode() + weights).hexdigest()[:16]


def _scored(
    policy: Policy,
    name: str,
    env: str,
    perturbation: Perturbation,
    episodes: int,
    seed: int,
    out: Path,
    engine: Engine,
) -> Scores:
    """Return a score; on the host measure it only if there is none yet of these weights in these episodes."""
    if not engine.world.on_host:
        return watched(policy, name, env, perturbation, episodes, seed, engine)
    asked = (env, repr(perturbation), episodes, seed, repr(policy))
    path = out / "scores" / f"{name}-{fingerprint(policy, repr(asked))}.json"
    if (kept := _kept(path)) is not None:
        Console(stderr=True).print(f"As measured before: {path}", style="dim", highlight=False)
        return kept
    scores = watched(policy, name, env, perturbation, episodes, seed, engine)
    write_json(path, scores.to_json())
    return scores


def _kept(path: Path) -> Scores | None:
    """Read the score in a file; None if there is none, or a damaged one, which is measured again."""
    try:
        return Scores.from_json(parse_json(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return None
