"""From a teacher's name to a student: train teachers, clone them, go on with a clone."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from sensorium import recipes
from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.sb3 import load_model
from sensorium.errors import ConfigError, RunError
from sensorium.perturbations import Identity
from sensorium.policies import FeedForwardConfig, Policy
from sensorium.recipes import Recipe
from sensorium.training import CloningConfig, PpoConfig, RunDirectory
from sensorium.training.ppo import Teaching, train_teacher
from sensorium.training.progress import MetricsFile
from sensorium.training.run import describe_versions
from sensorium.training.teachers import AgentTeacher, Sb3Teacher, Teacher
from sensorium.zoo.agent import Agent, load


def teach(recipe: Recipe, directory: Path, *, quiet: bool = False) -> Policy:
    """Train a teacher with PPO.

    Args:
        recipe: One of a feed-forward agent trained by `PpoConfig`.
        directory: A new folder; `teacher.zip` is the model of Stable-Baselines3, `best.safetensors` the
            same as an agent of ours.
        quiet: Show no progress.

    Raises:
        ConfigError: The recipe is of another kind.
        RunError: There is a run in the folder already.
        MissingExtraError: Stable-Baselines3 or the world is not installed.
    """
    world, policy = recipe.make_world(), recipe.policy
    if not (isinstance(recipe.trainer, PpoConfig) and isinstance(policy, FeedForwardConfig)):
        raise ConfigError(f"{recipe.name} is no teacher: train it with `sensorium train`.")
    if not isinstance(world, HostWorld):
        raise ConfigError("Teachers are trained in worlds on the host (`gym:` and an id).")
    RunDirectory(directory, recipe.to_json()).create()
    total = recipe.trainer.total_steps
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as bar:
        task = bar.add_task("starting", total=total)

        def show(now: Teaching) -> None:
            mean = "-" if now.mean_return is None else f"{now.mean_return:.0f}"
            speed = now.steps / now.seconds
            text = f"{now.steps:,} steps · return {mean} · {speed:,.0f} steps/s"
            bar.update(task, completed=min(now.steps, total), description=text)
            metrics.append(dataclasses.asdict(now))
            last.append(now)

        last: list[Teaching] = []
        metrics = MetricsFile(directory / "metrics.jsonl", 0)
        trained = train_teacher(
            recipe.trainer,
            world,
            policy.hidden_sizes,
            recipe.seed,
            directory / "teacher.zip",
            show,
        )
    card = {
        "training_seconds": last[-1].seconds,
        "training_steps": last[-1].steps,
        "versions": describe_versions(),
    }
    Agent(trained, recipe, card).save(directory / "best.safetensors")
    return trained


def clone(recipe: Recipe, directory: Path, teacher: str | None = None, **options: Any) -> Policy:
    """Train a student to do what a teacher does, in a new run directory.

    Args:
        recipe: Of a student, trained by `CloningConfig`.
        directory: Where; must not hold a run yet.
        teacher: Instead of the recipe's: an agent of the zoo, a run, or a file of an agent or of
            Stable-Baselines3 (a zip).
        options: As of `recipes.train`.

    Returns:
        The student with the best test.

    Raises:
        ConfigError: The recipe is of another kind, or the teacher does not fit its world.
        UnknownNameError: There is no such teacher.
    """
    if not isinstance(recipe.trainer, CloningConfig):
        raise ConfigError(
            f"{recipe.name} is not trained by cloning; train it with `sensorium train`."
        )
    if teacher:
        if os.sep in teacher or Path(teacher).exists():
            teacher = str(Path(teacher).absolute())  # so that it can be resumed from anywhere
        trainer = dataclasses.replace(recipe.trainer, teacher=teacher)
        recipe = dataclasses.replace(recipe, trainer=trainer)
    return recipes.train(recipe, directory, teacher=find_teacher(recipe), **options)


def resume(directory: Path, **options: Any) -> Policy:
    """Go on with a run of any kind, as `recipes.resume` does; finds the teacher of a clone again."""
    recipe = recipes.read(directory)
    if isinstance(recipe.trainer, PpoConfig):
        raise RunError(f"{directory} trains a teacher, which cannot be resumed; begin another.")
    return recipes.resume(directory, teacher=find_teacher(recipe), **options)


def find_teacher(recipe: Recipe) -> Teacher | None:
    """The teacher that a recipe names; None if it needs none.

    Raises:
        UnknownNameError: There is no such agent.
        AgentFileError: The file is missing or damaged.
        ConfigError: It does not fit the world of the recipe.
    """
    if not isinstance(recipe.trainer, CloningConfig):
        return None
    world, source = recipe.make_world(), recipe.trainer.teacher
    if not isinstance(world, HostWorld):
        raise ConfigError("Cloning works with worlds on the host (`gym:` and an id).")
    if not source:
        raise ConfigError(f"{recipe.name} needs a teacher; name one with --teacher.")
    world = dataclasses.replace(world, perturbation=Identity())
    if source.endswith(".zip"):
        return Sb3Teacher(load_model(source), world)
    return AgentTeacher(load(source).policy, world)
