"""Results on CarRacing."""

from pathlib import Path

from rich.console import Group

from sensorium.perturbations import Identity
from sensorium.reproduce.published import RACING_AUTHORS
from sensorium.reproduce.tables import Result, score_tables
from sensorium.zoo import published_directory, read_published

ENVS = ("CarRacing", "gym:CarRacing-v3")
"""Ours, and the one it is a twin of."""


def authors(episodes: int, seed: int, out: Path) -> Result:
    """The authors' own agents in our world and in Gymnasium's, beside the scores that they logged."""
    del out
    folder = published_directory()
    agents = {name: read_published(name, folder / f"{name}.npz") for name in RACING_AUTHORS}
    rows, tables = [], []
    for env in ENVS:
        scores, table = score_tables(
            agents, env, (Identity(),), RACING_AUTHORS.__getitem__, episodes, seed
        )
        rows += scores
        tables.append(table)
    return rows, Group(*(table for table in tables if table is not None))
