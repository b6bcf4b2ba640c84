"""Motor neurons on bodies that they have never seen, beside a controller that knows the body."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from rich.table import Table

from sensorium.envs import Arm, Perturbed, Thrusters
from sensorium.evaluation import evaluation_keys
from sensorium.perturbations import (
    Identity,
    NoiseChannels,
    Perturbation,
    Reshuffle,
    RewireMotors,
    Shuffle,
    compose,
)
from sensorium.reproduce.tables import Result, present
from sensorium.rollout.device import run_episodes

_LAST = 10  # steps before the target jumps, and before the end, in which the body should be there
_NOISE = NoiseChannels(3, 0.3)


class _Body(NamedTuple):
    """A row of the table."""

    name: str
    world: Thrusters | Arm
    perturbation: Perturbation


_OF_THRUSTERS = (
    _Body("3 to 8 motors", Thrusters(), Identity()),
    _Body("the same, rewired", Thrusters(), RewireMotors(100, signed=True)),
    _Body("64 motors", Thrusters(motors=64, least=64), Identity()),
    _Body("64, rewired", Thrusters(motors=64, least=64), RewireMotors(100, signed=True)),
)
BODIES: Mapping[str, tuple[_Body, ...]] = {
    "thrusters-motors": _OF_THRUSTERS,
    "thrusters-motors-unnamed": (
        _Body("3 to 8 motors", Thrusters(), Shuffle()),
        _Body("3 more sensors of noise", Thrusters(), compose(_NOISE, Shuffle())),
        _Body(
            "the same, all rewired",
            Thrusters(),
            compose(_NOISE, Reshuffle(100), RewireMotors(100, signed=True)),
        ),
    ),
    "arm-motors": (
        _Body("3 to 8 joints", Arm(), Shuffle()),
        _Body("the same, rewired", Arm(), RewireMotors(60, signed=True)),
        _Body("16 joints", Arm(motors=16, least=16), Shuffle()),
    ),
}
"""What each agent is tried on; rewiring falls together with a new target."""


def motors(episodes: int, seed: int, out: Path) -> Result:
    """Show where agents with motor neurons get, as a share of where a controller gets that knows it."""
    del out
    table = Table(
        title=f"At the target, share of {episodes:,} episodes (and of the informed controller's)"
    )
    table.add_column("agent", no_wrap=True)
    table.add_column("body")
    for column in ("before the jump", "at the end"):
        table.add_column(column, justify="right")
    keys, rows = evaluation_keys(seed, episodes), []
    for name, policy in present(*BODIES).items():
        for body in BODIES[name]:
            informed = _arrived(np.asarray(body.world.best_rewards(keys)))
            world = body.world
            world_rewired = Perturbed(world, body.perturbation)
            agent = policy.with_motors(world.motors)
            ours = _arrived(np.asarray(run_episodes(agent, world_rewired, keys).rewards))
            row: dict[str, Any] = {"agent": name, "body": body.name, "episodes": episodes}
            cells = []
            for when, mine, best in zip(("before", "end"), ours, informed, strict=True):
                row |= {when: float(mine), f"{when}_told": float(best)}
                cells.append(f"{mine:.3f} ({mine / best:.3f})")
            rows.append(row)
            table.add_row(name, body.name, *cells)
    return rows, table


def _arrived(rewards: Float[np.ndarray, "R T"]) -> tuple[float, float]:
    """Return the share of steps at the target, at the end of either half of the episodes."""
    half = rewards.shape[1] // 2
    return float(rewards[:, half - _LAST : half].mean()), float(rewards[:, -_LAST:].mean())
