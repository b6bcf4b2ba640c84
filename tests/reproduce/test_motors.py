"""The table of motor neurons runs, with untrained agents and real rivals."""

import dataclasses
import json

import pytest

from sensorium import recipes
from sensorium.recipes import motors as of_motors
from sensorium.reproduce import motors
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
            assert {(of, body.name) for of in (name, *RIVALS.get(name, {}))} <= set(rows)
    for body in CARTS:
        row = rows.pop(("cartpole-motors", body))
        assert 0 < row["return"] < 300
        assert row["return_told"] > 0
    for row in rows.values():
        # Three to eight motors that only push cannot hold most bodies, whatever is known
        assert row["before_told"] > (0.2 if row["agent"].endswith("one-sided") else 0.95), row
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


def test_other_seeds_are_trained_once_and_shown_with_intervals(tmp_path, monkeypatch):
    for name in {*BODIES, "cartpole-motors"} - {"arm-motors", "cartpole-motors"}:
        (tmp_path / "zoo" / f"{name}.safetensors").unlink()
    for recipe in (of_motors.ARM, of_motors.CARTPOLE):
        stage = recipe.last.changed(
            generations=1, num_envs=4, num_steps=10, test_every=1, test_episodes=4,
            **({"num_iterations": 1} if recipe is of_motors.ARM else
               {"num_batches": 1, "batch_size": 2, "window": 10, "rollout_steps": 20}),
        )  # fmt: skip
        short = dataclasses.replace(recipe, stages=(stage,))
        monkeypatch.setitem(recipes.RECIPES, recipe.name, short)
    monkeypatch.setattr(motors, "SEEDS", 3)

    def run():
        path = tmp_path / "seeds.json"
        reproduce.run("motors-seeds", episodes=4, seed=0, out=tmp_path, json=str(path))
        return json.loads(path.read_text())

    rows = run()
    assert [row["body"] for row in rows] == [*(body.name for body in BODIES["arm-motors"]), *CARTS]
    for row in rows:
        assert len(row["return"]) == 3
        if row["agent"] == "cartpole-motors":  # an arm that is not trained earns nothing
            assert len(set(row["return"])) == 3, row  # each seed is another agent
        assert len(row["end"]) == 3 * (row["agent"] == "arm-motors")
    kept = (tmp_path / "motors-seeds" / "arm-motors-2" / "metrics.jsonl").read_text()
    assert run() == rows
    assert (tmp_path / "motors-seeds" / "arm-motors-2" / "metrics.jsonl").read_text() == kept


def test_cards_of_agents_with_motor_neurons_say_what_rewiring_costs():
    path = publish.score_again("thrusters-motors", episodes=4)
    scores = json.loads(path.read_text())["scores"]
    assert {"plain", "motors rewired with signs every 100", "25% of motors cut"} <= set(scores)
