"""From any policy to its twin, whose sensors may come in any order: check, measure, train, compare."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich.console import Console
from rich.markup import escape

from sensorium import recipes
from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.sb3 import num_frames
from sensorium.errors import ConfigError, RunError, check_counts, did_you_mean
from sensorium.evaluation import evaluate
from sensorium.evaluation.evaluate import evaluation_keys
from sensorium.evaluation.likeness import alike
from sensorium.evaluation.statistics import summarise
from sensorium.perturbations import Identity, Perturbation
from sensorium.policies import PolicyConfig, as_population
from sensorium.recipes import Recipe
from sensorium.recipes.twin import (
    Measured,
    Size,
    is_image,
    name_of_twin,
    num_tests,
    scored,
    shuffled,
    twin,
)
from sensorium.recipes.twin_of_images import patch_size
from sensorium.registry import Parts
from sensorium.rollout import Episode, HostEngine, make_world, perturbed, require_host
from sensorium.rollout.acting import Actor, PerturbedActor, PolicyActor, Uniform
from sensorium.rollout.host import Transcript, seeds_of
from sensorium.seeding import check_seed
from sensorium.serialisation import write_json
from sensorium.terminal import shown, significant
from sensorium.training import RunDirectory
from sensorium.training.experts import Expert, Sb3Model, ask, kind_of
from sensorium.training.run import keys_of_tests
from sensorium.types import Keys, in_words
from sensorium.zoo.agent import Agent, load
from sensorium.zoo.comparison import PLAIN, SHUFFLED, Comparison
from sensorium.zoo.training import PASSED, as_expert, find_expert, resume, train

AS_GOOD = 0.98
"""The share of its expert's return at which a twin stops to learn."""

_TINY = 1e-6
_NAMED = 8  # sensors that are listed by name
_PAIRS = 3  # pairs of sensors that are alike, likewise
_FEW = 0.5  # of episodes that differ, for them to be few, over and over
_CHANGES = 8  # of the reward in an episode, from which on it tells episodes apart
_STACKED, _LOOKS = 4, 100  # frames of which patches are compared, and how often
_SPARE = 1.2  # times the most distinct patches that were seen there


def convert(model: Any, env: str, **options: Any) -> Agent:
    """Train the twin of a policy: an agent that does the same, with its sensors in any order.

    Args:
        model: As of `run`.
        env: As of `run`.
        options: As of `run`.

    Returns:
        The twin.

    Raises:
        ConfigError: Model and environment do not fit each other, or no rule makes numbers of what is shown.
        RunError: There is a run of something else in `run_dir`.
        KeyboardInterrupt: Stopped by a signal; the same call goes on.
    """
    return load(run(model, env, **options).directory)


