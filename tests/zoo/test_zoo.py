"""The agents that are shipped, and agents as files."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from sensorium import recipes, zoo
from sensorium.errors import AgentFileError, UnknownNameError
from sensorium.evaluation import evaluate
from sensorium.perturbations import Shuffle
from sensorium.policies import num_parameters, to_vector
from sensorium.serialisation import save_pytree
from sensorium.zoo.card import in_minutes, show_card


@pytest.mark.parametrize("name", zoo.names())
def test_every_agent_is_what_its_recipe_makes_and_has_a_card_that_fits(name):
    agent = zoo.load(name)
    assert agent.recipe == recipes.find(name)
    card = agent.card
    assert agent.name == card["name"] == name
    assert card["parameters"] == num_parameters(agent.policy)
    assert card["training_seconds"] > 0
    assert isinstance(card["seed"], int)
    episodes = agent.recipe.make_world().scored_episodes
    for scores in card["scores"].values():
        assert len(scores["returns"]) == card["evaluation"]["episodes"] == episodes
        assert scores["mean"] == pytest.approx(np.mean(scores["returns"]), abs=0.01)
        low, high = scores["ci95"]
        if scores["std"]:
            assert low < scores["mean"] < high
        else:  # every episode of Pong may end 21 : 0
            assert low == scores["mean"] == high


def test_a_card_says_what_the_agent_does():
    agent = zoo.load("cartpole-pi")
    said = agent.card["scores"]["shuffled"]
    scores = evaluate(agent.policy, "CartPoleSwingUpHarder", Shuffle(), episodes=100, seed=77)
    # Other starts: within four standard errors of a hundred episodes
    assert abs(scores.summary.mean - said["mean"]) < 4 * said["std"] / 10


def test_saved_and_loaded(tmp_path):
    agent = zoo.load("cartpole-pi")
    agent.save(tmp_path / "mine.safetensors")
    loaded = zoo.load(tmp_path / "mine.safetensors")
    np.testing.assert_array_equal(to_vector(loaded.policy), to_vector(agent.policy))
    assert loaded.recipe == agent.recipe
    assert loaded.card["scores"] == agent.card["scores"]


def test_an_agent_acts_with_any_number_of_sensors():
    agent = zoo.load("cartpole-pi")
    for sensors in (1, 5, 12):
        action, _ = agent(np.zeros(sensors), agent.initial_carry(sensors))
        assert action.shape == (1,)
        assert bool(jax.numpy.isfinite(action).all())


@pytest.mark.parametrize("other", ["folder", "file", "run"])
def test_only_a_run_comes_before_the_zoo(other, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "cartpole-pi"
    if other == "file":
        Path(name).write_text("notes")
    else:
        Path(name).mkdir()
        (Path(name) / "notes").touch()
    if other == "run":
        mine = dataclasses.replace(zoo.load("cartpole-fnn").recipe, name="mine")
        zoo.Agent(mine.draw_policy(jax.random.key(0)), mine, {}).save(
            Path(name) / "best.safetensors"
        )
    assert zoo.load(name).name == ("mine" if other == "run" else name)


def test_names_that_are_not_there(tmp_path, monkeypatch):
    with pytest.raises(UnknownNameError, match="did you mean 'cartpole-pi"):
        zoo.load("cartpole-p")
    monkeypatch.setenv("SENSORIUM_ZOO", str(tmp_path))
    assert zoo.names() == []
    with pytest.raises(
        UnknownNameError, match=f"no agent 'cartpole-pi': the zoo, {tmp_path}, holds none"
    ):
        zoo.load("cartpole-pi")


def test_weights_that_do_not_fit_their_recipe(tmp_path):
    small, large = recipes.find("cartpole-pi"), recipes.find("cartpole-pi-best")
    path = tmp_path / "mixed.safetensors"
    save_pytree(path, small.draw_policy(jax.random.key(0)), {"recipe": large.to_json()})
    with pytest.raises(AgentFileError, match="another architecture"):
        zoo.load(path)
    recipe = small.to_json() | {"policy": {"kind": "Transformer"}}
    save_pytree(path, small.draw_policy(jax.random.key(0)), {"recipe": recipe})
    with pytest.raises(AgentFileError, match="no registered part 'Transformer'"):
        zoo.load(path)
    save_pytree(path, small.draw_policy(jax.random.key(0)), {})
    with pytest.raises(AgentFileError, match="names no recipe"):
        zoo.load(path)


def test_cards_are_json_of_plain_numbers():
    for name in zoo.names():
        text = (zoo.zoo_directory() / f"{name}.json").read_text()
        json.loads(text, parse_constant=lambda word: pytest.fail(f"{name}: {word}"))


SCORE = {"mean": 1.0, "std": 0.0, "ci95": [1.0, 1.0]}


@pytest.mark.parametrize(
    "card",
    [
        b'{"scores": {"plain": 3}}',
        b'{"scores": {"plain": {"mean": 1.0, "std": "0", "ci95": [1.0, 1.0]}}}',
        b'{"scores": [1]}',
        b'{"scores": {}',
        '{"scores": {}}'.encode("utf-16"),
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_a_damaged_card_gets_a_sentence(card, tmp_path):
    agent = zoo.load("cartpole-pi")
    path = tmp_path / "mine.safetensors"
    agent.save(path)
    path.with_suffix(".json").write_bytes(card)
    with pytest.raises(AgentFileError, match="card"):
        zoo.load(path)


def test_a_json_of_another_kind_beside_an_agent_is_no_card(tmp_path):
    agent = zoo.load("cartpole-pi")
    path = tmp_path / "mine.safetensors"
    dataclasses.replace(agent, card={"scores": {"plain": SCORE}}).save(path)
    for other in ([1, 2], {"agent": "cartpole-pi", "mean": 3.0}, 7):
        path.with_suffix(".json").write_text(json.dumps(other))
        assert zoo.load(path).card == {"scores": {"plain": SCORE}}


@pytest.mark.parametrize("card", [3, [], {"scores": 3}, {"scores": {"plain": {}}}])
def test_a_damaged_card_in_a_header_gets_a_sentence(card, tmp_path):
    agent = zoo.load("cartpole-pi")
    header = {"recipe": agent.recipe.to_json(), "card": card}
    save_pytree(tmp_path / "mine.safetensors", agent.policy, header)
    with pytest.raises(AgentFileError, match="card"):
        zoo.load(tmp_path / "mine.safetensors")


def test_agents_that_cannot_be_there(tmp_path):
    for name in ("a" * 300, "a\0b", str(tmp_path / ("b" * 300))):
        with pytest.raises((AgentFileError, UnknownNameError)):
            zoo.load(name)


def test_a_card_on_screen_tells_each_stage_and_its_expert(capsys):
    show_card("ant-pi-evolved", None)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    cost = zoo.load("ant-pi-evolved").card
    assert ["trained", "in", *in_minutes(cost["training_seconds"]).split()] in lines
    for stage in cost["stages"]:
        (row,) = (line for line in lines if line[:2] == [stage["stage"], str(stage["generations"])])
        expert = ["ant-fnn,", "36", "min"] if "expert" in stage else []
        assert row[3:] == [*in_minutes(stage["seconds"]).split(), *expert]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(40.2, "40 s"), (89.4, "89 s"), (90.0, "2 min"), (5369.0, "89 min"), (12891.7, "3 h 35 min")],
)
def test_times_have_the_unit_that_suits_them(seconds, words):
    assert in_minutes(seconds) == words
