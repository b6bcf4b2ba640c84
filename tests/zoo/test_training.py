"""Chains of stages: as the README types them, resumed in any stage, and what a run keeps of them."""

import dataclasses
import json
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from sensorium import cli, recipes, zoo
from sensorium.errors import ConfigError, UnknownNameError
from sensorium.perturbations import Shuffle
from sensorium.policies import AttentionNeuronConfig, FeedForwardConfig
from sensorium.recipes import Recipe, Stage
from sensorium.training import (
    DaggerConfig,
    EvolutionConfig,
    PpoConfig,
    Sb3PpoConfig,
    ShacConfig,
    StrategyConfig,
)
from tests.probes import Stopped, stop_after

WALK = "gym:tests.host_worlds:Walk-v0"
README = Path(__file__).parents[2] / "README.md"
QUICK = {"generations": 2, "test_every": 1, "test_episodes": 2, "checkpoint_every": 1}

pytestmark = pytest.mark.usefixtures("short_episodes")

CHAIN = Recipe(
    name="chain",
    summary="Gradients, then evolution, then a larger policy that learns from a copy of the first.",
    policy=AttentionNeuronConfig(num_queries=4, hidden_size=6),
    stages=(
        Stage(
            "gradients",
            ShacConfig(population=2, num_envs=4, num_steps=8, num_iterations=2),
            policy=AttentionNeuronConfig(num_queries=4),
            perturbation=Shuffle(),
            **QUICK,
        ),
        Stage(
            "evolution",
            EvolutionConfig(StrategyConfig("pgpe", sigma=0.01), population=4, num_episodes=2),
            policy=AttentionNeuronConfig(num_queries=4),
            **QUICK,
        ),
        Stage(
            "larger",
            EvolutionConfig(StrategyConfig("pgpe", sigma=0.01), population=4, num_episodes=2),
            start="stage:gradients",
            **QUICK,
        ),
    ),
)
CHAIN = dataclasses.replace(CHAIN, policy=AttentionNeuronConfig(num_queries=4, hidden_size=12))


@pytest.fixture(scope="module")
def whole(short_episodes, tmp_path_factory):
    """A chain that nothing has disturbed."""
    directory = tmp_path_factory.mktemp("runs") / "whole"
    zoo.train(CHAIN, directory, quiet=True)
    return directory


def arrays(directory):
    """All that a run has learned."""
    files = sorted(directory.rglob("*.safetensors"))
    return {
        f"{file.relative_to(directory)} {name}": array.tobytes()
        for file in files
        for name, array in load_file(file).items()
    }


@pytest.mark.parametrize(
    ("stage", "generation"),
    [("gradients", 1), ("gradients", 2), ("evolution", 1), ("larger", 1), ("larger", 2)],
)
def test_a_chain_resumes_bit_for_bit_in_any_stage(whole, tmp_path, stage, generation):
    cut = tmp_path / "cut"
    with pytest.raises(Stopped):
        zoo.train(CHAIN, cut, quiet=True, on_generation=stop_after(generation, stage))
    zoo.resume(cut, quiet=True)
    assert arrays(cut) == arrays(whole)
    rows = [json.loads(line) for line in (cut / "metrics.jsonl").read_text().splitlines()]
    assert [(row["stage"], row["generation"]) for row in rows] == [
        (stage.name, generation) for stage in CHAIN.stages for generation in (1, 2)
    ]


def test_a_run_keeps_what_every_stage_cost(whole):
    from sensorium.training import RunDirectory

    stages = RunDirectory.open(whole).history()
    assert [stage["stage"] for stage in stages] == ["gradients", "evolution", "larger"]
    assert all(stage["seconds"] > 0 and stage["generations"] == 2 for stage in stages)
    assert all(stage["env_steps"] > 0 for stage in stages)
    agent = zoo.load(whole)
    assert agent.recipe == CHAIN
    assert agent.policy.layer.lstm.hidden_size == 12
    zoo.resume(whole, quiet=True)  # nothing is left to do


def test_a_stage_starts_from_what_an_earlier_one_kept(whole, tmp_path):
    still = CHAIN.override({"larger.strategy.sigma": 1e-9, "larger.strategy.learning_rate": 1e-9})
    grown = zoo.train(still, tmp_path / "run", quiet=True)
    first = recipes.Recipe.from_json(CHAIN.to_json()).stage("gradients")
    assert first.policy is not None
    small = load_file(tmp_path / "run" / "stages" / "gradients.safetensors")
    key = next(name for name in small if name.endswith("key_weight"))
    np.testing.assert_allclose(grown.layer.key_weight[:, :8], small[key], atol=1e-5)
    assert not np.any(np.abs(grown.layer.key_weight[:, 8:]) > 1e-5)


def test_an_agent_of_a_run_that_is_under_way_is_that_of_its_stage(tmp_path):
    with pytest.raises(Stopped):
        zoo.train(CHAIN, tmp_path, quiet=True, on_generation=stop_after(1, "gradients"))
    assert zoo.load(tmp_path).policy.layer.lstm.hidden_size == 8


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"larger.start": "stage:gradient"}, UnknownNameError, "did you mean 'gradients'"),
        ({"larger.name": "evolution"}, ConfigError, "has two stages 'evolution'"),
        ({"larger.name": "a/b"}, ConfigError, "name of letters, digits and dashes, got 'a/b'"),
        ({"evolution.expert": "stage:larger"}, UnknownNameError, "no stage before 'evolution'"),
        ({"evolution.population": 3}, ConfigError, "at least 4, got 3"),
        ({"evolution.generations": 0}, ConfigError, "generations must be at least 1, got 0"),
        ({"larger.start": "nobody"}, UnknownNameError, "There is no agent 'nobody'"),
        ({"larger.start": "stage:evolution", "policy.num_queries": 5}, ConfigError, "architecture"),
    ],
)
def test_all_of_a_chain_is_checked_before_anything_is_written(tmp_path, changes, error, words):
    with pytest.raises(error, match=words):
        zoo.train(CHAIN.override(changes), tmp_path / "run", quiet=True)
    assert not list(tmp_path.iterdir())


