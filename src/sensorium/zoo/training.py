"""Training by recipes that name agents: finds experts and starts, and trains them first if asked."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax

from sensorium import recipes
from sensorium.bridges import minari
from sensorium.bridges.open_env import EnvName
from sensorium.bridges.sb3_files import find_statistics, is_model, load_model, load_statistics
from sensorium.errors import ConfigError, did_you_mean
from sensorium.policies import Policy
from sensorium.recipes import RECIPES, Recipe, Stage
from sensorium.recipes.recipe import SCRATCH, STAGE
from sensorium.registry import import_parts
from sensorium.rollout import make_world
from sensorium.training import RunDirectory
from sensorium.training.expert_actors import arguments_of
from sensorium.training.experts import Dataset, Expert, PythonPolicy, Sb3Model
from sensorium.zoo.agent import Agent, load

_NO_STATISTICS = "none"
_ARGUMENTS_BESIDE_ENV = 3  # of an `EnvExpert`


PASSED = "passed:"
"""How a recipe names an expert that was given as an object: it cannot be found again."""


def train(
    recipe: Recipe,
    directory: Path | str,
    *,
    from_scratch: bool = False,
    passed: Mapping[str, Expert] = MappingProxyType({}),
    **options: Any,
) -> Policy:
    """Train in a new run directory, as `recipes.train` does; finds the agents that the recipe names.

    Args:
        recipe: What to train.
        directory: Where; must not hold a run yet.
        from_scratch: Train the experts and starts too that are recipes, in folders beside this one, instead
            of taking those of the zoo; what is done there already is not done again.
        passed: Experts as they are, by the names that the recipe has for them.
        options: As of `recipes.train`.

    Raises:
        UnknownNameError: There is no such agent.
        ConfigError: An agent or a setting does not fit.
    """
    stages = tuple(_from_anywhere(stage, recipe.env) for stage in recipe.stages)
    recipe = dataclasses.replace(recipe, stages=stages)
    if from_scratch:
        recipes.check(recipe, directory, find_expert=_planned(_finder(passed)), **options)
        recipe = _with_own_agents(recipe, Path(directory), **options)
    return recipes.train(recipe, directory, find_expert=_finder(passed), **options)


def resume(
    directory: Path | str, *, passed: Mapping[str, Expert] = MappingProxyType({}), **options: Any
) -> Policy:
    """Go on with a run, as `recipes.resume` does; finds the agents that it names again."""
    return recipes.resume(directory, find_expert=_finder(passed), **options)


def _finder(passed: Mapping[str, Expert]) -> recipes.FindExpert:
    """Find experts among those that were passed, or by their names."""

    def find(source: str, vecnormalize: str, env: str) -> tuple[Expert, dict[str, Any]]:
        if source in passed:
            return passed[source], {"name": source.removeprefix(PASSED)}
        return find_expert(source, vecnormalize, env)

    return find


def _planned(find: recipes.FindExpert) -> recipes.FindExpert:
    """Random policies in place of those that are trained first."""

    def find_or_draw(source: str, vecnormalize: str, env: str) -> tuple[Expert, dict[str, Any]]:
        if source in RECIPES:
            return recipes.find(source).draw_policy(jax.random.key(0)), {}
        return find(source, vecnormalize, env)

    return find_or_draw


def find_expert(source: str, vecnormalize: str, env: str) -> tuple[Expert, dict[str, Any]]:
    """Find an expert, or a policy to start from, and what is known of its training.

    Args:
        source: A name of the zoo, a run, a file of an agent or of Stable-Baselines3, a folder of Minari, or
            `module:name` of a function, PyTorch module or model; that module is imported.
        vecnormalize: As `Stage.vecnormalize`.
        env: The world that it is for.

    Raises:
        UnknownNameError: There is no such agent, or no such name in the module.
        AgentFileError: The file is missing or damaged.
        ConfigError: What the module has of that name cannot act.
    """
    if source.startswith(PASSED):
        raise ConfigError(
            f"The expert {source.removeprefix(PASSED)} is an object of the program that began the run, which "
            "goes on with it by the same call of sensorium.convert."
        )
    if _is_of_module(source):
        return _from_module(source, make_world(env).on_host), {"name": source}
    if minari.is_dataset(source):
        return Dataset(Path(source)), {"name": Path(source).name}
    statistics = _statistics(source, vecnormalize, env)
    if not _is_model(source):
        if statistics not in ("", _NO_STATISTICS):
            raise ConfigError(
                f"Statistics of VecNormalize go with a model of Stable-Baselines3, and {source} is none."
            )
        agent = load(source)
        return agent.policy, {"name": agent.name, **_cost(agent)}
    normalised = statistics != _NO_STATISTICS
    model = Sb3Model(load_model(source), load_statistics(statistics) if normalised else None)
    return model, {"name": Path(source).name}


def _is_of_module(source: str) -> bool:
    module, colon, name = source.partition(":")
    parts = (*module.split("."), *name.split("."))
    return bool(colon) and all(map(str.isidentifier, parts)) and not os.path.exists(source)


def _from_module(source: str, on_host: bool) -> Expert:
    """Take what a module has as an expert."""
    module, _, path = source.partition(":")
    found: Any = import_parts(module)
    for name in path.split("."):
        if not hasattr(found, name):
            raise did_you_mean(f"name in {module}", name, dir(found))
        found = getattr(found, name)
    return as_expert(found, source, on_host)


def as_expert(found: Any, name: str, on_host: bool = True) -> Expert:
    """Take what acts as an expert.

    Args:
        found: An agent or policy of ours, a model of Stable-Baselines3, a PyTorch module, a function of an
            observation, or one of an environment, its observation and its `info`.
        name: For errors.
        on_host: Whether it is for a world on the host; a function for one on the device gets its state.

    Raises:
        ConfigError: It is none of these.
    """
    if isinstance(found, Agent | Policy):
        return found.policy if isinstance(found, Agent) else found
    if hasattr(found, "predict") and hasattr(found, "observation_space"):
        return Sb3Model(found, found.get_vec_normalize_env())
    if not callable(found) or isinstance(found, type):
        kind = "a class" if isinstance(found, type) else f"a {type(found).__name__}"
        raise ConfigError(
            f"The expert {name} is {kind}; an expert is a function of an observation, a PyTorch module, a "
            "model of Stable-Baselines3, or an agent of ours."
        )
    beside_the_env = arguments_of(found) == _ARGUMENTS_BESIDE_ENV
    return found if beside_the_env or not on_host else PythonPolicy(found, name)


def _is_model(source: str) -> bool:
    return source.endswith(".zip") or is_model(source)


def _statistics(source: str, vecnormalize: str, env: str) -> str:
    """Which statistics of VecNormalize an expert needs: those named, those beside it, or "none"."""
    if vecnormalize or not _is_model(source):
        return vecnormalize
    found = find_statistics(Path(source).absolute(), EnvName.parse(env).id)
    return _NO_STATISTICS if found is None else str(found)


def _cost(agent: Agent) -> dict[str, Any]:
    return {name: agent.card[name] for name in ("training_seconds", "stages") if name in agent.card}


def _from_anywhere(stage: Stage, env: str) -> Stage:
    """Make all paths of a stage absolute, so that its run can be resumed from any folder."""

    def absolute(source: str) -> str:
        if source in ("", SCRATCH) or source.startswith((STAGE, PASSED)):
            return source
        is_path = os.sep in source or os.path.exists(source)
        return str(Path(source).absolute()) if is_path else source

    statistics = _statistics(stage.expert, stage.vecnormalize, env) if stage.expert else ""
    if statistics not in ("", _NO_STATISTICS):
        statistics = str(Path(statistics).absolute())
    return stage.changed(
        expert=absolute(stage.expert), start=absolute(stage.start), vecnormalize=statistics
    )


def _with_own_agents(recipe: Recipe, directory: Path, **options: Any) -> Recipe:
    """Put experts and starts into a recipe that were trained beside it."""

    def own(source: str) -> str:
        if source not in RECIPES:
            return source
        beside = directory.absolute().parent / source
        if beside == directory.absolute():
            raise ConfigError(
                f"{directory} is where {source} is to be trained, which it learns from."
            )
        if RunDirectory.exists(beside):
            resume(beside, **options)
        else:
            train(recipes.find(source), beside, from_scratch=True, **options)
        return str(beside)

    stages = tuple(
        stage.changed(expert=own(stage.expert), start=own(stage.start)) for stage in recipe.stages
    )
    return dataclasses.replace(recipe, stages=stages)
