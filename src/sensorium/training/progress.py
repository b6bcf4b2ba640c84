"""Reports of a run while it trains: a live line in the terminal, TensorBoard and JSON lines."""

import contextlib
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from sensorium.errors import RunError, WriteError
from sensorium.serialisation import atomic_write, format_json, parse_json
from sensorium.terminal import shown, with_unit

if TYPE_CHECKING:
    from sensorium.training.budget import Budget


class Display:
    """Live progress on a terminal; plain lines every few seconds where there is none."""

    def __init__(self, budget: "Budget", first: int, quiet: bool = False):
        """Show the generations of a stage, of which `first` are done."""
        self._console = Console(stderr=True, quiet=quiet)
        self._live = self._console.is_terminal and not quiet
        self._generations = budget.generations
        place = f"stage {budget.number + 1} of {budget.stages}: {budget.stage}"
        self._heading = place if budget.stages > 1 else ""
        self._printed = 0.0
        self._bar = Progress(
            TextColumn("{task.completed:.0f}/{task.total:.0f}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=None, table_column=Column(ratio=1)),
            TextColumn("{task.fields[figures]}", table_column=Column(no_wrap=True)),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._live,
        )
        self._task = self._bar.add_task(
            "", total=budget.generations, completed=first, figures="compiling"
        )

    def __enter__(self) -> "Display":
        if self._heading:
            self._console.print(self._heading, highlight=False)
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, row: dict[str, Any]) -> None:
        """Show one row of the metrics."""
        figures = headline(row)
        self._bar.update(self._task, completed=row["generation"], figures=figures)
        last = not row["seconds_left"]
        if not self._live and (last or time.monotonic() - self._printed > 5):
            self._printed = time.monotonic()
            left = row["seconds_left"]
            self._console.print(
                f"generation {row['generation']}/{self._generations}  {figures}  {left:.0f} s left",
                highlight=False,
                soft_wrap=True,
            )


def headline(row: dict[str, Any]) -> str:
    """Format the main figures of one row: they depend on what its trainer reports."""
    parts = []
    if "loss" in row:
        parts.append(f"loss {_number(row['loss'])}")
    elif "mean" in row:
        parts.append(f"train {_number(row['mean'])} (best {_number(row.get('best'))})")
    parts.append(f"test {_number(row['test'])} (best {_number(row['best_test'])})")
    if row["env_steps_per_second"]:
        parts.append(f"{with_unit(row['env_steps_per_second'])} steps/s")
    return "  ".join(parts)


def _number(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else shown(value)


class MetricsFile:
    """`metrics.jsonl`: one line a generation; a resumed run drops the lines that it will write again."""

    def __init__(self, path: Path, stage: str, generation: int):
        """Open for a run that continues after `generation` of a stage.

        Raises:
            WriteError: It cannot be written.
        """
        self._path = path
        kept = [
            row
            for row in read_metrics(path)
            if row.get("stage") != stage or row["generation"] <= generation
        ]
        with atomic_write(path) as file:
            file.write("".join(format_json(row) + "\n" for row in kept).encode())

    def append(self, row: dict[str, Any]) -> None:
        """Add one line; raises WriteError on a full disk."""
        try:
            with self._path.open("a") as file:
                file.write(format_json(row) + "\n")
        except OSError as error:
            raise WriteError(f"Could not write {self._path}: {error.strerror}.") from error


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read all rows that name their generation; skip others, such as half of one after a kill.

    Raises:
        RunError: The file cannot be read.
    """
    if not os.path.isfile(path):
        return []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise RunError(f"Could not read {path}: {error.strerror or error}.") from error
    rows = []
    for line in lines:
        with contextlib.suppress(ValueError):
            row = parse_json(line)
            if isinstance(row, dict) and type(row.get("generation")) is int:
                rows.append(row)
    return rows


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    """Keep tensorboardX from importing PyTorch where that is installed, which takes seconds."""
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torch"]


class TensorBoard:
    """The same numbers for TensorBoard."""

    def __init__(self, directory: Path, generation: int):
        """Write to `directory`; events after `generation` of an earlier session are hidden."""
        with _without_torch():
            from tensorboardX import SummaryWriter

        try:
            self._writer = SummaryWriter(str(directory), purge_step=generation or None)
        except OSError as error:
            raise WriteError(f"Could not write {directory}: {error.strerror}.") from error

    def append(self, row: dict[str, Any]) -> None:
        """Add one generation."""
        for name, value in row.items():
            if name not in ("stage", "generation") and value is not None:
                self._writer.add_scalar(name, value, row["generation"])

    def close(self) -> None:
        """Flush what is left."""
        self._writer.close()
