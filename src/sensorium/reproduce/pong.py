"""AN's and NLA's results on Atari Pong, each beside how many different games it is over.

Without sticky actions and random starts a game is decided by its first frame: an agent that knows four games
by heart has the papers' score.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, UInt8
from rich.table import Table

from sensorium.analysis import figures
from sensorium.bridges.advised import privileged
from sensorium.bridges.atari import FRAMES
from sensorium.bridges.open_env import open_env
from sensorium.bridges.pong import UNIT, player
from sensorium.envs import World
from sensorium.evaluation import evaluation_keys
from sensorium.perturbations import Identity, Occlude, Perturbation, ShufflePatches, compose
from sensorium.policies import KeyMap, Policy
from sensorium.recipes import find
from sensorium.reproduce.counterparts import AN_6, NLA, NLA_BASELINE, PONG_PI
from sensorium.reproduce.tables import Result, present, score_tables, trained
from sensorium.rollout import Behaviour, StepContext, make_world, open_collector, open_engine
from sensorium.rollout.host import seeds_of
from sensorium.terminal import shown
from sensorium.training.progress import read_metrics
from sensorium.types import Action, PyTree

PAPERS = "gym:ALE/Pong-v5?repeat_action_probability=0"
STARTS = {
    "the papers'": PAPERS,
    "random starts": f"{PAPERS}&random_starts=200",
    "sticky actions": "gym:ALE/Pong-v5",
    "both": "gym:ALE/Pong-v5?random_starts=200",
}
"""Worlds by how their games differ."""
MISSING = (0.0, 0.2, 0.4, 0.6, 0.8)
"""Shares of the patches that are missing in AN Figure 5."""
SEEDS, CURVE_GENERATIONS = 3, 12
"""Of the curves of NLA."""
_STEPS, _GROUPS = 2000, 8  # of AN Figure 6
_NLA = ("pong-nla", "pong-nla-published")


def pong(episodes: int, seed: int, out: Path) -> Result:
    """Score every agent of Pong, plain and shuffled, in games that differ in more and more."""
    agents = present("pong-cnn", *PONG_PI, *_NLA)
    rows = []
    for env in STARTS.values():
        rows += score_tables(
            agents, env, (Identity(), ShufflePatches()), AN_6, episodes, seed, out
        )[0]
    return _with_games(rows)


def table_6(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild AN Table 6, the column of Pong: patches reshuffled in mid-episode.

    Each new picture comes in the new order, into a stack whose older pictures are in the old one. Where the
    whole stack is reshuffled, an agent that takes patches in any order does not notice.
    """
    perturbations = tuple(ShufflePatches(every=every) for every in (25, 50, 100, 200, 500))
    agents = present(*PONG_PI)
    return _with_games(score_tables(agents, PAPERS, perturbations, AN_6, episodes, seed, out)[0])


