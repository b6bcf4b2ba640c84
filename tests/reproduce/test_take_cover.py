"""The table of DoomTakeCover runs, with an untrained agent, in two variants."""

import json

import pytest

from sensorium import recipes
from sensorium.reproduce import run as reproduce
from sensorium.reproduce import take_cover
from tests.probes import save_untrained

pytest.importorskip("vizdoom", reason="the extra `doom` is not installed")


def test_scores_stand_beside_the_papers_and_beside_those_of_who_looks_at_nothing(
    tmp_path, monkeypatch
):
    name = "takecover-attention-agent-recurrent"
    recipe = recipes.find(name)
    save_untrained(tmp_path / "zoo" / f"{name}.safetensors", recipe)
    monkeypatch.setenv("SENSORIUM_ZOO", str(tmp_path / "zoo"))
    monkeypatch.delenv("SENSORIUM_PUBLISHED", raising=False)
    monkeypatch.setattr("sensorium.bridges.from_gymnasium.HostWorld.max_steps", 300)
    monkeypatch.setattr(take_cover, "VARIANTS", ("walls", "floor"))  # each is compiled anew
    path = tmp_path / "table.json"
    reproduce.run("aa-table-4-takecover", episodes=1, seed=0, out=tmp_path, json=str(path))
    rows = json.loads(path.read_text())
    papers = [(row["variant"], row["paper"]) for row in rows if row["agent"] == name]
    assert papers == [("walls", "934 ± 560"), ("floor", "1120 ± 613")]
    blind = {row["agent"]: row["mean"] for row in rows if row["agent"] != name}
    assert set(blind) == {"stands", "acts at random", "sweeps from wall to wall"}
    assert all(50 < lived < 2100 for lived in blind.values()), blind
