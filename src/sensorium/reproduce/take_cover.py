"""AttentionAgent's results on DoomTakeCover, each beside players that look at nothing.

Who sweeps from wall to wall lives longer than the 750 tics at which the game counts as solved.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table

from sensorium.bridges.open_env import open_env
from sensorium.bridges.take_cover import VARIANTS
from sensorium.evaluation import evaluation_keys, summarise
from sensorium.gymnasium_ids import TAKE_COVER
from sensorium.perturbations import Identity
from sensorium.policies import Policy
from sensorium.reproduce.counterparts import AA_4_TAKE_COVER, TAKE_COVER_AGENTS
from sensorium.reproduce.tables import Result, all_of, score_tables
from sensorium.rollout.host import seeds_of
from sensorium.terminal import shown

_SWEEP = 100  # tics from one wall to the other: about 750 units at 8 a tic
_SOLVED = 750.0


def table_4(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild AA Tables 3 and 4, their halves of DoomTakeCover: as it is, and changed after training."""
    agents = all_of(("takecover_attention_agent",), *TAKE_COVER_AGENTS, needed=False)
    rows, tables = [], []
    for variant in VARIANTS:
        of_variant, table = _scores(agents, variant, episodes, seed, out)
        rows += of_variant
        tables.append(table)
    blind, table = _blind(episodes, seed)
    return rows + blind, Group(*tables, table)


def _scores(
    agents: dict[str, Policy], variant: str, episodes: int, seed: int, out: Path
) -> tuple[list[dict[str, Any]], RenderableType]:
    """Score agents in one variant, each in the world whose actions are its own."""
    rows, tables = [], []
    for name, policy in agents.items():
        discrete = "&discrete=true" if policy.num_actions > 1 else ""
        env = f"gym:{TAKE_COVER}?variant={variant}{discrete}"
        paper = {name: {"plain": AA_4_TAKE_COVER[name][variant]}} if name in AA_4_TAKE_COVER else {}
        of_agent, table = score_tables(
            {name: policy}, env, (Identity(),), paper, episodes, seed, out
        )
        rows += [row | {"variant": variant} for row in of_agent]
        tables.append(table)
    return rows, Group(*(table for table in tables if table is not None))


def _stand(tic: int, random: np.random.Generator) -> float:
    del tic, random
    return 0.0


def _act_at_random(tic: int, random: np.random.Generator) -> float:
    del tic
    return float(random.integers(-1, 2))


def _sweep(tic: int, random: np.random.Generator) -> float:
    del random
    return 1.0 if tic // _SWEEP % 2 else -1.0


BLIND: dict[str, Callable[[int, np.random.Generator], float]] = {
    "stands": _stand,
    "acts at random": _act_at_random,
    "sweeps from wall to wall": _sweep,
}
"""Players that look at nothing, from the tic and random numbers to an action."""


def _blind(episodes: int, seed: int) -> tuple[list[dict[str, Any]], Table]:
    """Score players that look at nothing; how the world looks is all the same to them."""
    env = open_env(f"{TAKE_COVER}?width=160")
    table = Table(title=f"Without looking, {episodes} episodes")
    table.add_column("player")
    table.add_column("mean ± sd", justify="right")
    rows = []
    for name, act in BLIND.items():
        returns = []
        for each in seeds_of(evaluation_keys(seed, episodes)):
            env.reset(seed=int(each))
            random, tic, over = np.random.default_rng(int(each)), 0, False
            while not over:
                action = np.array([act(tic, random)], np.float32)
                _, _, terminated, truncated, _ = env.step(action)
                tic, over = tic + 1, terminated or truncated
            returns.append(float(tic))
        summary = summarise(np.array(returns), _SOLVED)
        rows.append({"agent": name, "mean": summary.mean, "std": summary.std, "returns": returns})
        table.add_row(name, f"{shown(summary.mean)} ± {shown(summary.std)}")
    env.close()
    return rows, table
