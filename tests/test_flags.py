"""Every number that a command takes is checked before anything is run or written."""

import dataclasses
import inspect
import math
import typing
from pathlib import Path

import jax
import pytest

from sensorium import cli
from sensorium.errors import SensoriumError
from sensorium.flags import PerturbationFlags
from sensorium.recipes import RECIPES, find
from sensorium.zoo import Agent

HUGE = 2**40
FROM_ZERO = {"seed", "workers", "process", "port", "noise_channels", "drop", "silence"}
"""Flags that may be 0."""
ANY_SIZE = {"seed"}
WALK = "gym:tests.host_worlds:Walk-v0"


@pytest.fixture(scope="module")
def agent_file(tmp_path_factory):
    recipe = find("cartpole-pi")
    path = tmp_path_factory.mktemp("agents") / "agent.safetensors"
    Agent(recipe.draw_policy(jax.random.key(0)), recipe, {}).save(path)
    return str(path)


def commands(agent):
    """A good call of each command that takes numbers, and others where a number needs them."""
    joined = dict(engine="jax", address="localhost:1", processes=2, process=0)
    return {
        "train": [dict(recipe="cartpole-pi-evolution"), dict(recipe="cartpole-pi", **joined)],
        "convert": [dict(model="tests.host_worlds:follow", env="gym:tests.host_worlds:Scales-v0")],
        "eval": [dict(agent=agent), dict(agent="carracing-pi"), dict(agent=agent, env=WALK)],
        "reproduce": [dict(table=name) for name in ("table-2", "nla-curves", "scaling")],
        "show": [dict(agent=agent)],
        "demo": [dict()],
        "bench": [dict()],
    }


def numbers_of(command):
    """The flags of a command that are numbers, and whether they are whole."""
    kinds = typing.get_type_hints(inspect.unwrap(cli.COMMANDS[command]))
    if "perturbation" in kinds:
        kinds |= typing.get_type_hints(PerturbationFlags)
    for name, kind in kinds.items():
        if alternatives := {int, float} & {kind, *typing.get_args(kind)}:
            yield name, int in alternatives


def bad_values(name, whole):
    yield -3 if whole else -3.0
    if not whole:
        yield from (math.nan, math.inf)
    elif name not in FROM_ZERO:
        yield 0
    if whole and name not in ANY_SIZE:
        yield HUGE


CASES = [
    (command, name, value)
    for command in commands("")
    for name, whole in numbers_of(command)
    for value in bad_values(name, whole)
]


@pytest.mark.parametrize(("command", "flag", "value"), CASES)
def test_bad_numbers_are_one_sentence(command, flag, value, agent_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls = commands(agent_file)[command]
    if flag in ("processes", "process"):
        calls = [call for call in calls if "processes" in call]
    elif flag in ("occlude", "remove_patches"):
        calls = [dict(agent="carracing-pi")]
    asked = {flag: value}
    if flag in typing.get_type_hints(PerturbationFlags):
        asked = {"perturbation": PerturbationFlags(**asked)}
    for call in calls:
        with pytest.raises(SensoriumError) as caught:
            cli.COMMANDS[command](**call | asked)
        assert "\n" not in str(caught.value)
        assert not list(Path().iterdir())


WHOLE = sorted(
    {
        (type(part).__name__, field.name): (recipe.name, f"{stage.name}.{field.name}")
        for recipe in RECIPES.values()
        for stage in recipe.stages
        for part in (stage, stage.trainer)
        for field in dataclasses.fields(part)
        if field.type in (int, "int")
    }.values()
)
"""A recipe and a path for each whole number of each kind of stage and trainer."""


@pytest.mark.parametrize("value", [-3, HUGE, 1.5, "many", None, True])
@pytest.mark.parametrize(("name", "path"), WHOLE)
def test_bad_settings_are_one_sentence(name, path, value):
    with pytest.raises(SensoriumError) as caught:
        find(name).override({path: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [0, -3, HUGE, 1.5])
@pytest.mark.parametrize("name", ["cartpole-fnn", "ant-pi", "carracing-ppo", "carracing-pi"])
def test_bad_sizes_of_policies_are_one_sentence(name, value):
    for field in dataclasses.fields(find(name).policy):
        size = {int: value, int | None: value, tuple[int, ...]: [8, value]}.get(field.type)
        if size is not None and not (value == 0 and field.name == "hidden_rows"):
            with pytest.raises(SensoriumError, match=field.name):
                find(name).override({f"policy.{field.name}": size})


def test_every_command_with_numbers_is_tried():
    assert set(commands("")) == {name for name in cli.COMMANDS if list(numbers_of(name))}
