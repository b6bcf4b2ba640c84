"""The agents that are shipped, and agents as files."""

import json

import jax
import numpy as np
import pytest

from sensorium import recipes, zoo
from sensorium.errors import AgentFileError, UnknownNameError
from sensorium.evaluation import evaluate
from sensorium.perturbations import Shuffle
from sensorium.policies import num_parameters, to_vector


@pytest.mark.parametrize("name", zoo.names())
def test_every_agent_has_a_card_that_fits(name):
    agent = zoo.load(name)
    card = agent.card
    assert agent.name == card["name"] == name
    assert card["parameters"] == num_parameters(agent.policy)
    assert card["training_seconds"] > 0
    assert isinstance(card["seed"], int)
    # These cards are owed the other half of their episodes
    halved = name in (
        "carracing-attention-agent",
        "carracing-attention-agent-clone",
        "carracing-cnn",
        "carracing-nla",
        "carracing-nla-published",
        "carracing-netrand",
        "carracing-noise-10",
        "carracing-noise-20",
        "carracing-noise-5",
        "carracing-pi",
        "carracing-pi-backgrounds",
    )
    episodes = 50 if halved else agent.recipe.make_world().scored_episodes
    for scores in card["scores"].values():
        assert len(scores["returns"]) == card["evaluation"]["episodes"] == episodes
        assert scores["mean"] == pytest.approx(np.mean(scores["returns"]), abs=0.01)
        assert scores["ci95"][0] < scores["mean"] < scores["ci95"][1]
    # What is shipped can be trained again
    assert recipes.find(name).policy == agent.recipe.policy


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
    from sensorium.serialisation import save_pytree

    small, large = recipes.find("cartpole-pi"), recipes.find("cartpole-pi-best")
    path = tmp_path / "mixed.safetensors"
    save_pytree(path, small.draw_policy(jax.random.key(0)), {"recipe": large.to_json()})
    with pytest.raises(AgentFileError, match="another architecture"):
        zoo.load(path)
    recipe = small.to_json() | {"policy": {"kind": "Transformer"}}
    save_pytree(path, small.draw_policy(jax.random.key(0)), {"recipe": recipe})
    with pytest.raises(AgentFileError, match="unknown kind 'Transformer'"):
        zoo.load(path)
    save_pytree(path, small.draw_policy(jax.random.key(0)), {})
    with pytest.raises(AgentFileError, match="names no recipe"):
        zoo.load(path)


def test_cards_are_json_of_plain_numbers():
    for name in zoo.names():
        text = (zoo.zoo_directory() / f"{name}.json").read_text()
        json.loads(text, parse_constant=lambda word: pytest.fail(f"{name}: {word}"))
