"""Tables and figures of Pong run, with untrained agents, and say how many different games they are of."""

import dataclasses
import json

import pytest
from PIL import Image

from sensorium import recipes
from sensorium.policies import Reading, VisionAttentionNeuronConfig
from sensorium.recipes import pong as of_pong
from sensorium.reproduce import pong
from sensorium.reproduce import run as reproduce
from sensorium.training import DaggerConfig
from tests.probes import save_untrained

pytest.importorskip("ale_py", reason="the extra `atari` is not installed")

TINY = dataclasses.replace(of_pong.SMALL.policy, message_size=4, reader_size=8)
REMEMBERING = VisionAttentionNeuronConfig(
    num_queries=4,
    message_size=4,
    reading=Reading.WHOLE,
    reader_size=8,
    hidden_size=8,
    hidden_rows=0,
    blends=False,
)
POLICIES = {"pong-pi": TINY, "pong-pi-robust": REMEMBERING, "pong-nla": TINY}


@pytest.fixture
def pong_zoo(tmp_path, monkeypatch):
    for name, policy in POLICIES.items():
        recipe = dataclasses.replace(recipes.find("pong-pi"), name=name, policy=policy)
        save_untrained(tmp_path / "zoo" / f"{name}.safetensors", recipe)
    monkeypatch.setenv("SENSORIUM_ZOO", str(tmp_path / "zoo"))
    monkeypatch.setattr("sensorium.bridges.from_gymnasium.HostWorld.max_steps", 60)
    monkeypatch.setattr(pong, "_STEPS", 60)


def size_of(path):
    with Image.open(path) as picture:
        return picture.size


def run(table, tmp_path, episodes=4):
    path = tmp_path / f"{table}.json"
    reproduce.run(table, episodes=episodes, seed=0, out=tmp_path, json=str(path))
    return json.loads(path.read_text())


def test_scores_say_how_many_different_games_they_are_of(pong_zoo, tmp_path, capsys):
    rows = run("table-6-pong", tmp_path)
    column = ["-20 ± 1", "-20 ± 2", "-10 ± 12", "-2 ± 17", "18 ± 9"]
    assert [row["paper"] for row in rows] == column * 2
    assert all(1 <= row["different_games"] <= 4 for row in rows)
    printed = capsys.readouterr().out
    assert "different" in printed
    assert "the papers'" in printed
    rows = run("nla-table-5", tmp_path)
    assert {row["agent"]: row["paper"] for row in rows if row["perturbation"] == "plain"} == {
        "pong-pi": "-21 ± 2",
        "pong-nla": "21 ± 0",
    }


def test_games_that_begin_later_and_are_alike_count_once():
    row = {"env": pong.PAPERS, "seed": 0, "episodes": 3, "agent": "a", "perturbation": "plain"}
    row |= {"mean": 0.0, "std": 0.0, "paper": "-"}
    starts = pong._first_frames(pong.PAPERS, 0, 3)
    assert all(1 <= start <= 30 for start in starts)
    alike = [(400 - start) // 4 for start in starts]
    rows, _ = pong._with_games([row | {"lengths": alike, "returns": [21, 21, 21]}])
    phases = len({start % 4 for start in starts})
    assert rows[0]["different_games"] == phases
    rows, _ = pong._with_games([row | {"lengths": alike, "returns": [21, 20, 19]}])
    assert rows[0]["different_games"] == 3


@pytest.fixture
def short_training(monkeypatch):
    trainer = DaggerConfig(
        num_envs=2,
        rollout_steps=20,
        demonstration_rounds=1,
        num_rounds=0,
        num_batches=1,
        batch_size=2,
        num_steps=8,
        window=8,
    )
    stage = of_pong.SMALL.last.changed(
        trainer=trainer, generations=1, test_every=1, test_episodes=2
    )
    small = dataclasses.replace(of_pong.SMALL, policy=TINY, stages=(stage,))
    monkeypatch.setitem(recipes.RECIPES, "pong-pi-small", small)
    monkeypatch.setattr(pong, "MISSING", (0.0, 0.8))
    monkeypatch.setattr(pong, "SEEDS", 1)
    monkeypatch.setattr(pong, "CURVE_GENERATIONS", 1)


def test_figures(pong_zoo, tmp_path):
    drawn = run("figure-6", tmp_path)
    assert min(size_of(drawn["figure"])) > 300
    rows = run("pong-decoder", tmp_path)
    assert [row["what"] for row in rows][:2] == ["x of the ball", "y of the ball"]
    assert all(row["constant"] >= 0 and row["memory"] >= 0 for row in rows)


def test_figures_that_train(pong_zoo, short_training, tmp_path):
    rows = run("nla-curves-pong", tmp_path)
    assert [row["keys"] for row in rows] == ["linear", "nla-published", "nla-invariant"]
    assert all(row["ends"][0] > 0 for row in rows)
    assert rows[0]["generations"] == [1.0]  # where the level is its own
    assert min(size_of(rows[0]["figure"])) > 200
    rows = run("figure-5", tmp_path, 2)
    assert [(row["agent"], row["perturbation"]) for row in rows] == [
        (f"{trained} missing", test)
        for trained in ("0%", "80%")
        for test in ("shuffled", "80% removed + shuffled")
    ]
    assert min(size_of(rows[0]["figure"])) > 200
    assert (
        run("figure-5", tmp_path, 2)[0]["returns"] == rows[0]["returns"]
    )  # runs are not made anew
