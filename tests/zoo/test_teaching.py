"""From a teacher to a clone to an agent that goes on from it, as the README types it."""

import dataclasses
import shlex
from pathlib import Path

import pytest
import tyro

from sensorium import cli, recipes, zoo
from sensorium.errors import ConfigError
from sensorium.policies import FeedForwardConfig
from sensorium.training import CloningConfig, PpoConfig, RecurrentPpoConfig

WALK = "gym:tests.host_worlds:Walk-v0"
README = Path(__file__).parents[2] / "README.md"

pytestmark = pytest.mark.usefixtures("compiled_in_a_hurry")


@pytest.fixture
def small(monkeypatch):
    """The README's recipes, with small agents, in a small world and with a budget of seconds."""
    sizes = dict(env=WALK, generations=1, test_every=1, test_episodes=2)
    trainers = {
        "ant-fnn": PpoConfig(total_steps=32, environments=1, rollout=32, batch=32, epochs=1),
        "ant-pi-clone": CloningConfig(
            teacher="ant-fnn", episodes=4, steps=20, window=20, batch=2, batches=1, total_batches=1
        ),
        "ant-pi": RecurrentPpoConfig(rollouts=2, groups=1, horizon=8, rounds=1, epochs=1),
    }
    for name, trainer in trainers.items():
        policy = FeedForwardConfig((4,), clipped=name == "ant-fnn")
        recipe = recipes.find(name)
        recipe = dataclasses.replace(recipe, policy=policy, trainer=trainer, **sizes)
        monkeypatch.setitem(recipes.RECIPES, name, recipe)


def run(line):
    """One line for a shell, in this process."""
    arguments = shlex.split(line, comments=True)[1:]
    tyro.extras.subcommand_cli_from_dict(cli.COMMANDS, args=arguments)


@pytest.mark.usefixtures("small")
def test_the_chain_of_the_readme_runs_as_written_in_a_fresh_folder(tmp_path, monkeypatch):
    pytest.importorskip("stable_baselines3", reason="the extra `teachers` is not installed")
    pytest.importorskip("minari", reason="the extra `teachers` is not installed")
    lines = README.read_text().splitlines()
    chain = [line for line in lines if line.startswith("sensorium ") and "ant-" in line]
    assert [shlex.split(line)[1] for line in chain] == ["teach", "clone", "train"]
    monkeypatch.chdir(tmp_path)
    for line in chain:
        run(line)
    assert {path.name for path in Path().iterdir()} == {"runs"}
    assert {path.name for path in Path("runs").iterdir()} == {"ant-fnn", "ant-pi-clone", "ant-pi"}
    assert zoo.load("runs/ant-pi").recipe.start == str(Path("runs/ant-pi-clone").absolute())


@pytest.mark.parametrize(
    ("name", "env", "sentence"),
    [
        ("ant-fnn", "gym:CartPole-v1", "CartPole-v1 takes Discrete"),
        ("ant-fnn", "gym:tests.host_worlds:Unbounded-v0", "Unbounded-v0 takes Box"),
        ("ant-fnn", "gym:tests.host_worlds:Pictures-v0", "pictures"),
        ("ant-fnn", "CartPoleSwingUpHarder", "jerk_penalty is for worlds on the host"),
        ("carracing-ppo", "gym:Pendulum-v1", "."),
    ],
)
def test_what_cannot_be_taught_is_refused_before_there_is_a_folder(name, env, sentence, tmp_path):
    pytest.importorskip("stable_baselines3", reason="the extra `teachers` is not installed")
    recipe = recipes.find(name).override(env=env)
    with pytest.raises(ConfigError, match=sentence) as caught:
        zoo.teach(recipe, tmp_path / "run", quiet=True)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
