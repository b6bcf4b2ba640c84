"""The table of motor neurons runs, with untrained agents."""

import json

import pytest

from sensorium import recipes
from sensorium.reproduce import run as reproduce
from sensorium.reproduce.motors import BODIES
from sensorium.zoo import publish
from tests.probes import save_untrained


@pytest.fixture(autouse=True)
def untrained(tmp_path, monkeypatch):
    for name in BODIES:
        save_untrained(tmp_path / "zoo" / f"{name}.safetensors", recipes.find(name))
    monkeypatch.setenv("SENSORIUM_ZOO", str(tmp_path / "zoo"))


def test_shares_of_the_told_controller(tmp_path):
    path = tmp_path / "motors.json"
    reproduce.run("motors", episodes=16, seed=0, out=tmp_path, json=str(path))
    rows = json.loads(path.read_text())
    bodies = [(name, body.name) for name, of_agent in BODIES.items() for body in of_agent]
    assert [(row["agent"], row["body"]) for row in rows] == bodies
    for row in rows:
        assert row["before_told"] > 0.95, row
        assert 0 <= row["end"] < row["end_told"] <= 1


def test_cards_of_agents_with_motor_neurons_say_what_rewiring_costs():
    path = publish.score_again("thrusters-motors", episodes=4)
    scores = json.loads(path.read_text())["scores"]
    assert {"plain", "motors rewired with signs every 100", "25% of motors cut"} <= set(scores)
