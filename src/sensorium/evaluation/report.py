"""Scores as a table in the terminal and as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sensorium.evaluation.evaluate import Scores, evaluate, fitting_world
from sensorium.evaluation.statistics import paired_difference
from sensorium.perturbations import Duplicate, Identity, NoiseChannels, Perturbation, Shuffle
from sensorium.policies import Policy
from sensorium.rollout import Engine, EngineConfig, make_world, open_engine
from sensorium.serialisation import format_json, write_json
from sensorium.terminal import shown, write_output

SUITE: tuple[Perturbation, ...] = (Identity(), Shuffle(), Duplicate(2), NoiseChannels(5))
"""The four columns of AN Table 2."""


def score(
    policy: Policy,
    name: str,
    env: str,
    perturbations: Sequence[Perturbation],
    episodes: int,
    seed: int,
    json: str | None,
    paper: Mapping[str, object] | None = None,
    engine: EngineConfig | None = None,
) -> list[Scores]:
    """Evaluate under each perturbation, print a table, write JSON if asked.

    Args:
        policy: The agent.
        name: What to call it.
        env: The world.
        perturbations: One row each.
        episodes: How many for each row.
        seed: Decides the starts and all noise.
        json: A file; `-` for standard output, which then gets nothing else.
        paper: The paper's scores, by the name of the perturbation.
        engine: Which engine runs the episodes; by default the one that the world needs.

    Returns:
        The scores.
    """
    for perturbation in perturbations:
        fitting_world(policy, env, perturbation, name)
    with open_engine(make_world(env), engine) as shared:
        rows = [
            watched(policy, name, env, perturbation, episodes, seed, shared)
            for perturbation in perturbations
        ]
    dictionaries = [row.to_json() for row in rows]
    console_for(json).print(score_table(rows, paper))
    write(dictionaries if len(rows) > 1 else dictionaries[0], json)
    return rows


def watched(
    policy: Policy,
    name: str,
    env: str,
    perturbation: Perturbation,
    episodes: int,
    seed: int,
    engine: Engine | None = None,
) -> Scores:
    """Evaluate; until that is done, a line on a terminal names the score that is under way."""
    line = escape(f"{name}, {perturbation}: {episodes:,} episodes")
    with Console(stderr=True).status(line, refresh_per_second=2):
        return evaluate(
            policy, env, perturbation, episodes=episodes, seed=seed, name=name, engine=engine
        )


def score_table(
    rows: Sequence[Scores],
    paper: Mapping[str, object] | None = None,
    baseline: Scores | None = None,
) -> Table:
    """Make a table with a row for each perturbation of one agent.

    Args:
        rows: Scores of the agent.
        paper: The paper's scores, by the name of the perturbation; a column of their own if there are any.
        baseline: Scores over the same starts; adds the mean paired difference from them.

    Returns:
        A table that fits 80 columns.
    """
    table = Table(title=f"{rows[0].agent} on {rows[0].env}, {rows[0].episodes} episodes")
    table.add_column("perturbation")
    for column in ("mean ± sd", "95% interval", "IQM", "solved"):
        table.add_column(column, justify="right")
    if baseline:
        table.add_column("change", justify="right")
    published = {row.perturbation for row in rows}.intersection(paper or ())
    if published:
        table.add_column("paper", justify="right", style="dim")
    for row in rows:
        s = row.summary
        cells = [
            row.perturbation,
            f"{shown(s.mean)} ± {shown(s.std)}",
            f"{shown(s.ci95[0])} to {shown(s.ci95[1])}",
            shown(s.iqm),
            "-" if s.solved is None else f"{s.solved:.0%}",
        ]
        if baseline:
            change, _ = paired_difference(row.returns, baseline.returns)
            cells.append(f"{'+' if change >= 0 else ''}{shown(change, 1)}")
        if paper and published:
            cells.append(str(paper.get(row.perturbation, "-")))
        table.add_row(*cells)
    return table


def console_for(json: str | None) -> Console:
    """Return where tables go: standard error if standard output is taken by JSON."""
    return Console(stderr=json == "-")


def write(value: Any, json: str | None) -> None:
    """Write `value` as JSON to a file, to standard output (`-`), or nowhere (None)."""
    if json == "-":
        write_output(format_json(value, indent=2) + "\n")
    elif json is not None:
        write_json(json, value)
