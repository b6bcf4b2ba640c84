"""AttentionAgent's results on DoomTakeCover, each beside players that look at nothing.

Who sweeps from wall to wall lives longer than the 750 tics at which the game counts as solved.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Bool, Float, Int
from rich.console import Group, RenderableType
from rich.table import Table

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.take_cover import VARIANTS
from sensorium.evaluation import evaluation_keys
from sensorium.gymnasium_ids import TAKE_COVER
from sensorium.perturbations import Identity
from sensorium.policies import Policy
from sensorium.reproduce.counterparts import AA_4_TAKE_COVER, TAKE_COVER_AGENTS
from sensorium.reproduce.tables import Result, all_of, score_tables
from sensorium.rollout import HostEngine, make_world
from sensorium.rollout.acting import Actor, Uniform
from sensorium.rollout.host import seeds_of
from sensorium.terminal import shown

_SWEEP = 100  # tics from one wall to the other: about 750 units at 8 a tic


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


class _Timed(Actor):
    """Moves by the tic of the episode alone."""

    def __init__(self, push: Callable[[Int[np.ndarray, " L"]], Float[np.ndarray, " L"]]):
        """Set up; `push` is from tics to numbers from -1 to 1."""
        self._push = push
        self._tics: Int[np.ndarray, " L"] | None = None

    def act(
        self,
        started: Bool[np.ndarray, " L"],
        episodes: Int[np.ndarray, " L"],
        observations: np.ndarray,
    ) -> Float[np.ndarray, "L 1"]:
        del episodes, observations
        before = np.zeros(len(started), int) if self._tics is None else self._tics + 1
        self._tics = np.where(started, 0, before)
        return self._push(self._tics)[:, None]


def _stand(tics: Int[np.ndarray, " L"]) -> Float[np.ndarray, " L"]:
    return np.zeros(len(tics), np.float32)


def _sweep(tics: Int[np.ndarray, " L"]) -> Float[np.ndarray, " L"]:
    return np.where(tics // _SWEEP % 2, 1.0, -1.0).astype(np.float32)


BLIND: dict[str, Callable[[], Actor]] = {
    "stands": lambda: _Timed(_stand),
    "acts at random": lambda: Uniform(1),
    "sweeps from wall to wall": lambda: _Timed(_sweep),
}
"""Players that look at nothing."""


def _blind(episodes: int, seed: int) -> tuple[list[dict[str, Any]], Table]:
    """Score players that look at nothing; how the world looks is all the same to them."""
    table = Table(title=f"Without looking, {episodes} episodes")
    table.add_column("player")
    table.add_column("mean ± sd", justify="right")
    rows, seeds = [], seeds_of(evaluation_keys(seed, episodes))
    world = cast(HostWorld, make_world(f"gym:{TAKE_COVER}?width=160"))
    with contextlib.closing(HostEngine(world)) as engine:
        for name, make in BLIND.items():
            returns = np.asarray(engine.run_actor(make, seeds).total)
            mean, std = float(returns.mean()), float(returns.std())
            rows.append({"agent": name, "mean": mean, "std": std, "returns": returns.tolist()})
            table.add_row(name, f"{shown(mean)} ± {shown(std)}")
    return rows, table
