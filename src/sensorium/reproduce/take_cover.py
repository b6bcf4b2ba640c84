"""AttentionAgent's results on DoomTakeCover, each beside players that look at nothing.

Who sweeps from wall to wall lives longer than the 750 tics at which the game counts as solved.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from rich.console import Group, RenderableType
from rich.table import Table

from sensorium import recipes
from sensorium.analysis.attention import importance_figure, trace_images
from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.take_cover import OF_THE_PAPER
from sensorium.bridges.take_cover_player import spotter
from sensorium.envs import World
from sensorium.evaluation import evaluation_keys
from sensorium.gymnasium_ids import TAKE_COVER
from sensorium.perturbations import Identity
from sensorium.policies import AttentionAgent, Policy
from sensorium.reproduce.counterparts import AA_4_TAKE_COVER, TAKE_COVER_AGENTS
from sensorium.reproduce.tables import Result, all_of, score_tables
from sensorium.rollout import (
    Behaviour,
    HostEngine,
    StepContext,
    make_world,
    open_collector,
    open_engine,
)
from sensorium.rollout.acting import Actor, Uniform
from sensorium.rollout.host import seeds_of
from sensorium.terminal import shown
from sensorium.training.auxiliary import inside
from sensorium.types import Action, PyTree
from sensorium.world_names import with_options

_AUTHORS = ("takecover_attention_agent",)
PLACES = (1, 2, 5, 10)
"""K of `effect_of_k`; the agents have ten."""
_SWEEP = 100  # tics from one wall to the other: about 750 units at 8 a tic


def table_4(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild AA Tables 3 and 4, their halves of DoomTakeCover: as it is, and changed after training."""
    agents = all_of(_AUTHORS, *TAKE_COVER_AGENTS, needed=False)
    rows, tables = [], []
    for variant in OF_THE_PAPER:
        of_variant, table = _scores(agents, variant, episodes, seed, out)
        rows += of_variant
        tables.append(table)
    blind, table = _blind(episodes, seed)
    return rows + blind, Group(*tables, table)


def _scores(
    agents: dict[str, Policy], variant: str, episodes: int, seed: int, out: Path
) -> tuple[list[dict[str, Any]], RenderableType]:
    """Score agents in one variant."""
    rows, tables = [], []
    for name, policy in agents.items():
        env = _world(name, variant)
        changed = "plain" if variant == "plain" else f"variant {variant}"
        printed = AA_4_TAKE_COVER.get(name, {})
        paper = {name: {"plain": printed[changed]}} if changed in printed else {}
        of_agent, table = score_tables(
            {name: policy}, env, (Identity(),), paper, episodes, seed, out
        )
        rows += [row | {"variant": variant} for row in of_agent]
        tables.append(table)
    return rows, Group(*(table for table in tables if table is not None))


def _world(name: str, variant: str = "plain") -> str:
    """Name the world that an agent was trained for, or a variant of it."""
    env = f"gym:{TAKE_COVER}" if name in _AUTHORS else recipes.find(name).env
    return env if variant == "plain" else with_options(env, variant=variant)


def effect_of_k(episodes: int, seed: int, out: Path) -> Result:
    """Score agents that act on the places of the best patches with fewer places than in training."""
    agents = all_of(_AUTHORS, TAKE_COVER_AGENTS[0])
    rows: list[dict[str, Any]] = []
    tables: list[RenderableType] = []
    for name, policy in agents.items():
        agent = cast(AttentionAgent, policy)
        fewer = {f"{name} with K = {k}": agent.with_top(k) for k in PLACES}
        of_agent, table = score_tables(fewer, _world(name), (Identity(),), {}, episodes, seed, out)
        rows += [row | {"k": k} for k, row in zip(PLACES, of_agent, strict=True)]
        tables += [table] if table is not None else []
    return rows, Group(*tables)


def attention(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild AA Figure 6: what agents attend to; and count how much of it is fireballs.

    A patch is on a ball if its middle is in the box of the ball, or less than half a patch away: the boxes
    are those of ViZDoom, which no agent sees. A frame counts in which there is a ball to be seen.
    """
    agents = all_of(_AUTHORS, *TAKE_COVER_AGENTS)
    table = Table(title=f"Patches on fireballs, {episodes} episodes")
    table.add_column("agent", no_wrap=True)
    for column in ("best patch", "best 10", "all patches", "frames"):
        table.add_column(column, justify="right")
    rows: list[dict[str, Any]] = []
    for name, policy in agents.items():
        env = _world(name)
        world = make_world(env)
        figure = out / f"takecover-attention-{name}.png"
        episode = trace_images(
            policy, world, Identity(), evaluation_keys(seed, 1)[0], world.max_steps
        )
        importance_figure(figure, policy, episode, f"{name}: importance of patches, one episode")
        found = _on_balls(policy, with_options(env, boxes=True), episodes, seed)
        rows.append(
            {"agent": name, "env": env, "episodes": episodes, "figure": str(figure), **found}
        )
        shares = (found[key] for key in ("best_patch", "best_10", "all_patches"))
        table.add_row(name, *(f"{share:.1%}" for share in shares), f"{found['frames']:,}")
    return rows, table


class _Looking(Behaviour):
    """An agent that acts as ever, and records whether its best patches are on balls."""

    policy: Policy

    def initial_carry(self, world: World) -> PyTree:
        """Make the agent's carry."""
        return self.policy.initial_carry(world.observation_spec)

    def act(self, context: StepContext, carry: PyTree) -> tuple[Action, PyTree, Array]:
        """Act, and record whether there is a ball, and how many of 1, 10 and all patches are on one."""
        policy = self.policy
        action, carry, trace = policy.step(context.observation, carry)
        patches = policy.patches(*context.observation.shape[:2])
        boxes = context.advice[-4 * spotter.boxes :].reshape(-1, 4)  # type: ignore[attr-defined]
        on_ball = inside(patches, boxes).any(0)
        assert trace.attention is not None
        best = on_ball[jnp.argsort(-trace.attention.sum(0))]
        return action, carry, jnp.stack([best.any(), best[0], best[:10].mean(), best.mean()])


def _on_balls(policy: Policy, env: str, episodes: int, seed: int) -> dict[str, float]:
    """Compute the shares of patches that are on balls, over frames with a ball."""
    key_start, key_steps = jax.random.split(evaluation_keys(seed, 1)[0])
    with open_engine(make_world(env)) as engine:
        collector = open_collector(engine, episodes, key_start, cut_first=False, expert=spotter)
        _, steps = collector.collect(_Looking(policy), engine.world.max_steps, key_steps)
    first = np.asarray(steps.alive) & (np.cumsum(np.asarray(steps.started), axis=0) <= 1)
    seen = np.asarray(steps.record)[first]
    seen = seen[seen[:, 0] > 0]
    names = ("best_patch", "best_10", "all_patches")
    return dict(zip(names, seen[:, 1:].mean(0).tolist(), strict=True)) | {"frames": len(seen)}


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

    def keep(self, lanes: Int[np.ndarray, " kept"]) -> None:
        assert self._tics is not None
        self._tics = self._tics[lanes]


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
