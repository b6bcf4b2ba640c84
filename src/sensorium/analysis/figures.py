"""One function a figure; each writes a PNG."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from sensorium.analysis.style import COLOURS, NOISE, figure, sensor_colours
from sensorium.analysis.traces import EpisodeTrace
from sensorium.evaluation.recovery import Recovery
from sensorium.terminal import shown
from sensorium.zoo.comparison import Comparison


def codes_over_time(path: Path | str, panels: Mapping[str, EpisodeTrace]) -> None:
    """Draw AN Figure 4: the code of one episode over time, one panel for each order of the sensors."""
    with figure(path, width=7.0, height=1.0 + 1.5 * len(panels)) as drawn:
        axes = drawn.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axis, (title, trace) in zip(axes, panels.items(), strict=True):
            image = axis.imshow(
                np.asarray(trace.code).T, aspect="auto", cmap="RdBu_r", vmin=-1, vmax=1,
                interpolation="nearest",
            )  # fmt: skip
            axis.set_title(title)
            axis.set_ylabel("code")
            axis.spines[:].set_visible(False)
        axes[-1].set_xlabel("step")
        drawn.colorbar(image, ax=axes, shrink=0.8, label="activation")


def episode(path: Path | str, trace: EpisodeTrace, names: tuple[str, ...]) -> None:
    """Draw a whole episode: which sensor arrived where, what happened inside, action and reward."""
    alive = np.asarray(trace.alive)
    steps = max(int(alive.sum()), 1)
    source = np.asarray(trace.source)[:steps]
    inside = [each for each in (trace.attention, trace.code, trace.digest) if each is not None]
    with figure(path, width=8.0, height=4.0 + 2.0 * len(inside)) as drawn:
        channels, *between, outcome = drawn.subplots(2 + len(inside), 1, sharex=True)
        panels = iter(between)
        colours = np.ones((source.shape[1], steps, 3))
        hues = sensor_colours(len(names))
        palette = np.array([_rgb(hue) for hue in hues])
        for channel in range(source.shape[1]):
            known = source[:, channel] >= 0
            colours[channel, known] = palette[source[known, channel]]
            colours[channel, ~known] = 0.8
        channels.imshow(colours, aspect="auto", interpolation="nearest")
        channels.set_title("which sensor arrives in which channel (grey: noise)")
        channels.set_ylabel("channel")
        handles = [_patch(hue, name) for hue, name in zip(hues, names, strict=True)]
        channels.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),
            ncols=1 + len(names) // 12,
            fontsize=8 if len(names) <= 12 else 6,
        )
        if trace.attention is not None:
            panel, weights = next(panels), np.abs(np.asarray(trace.attention)[:steps])
            _image(panel, weights.mean(axis=1), cmap="magma", vmin=0)
            panel.set_title("attention: mean absolute weight over the queries")
            panel.set_ylabel("channel")
        if trace.code is not None:
            panel = next(panels)
            _image(panel, np.asarray(trace.code)[:steps], cmap="RdBu_r", vmin=-1, vmax=1)
            panel.set_title("code")
        if trace.digest is not None:
            panel, digest = next(panels), np.asarray(trace.digest)[:steps]
            _image(panel, np.linalg.norm(digest, axis=1), cmap="magma", vmin=0)
            panel.set_title("digests: how much each motor seems to do")
            panel.set_ylabel("motor")
        outcome.plot(np.asarray(trace.action)[:steps, 0], label="action", linewidth=0.8)
        outcome.plot(np.asarray(trace.reward)[:steps], label="reward")
        outcome.set_title(f"action and reward (return {shown(float(trace.reward.sum()))})")
        outcome.set_xlabel("step")
        outcome.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))


def _image(axis: Any, values: np.ndarray, **colours: Any) -> None:
    """Draw rows of values over time."""
    axis.imshow(values.T, aspect="auto", interpolation="nearest", **colours)
    axis.yaxis.get_major_locator().set_params(integer=True)


def comparison(path: Path | str, compared: Comparison) -> None:
    """Draw what a twin and its expert earn under perturbations, with 95% intervals."""
    twin = {name: scores.summary for name, scores in compared.twin.items()}
    with figure(path, width=7.0, height=1.2 + 0.35 * len(twin)) as drawn:
        axis = drawn.subplots()
        rows = {name: place for place, name in enumerate(reversed(twin))}
        for label, of, colour, shift in (
            ("expert", compared.expert, COLOURS[1], 0.14),
            ("twin", twin, COLOURS[0], -0.14),
        ):
            means = np.array([each.mean for each in of.values()])
            ends = np.array([each.ci95 for each in of.values()])
            errors = np.abs(ends.T - means)
            places = np.array([rows[name] for name in of]) + shift
            axis.errorbar(means, places, xerr=errors, fmt="o", color=colour, label=label)
        axis.axvline(
            compared.random, color=NOISE, linewidth=1.0, linestyle="--", label="random actions"
        )
        axis.set_yticks(list(rows.values()), list(rows))
        axis.set_title(f"{compared.env}: an expert and its twin")
        axis.set_xlabel("mean return, 95% interval")
        axis.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))


def recovery(path: Path | str, curves: Mapping[str, Recovery], at: int, around: int = 150) -> None:
    """Draw reward and code around a shuffle in mid-episode, for several agents."""
    with figure(path, width=7.0, height=5.0) as drawn:
        reward, code = drawn.subplots(2, 1, sharex=True)
        window = slice(max(at - around // 3, 0), at + around)
        for name, curve in curves.items():
            steps = np.arange(len(curve.shuffled))[window] - at
            line = reward.plot(steps, np.asarray(curve.shuffled)[window], label=name)[0]
            reward.plot(
                steps, np.asarray(curve.undisturbed)[window], color=line.get_color(), alpha=0.35
            )
            code.plot(steps, np.asarray(curve.code_distance)[window], color=line.get_color())
        for axis in (reward, code):
            axis.axvline(0, color="0.6", linewidth=0.8)
        reward.set_title("mean reward a step (pale: never shuffled)")
        reward.set_ylim(0, 1.02)
        reward.legend(loc="lower right")
        code.set_title("RMS distance of the code from that of memories moved along")
        code.set_ylim(bottom=0)
        code.set_xlabel("steps after the shuffle")


def learning_curves(
    path: Path | str,
    curves: Mapping[str, list[tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]]],
    xlabel: str,
    target: float | None = None,
    ylabel: str = "test return",
) -> None:
    """Draw test return, or another figure, against training: the median, in a band of all seeds."""
    with figure(path, width=7.0, height=4.0) as drawn:
        axis = drawn.subplots()
        for name, seeds in curves.items():
            shared = np.linspace(max(x[0] for x, _ in seeds), min(x[-1] for x, _ in seeds), 100)
            lines = np.stack([np.interp(shared, x, y) for x, y in seeds])
            middle = axis.plot(
                shared, np.median(lines, axis=0), label=f"{name}, {len(seeds)} seeds"
            )
            colour = middle[0].get_color()
            axis.fill_between(
                shared, lines.min(axis=0), lines.max(axis=0), alpha=0.15, color=colour, linewidth=0
            )
        if target is not None:
            axis.axhline(target, color="0.6", linewidth=0.8, linestyle="--")
            axis.annotate("paper", (0.0, target), xytext=(2, 2), textcoords="offset points",
                          fontsize=8, color="0.4")  # fmt: skip
        axis.locator_params(axis="x", integer=True)
        axis.set_xlabel(xlabel)
        axis.set_ylabel(ylabel)
        axis.set_ylim(bottom=0)
        axis.legend(loc="best")


def shares_over_time(
    path: Path | str, panels: Mapping[str, Mapping[str, Float[np.ndarray, " T"]]]
) -> None:
    """Draw the share of episodes in which bodies are at their targets, step by step, one panel a body."""
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves))
    with figure(path, width=3.6 * len(panels), height=3.4) as drawn:
        axes = drawn.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, (title, curves) in zip(axes, panels.items(), strict=True):
            for name, shares in curves.items():
                colour = "0.5" if name == names[0] else COLOURS[names.index(name) - 1]
                axis.plot(shares, label=name, color=colour, linewidth=1.2)
            axis.set_title(title)
            axis.set_xlabel("step")
            axis.set_ylim(0, 1.02)
        axes[0].set_ylabel("share at the target")
        axes[0].legend(fontsize=6, loc=(0.22, 0.04))


def scaling(path: Path | str, rows: list[dict[str, Any]]) -> None:
    """Draw time and memory of one layer against the number of sensors, with a line of slope 1."""
    with figure(path, width=8.0, height=3.6) as drawn:
        seconds, memory = drawn.subplots(1, 2)
        for axis, key, title in (
            (seconds, "seconds", "time of one step, s"),
            (memory, "temporary_bytes", "temporary memory, bytes"),
        ):
            for index, block in enumerate(sorted({row["block_size"] or 0 for row in rows})):
                part = [row for row in rows if (row["block_size"] or 0) == block]
                label = f"blocks of {block:,}" if block else "all at once"
                axis.loglog(
                    [row["sensors"] for row in part], [row[key] for row in part],
                    marker="o", markersize=3, label=label, color=COLOURS[index],
                )  # fmt: skip
            largest = max(rows, key=lambda row: row["sensors"])
            ends = np.array([largest["sensors"] / 100, largest["sensors"]])
            axis.loglog(ends, largest[key] * ends / ends[-1], color="0.7", linestyle="--",
                        linewidth=0.9, label="linear")  # fmt: skip
            axis.set_title(title)
            axis.set_xlabel("sensors")
        seconds.legend()


def heat_map(
    path: Path | str,
    values: Float[np.ndarray, "rows columns"],
    rows: tuple[str, list[str]],
    columns: tuple[str, list[str]],
    label: str,
    ends: tuple[float, float],
) -> None:
    """Draw a table of numbers, each on its colour.

    Args:
        path: The file.
        values: The numbers.
        rows: What differs from row to row, and its value in each; the first is the lowest.
        columns: What differs from column to column, and its value in each.
        label: What the numbers are.
        ends: Those of the scale of colours.
    """
    with figure(path, width=1.8 + 0.9 * len(columns[1]), height=1.0 + 0.6 * len(rows[1])) as drawn:
        axis = drawn.subplots()
        image = axis.imshow(
            values, cmap="RdBu", vmin=ends[0], vmax=ends[1], origin="lower", aspect="auto"
        )
        axis.set_xticks(range(len(columns[1])), columns[1])
        axis.set_yticks(range(len(rows[1])), rows[1])
        axis.set_xlabel(columns[0])
        axis.set_ylabel(rows[0])
        axis.spines[:].set_visible(False)
        middle, reach = sum(ends) / 2, abs(ends[1] - ends[0]) / 2
        for (row, column), value in np.ndenumerate(values):
            colour = "white" if abs(value - middle) > 0.6 * reach else "black"
            axis.text(column, row, shown(value, 1), ha="center", va="center", color=colour)
        drawn.colorbar(image, ax=axis, label=label)


def groups(
    path: Path | str,
    points: Float[np.ndarray, "samples 2"],
    members: Int[np.ndarray, " samples"],
    pictures: UInt8[np.ndarray, "groups H W"],
) -> None:
    """Draw AN Figure 6: codes as points in the plane, in groups, and a picture that stands for each."""
    count = len(pictures)
    columns = -(-count // 2)
    hues = sensor_colours(count)
    with figure(path, width=10.0, height=4.0) as drawn:
        grid = drawn.add_gridspec(2, columns + 3)
        axis = drawn.add_subplot(grid[:, :3])
        axis.scatter(*points.T, s=4, c=[hues[member] for member in members], linewidth=0)
        axis.set_axis_off()
        for group, picture in enumerate(pictures):
            at = points[members == group].mean(0)
            axis.annotate(
                str(group + 1), at, ha="center", va="center", fontsize=9,
                bbox=dict(boxstyle="circle", facecolor="white", edgecolor=hues[group]),
            )  # fmt: skip
            small = drawn.add_subplot(grid[group // columns, 3 + group % columns])
            small.imshow(picture, cmap="gray", interpolation="nearest")
            small.set_title(str(group + 1), color=hues[group])
            small.set_xticks([])
            small.set_yticks([])
            small.spines[:].set(visible=True, color=hues[group], linewidth=2)


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5))


def _patch(colour: str, label: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=colour, label=label)
