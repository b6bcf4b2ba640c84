"""AN's CartPole results, each from the agents of the zoo."""

from pathlib import Path

import jax
import numpy as np
from rich.table import Table

from sensorium.analysis import figures
from sensorium.analysis.traces import collect_codes, trace_episode
from sensorium.envs import make
from sensorium.evaluation import evaluation_keys, recovery_curve
from sensorium.evaluation.report import SUITE
from sensorium.perturbations import Identity, Reshuffle, Shuffle
from sensorium.policies import SetPolicy
from sensorium.reproduce.counterparts import AN_2, AN_6
from sensorium.reproduce.published import AN_TABLE_3
from sensorium.reproduce.tables import Result, present, score_tables
from sensorium.zoo import load

ENV = "CartPoleSwingUpHarder"


def table_2(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild AN Table 2: shuffled, doubled and noisy sensors."""
    agents = present(
        "cartpole-fnn", "cartpole-pi", "cartpole-pi-feedback", "cartpole-pi-best", "cartpole-nla"
    )
    return score_tables(agents, ENV, SUITE, AN_2, episodes, seed, out)


def table_6(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild AN Table 6, CartPole's column: reshuffled in mid-episode.

    The paper's agent was not trained for it; of ours, `cartpole-pi-reshuffle` was.
    """
    agents = present("cartpole-pi", "cartpole-pi-best", "cartpole-pi-reshuffle")
    perturbations = tuple(Reshuffle(every) for every in (25, 50, 100, 200, 500))
    return score_tables(agents, ENV, perturbations, AN_6, episodes, seed, out)


def table_3(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild AN Table 3: how much of each sensor a linear regression reads out of the code."""
    from sklearn.linear_model import (
        LinearRegression,
    )  # of the extra that `sensorium.analysis` asks for

    del out
    world = make(ENV)
    table = Table(
        title="AN Table 3: R² of a linear regression from code to sensors, held-out episodes"
    )
    for column in ("agent", *world.sensor_names):
        table.add_column(
            column,
            justify="left" if column == "agent" else "right",
            no_wrap=column == "agent",
        )
    table.add_row("paper", *(f"{value:.3f}" for value in AN_TABLE_3.rows["R²"] if value))
    rows = []
    count = max(min(episodes, 200), 2)
    keys = evaluation_keys(seed, count)
    fit, held_out = keys[: count // 2], keys[count // 2 :]
    for name in present("cartpole-pi", "cartpole-pi-feedback", "cartpole-pi-best", "cartpole-nla"):
        agent = load(name)
        untrained = agent.recipe.draw_policy(jax.random.key(0))
        assert isinstance(untrained, SetPolicy)
        # The paper's control: an untrained layer on the same episodes
        for label, listener in ((name, None), ("  untrained layer", untrained)):
            codes, sensors = collect_codes(agent.policy, world, fit, world.max_steps, listener)
            fitted = LinearRegression().fit(codes, sensors)
            codes, sensors = collect_codes(agent.policy, world, held_out, world.max_steps, listener)
            residual = ((sensors - fitted.predict(codes)) ** 2).sum(axis=0)
            r2 = 1 - residual / ((sensors - sensors.mean(axis=0)) ** 2).sum(axis=0)
            row = dict(zip(world.sensor_names, (float(value) for value in r2), strict=True))
            rows.append(
                {
                    "agent": name,
                    "trained": listener is None,
                    "episodes": count,
                    "samples": len(codes),
                    "r2": row,
                }
            )
            table.add_row(label, *(f"{value:.3f}" for value in r2))
    return rows, table


def figure_4(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild AN Figure 4: the code over time, plain and shuffled, identical."""
    world, policy = make(ENV), load("cartpole-pi").policy
    for key in evaluation_keys(seed, 20):
        plain = trace_episode(policy, world, Identity(), key, 500)
        if bool(np.asarray(plain.alive)[-1]):
            break
    shuffled = trace_episode(policy, world, Shuffle(), key, 500)
    path = out / "figure-4.png"
    figures.codes_over_time(path, {"plain order": plain, "shuffled at reset": shuffled})
    # Rounding grows in a swinging pole, so the difference over the first second is given too
    distance = np.abs(np.asarray(plain.code) - np.asarray(shuffled.code)).max(axis=1)
    result = {
        "figure": str(path),
        "largest_difference_first_100_steps": float(distance[:100].max()),
        "largest_difference_500_steps": float(distance.max()),
    }
    return result, None


def recovery(episodes: int, seed: int, out: Path) -> Result:
    """Measure what one shuffle in mid-episode costs, and how soon the code is right again."""
    world, at = make(ENV), 500
    keys = evaluation_keys(seed, min(episodes, 300))
    curves = {
        name: recovery_curve(policy, world, keys, at)
        for name, policy in present(
            "cartpole-pi", "cartpole-pi-best", "cartpole-pi-reshuffle"
        ).items()
    }
    path = out / "recovery.png"
    figures.recovery(path, curves, at)
    table = Table(title=f"One shuffle at step {at}, memories left behind")
    for column in ("agent", "episodes", "reward before", "lowest after", "100 steps after"):
        table.add_column(
            column,
            justify="left" if column == "agent" else "right",
            no_wrap=column == "agent",
        )
    rows = []
    for name, curve in curves.items():
        shuffled = np.asarray(curve.shuffled)
        row = {
            "agent": name,
            "episodes": curve.episodes,
            "reward_before": float(shuffled[at - 50 : at].mean()),
            "lowest_after": float(shuffled[at : at + 200].min()),
            "reward_100_after": float(shuffled[at + 100 : at + 150].mean()),
            "figure": str(path),
        }
        rows.append(row)
        numbers = (row["reward_before"], row["lowest_after"], row["reward_100_after"])
        table.add_row(name, str(curve.episodes), *(f"{value:.2f}" for value in numbers))
    return rows, table
