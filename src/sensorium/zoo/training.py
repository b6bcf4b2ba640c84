"""Training by recipes that name agents: finds experts and starts, and trains them first if asked."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from sensorium import recipes
from sensorium.bridges import minari
from sensorium.bridges.sb3_files import find_statistics, is_model, load_model, load_statistics
from sensorium.errors import ConfigError
from sensorium.policies import Policy
from sensorium.recipes import RECIPES, Recipe, Stage
from sensorium.recipes.recipe import SCRATCH, STAGE
from sensorium.training import RunDirectory
from sensorium.training.experts import Dataset, Expert, Sb3Model
from sensorium.zoo.agent import Agent, load

_NO_STATISTICS = "none"


def train(
    recipe: Recipe, directory: Path | str, *, from_scratch: bool = False, **options: Any
) -> Policy:
    """Train in a new run directory, as `recipes.train` does; finds the agents that the recipe names.

    Args:
        recipe: What to train.
        directory: Where; must not hold a run yet.
        from_scratch: Train the experts too that are recipes, in folders beside this one, instead of taking
            those of the zoo; what is done there already is not done again.
        options: As of `recipes.train`.

    Raises:
        UnknownNameError: There is no such agent.
        ConfigError: An agent or a setting does not fit.
    """
    stages = tuple(_from_anywhere(stage, recipe.env) for stage in recipe.stages)
    recipe = dataclasses.replace(recipe, stages=stages)
    if from_scratch:
        recipe = _with_own_experts(recipe, Path(directory), **options)
    return recipes.train(recipe, directory, find_expert=find_expert, **options)


def resume(directory: Path | str, **options: Any) -> Policy:
    """Go on with a run, as `recipes.resume` does; finds the agents that it names again."""
    return recipes.resume(directory, find_expert=find_expert, **options)


def find_expert(source: str, vecnormalize: str, env: str) -> tuple[Expert, dict[str, Any]]:
    """An expert, or a policy to start from, and what is known of its training.

    Args:
        source: A name of the zoo, a run, a file of an agent or of Stable-Baselines3, or a folder of Minari.
        vecnormalize: As `Stage.vecnormalize`.
        env: The world that it is for.

    Raises:
        UnknownNameError: There is no such agent.
        AgentFileError: The file is missing or damaged.
    """
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


def _is_model(source: str) -> bool:
    return source.endswith(".zip") or is_model(source)


def _statistics(source: str, vecnormalize: str, env: str) -> str:
    """Which statistics of VecNormalize an expert needs: those named, those beside it, or "none"."""
    if vecnormalize or not _is_model(source):
        return vecnormalize
    found = find_statistics(Path(source).absolute(), env)
    return _NO_STATISTICS if found is None else str(found)


def _cost(agent: Agent) -> dict[str, Any]:
    return {name: agent.card[name] for name in ("training_seconds", "stages") if name in agent.card}


def _from_anywhere(stage: Stage, env: str) -> Stage:
    """The stage with absolute paths, statistics too, so that its run can be resumed from any folder."""

    def absolute(source: str) -> str:
        if source in ("", SCRATCH) or source.startswith(STAGE):
            return source
        is_path = os.sep in source or os.path.exists(source)
        return str(Path(source).absolute()) if is_path else source

    statistics = _statistics(stage.expert, stage.vecnormalize, env) if stage.expert else ""
    if statistics not in ("", _NO_STATISTICS):
        statistics = str(Path(statistics).absolute())
    return stage.changed(
        expert=absolute(stage.expert), start=absolute(stage.start), vecnormalize=statistics
    )


def _with_own_experts(recipe: Recipe, directory: Path, **options: Any) -> Recipe:
    """The recipe with experts that were trained beside it."""
    stages = []
    for stage in recipe.stages:
        if stage.expert in RECIPES:
            own = directory.absolute().parent / stage.expert
            if own == directory.absolute():
                raise ConfigError(
                    f"{directory} is where the expert {stage.expert} is to be trained."
                )
            if RunDirectory.exists(own):
                resume(own, **options)
            else:
                train(recipes.find(stage.expert), own, from_scratch=True, **options)
            stage = dataclasses.replace(stage, expert=str(own))
        stages.append(stage)
    return dataclasses.replace(recipe, stages=tuple(stages))