def test_a_stage_may_train_in_another_world_than_it_is_tested_in(tmp_path):
    recipe = recipes.find("thrusters-motors").override(QUICK)
    trains_in = recipe.override({"gradients.env": "Thrusters?lag=0.5"})
    worlds = trains_in.make_training_world(), trains_in.make_world()
    assert [world.unperturbed.lag for world in worlds] == [0.5, 0.0]
    assert Recipe.from_json(trains_in.to_json()) == trains_in
    for env, sentence in {
        "Arm": "would train in Arm, whose observations or actions are not those of Thrusters",
        "Thrusters?motors=9": "are not those of Thrusters",
    }.items():
        wrong = recipe.override({"gradients.env": env})
        with pytest.raises(ConfigError, match=sentence):
            zoo.train(wrong, tmp_path / "run", quiet=True)
        assert not (tmp_path / "run").exists()
    with pytest.raises(UnknownNameError, match="did you mean 'Thrusters'"):
        Recipe.from_json(recipe.override({"gradients.env": "Thruster"}).to_json())


def test_a_recipe_is_a_name_a_file_a_run_or_of_a_module(whole, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run("sensorium recipe cartpole-pi --set seed=3 --set trainer.num_steps=8", monkeypatch)
    Path("mine.json").write_text(capsys.readouterr().out)
    mine = recipes.find("mine.json")
    assert mine == recipes.find("cartpole-pi").override({"seed": 3, "num_steps": 8})
    assert recipes.find(str(whole)) == CHAIN
    assert recipes.find("tests.zoo.test_training:CHAIN") == CHAIN
    with pytest.raises(UnknownNameError, match="did you mean 'CHAIN'"):
        recipes.find("tests.zoo.test_training:CHAIM")


@pytest.fixture
def small(monkeypatch):
    """The README's recipes, with small agents, in a small world and with a budget of seconds."""
    ppo = Sb3PpoConfig(num_envs=2, num_steps=16, num_iterations=1, num_minibatches=1, num_epochs=1)
    expert = Stage("ppo", ppo, **QUICK)
    clone = (
        recipes.find("ant-pi")
        .stage("clone")
        .changed(
            trainer=DaggerConfig(
                num_envs=4,
                demonstration_rounds=1,
                num_rounds=0,
                window=20,
                batch_size=2,
                num_batches=1,
            ),
            **QUICK,
        )
    )
    second = recipes.find("ant-pi").last.changed(
        trainer=PpoConfig(
            num_envs=2, num_minibatches=1, num_steps=8, num_iterations=1, num_epochs=1
        ),
        **QUICK,
    )
    for name, stages in (("ant-fnn", (expert,)), ("ant-pi", (clone, second))):
        recipe = dataclasses.replace(
            recipes.find(name),
            policy=FeedForwardConfig((4,), clipped=name == "ant-fnn"),
            stages=stages,
            env=WALK,
        )
        monkeypatch.setitem(recipes.RECIPES, name, recipe)


def run(line, monkeypatch):
    """One line for a shell, in this process."""
    monkeypatch.setattr(sys, "argv", shlex.split(line, comments=True))
    cli.main()


@pytest.mark.usefixtures("small")
def test_the_chain_of_the_readme_runs_as_written_in_a_fresh_folder(tmp_path, monkeypatch):
    pytest.importorskip("stable_baselines3", reason="the extra `experts` is not installed")
    (line,) = (
        line
        for line in README.read_text().splitlines()
        if line.startswith("sensorium train") and "--from-scratch" in line
    )
    monkeypatch.chdir(tmp_path)
    run(line, monkeypatch)
    assert {path.name for path in Path().iterdir()} == {"runs"}
    assert {path.name for path in Path("runs").iterdir()} == {"ant-fnn", "ant-pi"}
    agent = zoo.load("runs/ant-pi")
    expert = str(Path("runs/ant-fnn").absolute())
    assert agent.recipe.stage("clone").expert == expert
    (clone, _) = recipes_history("runs/ant-pi")
    assert clone["expert"]["name"] == "ant-fnn"


def recipes_history(directory):
    from sensorium.training import RunDirectory

    return RunDirectory.open(directory).history()


@pytest.mark.usefixtures("small")
def test_ppo_of_stable_baselines_resumes_bit_for_bit(tmp_path):
    pytest.importorskip("stable_baselines3", reason="the extra `experts` is not installed")
    recipe = recipes.find("ant-fnn")
    zoo.train(recipe, tmp_path / "whole", quiet=True)
    with pytest.raises(Stopped):
        zoo.train(recipe, tmp_path / "cut", quiet=True, on_generation=stop_after(2))
    zoo.resume(tmp_path / "cut", quiet=True)
    assert arrays(tmp_path / "cut") == arrays(tmp_path / "whole")
