"""Tables and figures of the papers, ours beside theirs, one command each."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sensorium.errors import check_counts, did_you_mean
from sensorium.evaluation.report import console_for, write
from sensorium.reproduce import (
    ant,
    attention_neuron,
    car_racing,
    motors,
    nonlinear_attention,
    pong,
    tables,
    take_cover,
)
from sensorium.reproduce.scaling import scaling
from sensorium.seeding import check_seed


class Table(NamedTuple):
    """How a reproduction is made."""

    rebuild: Callable[[int, int, Path], tables.Result]
    """From episodes of each score, a seed and a folder for figures."""
    episodes: int = 1000
    """Of each score in the papers."""


TABLES = {
    "table-2": Table(attention_neuron.table_2),
    "table-3": Table(attention_neuron.table_3),
    "table-4": Table(ant.table_4, 100),
    "table-5": Table(car_racing.table_5, 100),
    "table-6": Table(attention_neuron.table_6),
    "table-6-ant": Table(ant.table_6_ant, 100),
    "table-6-racing": Table(car_racing.table_6, 100),
    "table-6-pong": Table(pong.table_6, 100),
    "figure-4": Table(attention_neuron.figure_4),
    "figure-5": Table(pong.figure_5, 10),
    "figure-6": Table(pong.figure_6, 1),
    "pong": Table(pong.pong, 100),
    "pong-decoder": Table(pong.decoder, 16),
    "ant-authors": Table(ant.authors, 100),
    "racing-authors": Table(car_racing.authors, 100),
    "aa-table-2": Table(car_racing.aa_table_2, 100),
    "aa-table-3": Table(car_racing.aa_table_3, 100),
    "aa-table-4": Table(car_racing.aa_table_4, 100),
    "aa-table-4-takecover": Table(take_cover.table_4, 100),
    "motors": Table(motors.motors),
    "motors-ant": Table(ant.motors, 100),
    "motors-seeds": Table(motors.seeds),
    "takecover-attention": Table(take_cover.attention, 20),
    "takecover-k": Table(take_cover.effect_of_k, 100),
    "aa-noise": Table(car_racing.aa_noise, 100),
    "recovery": Table(attention_neuron.recovery),
    "nla-table-2": Table(nonlinear_attention.nla_table_2),
    "nla-table-3": Table(ant.nla_table_3, 100),
    "nla-table-4": Table(car_racing.nla_table_4, 100),
    "nla-table-5": Table(pong.nla_table_5, 100),
    "nla-curves": Table(nonlinear_attention.nla_curves),
    "nla-curves-pong": Table(pong.nla_curves, 1),
    "scaling": Table(scaling),
}
"""Every reproduction by its name."""


def run(table: str, *, episodes: int | None, seed: int, out: Path, json: str | None) -> None:
    """Rebuild one table or figure.

    Args:
        table: One of `TABLES`.
        episodes: Episodes of each score; None for as many as the papers have.
        seed: Decides the starts and all noise.
        out: Folder for figures and runs.
        json: A file; `-` for standard output, which then gets nothing else.

    Raises:
        UnknownNameError: There is no such table; the nearest names are given.
        ConfigError: A number is out of range.
    """
    if table not in TABLES:
        raise did_you_mean("table", table, TABLES)
    chosen, seed = TABLES[table], check_seed(seed)
    episodes = chosen.episodes if episodes is None else episodes
    check_counts(episodes=episodes)
    result, shown = chosen.rebuild(episodes, seed, out)
    write(result, json)
    console = console_for(json)
    if shown is not None:
        console.print(shown)
    figure = result.get("figure") if isinstance(result, dict) else None
    if figure is None and isinstance(result, list) and result:
        figure = result[0].get("figure")
    if figure:
        console.print(f"Wrote {figure}.", highlight=False)
