"""NLA's CartPole results: scores, and whether it needs fewer iterations.

Beside the three forms of the layer stands our own way to train sooner, at the same size: sensors that
receive the previous code (`SetPolicy.code_feedback`).
"""

from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from sensorium import recipes
from sensorium.analysis import figures
from sensorium.evaluation.report import watched
from sensorium.perturbations import Identity, Perturbation, Shuffle
from sensorium.reproduce.counterparts import NLA, NLA_BASELINE
from sensorium.reproduce.tables import trained
from sensorium.terminal import shown
from sensorium.training.progress import read_metrics
from sensorium.zoo import load, names

VARIANTS = {
    "plain": "cartpole-pi",
    "NLA as published": "cartpole-nla-published",
    "NLA invariant": "cartpole-nla",
    "code fed back (ours)": "cartpole-pi-feedback",
}
SEEDS = 5
CURVE_GENERATIONS = 20


def nla_table_2(episodes: int, seed: int, out: Path) -> tuple[Any, Table]:
    """Rebuild NLA Table 2: CartPole, plain and shuffled, for each form of the layer."""
    del out
    table = Table(title=f"NLA Table 2, CartPole, {episodes} episodes")
    for column in ("layer", "parameters", "plain", "shuffled", "paper, plain"):
        table.add_column(column, justify="left" if column == "layer" else "right")
    rows = []
    for label, name in VARIANTS.items():
        if name not in names():
            continue
        agent = load(name)
        perturbations: tuple[Perturbation, ...] = (Identity(), Shuffle())
        scores = [
            watched(agent.policy, name, agent.recipe.env, each, episodes, seed)
            for each in perturbations
        ]
        paper = {**NLA_BASELINE, **NLA}.get(name, {})
        said = [str(paper.get(score.perturbation, "-")) for score in scores]
        rows += [score.to_json() | {"paper": row} for score, row in zip(scores, said, strict=True)]
        cells = (f"{shown(score.summary.mean)} ± {shown(score.summary.std)}" for score in scores)
        table.add_row(label, str(agent.card.get("parameters", "-")), *cells, said[0])
    return rows, table


def nla_curves(episodes: int, seed: int, out: Path) -> tuple[Any, Table]:
    """Train every variant from several seeds and compare how soon they improve.

    Runs are kept in `out` and resumed, so that this can be stopped and called again.
    """
    del episodes
    curves: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for label, name in VARIANTS.items():
        curves[label] = []
        for offset in range(SEEDS):
            directory = out / "nla-curves" / f"{name}-{seed + offset}"
            # One training a seed: the best of several would hide the spread
            recipe = recipes.find(name).override(
                {
                    "seed": seed + offset,
                    "generations": CURVE_GENERATIONS,
                    "population": 1,
                    "test_every": 2,
                }
            )
            trained(recipe, directory)
            tests = [
                row
                for row in read_metrics(directory / "metrics.jsonl")
                if row.get("test") is not None
            ]
            x = np.array([row["generation"] for row in tests], float)
            curves[label].append((x, np.array([row["best_test"] for row in tests])))
    path = out / "nla-curves.png"
    figures.learning_curves(path, curves, xlabel="generation")
    return _compare(curves, path)


def _compare(
    curves: dict[str, list[tuple[np.ndarray, np.ndarray]]], path: Path
) -> tuple[Any, Table]:
    # Iterations to a common level: what the plain layer's median seed reaches at the end
    level = float(np.median([y[-1] for _, y in curves["plain"]]))
    table = Table(title=f"Generations until the best test reaches {shown(level)}")
    for column in ("layer", "seeds that get there", "median generation", "best test at the end"):
        left = column == "layer"
        table.add_column(column, justify="left" if left else "right", no_wrap=left)
    rows = []
    for label, seeds in curves.items():
        reached = [float(x[np.argmax(y >= level)]) for x, y in seeds if (y >= level).any()]
        ends = [float(y[-1]) for _, y in seeds]
        median = float(np.median(reached)) if len(reached) > len(seeds) / 2 else None
        rows.append(
            {"layer": label, "level": level, "generations": reached, "ends": ends,
             "median_generation": median, "figure": str(path)}
        )  # fmt: skip
        table.add_row(
            label,
            f"{len(reached)} of {len(seeds)}",
            "-" if median is None else f"{median:.0f}",
            f"{shown(float(np.mean(ends)))} ({shown(min(ends))} to {shown(max(ends))})",
        )
    return rows, table
