"""Tables and figures of the papers, ours beside theirs, one command each."""

from pathlib import Path

from sensorium.errors import did_you_mean
from sensorium.evaluation.report import console_for, write
from sensorium.reproduce import ant, attention_neuron, car_racing, nonlinear_attention
from sensorium.reproduce.scaling import scaling

TABLES = {
    "table-2": attention_neuron.table_2,
    "table-3": attention_neuron.table_3,
    "table-4": ant.table_4,
    "table-5": car_racing.table_5,
    "table-6": attention_neuron.table_6,
    "table-6-ant": ant.table_6_ant,
    "table-6-racing": car_racing.table_6,
    "figure-4": attention_neuron.figure_4,
    "ant-authors": ant.authors,
    "racing-authors": car_racing.authors,
    "aa-table-2": car_racing.aa_table_2,
    "aa-table-3": car_racing.aa_table_3,
    "aa-table-4": car_racing.aa_table_4,
    "aa-noise": car_racing.aa_noise,
    "recovery": attention_neuron.recovery,
    "nla-table-2": nonlinear_attention.nla_table_2,
    "nla-table-3": ant.nla_table_3,
    "nla-table-4": car_racing.nla_table_4,
    "nla-curves": nonlinear_attention.nla_curves,
    "scaling": scaling,
}
"""Every reproduction by its name."""


def run(table: str, *, episodes: int, seed: int, out: Path, json: str | None) -> None:
    """Rebuild one table or figure.

    Args:
        table: One of `TABLES`.
        episodes: Episodes of each score.
        seed: Decides the starts and all noise.
        out: Folder for figures and runs.
        json: A file; `-` for standard output, which then gets nothing else.

    Raises:
        UnknownNameError: There is no such table; the nearest names are given.
    """
    if table not in TABLES:
        raise did_you_mean("table", table, TABLES)
    result, shown = TABLES[table](episodes, seed, out)
    write(result, json)
    console = console_for(json)
    if shown is not None:
        console.print(shown)
    figure = result.get("figure") if isinstance(result, dict) else None
    if figure is None and isinstance(result, list) and result:
        figure = result[0].get("figure")
    if figure:
        console.print(f"Wrote {figure}.", highlight=False)