def nla_table_5(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild NLA Table 5: Pong with linear and with nonlinear attention."""
    paper = {**NLA_BASELINE, **NLA}
    perturbations = (Identity(), ShufflePatches())
    agents = present("pong-pi", *_NLA)
    return _with_games(score_tables(agents, PAPERS, perturbations, paper, episodes, seed, out)[0])


def nla_curves(episodes: int, seed: int, out: Path) -> Result:
    """Compare how soon the small agent imitates, with linear keys and with both forms of nonlinear ones.

    Runs are kept in `out` and resumed, so that this can be stopped and called again.
    """
    del episodes
    small = find("pong-pi-small")
    curves: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for form in KeyMap:
        curves[form] = []
        for offset in range(SEEDS):
            directory = out / "nla-curves-pong" / f"{form}-{seed + offset}"
            recipe = small.override(
                {
                    "policy.key_map": form,
                    "generations": CURVE_GENERATIONS,
                    "test_every": CURVE_GENERATIONS,
                    "seed": seed + offset,
                }
            )
            trained(recipe, directory)
            rows = read_metrics(directory / "metrics.jsonl")
            x = np.array([row["generation"] for row in rows], float)
            curves[form].append((x, np.array([row["loss"] for row in rows])))
    path = out / "nla-curves-pong.png"
    figures.learning_curves(
        path, curves, xlabel="generation of 100 batches", ylabel="loss of imitation"
    )
    # Generations to a common level: what the plain layer's median seed reaches at the end
    level = float(np.median([loss[-1] for _, loss in curves[KeyMap.LINEAR]]))
    table = Table(title=f"Generations until the loss is {level:.3f}, {SEEDS} seeds each")
    for column in ("keys", "median", "each", "loss at the end"):
        table.add_column(column, justify="left" if column == "keys" else "right")
    result = []
    for keys, seeds in curves.items():
        reached = [
            float(x[(y <= level).argmax()]) if (y <= level).any() else None for x, y in seeds
        ]
        ends = [float(y[-1]) for _, y in seeds]
        result.append({"keys": keys, "level": level, "generations": reached, "ends": ends,
                       "figure": str(path)})  # fmt: skip
        median = np.median([np.inf if each is None else each for each in reached])
        each = ", ".join("-" if each is None else f"{each:.0f}" for each in reached)
        at_end = f"{np.mean(ends):.3f} ({min(ends):.3f} to {max(ends):.3f})"
        table.add_row(keys, f"{median:.0f}" if np.isfinite(median) else "-", each, at_end)
    return result, table


def figure_5(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild AN Figure 5: patches missing in training and in tests.

    Agents are trained by the recipe of `pong-pi-small`. Runs are kept in `out` and resumed, so that this can
    be stopped and called again.
    """
    small, rows = find("pong-pi-small"), []
    heat = np.zeros((len(MISSING), len(MISSING)))
    for row, missing in enumerate(MISSING):
        stages = tuple(stage.changed(perturbation=_without(missing)) for stage in small.stages)
        recipe = dataclasses.replace(small, stages=stages, seed=seed)
        directory = out / "figure-5-pong" / f"{100 * missing:.0f}-missing"
        policy = trained(recipe, directory)
        name = f"{missing:.0%} missing"
        tests = tuple(compose(_without(share), ShufflePatches()) for share in MISSING)
        scores, _ = score_tables({name: policy}, PAPERS, tests, {}, episodes, seed, out)
        rows += scores
        heat[row] = [score["mean"] for score in scores]
    path = out / "figure-5-pong.png"
    shares = [f"{share:.0%}" for share in MISSING]
    axes = ("patches missing in training", shares), ("patches missing in the test", shares)
    figures.heat_map(path, heat, *axes, "mean score, shuffled", (-21.0, 21.0))
    return _with_games([row | {"figure": str(path)} for row in rows])


def _without(share: float) -> Perturbation:
    return Occlude(share, removed=True) if share else Identity()


def figure_6(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild AN Figure 6: the codes of one game in the plane by t-SNE, with pictures of its groups."""
    del episodes
    from sklearn.cluster import KMeans  # of the extra that `sensorium.analysis` asks for
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    policy = present("pong-pi")["pong-pi"]
    seen = _watch(policy, PAPERS, ShufflePatches(), seed, 1, _STEPS)
    codes = PCA(50, random_state=0).fit_transform(seen.code.reshape(_STEPS, -1))
    points = TSNE(init="pca", random_state=0).fit_transform(codes)
    grouped = KMeans(_GROUPS, random_state=0).fit(points)
    distances = grouped.transform(points)
    path = out / "figure-6-pong.png"
    figures.groups(path, points, grouped.labels_, seen.picture[distances.argmin(0), 0, ..., 0])
    return {"figure": str(path), "steps": _STEPS}, None


def decoder(episodes: int, seed: int, out: Path) -> Result:
    """Measure how well ball and paddle can be told from one bag of patches, and from a memory of bags.

    Both are of `pong-pi-robust`, in the same games with sticky actions. A network learns to tell them from
    some games, and is tested on others; beside it stands what the best constant is off by.
    """
    del episodes, out
    from sklearn.neural_network import (
        MLPRegressor,
    )  # of the extra that `sensorium.analysis` asks for
    from sklearn.preprocessing import StandardScaler

    policy = present("pong-pi-robust")["pong-pi-robust"]
    steps = _watch(policy, STARTS["both"], Identity(), seed, 16, _STEPS)
    table = Table(title="Rows or columns of the screen that a decoder is off by, in other games")
    for column in ("what", "constant", "one bag", "memory"):
        table.add_column(column, justify="left" if column == "what" else "right")
    inputs = {"one bag": steps.code.reshape(*steps.code.shape[:2], -1), "memory": steps.memory}
    rows = []
    for place, what in enumerate(privileged(player)):
        known = steps.known[..., place] * UNIT
        there = ~np.isnan(known)
        fit, held_out = there.copy(), there.copy()
        fit[:, -4:] = held_out[:, :-4] = False
        found = {"constant": np.abs(known[held_out] - np.median(known[fit])).mean()}
        for name, values in inputs.items():
            scaler = StandardScaler().fit(values[fit])
            network = MLPRegressor(
                hidden_layer_sizes=(256,), early_stopping=True, max_iter=1000, random_state=seed
            )
            network.fit(scaler.transform(values[fit]), known[fit] / UNIT)
            guessed = network.predict(scaler.transform(values[held_out])) * UNIT
            found[name] = np.abs(guessed - known[held_out]).mean()
        rows.append({"what": what, **{name: float(error) for name, error in found.items()}})
        table.add_row(what, *(f"{error:.1f}" for error in found.values()))
    return rows, table


class _Seen(NamedTuple):
    """What an agent was shown, before perturbations, and what it made of it: T steps of B lanes."""

    picture: UInt8[Any, "T B 84 84 1"]
    code: Float[Any, "T B M D"]
    memory: Float[Any, "T B H"]
    known: Float[Any, "T B privileged"]
    """What the player that reads the game's memory says beside its action."""


class _Watched(Behaviour):
    """An agent that acts as ever."""

    policy: Policy

    def initial_carry(self, world: World) -> PyTree:
        """Make the agent's carry."""
        return self.policy.initial_carry(world.observation_spec)

    def act(self, context: StepContext, carry: PyTree) -> tuple[Action, PyTree, _Seen]:
        """Act, and record all."""
        policy = self.policy
        code, carry, _ = policy.encode(context.observation, carry)
        outputs, carry = policy.decide(code, carry)
        action, known = policy.distribution.action(outputs), context.advice[policy.num_actions :]
        seen = _Seen(context.unperturbed, code, policy.memory_features(carry), known)
        return action, policy.after_action(carry, action), seen


def _watch(
    policy: Policy, env: str, perturbation: Perturbation, seed: int, lanes: int, steps: int
) -> _Seen:
    """Let an agent play in some lanes for some steps."""
    key_start, key_steps = jax.random.split(evaluation_keys(seed, 1)[0])
    with open_engine(make_world(env, perturbation)) as engine:
        collector = open_collector(engine, lanes, key_start, cut_first=False, expert=player)
        return collector.collect(_Watched(policy), steps, key_steps).transitions.record


def _with_games(rows: list[dict[str, Any]]) -> Result:
    """Make a table of scores, each with how many different games it is over."""
    worlds = {env: name for name, env in STARTS.items()}
    played = {worlds[row["env"]] for row in rows}
    several = len(played) > 1  # one alone stands in the title
    where = "" if several else f" ({played.pop()})"
    table = Table(title=f"Pong{where}, {rows[0]['episodes']} episodes: so many different games")
    for column in ("agent", *["world"] * several, "perturbation"):
        table.add_column(column, no_wrap=column != "world")
    for column in ("mean ± sd", "games", "paper"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        starts = _first_frames(row["env"], row["seed"], row["episodes"])
        # Games that begin some steps later, and are alike otherwise, end at the same frame
        ends = {
            (score, start + FRAMES * length)
            for score, start, length in zip(row["returns"], starts, row["lengths"], strict=True)
        }
        row["different_games"] = len(ends)
        table.add_row(
            row["agent"],
            *[worlds[row["env"]]] * several,
            row["perturbation"],
            f"{shown(row['mean'])} ± {shown(row['std'])}",
            str(len(ends)),
            row["paper"],
        )
    return rows, table


@functools.cache
def _first_frames(env: str, seed: int, episodes: int) -> tuple[int, ...]:
    """Return the number of the frame that each episode begins at."""
    game, frames = open_env(env.removeprefix("gym:")), []
    for each in seeds_of(evaluation_keys(seed, episodes)):
        game.reset(seed=int(each))
        frames.append(game.unwrapped.ale.getEpisodeFrameNumber())
    game.close()
    return tuple(frames)