def run(
    model: Any,
    env: str,
    *,
    run_dir: Path | str | None = None,
    vecnormalize: str = "",
    student: Size | PolicyConfig = "standard",
    then_ppo: bool = False,
    budget: float | None = None,
    settings: Sequence[str] = (),
    seed: int = 0,
    episodes: int | None = None,
    quiet: bool = False,
) -> Comparison:
    """Train the twin of a policy, and compare them; raises as `convert`.

    Args:
        model: A zip of Stable-Baselines3 or sb3-contrib, or such a model; an agent of ours, by name or as
            it is; or any function of an observation, or a PyTorch module, as it is or as `module:name`.
        env: `gym:` and the id of the environment that it acts in, perhaps with options.
        run_dir: Where the run is kept, an agent like any other; runs/ENV-twin by default. A conversion that
            was interrupted there goes on.
        vecnormalize: Statistics that a model was trained behind; those beside it if empty, `none` for none.
        student: The size of the twin, or its policy.
        then_ppo: Go on by PPO on the reward.
        budget: Seconds of training, at most.
        settings: Of the recipe, as of `sensorium.recipes.adapt`.
        seed: Decides everything, but for how much a slow environment gives in a generation.
        episodes: Of each score in the comparison; 100 by default, 20 of images.
        quiet: Print nothing.

    Returns:
        What both earn.
    """
    if episodes is not None:
        check_counts(episodes=episodes)
    seed = check_seed(seed)
    console = Console(stderr=True, quiet=quiet, highlight=False)
    world = require_host(
        make_world(env),
        f"{env} is simulated on the device, and its agents are trained by recipes (`sensorium zoo` lists "
        "them); a Gymnasium environment has gym: before its id.",
    )
    episodes = episodes or (20 if is_image(world.raw_observation_spec) else 100)
    expert, source = _find(model, vecnormalize, env)
    make_actor = _actors(expert, world)

    def recipe(measured: Measured) -> Recipe:
        options: dict[str, Any] = dict(student=student, then_ppo=then_ppo, max_seconds=budget)
        return recipes.adapt(twin(env, world, measured, seed=seed, **options), settings)

    asked = recipe(Measured(source))  # raises what does not fit, before the expert plays
    _explain(console, expert, source, world)
    directory = Path(run_dir or Path("runs") / name_of_twin(env))
    passed = {source: expert} if source.startswith(PASSED) else {}
    with contextlib.closing(HostEngine(world)) as engine:
        if RunDirectory.exists(directory):
            _check_same(directory, source, asked)
            resume(directory, quiet=quiet, passed=passed)
        else:
            measured = _measured(engine, make_actor, source, vecnormalize, seed, console)
            train(recipe(measured), directory, quiet=quiet, passed=passed)
        with console.status(f"comparing twin and expert: {episodes} episodes each"):
            comparison = _compare(engine, make_actor, env, directory, episodes, seed)
    write_json(directory / "comparison.json", comparison.to_json())
    return comparison


def _check_same(directory: Path, source: str, asked: Recipe) -> None:
    """RunError unless a run is of this conversion, and as long as is asked for."""
    recipe = recipes.read(directory)
    its = recipe.stages[0].expert
    if recipe.env != asked.env or (its != source and its != str(Path(source).absolute())):
        raise RunError(
            f"{directory} holds a run of {recipe.name} in {recipe.env}, which learns from "
            f"{its.removeprefix(PASSED) or 'no expert'}; choose another --run-dir."
        )
    if len(asked.stages) > len(recipe.stages):
        raise RunError(f"{directory} was begun without --then ppo; choose another --run-dir.")
    if _budget(asked) not in (math.inf, _budget(recipe)):
        raise RunError(f"{directory} was begun with another --budget; choose another --run-dir.")


def _budget(recipe: Recipe) -> float:
    """Return the seconds that all stages may take."""
    return sum(math.inf if (most := stage.max_seconds) is None else most for stage in recipe.stages)


def _find(model: Any, vecnormalize: str, env: str) -> tuple[Expert, str]:
    """Return the expert as an expert, and how a recipe names it."""
    if isinstance(model, str | Path):
        return find_expert(str(model), vecnormalize, env)[0], str(model)
    name = getattr(model, "__qualname__", type(model).__name__)
    return as_expert(model, name), PASSED + name


def _actors(expert: Expert, world: HostWorld) -> Callable[[Keys], Actor]:
    """Return what makes an actor of the expert for episodes of some keys; ConfigError if it does not fit."""
    asked, advisor = ask(expert, world, "A conversion")
    policy = asked.policy
    if policy is not None:
        return lambda keys: PolicyActor(as_population(policy), world, keys)
    if not isinstance(advisor, Actor):
        raise ConfigError(
            "A conversion asks its expert what it does on what it is shown: a function that reads the "
            "environment itself, or a dataset, can be the --expert of `sensorium train`."
        )
    return lambda keys: cast(Actor, ask(expert, world, "A conversion")[1])


