"""Every experiment by its name, and the way from a recipe to a run."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sensorium.envs import WORLDS
from sensorium.errors import RunError, SensoriumError, did_you_mean
from sensorium.policies import Policy
from sensorium.recipes import ant, car_racing, cartpole
from sensorium.recipes.recipe import Recipe as Recipe
from sensorium.rollout import EngineConfig, open_engine
from sensorium.training import Budget, RunDirectory, run
from sensorium.training.checkpoints import LAST
from sensorium.training.teachers import Teacher

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe for recipe in (*ant.RECIPES, *car_racing.RECIPES, *cartpole.RECIPES)
}
"""Every recipe by its name."""

BASELINES: tuple[Recipe, ...] = tuple(
    RECIPES[name] for name in ("cartpole-fnn", "ant-fnn", "carracing-cnn")
)
"""Of each world the agent that knows its inputs by their places, for others to be compared with."""


def baseline(env: str) -> Recipe | None:
    """The one of `BASELINES` for a world or its twin on the host; None if there is none."""
    for recipe in BASELINES:
        twin = WORLDS[recipe.env]().host_twin if recipe.env in WORLDS else None
        if env in (recipe.env, twin):
            return recipe
    return None


def find(name: str) -> Recipe:
    """A recipe by its name; UnknownNameError names the nearest ones."""
    if name not in RECIPES:
        raise did_you_mean("recipe", name, RECIPES)
    return RECIPES[name]


def train(recipe: Recipe, directory: Path | str, **options: Any) -> Policy:
    """Train from the start in a new run directory.

    Args:
        recipe: What to train.
        directory: Where; must not hold a run yet.
        options: `quiet` and `on_generation` of `sensorium.training.run`; `engine`, an EngineConfig;
            `teacher`, for cloning, and `start`, a policy: `sensorium.zoo.train` finds both.

    Returns:
        The agent with the best test.
    """
    return _run(recipe, RunDirectory(directory, recipe.to_json()), **options)


def resume(directory: Path | str, **options: Any) -> Policy:
    """Go on with a run, to the same end as if it had never stopped.

    Args:
        directory: A run directory.
        options: `quiet` and `on_generation` of `sensorium.training.run`, and `engine`.

    Returns:
        The agent with the best test.

    Raises:
        RunError: There is no run, or one that this version cannot read.
    """
    return _run(read(directory), RunDirectory.open(directory), resume=True, **options)


def read(directory: Path | str) -> Recipe:
    """The recipe of a run; RunError if there is none, or none that this version can read."""
    stored = RunDirectory.open(directory).recipe
    try:
        return Recipe.from_json(stored)
    except (SensoriumError, TypeError) as error:
        raise RunError(f"{directory} cannot be resumed: {error}") from error


def _run(
    recipe: Recipe,
    directory: RunDirectory,
    engine: EngineConfig | None = None,
    teacher: Teacher | Policy | None = None,
    start: Policy | None = None,
    **options: Any,
) -> Policy:
    budget = Budget(
        generations=recipe.generations,
        checkpoint_every=recipe.checkpoint_every,
        test_every=recipe.test_every,
        test_episodes=recipe.test_episodes,
        seed=recipe.seed,
    )
    world, training_world = recipe.make_world(), recipe.make_training_world()
    with contextlib.ExitStack() as stack:
        tests = stack.enter_context(open_engine(world, engine))
        trains = tests
        if training_world != world:
            trains = stack.enter_context(open_engine(training_world, engine))
        if not tests.leads:
            directory = stack.enter_context(_copy(directory))
            options["quiet"] = True
        trainer = recipe.make_trainer(trains, directory.path, teacher, start)
        return run(trainer, tests, directory, budget, **options)


@contextlib.contextmanager
def _copy(directory: RunDirectory) -> Iterator[RunDirectory]:
    """For processes that train along without being the one that writes the run."""
    with tempfile.TemporaryDirectory() as temporary:
        if (directory.path / LAST).exists():
            shutil.copy(directory.path / LAST, temporary)
        yield RunDirectory(temporary, directory.recipe)
