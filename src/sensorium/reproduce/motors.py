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
from sensorium.evaluation import evaluation_keys, mean_interval
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
from sensorium.recipes import find
from sensorium.reproduce.rivals import LeastSquares, SelfTuning
from sensorium.reproduce.tables import Result, present, trained
from sensorium.rollout.device import run_episodes
from sensorium.types import Keys

_CART, _EXPERT = "cartpole-motors", "cartpole-fnn"
_LAST = 10  # steps before the target jumps, and before the end, in which the body should be there
_NOISE = NoiseChannels(3, 0.3)
SEEDS = 5
"""Of training, of which the zoo has the first."""
_DIGITS = {"before": 3, "end": 3, "return": 1}
"""How many digits each figure is shown with."""


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
_PUSHING = Thrusters(one_sided=True, lag=0.5)
_TWELVE_PUSHING = Thrusters(motors=12, least=12, one_sided=True, lag=0.5)
BODIES: Mapping[str, tuple[_Body, ...]] = {
    "thrusters-motors": _OF_THRUSTERS,
    "thrusters-motors-one-sided": (
        _Body("3 to 8 that only push, with lag", _PUSHING, Identity()),
        _Body("the same, rewired", _PUSHING, RewireMotors(100, signed=True)),
        _Body("12 that only push, with lag", _TWELVE_PUSHING, Identity()),
        _Body("the 12, rewired", _TWELVE_PUSHING, RewireMotors(100, signed=True)),
    ),
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
    table = _table(
        f"At the target, share of {episodes:,} episodes (and of the informed controller's)"
    )
    keys, rows = evaluation_keys(seed, episodes), []
    for name, policy in present(*BODIES).items():
        learnt = present(*LEARNT_RIVALS.get(name, ()), needed=False)
        agents = {name: policy, **learnt, **RIVALS.get(name, {})}
        curves: dict[str, dict[str, Float[np.ndarray, " T"]]] = {}
        for body in BODIES[name]:
            informed = np.asarray(body.world.best_rewards(keys))
            curves[body.name] = {"knows the body": informed.mean(0)}
            for of, agent in agents.items():
                if agent.fixed_outputs and body.world.motors != agent.num_actions:
                    continue
                rewards = _rewards(agent, body, keys)
                curves[body.name][of] = rewards.mean(0)
                rows.append({"agent": of, "body": body.name} | _figures(rewards, informed))
        shares_over_time(out / f"{name}.png", curves)
    for policy in present(_CART, needed=False).values():
        rows += _on_carts(policy, keys)
    for row in rows:
        cells = (
            f"{row[key]:.{digits}f} ({_share(row, key):.3f})" if key in row else ""
            for key, digits in _DIGITS.items()
        )
        table.add_row(row["agent"], row["body"], *cells)
    return rows, table


def seeds(episodes: int, seed: int, out: Path) -> Result:
    """Train agents with motor neurons from other seeds as well, and say how far their scores lie apart.

    The first seed is that of the zoo. Runs are kept in `out` and resumed, so that this can be stopped and
    called again.
    """
    table = _table(
        f"Shares of the informed controller's, {SEEDS} seeds: mean ± half of its 95% interval"
    )
    keys, result = evaluation_keys(seed, episodes), []
    for name, first in present(*BODIES, _CART).items():
        recipe = find(name)
        more = (
            trained(
                recipe.override({"seed": recipe.seed + offset}),
                out / "motors-seeds" / f"{name}-{recipe.seed + offset}",
            )
            for offset in range(1, SEEDS)
        )
        of_agents = [list(_rows(name, agent, keys)) for agent in (first, *more)]
        for rows in zip(*of_agents, strict=True):
            row: dict[str, Any] = {key: rows[0][key] for key in ("agent", "body", "episodes")}
            cells = []
            for key in _DIGITS:
                shares = [_share(each, key) for each in rows if key in each]
                row[key] = shares
                cells.append(_mean(shares))
            result.append(row)
            table.add_row(name, row["body"], *cells)
    return result, table


def _table(title: str) -> Table:
    table = Table(title=title)
    table.add_column("agent", no_wrap=True)
    table.add_column("body")
    for column in ("before the jump", "at the end", "return"):
        table.add_column(column, justify="right")
    return table


def _rows(name: str, agent: Policy, keys: Keys) -> Iterator[dict[str, Any]]:
    """Score an agent of the recipe `name` on all that such an agent is tried on."""
    if name == _CART:
        yield from _on_carts(agent, keys)
    for body in BODIES.get(name, ()):
        informed = np.asarray(body.world.best_rewards(keys))
        figures = _figures(_rewards(agent, body, keys), informed)
        yield {"agent": name, "body": body.name} | figures


def _on_carts(agent: Policy, keys: Keys) -> Iterator[dict[str, Any]]:
    """Score `cartpole-motors` beside its expert on the plain cart, from the same starts."""
    for expert in present(_EXPERT, needed=False).values():
        told = run_episodes(expert, CartPoleSwingUpHarder(), keys)
        for body, (count, perturbation) in CARTS.items():
            world = Perturbed(CartPoleMotors(count), perturbation)
            total = run_episodes(agent.with_motors(count), world, keys).total
            row = {"agent": _CART, "body": body, "episodes": len(keys)}
            yield row | {"return": float(total.mean()), "return_told": float(told.total.mean())}


def _rewards(agent: Policy, body: _Body, keys: Keys) -> Float[np.ndarray, "R T"]:
    agent = agent if agent.fixed_outputs else agent.with_motors(body.world.motors)
    return np.asarray(run_episodes(agent, Perturbed(body.world, body.perturbation), keys).rewards)


def _figures(
    rewards: Float[np.ndarray, "R T"], informed: Float[np.ndarray, "R T"]
) -> dict[str, Any]:
    """Compute the shares of steps at the target, before it jumps and at the end, and the return.

    Keys that end in `_told` are those of the controller that knows the body.
    """
    figures: dict[str, Any] = {"episodes": len(rewards)}
    for of, each in (("", rewards), ("_told", informed)):
        half = each.shape[1] // 2
        figures[f"before{of}"] = float(each[:, half - _LAST : half].mean())
        figures[f"end{of}"] = float(each[:, -_LAST:].mean())
        figures[f"return{of}"] = float(each.sum(1).mean())
    return figures


def _mean(shares: list[float]) -> str:
    """Show the mean of some seeds, and half of the interval that Student's t gives it; nothing of none."""
    if not shares:
        return ""
    low, high = mean_interval(np.array(shares))
    return f"{np.mean(shares):.3f}±{(high - low) / 2:.3f}"  # 80 columns are few


def _share(row: dict[str, Any], figure: str) -> float:
    """Divide a figure by that of the controller that knows the body."""
    return row[figure] / row[f"{figure}_told"]
