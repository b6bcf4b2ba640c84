"""Motor neurons on bodies that they have never seen, beside a controller that is told the body."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float
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
from sensorium.types import Keys

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
    """Show where agents with motor neurons get, as a share of where one gets who is told the body."""
    del out
    table = Table(
        title=f"At the target, share of {episodes:,} episodes (and of the told controller's)"
    )
    table.add_column("agent", no_wrap=True)
    table.add_column("body")
    for column in ("before the jump", "at the end"):
        table.add_column(column, justify="right")
    keys, rows = evaluation_keys(seed, episodes), []
    for name, policy in present(*BODIES).items():
        for body in BODIES[name]:
            told = _arrived(np.asarray(_told(body.world, keys)))
            world = body.world
            world_rewired = Perturbed(world, body.perturbation)
            agent = policy.with_motors(world.motors)
            ours = _arrived(np.asarray(run_episodes(agent, world_rewired, keys).rewards))
            row: dict[str, Any] = {"agent": name, "body": body.name, "episodes": episodes}
            cells = []
            for when, mine, best in zip(("before", "end"), ours, told, strict=True):
                row |= {when: float(mine), f"{when}_told": float(best)}
                cells.append(f"{mine:.3f} ({mine / best:.3f})")
            rows.append(row)
            table.add_row(name, body.name, *cells)
    return rows, table


def _arrived(rewards: Float[np.ndarray, "R T"]) -> tuple[float, float]:
    """Return the share of steps at the target, at the end of either half of the episodes."""
    half = rewards.shape[1] // 2
    return float(rewards[:, half - _LAST : half].mean()), float(rewards[:, -_LAST:].mean())


@eqx.filter_jit
def _told(world: Thrusters | Arm, keys: Keys) -> Float[Array, "R T"]:
    """Return the rewards of the controller that is told the body, in the same episodes."""

    def one(key: Array) -> Array:
        key_reset, key_step = jax.random.split(key)
        _, state = world.reset_env(key_reset, world.default_params)

        def step(state: Any, time: None) -> tuple[Any, Array]:
            del time
            _, state, reward, *_ = world.advance(key_step, state, world.best_action(state))
            return state, reward

        return jax.lax.scan(step, state, None, length=world.max_steps)[1]

    return jax.vmap(one)(keys)
