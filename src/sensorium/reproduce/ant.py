"""AN's results on the ant."""

from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType

from sensorium.evaluation import evaluate
from sensorium.evaluation.report import score_table
from sensorium.perturbations import Identity, Shuffle
from sensorium.reproduce.published import ANT_AUTHORS
from sensorium.zoo import published_directory, read_published

Result = tuple[Any, RenderableType | None]
ENV = "gym:AntBulletEnv-v0"


def authors(episodes: int, seed: int, out: Path) -> Result:
    """The authors' own ant agents, plain and shuffled, beside the scores that they logged."""
    del out
    folder = published_directory()
    rows, tables = [], []
    for name, published in ANT_AUTHORS.items():
        policy = read_published(name, folder / f"{name}.npz")
        scores = [
            evaluate(policy, ENV, senses, episodes=episodes, seed=seed, name=name)
            for senses in (Identity(), Shuffle())
        ]
        rows += [
            score.to_json() | {"paper": published.get(score.perturbation, "-")} for score in scores
        ]
        tables.append(score_table(scores, published, scores[0]))
    return rows, Group(*tables)
