"""Motor neurons on bodies that they have never seen, beside a controller that knows the body."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from rich.table import Table

from sensorium.analysis.figures import shares_over_time
from sensorium.envs import Arm, CartPoleMotors, CartPoleSwingUpHarder, Perturbed, Thrusters
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
from sensorium.policies import Policy
from sensorium.reproduce.rivals import LeastSquares, SelfTuning
from sensorium.reproduce.tables import Result, present
from sensorium.rollout.device import run_episodes
from sensorium.types import Keys

_CART, _EXPERT = "cartpole-motors", "cartpole-fnn"
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


CARTS: Mapping[str, tuple[int, Perturbation]] = {
    "cart with 4 motors": (4, Shuffle()),
    "the same cart, rewired": (4, compose(Shuffle(), RewireMotors(100, signed=True))),
    "cart with 8 motors": (8, Shuffle()),
}
"""What `cartpole-motors` is tried on; its expert drives the same carts by the motor that it knows."""

RIVALS: Mapping[str, Mapping[str, Policy]] = {
    "thrusters-motors": {
        "recursive least squares": LeastSquares(
            num_actions=8, forget=0.9, noise=0.1, ridge=0.05, largest_change=math.inf
        )
    },
    "thrusters-motors-unnamed": {
        "self-tuning regulator": SelfTuning(num_actions=8, forget=0.95, noise=0.4)
    },
    "arm-motors": {
        "recursive least squares": LeastSquares(
            num_actions=8, forget=0.9, noise=0.1, ridge=0.1, largest_change=4.0
        )
    },
}
"""Classical controllers beside each agent; settings are the best of a few (docs/experiments.md)."""

LEARNT_RIVALS: Mapping[str, tuple[str, ...]] = {
    "thrusters-motors": ("thrusters-fnn", "thrusters-lstm"),
}
"""Agents of the zoo beside others, on bodies with as many motors as they were built for."""


def motors(episodes: int, seed: int, out: Path) -> Result:
    """Compare agents with motor neurons and baselines with a controller that knows the body."""
    table = Table(
        title=f"At the target, share of {episodes:,} episodes (and of the informed controller's)"
    )
    table.add_column("agent", no_wrap=True)
    table.add_column("body")
    for column in ("before the jump", "at the end", "return"):
        table.add_column(column, justify="right")
    keys, rows = evaluation_keys(seed, episodes), []
    for name, policy in present(*BODIES).items():
        learnt = present(*LEARNT_RIVALS.get(name, ()), needed=False)
        agents = {name: policy, **learnt, **RIVALS[name]}
        curves: dict[str, dict[str, Float[np.ndarray, " T"]]] = {}
        for body in BODIES[name]:
            world = body.world
            informed = np.asarray(world.best_rewards(keys))
            informed_arrived = _arrived(informed)
            curves[body.name] = {"knows the body": informed.mean(0)}
            for of, agent in agents.items():
                if agent.fixed_outputs and world.motors != agent.num_actions:
                    continue
                agent = agent if agent.fixed_outputs else agent.with_motors(world.motors)
                rewards = np.asarray(
                    run_episodes(agent, Perturbed(world, body.perturbation), keys).rewards
                )
                curves[body.name][of] = rewards.mean(0)
                row: dict[str, Any] = {"agent": of, "body": body.name, "episodes": episodes}
                cells = []
                both = zip(("before", "end"), _arrived(rewards), informed_arrived, strict=True)
                for when, mine, best in both:
                    row |= {when: float(mine), f"{when}_told": float(best)}
                    cells.append(f"{mine:.3f} ({mine / best:.3f})")
                mine, best = (float(each.sum(1).mean()) for each in (rewards, informed))
                row |= {"return": mine, "return_told": best}
                cells.append(f"{mine:.1f} ({mine / best:.3f})")
                rows.append(row)
                table.add_row(of, body.name, *cells)
        table.add_section()
        shares_over_time(out / f"{name}.png", curves)
    for row in _of_carts(keys):
        rows.append(row)
        share = row["return"] / row["return_told"]
        table.add_row(row["agent"], row["body"], "", "", f"{row['return']:.1f} ({share:.3f})")
    return rows, table


def _of_carts(keys: Keys) -> Iterator[dict[str, Any]]:
    """Score `cartpole-motors`, if it is there, beside its expert on the plain cart, from the same starts."""
    agents = present(_CART, _EXPERT, needed=False)
    if len(agents) < 2:
        return
    told = run_episodes(agents[_EXPERT], CartPoleSwingUpHarder(), keys)
    for body, (count, perturbation) in CARTS.items():
        agent = agents[_CART].with_motors(count)
        total = run_episodes(agent, Perturbed(CartPoleMotors(count), perturbation), keys).total
        row = {"agent": _CART, "body": body, "episodes": len(keys)}
        yield row | {"return": float(total.mean()), "return_told": float(told.total.mean())}


def _arrived(rewards: Float[np.ndarray, "R T"]) -> tuple[float, float]:
    """Return the share of steps at the target, at the end of either half of the episodes."""
    half = rewards.shape[1] // 2
    return float(rewards[:, half - _LAST : half].mean()), float(rewards[:, -_LAST:].mean())