def _explain(console: Console, expert: Expert, source: str, world: HostWorld) -> None:
    """Say what was understood of the environment and the expert."""
    names, takes = world.sensor_names, world.actions
    listed = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    sensors = in_words(world.raw_observation_spec)
    if names and not names[0].startswith(("sensor", "entity")):
        sensors = f"{len(names)} sensors ({listed})"
    many = f"{takes} number(s) from -1 to 1" if isinstance(takes, int) else _choices(takes)
    said = kind_of(expert)
    if isinstance(expert, Sb3Model) and (frames := num_frames(expert.model, world)) > 1:
        said += f", {frames} frames at a time"
    for what, text in (
        ("environment", f"{world.name}: {sensors}; {many}; at most {world.max_steps:,} steps"),
        ("shown", world.note),
        ("expert", f"{source.removeprefix(PASSED)}: {said}"),
    ):
        if not text:
            continue
        console.print(f"[bold]{what:12}[/bold] {escape(text)}", soft_wrap=True)


def _choices(options: tuple[int, ...]) -> str:
    if len(options) == 1:
        return f"{options[0]} choices"
    return f"{len(options)} choices of {', '.join(map(str, options))}"


def _measured(
    engine: HostEngine,
    make_actor: Callable[[Keys], Actor],
    source: str,
    vecnormalize: str,
    seed: int,
    console: Console,
) -> Measured:
    """Measure the expert in the tests of its student, plain and shuffled."""
    spec = engine.world.raw_observation_spec
    keys, measured = keys_of_tests(seed, num_tests(spec)), Measured(source, vecnormalize)
    said = ""
    with console.status("measuring the expert"):
        if is_image(spec):
            episodes = _play(engine, make_actor, keys)
            returns, different = np.asarray(episodes.total), num_different(episodes)
            measured = dataclasses.replace(
                measured,
                longest=int(np.max(episodes.length)),
                distinct_patches=_distinct_patches(engine.world),
                few_episodes=different <= _FEW * len(returns),
            )
            if different < len(returns):
                said = f", of which {different} differ"
        else:
            started = time.perf_counter()
            played = engine.transcribe(lambda: make_actor(keys), seeds_of(keys))
            seconds, lengths = time.perf_counter() - started, played.lengths
            measured = dataclasses.replace(
                measured,
                unit=_unit(played),
                mean_length=round(lengths.mean()),
                longest=int(lengths.max()),
                steps_per_second=float(lengths.sum() / seconds),
            )
            returns = played.rewards.sum(axis=1)
            _warn_of_likeness(console, played, engine.world)
        rewired = _play(engine, make_actor, keys, shuffled(spec)).total
        anything = _at_random(engine, keys, seed).total
    mean, least = float(returns.mean()), float(anything.mean())
    console.print(
        f"[bold]{'it earns':12}[/bold] {shown(mean)} plain, {shown(float(rewired.mean()))} shuffled "
        f"({len(returns)} episodes{said})"
    )
    stop_at = least + AS_GOOD * (mean - least)
    return dataclasses.replace(measured, stop_at=stop_at)


def num_different(episodes: Episode) -> int:
    """Count episodes that differ in more than when they begin, as far as their rewards tell.

    In an Atari game without sticky actions all chance is in the number of first frames without an action.
    """
    traces = [np.trim_zeros(rewards) for rewards in np.asarray(episodes.rewards)]
    if min(np.count_nonzero(np.diff(each)) for each in traces) < _CHANGES:
        return len(traces)  # too few to tell
    return len({each.tobytes() for each in traces})


