"""Every recipe by its name, and the functions that train one."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sensorium.envs import is_world, make
from sensorium.errors import ConfigError, SensoriumError, did_you_mean
from sensorium.recipes import ant, car_racing, cartpole, motors, pong, take_cover
from sensorium.recipes.recipe import STAGE
from sensorium.recipes.recipe import Recipe as Recipe
from sensorium.recipes.recipe import Stage as Stage
from sensorium.recipes.training import FindExpert as FindExpert
from sensorium.recipes.training import check as check
from sensorium.recipes.training import read as read
from sensorium.recipes.training import resume as resume
from sensorium.recipes.training import train as train
from sensorium.registry import import_parts

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for of_world in (ant, car_racing, cartpole, motors, pong, take_cover)
    for recipe in of_world.RECIPES
}
"""Every recipe by its name."""


def baseline(env: str) -> Recipe | None:
    """Return what agents of a world, or of a world's twin on the host, are compared with.

    That is the first of its recipes whose policy knows its inputs and motors by their places; None if there
    is none.
    """
    for recipe in RECIPES.values():
        twin = make(recipe.env).host_twin if is_world(recipe.env) else None
        if env in (recipe.env, twin):
            policy = recipe.outline()
            if policy.fixed_inputs and policy.fixed_outputs:
                return recipe
    return None


def find(source: str) -> Recipe:
    """Find a recipe by its name, in a JSON file or a run directory, or as an attribute of a module.

    Args:
        source: `"cartpole-pi"`, `"mine.json"`, `"runs/mine"` or `"my_package.recipes:MINE"`; that module is
            imported.

    Raises:
        UnknownNameError: There is no recipe of that name; the nearest ones are given.
        ConfigError: The file holds no recipe, or the attribute is none.
        MissingExtraError: The module cannot be imported.
    """
    if source in RECIPES:
        return RECIPES[source]
    path = Path(source)
    if source and path.is_dir():
        return read(path)
    if path.suffix == ".json":
        return _read_file(path)
    module, colon, name = source.partition(":")
    if not colon:
        raise did_you_mean("recipe", source, RECIPES)
    home = import_parts(module)
    found = getattr(home, name, None)
    if not isinstance(found, Recipe):
        known = [name for name, value in vars(home).items() if isinstance(value, Recipe)]
        raise did_you_mean(f"recipe in {module}", name, known)
    return found


def _read_file(path: Path) -> Recipe:
    try:
        return Recipe.from_json(json.loads(path.read_bytes()))
    except OSError as error:
        raise ConfigError(f"Could not read {path}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, SensoriumError):
            raise
        raise ConfigError(f"{path} is not a recipe in JSON: {error}.") from error


def adapt(
    recipe: Recipe,
    settings: Sequence[str] = (),
    *,
    expert: str | None = None,
    vecnormalize: str | None = None,
    start: str | None = None,
    env: str | None = None,
    seed: int | None = None,
) -> Recipe:
    """Return a copy of a recipe with settings as typed in a shell; None keeps the recipe's.

    Args:
        recipe: The recipe to adapt.
        settings: `path=value` each; paths as of `Recipe.override`, values in JSON or plain text.
        expert: The expert of all stages that learn from an agent by its name.
        vecnormalize: Statistics of VecNormalize that it was trained behind, or `none`.
        start: What the first stage starts from.
        env: The world.
        seed: The seed.

    Raises:
        ConfigError: A setting is not of that form or of another type, or no stage learns from an expert.
        UnknownNameError: There is no such setting.
    """
    changes: dict[str, Any] = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path:
            raise ConfigError(f"A setting has the form name=value, got {setting!r}.")
        try:
            changes[path] = json.loads(text)
        except json.JSONDecodeError:
            changes[path] = text
    learners = [
        stage.name for stage in recipe.stages if stage.expert and not stage.expert.startswith(STAGE)
    ]
    for flag, source in (("expert", expert), ("vecnormalize", vecnormalize)):
        if source is not None and not learners:
            raise ConfigError(f"{recipe.name} learns from no expert; leave out --{flag}.")
        changes |= {f"{name}.{flag}": source for name in learners if source is not None}
    more = {f"{recipe.stages[0].name}.start": start, "env": env, "seed": seed}
    return recipe.override(
        changes | {name: value for name, value in more.items() if value is not None}
    )
