"""The table of motor neurons runs, with untrained agents and real rivals."""

import json

import pytest

from sensorium import recipes
from sensorium.reproduce import run as reproduce
from sensorium.reproduce.motors import BODIES, CARTS, LEARNT_RIVALS, RIVALS
from sensorium.zoo import publish
from tests.probes import save_untrained


@pytest.fixture(autouse=True)
def untrained(tmp_path, monkeypatch):
    for name in (*BODIES, "thrusters-fnn", "cartpole-motors", "cartpole-fnn"):
        save_untrained(tmp_path / "zoo" / f"{name}.safetensors", recipes.find(name))
    monkeypatch.setenv("SENSORIUM_ZOO", str(tmp_path / "zoo"))


def test_shares_of_the_told_controller_beside_rivals(tmp_path):
    path = tmp_path / "motors.json"
    reproduce.run("motors", episodes=16, seed=0, out=tmp_path, json=str(path))
    rows = {(row["agent"], row["body"]): row for row in json.loads(path.read_text())}
    for name, bodies in BODIES.items():
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
        for body in bodies:
            assert {(of, body.name) for of in (name, *RIVALS[name])} <= set(rows)
    for body in CARTS:
        row = rows.pop(("cartpole-motors", body))
        assert 0 < row["return"] < 300
        assert row["return_told"] > 0
    for row in rows.values():
        assert row["before_told"] > 0.95, row
        assert 0 <= row["end"] <= 1
    assert set(LEARNT_RIVALS["thrusters-motors"]) == {"thrusters-fnn", "thrusters-lstm"}
    # One that knows motors by their places acts on no more of them than it was built for
    assert [body for of, body in rows if of == "thrusters-fnn"] == [
        "3 to 8 motors", "the same, rewired",
    ]  # fmt: skip
    rival, untrained = (
        rows[of, "the same, rewired"]["end"]
        for of in ("recursive least squares", "thrusters-motors")
    )
    assert untrained + 0.3 < rival


def test_cards_of_agents_with_motor_neurons_say_what_rewiring_costs():
    path = publish.score_again("thrusters-motors", episodes=4)
    scores = json.loads(path.read_text())["scores"]
    assert {"plain", "motors rewired with signs every 100", "25% of motors cut"} <= set(scores)