def _distinct_patches(world: HostWorld) -> int | None:
    """Return how many patches of a few frames differ at most, rounded up; None if most of them do."""
    env, random = world.opener()(), np.random.default_rng(0)
    size, most = patch_size(world.raw_observation_spec), 0
    try:
        frames = [env.reset(seed=0)[0]] * _STACKED
        for _ in range(_LOOKS):
            action = random.uniform(-1.0, 1.0, (1, world.num_actions)).astype(np.float32)
            image, _, terminated, truncated, _ = env.step(world.to_env_actions(action)[0])
            if terminated or truncated:
                image, _ = env.reset()
            frames = [*frames[1:], image]
            stack = np.concatenate(frames, axis=-1)
            rows, columns = (side // size for side in stack.shape[:2])
            patches = stack.reshape(rows, size, columns, -1).swapaxes(1, 2)
            most = max(most, len(np.unique(patches.reshape(rows * columns, -1), axis=0)))
    finally:
        env.close()
    limit = math.ceil(_SPARE * most / 8) * 8
    return limit if limit <= rows * columns // 2 else None


def _warn_of_likeness(console: Console, played: Transcript, world: HostWorld) -> None:
    """Say which scalar sensors nobody can tell apart who reads one at a time."""
    if played.observations.ndim != 3:
        return
    pairs = alike(played.observations[:, :-1], played.actions, played.lengths)
    names = world.sensor_names
    for pair in pairs[:_PAIRS]:
        console.print(
            f"[bold]{'alike':12}[/bold] {escape(names[pair.first])} and {escape(names[pair.second])}: what "
            f"each of them reads tells which is which in {pair.told_apart:.0%} of episodes (chance: 50%)",
            soft_wrap=True,
        )
    if len(pairs) > _PAIRS:
        console.print(f"{'':12} and {len(pairs) - _PAIRS} more pairs", soft_wrap=True)


def _unit(played: Transcript) -> float:
    """Return the typical size of a sensor's readings: the geometric mean of their root mean squares.

    Of entities that of a feature's, wherever they are present.
    """
    alive = np.arange(played.rewards.shape[1]) < played.lengths[:, None]
    readings = played.observations[:, :-1][alive]
    if readings.ndim == 3:
        readings = readings.reshape(-1, readings.shape[2])
        readings = readings[~np.isnan(readings).any(axis=1)]
    sizes = np.sqrt(np.mean(readings**2, axis=0))
    return (
        significant(float(np.exp(np.log(sizes[sizes > _TINY]).mean())), 3) if sizes.any() else 0.0
    )


def _at_random(engine: HostEngine, keys: Keys, seed: int) -> Episode:
    """Run random actions."""
    return engine.run_actor(lambda: Uniform(engine.world.num_actions, seed), seeds_of(keys))


def _play(
    engine: HostEngine,
    make_actor: Callable[[Keys], Actor],
    keys: Keys,
    perturbation: Perturbation | None = None,
) -> Episode:
    """Run the expert behind a perturbation."""
    world = cast(HostWorld, perturbed(engine.world, perturbation or Identity()))

    def make() -> Actor:
        actor = make_actor(keys)
        return actor if perturbation is None else PerturbedActor(actor, world, keys)

    return engine.run_actor(make, seeds_of(keys))


def _compare(
    engine: HostEngine,
    make_actor: Callable[[Keys], Actor],
    env: str,
    directory: Path,
    episodes: int,
    seed: int,
) -> Comparison:
    """Score twin and expert over the same new starts."""
    keys, world, agent = evaluation_keys(seed, episodes), engine.world, load(directory)
    spec = world.raw_observation_spec
    rows = scored(spec)
    played = {
        PLAIN: _play(engine, make_actor, keys),
        SHUFFLED: _play(engine, make_actor, keys, rows[SHUFFLED]),
    }
    midway = max(int(np.mean(played[PLAIN].length)) // 2, 1)
    rows["reshuffled in mid-episode"] = shuffled(spec, every=midway)
    return Comparison(
        env=env,
        directory=directory,
        random=float(np.mean(_at_random(engine, keys, seed).total)),
        expert={
            name: summarise(np.asarray(episode.total), world.solved_return)
            for name, episode in played.items()
        },
        different=num_different(played[PLAIN]),
        twin={
            name: evaluate(agent.policy, env, each, episodes=episodes, seed=seed, engine=engine)
            for name, each in rows.items()
        },
        seconds=sum(stage["seconds"] for stage in RunDirectory.open(directory).history()),
    )


def student_of(kind: str) -> PolicyConfig:
    """Return the policy config of that name, with its defaults.

    Raises:
        UnknownNameError: None is registered by that name; the nearest are given.
    """
    known = Parts(PolicyConfig)
    if kind not in known:
        raise did_you_mean("policy", kind, known)
    return known[kind]()
