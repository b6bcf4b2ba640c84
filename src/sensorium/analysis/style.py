"""One look for all figures."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib
import numpy as np
from cycler import cycler

matplotlib.use("Agg")  # files only: no window, no display needed
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from sensorium.serialisation import atomic_write

COLOURS = ("#2b5078", "#d66830", "#5a8f3c", "#8a4f9e", "#b8912c", "#4aa3a3")
NOISE = "#b0b0b0"


def sensor_colours(count: int) -> list[str]:
    """Return a colour for each sensor; neighbours are alike where there are many."""
    if count <= len(COLOURS):
        return list(COLOURS[:count])
    scale = matplotlib.colormaps["turbo"]
    return [to_hex(scale(place)) for place in np.linspace(0.04, 0.96, count)]


_RC = {
    "figure.dpi": 120,
    "savefig.dpi": 150,
    "figure.constrained_layout.use": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "axes.prop_cycle": cycler(color=COLOURS),
}


@contextmanager
def figure(path: Path | str, width: float = 7.0, height: float = 4.0) -> Iterator[Figure]:
    """Open a figure that is written to `path` as PNG, whole or not at all (WriteError)."""
    with matplotlib.rc_context(_RC):
        drawn = plt.figure(figsize=(width, height))
        try:
            yield drawn
            with atomic_write(path) as file:
                drawn.savefig(file, format="png")
        finally:
            plt.close(drawn)
