"""The table of DoomTakeCover runs, with an untrained agent, in two variants."""

import json

import pytest
from PIL import Image

from sensorium import recipes
from sensorium.reproduce import run as reproduce
from sensorium.reproduce import take_cover
from tests.probes import save_untrained

pytest.importorskip("vizdoom", reason="the extra `doom` is not installed")


NAME = "takecover-attention-agent-recurrent"


@pytest.fixture(autouse=True)
def untrained(tmp_path, monkeypatch):
    """A zoo with an untrained agent, and short episodes."""
    save_untrained(tmp_path / "zoo" / f"{NAME}.safetensors", recipes.find(NAME))
    monkeypatch.setenv("SENSORIUM_ZOO", str(tmp_path / "zoo"))
    monkeypatch.delenv("SENSORIUM_PUBLISHED", raising=False)
    monkeypatch.setattr("sensorium.bridges.from_gymnasium.HostWorld.max_steps", 300)


def test_scores_stand_beside_the_papers_and_beside_those_of_who_looks_at_nothing(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(take_cover, "OF_THE_PAPER", ("walls", "floor"))  # each is compiled anew
    path = tmp_path / "table.json"
    reproduce.run("aa-table-4-takecover", episodes=1, seed=0, out=tmp_path, json=str(path))
    rows = json.loads(path.read_text())
    papers = [(row["variant"], row["paper"]) for row in rows if row["agent"] == NAME]
    assert papers == [("walls", "934 ± 560"), ("floor", "1120 ± 613")]
    blind = {row["agent"]: row["mean"] for row in rows if row["agent"] != NAME}
    assert set(blind) == {"stands", "acts at random", "sweeps from wall to wall"}
    assert all(50 < lived < 2100 for lived in blind.values()), blind


def test_an_agent_acts_on_fewer_places(tmp_path):
    name = "takecover-attention-agent"
    save_untrained(tmp_path / "zoo" / f"{name}.safetensors", recipes.find(name))
    path = tmp_path / "k.json"
    reproduce.run("takecover-k", episodes=1, seed=0, out=tmp_path, json=str(path))
    rows = json.loads(path.read_text())
    assert [row["k"] for row in rows] == [1, 2, 5, 10]
    assert [row["agent"] for row in rows] == [f"{name} with K = {row['k']}" for row in rows]
    assert len({row["weights"] for row in rows}) == 4


def test_patches_on_balls_are_counted(tmp_path):
    path = tmp_path / "attention.json"
    reproduce.run("takecover-attention", episodes=2, seed=0, out=tmp_path, json=str(path))
    (row,) = json.loads(path.read_text())
    assert row["agent"] == NAME
    assert 100 < row["frames"] <= 600
    assert 0 < row["all_patches"] < 0.1  # balls are small
    assert 0 <= row["best_10"] <= 1
    with Image.open(row["figure"]) as figure:
        assert figure.width > 500
