"""What goes into the zoo: agents that their recipes make, and what all of their training cost."""

import dataclasses
import json

import pytest

from sensorium import recipes, zoo
from sensorium.errors import ConfigError, RunError
from sensorium.policies import FeedForwardConfig
from sensorium.recipes import Recipe, Stage
from sensorium.training import EvolutionConfig, RunDirectory, StrategyConfig
from sensorium.zoo.publish import publish
from tests.probes import Stopped, stop_after

pytestmark = pytest.mark.usefixtures("short_episodes")

PARENT = Recipe(
    name="parent",
    summary="From nothing.",
    policy=FeedForwardConfig((4,)),
    stages=(
        Stage(
            "evolution",
            EvolutionConfig(StrategyConfig("pgpe", sigma=0.1), population=4, num_episodes=2),
            generations=2,
            test_every=1,
            test_episodes=2,
        ),
    ),
)
CHILD = dataclasses.replace(
    PARENT, name="child", summary="Goes on.", stages=(PARENT.last.changed(start="parent"),)
)


@pytest.fixture(autouse=True)
def family(monkeypatch, tmp_path):
    for recipe in (PARENT, CHILD):
        monkeypatch.setitem(recipes.RECIPES, recipe.name, recipe)
    monkeypatch.setenv("SENSORIUM_ZOO", str(tmp_path / "zoo"))
    (tmp_path / "zoo").mkdir()
    return tmp_path / "runs"


def test_what_an_agent_starts_from_is_trained_too_and_counted_in(family):
    zoo.train(CHILD, family / "child", from_scratch=True, quiet=True)
    own, ours = (
        RunDirectory.open(family / name).history()[0]["seconds"] for name in ("parent", "child")
    )
    publish(family / "parent", episodes=2)
    card = json.loads(publish(family / "child", episodes=2).with_suffix(".json").read_text())
    assert card["training_seconds"] == pytest.approx(own + ours, abs=0.1)
    assert card["stages"][0]["seconds"] == ours
    assert zoo.load("child").recipe == CHILD  # a name again, not the folder that it was trained in
    # Of the zoo now: no more is trained than what is new
    zoo.train(CHILD, family / "again" / "child", quiet=True)
    assert [path.name for path in (family / "again").iterdir()] == ["child"]
    (stage,) = RunDirectory.open(family / "again" / "child").history()
    assert stage["start"]["training_seconds"] == own


def test_nothing_is_trained_for_an_agent_whose_own_settings_do_not_fit(family):
    with pytest.raises(ConfigError, match="at least 4, got 3"):
        zoo.train(CHILD.override({"population": 3}), family / "child", from_scratch=True)
    assert not family.exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"seed": 3}, "its 'seed' differs"), ({"population": 6}, "its 'stages' differs")],
)
def test_an_agent_of_another_recipe_is_refused(family, changes, words):
    zoo.train(PARENT.override(changes), family / "parent", quiet=True)
    with pytest.raises(ConfigError, match=words):
        publish(family / "parent", episodes=2)
    assert zoo.names() == []


def test_an_agent_of_an_unfinished_run_or_of_another_version_is_refused(family, monkeypatch):
    with pytest.raises(Stopped):
        zoo.train(PARENT, family / "parent", quiet=True, on_generation=stop_after(1))
    with pytest.raises(RunError, match="not finished: continue it with `sensorium train"):
        publish(family / "parent", episodes=2)
    zoo.resume(family / "parent", quiet=True)
    monkeypatch.setattr("sensorium.zoo.publish.describe_versions", lambda: {"sensorium": "99"})
    with pytest.raises(ConfigError, match=r"was trained by Sensorium .* and this is 99"):
        publish(family / "parent", episodes=2)
    assert zoo.names() == []
