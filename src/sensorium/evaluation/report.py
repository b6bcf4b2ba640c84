"""Scores as a table in the terminal and as JSON."""

import json as json_module
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from sensorium.evaluation.evaluate import Scores, evaluate
from sensorium.perturbations import Duplicate, Identity, NoiseChannels, Perturbation, Shuffle
from sensorium.policies import Policy
from sensorium.serialisation import write_json

SUITE: tuple[Perturbation, ...] = (Identity(), Shuffle(), Duplicate(2), NoiseChannels(5))
"""The four columns of AN Table 2."""

PAPER = {
    "cartpole-pi": {
        "plain": "472 ± 426",
        "shuffled": "471 ± 426",
        "doubled": "471 ± 425",
        "+5 noise channels": "461 ± 410",
    },
    "cartpole-fnn": {"plain": "593 ± 443", "shuffled": "38 ± 91"},
}


def score(
    policy: Policy,
    name: str,
    env: str,
    perturbations: Sequence[Perturbation],
    episodes: int,
    seed: int,
    json: str | None,
) -> list[Scores]:
    """Evaluate under each perturbation, print a table, write JSON if asked.

    Args:
        policy: The agent.
        name: What to call it; agents of the papers get a column with the papers' scores.
        env: The world.
        perturbations: One row each.
        episodes: How many for each row.
        seed: Decides the starts and all noise.
        json: A file; `-` for standard output, which then gets nothing else.

    Returns:
        The scores.
    """
    rows = [
        evaluate(policy, env, perturbation, episodes=episodes, seed=seed, name=name)
        for perturbation in perturbations
    ]
    dictionaries = [row.to_json() for row in rows]
    write(dictionaries if len(rows) > 1 else dictionaries[0], json)
    console_for(json).print(score_table(rows, name))
    return rows


def score_table(rows: Sequence[Scores], name: str) -> Table:
    """A row for each perturbation."""
    paper = PAPER.get(name, {})
    table = Table(title=f"{name} on {rows[0].env}, {rows[0].episodes} episodes")
    table.add_column("senses")
    for column in ("mean ± sd", "95% interval", "IQM", "solved"):
        table.add_column(column, justify="right")
    if paper:
        table.add_column("paper", justify="right", style="dim")
    for row in rows:
        s = row.summary
        cells = [
            row.perturbation,
            f"{s.mean:.0f} ± {s.std:.0f}",
            f"{s.ci95[0]:.0f} to {s.ci95[1]:.0f}",
            f"{s.iqm:.0f}",
            f"{s.solved:.0%}",
        ]
        table.add_row(*cells, *([paper.get(row.perturbation, "-")] if paper else []))
    return table


def console_for(json: str | None) -> Console:
    """Where tables go: standard error if standard output is taken by JSON."""
    return Console(stderr=json == "-")


def write(value: Any, json: str | None) -> None:
    """Write `value` as JSON to a file, to standard output (`-`), or nowhere (None)."""
    if json == "-":
        sys.stdout.write(json_module.dumps(value, indent=2) + "\n")
    elif json is not None:
        write_json(json, value)
