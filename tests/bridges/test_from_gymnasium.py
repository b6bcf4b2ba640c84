"""Any Gymnasium environment is a world, or says in one sentence why not."""

import json
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from sensorium.bridges import bullet
from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.open_env import open_env
from sensorium.errors import ConfigError, MissingExtraError, UnknownNameError
from sensorium.perturbations import Duplicate, NoiseChannels
from sensorium.rollout import make_world

WORLDS = "gym:tests.host_worlds:{}-v0"


def test_facts_come_from_the_environment():
    world = make_world("gym:CartPole-v1", NoiseChannels(3))
    assert (world.num_sensors, world.num_actions) == (4 + 3, 2)
    assert (world.max_steps, world.solved_return) == (500, 475.0)
    assert make_world(WORLDS.format("Walk")).solved_return == np.inf


def test_a_module_of_the_working_directory_may_register_an_environment(tmp_path):
    """With the command that is installed, whose path has no working directory; in worker processes too."""
    (tmp_path / "mine.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import PendulumEnv\n"
        "gymnasium.register('Mine-v0', PendulumEnv, max_episode_steps=5)\n"
    )
    command = Path(sys.executable).with_name("sensorium")
    result = subprocess.run(
        [command, "eval", "cartpole-pi", "--env", "gym:mine:Mine-v0", "--episodes", "2",
         "--workers", "1", "--json", "-"],
        capture_output=True, text=True, cwd=tmp_path, timeout=280,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert len(json.loads(result.stdout)["returns"]) == 2


def test_actions_are_mapped_to_what_the_environment_takes():
    actions = np.float32([[-1, -1], [1, 0], [0.5, 1]])
    box = make_world(WORLDS.format("Walk")).to_env_actions(actions)  # [-3, 3] x [0, 1]
    assert box.tolist() == [[-3, 0], [3, 0.5], [1.5, 1]]
    assert make_world("gym:CartPole-v1").to_env_actions(actions).tolist() == [0, 0, 1]


def test_images_have_a_shape_but_no_sensors():
    world = make_world(WORLDS.format("Images"))
    assert world.observation_shape == (4, 5, 3)
    with pytest.raises(ConfigError, match=r"images of shape \(4, 5, 3\); an agent of scalar"):
        _ = world.num_sensors
    with pytest.raises(
        ConfigError, match="'3 copies' happens to scalar sensors and entities, not to im"
    ):
        make_world(WORLDS.format("Images"), Duplicate(3))


@pytest.mark.parametrize(
    ("name", "error", "sentence"),
    [
        ("gym:Pendulm-v1", UnknownNameError, "did you mean 'Pendulum-v1'"),
        ("gym:tests.host_worlds:Floats-v0", ConfigError, "images of float32; .* need uint8"),
        (
            "gym:tests.host_worlds:Words-v0",
            ConfigError,
            "observes a Dict with b, a Text; agents need",
        ),
        ("gym:tests.host_worlds:Pairs-v0", ConfigError, "takes actions of a Tuple"),
        ("gym:no_such_module:Thing-v0", ConfigError, "Gymnasium cannot open no_such_module:Thing"),
        ("Pendulum-v1", UnknownNameError, "There is no world 'Pendulum-v1'"),
    ],
)
def test_what_cannot_be_a_world_says_why(name, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        make_world(name)
    assert "\n" not in str(caught.value)


def test_a_reward_for_training_must_exist():
    with pytest.raises(ConfigError, match="Pendulum-v1 has no reward of its own for training"):
        open_env("Pendulum-v1", training_reward=True)
    with pytest.raises(ConfigError, match="CartPoleSwingUpHarder has no reward of its own"):
        make_world("CartPoleSwingUpHarder", training_reward=True)


def test_without_pybullet_the_extra_is_named(monkeypatch):
    for package in ("pybullet", "pybullet_envs_gymnasium"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "sensorium.bridges.fast_bullet", raising=False)
    with pytest.raises(
        MissingExtraError, match=r"pip install 'sensorium\[ant\]', with Python 3.11"
    ):
        make_world("gym:HopperBulletEnv-v7")


class TestAnt:
    """The PyBullet ant, where PyBullet is installed."""

    @pytest.fixture(autouse=True)
    def _needs_pybullet(self):
        pytest.importorskip("pybullet_envs_gymnasium", reason="the extra `ant` is not installed")

    def test_facts(self):
        world = make_world("gym:AntBulletEnv-v0")
        assert (world.num_sensors, world.num_actions) == (28, 8)
        assert (world.max_steps, world.solved_return) == (1000, 2500.0)

    def test_the_nearest_name_is_given(self):
        with pytest.raises(UnknownNameError, match="did you mean 'AntBulletEnv-v0'"):
            make_world("gym:AntBulletEnv-v1")

    @pytest.mark.parametrize("wrong", ["foo=1", "max_episode_steps=-3"])
    def test_wrong_options_are_one_sentence(self, wrong):
        with pytest.raises(ConfigError, match="Gymnasium cannot open AntBulletEnv-v0"):
            make_world(f"gym:AntBulletEnv-v0?{wrong}")

    def test_a_seed_gives_one_episode_first_or_later(self):
        def episode(env, seed):
            observation, _ = env.reset(seed=seed)
            seen = [observation]
            for step in range(60):
                seen.append(env.step(np.sin(np.arange(8) + step / 3).astype(np.float32))[0])
            return np.array(seen)

        first, other = open_env("AntBulletEnv-v0"), open_env("AntBulletEnv-v0")
        expected = [episode(first, seed) for seed in (0, 1, 2)]
        for seed in (2, 0, 1):
            assert np.array_equal(episode(other, seed), expected[seed])
        first.close()
        other.close()

    def test_training_pays_for_walking_only(self):
        plain, training = open_env("AntBulletEnv-v0"), open_env("AntBulletEnv-v0", True)
        plain.reset(seed=0)
        training.reset(seed=0)
        paid = []
        for action in np.random.default_rng(2).uniform(-1, 1, (100, 8)).astype(np.float32):
            _, reward, *_ = plain.step(action)
            _, for_training, *_ = training.step(action)
            alive = plain.unwrapped.rewards[0]
            assert for_training == pytest.approx(max(0.0, reward - alive))
            paid.append(for_training)
        assert 0.0 in paid
        assert max(paid) > 0
        plain.close()
        training.close()

    def test_nothing_is_printed(self):
        code = (
            "from sensorium.bridges.open_env import open_env\n"
            "e = open_env('AntBulletEnv-v0'); e.reset(); e.close(); print('{}')"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert json.loads(done.stdout) == {}
        assert done.stderr == ""


def test_worlds_are_values():
    assert make_world("gym:Pendulum-v1") == HostWorld("Pendulum-v1")
    assert hash(make_world("gym:Pendulum-v1")) == hash(HostWorld("Pendulum-v1"))
    assert bullet.knows("AntBulletEnv-v0")
    assert not bullet.knows("Ant-v5")
    assert "Pendulum-v1" in gymnasium.registry
