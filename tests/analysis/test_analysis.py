"""What is shown is what happened."""

import dataclasses
import importlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from sensorium import recipes, registry
from sensorium.analysis import figures, show
from sensorium.analysis.traces import collect_codes, image, trace_episode
from sensorium.analysis.video import write_video
from sensorium.envs import CartPoleSwingUpHarder, Perturbed
from sensorium.errors import ConfigError, MissingExtraError
from sensorium.evaluation import evaluation_keys
from sensorium.flags import PerturbationFlags
from sensorium.perturbations import (
    Identity,
    NoiseChannels,
    Reshuffle,
    Shuffle,
    compose,
)
from sensorium.policies import AttentionNeuronConfig
from sensorium.rollout import HostEngine, make_world, run_episode
from sensorium.types import digest_levels
from sensorium.zoo import Agent, load

STEPS = 60
WALK = "gym:tests.host_worlds:Walk-v0"


@pytest.fixture(scope="module")
def policy():
    return load("cartpole-pi").policy


@pytest.fixture
def key():
    return evaluation_keys(0, 1)[0]


def test_a_trace_is_the_episode_that_is_scored(policy, key, monkeypatch):
    monkeypatch.setattr(CartPoleSwingUpHarder, "max_steps", STEPS)
    world = CartPoleSwingUpHarder()
    perturbation = compose(NoiseChannels(2), Reshuffle(20))
    trace = trace_episode(policy, world, perturbation, key, STEPS)
    rewards = run_episode(policy, Perturbed(world, perturbation), key).rewards
    np.testing.assert_allclose(trace.reward, rewards, atol=1e-4)


def test_channels_carry_the_sensors_that_they_are_said_to(policy, key):
    trace = trace_episode(
        policy, CartPoleSwingUpHarder(), compose(NoiseChannels(2), Reshuffle(20)), key, STEPS
    )
    source = np.asarray(trace.source)
    assert (np.sort(source, axis=1) == [-1, -1, 0, 1, 2, 3, 4]).all()
    for time in range(STEPS):
        real = source[time] >= 0
        np.testing.assert_array_equal(
            np.asarray(trace.channels)[time, real],
            np.asarray(trace.sensors)[time, source[time, real]],
        )
    assert len({tuple(row) for row in source.tolist()}) >= 2


def test_codes_of_shuffled_senses_are_those_of_plain_ones(policy, key):
    world = CartPoleSwingUpHarder()
    plain, shuffled = (
        trace_episode(policy, world, perturbation, key, STEPS)
        for perturbation in (Identity(), Shuffle())
    )
    # A trained agent in a chaotic world amplifies rounding: later steps may part
    early = slice(0, 10)
    np.testing.assert_allclose(shuffled.code[early], plain.code[early], atol=1e-3)
    order = np.asarray(shuffled.source)[0]
    np.testing.assert_allclose(
        np.asarray(shuffled.attention)[early],
        np.asarray(plain.attention)[early][:, :, order],
        atol=1e-3,
    )


def test_collected_codes_end_with_the_episode(policy):
    keys = evaluation_keys(0, 4)
    world = CartPoleSwingUpHarder()
    codes, sensors = collect_codes(policy, world, keys, STEPS)
    alive = sum(
        int(np.asarray(trace_episode(policy, world, Identity(), key, STEPS).alive).sum())
        for key in keys
    )
    assert codes.shape == (alive, 16)
    assert sensors.shape == (alive, 5)
    assert (np.abs(codes) <= 1).all()


def test_figures_are_drawn(policy, key, tmp_path):
    import imageio.v3 as imageio

    trace = trace_episode(policy, CartPoleSwingUpHarder(), Shuffle(), key, STEPS)
    figures.codes_over_time(tmp_path / "codes.png", {"shuffled": trace})
    x = np.arange(5.0)
    seeds = [(x, x * slope) for slope in (1.0, 2.0, 3.0)]
    figures.learning_curves(tmp_path / "curves.png", {"one": seeds}, xlabel="generation")
    for path in tmp_path.iterdir():
        assert imageio.imread(path).std() > 5, path
    assert len(list(tmp_path.iterdir())) == 2


@pytest.fixture(scope="module")
def walker():
    """An untrained agent for a tiny world on the host."""
    return AttentionNeuronConfig(num_queries=4, message_size=4).build(2, 2, jax.random.key(3))


def test_a_trace_on_the_host_is_the_episode_that_is_scored(walker, key):
    plain, perturbation = make_world(WALK), compose(NoiseChannels(2), Reshuffle(3))
    trace = trace_episode(walker, plain, perturbation, key, 20)
    with HostEngine(make_world(WALK, perturbation), workers=0) as engine:
        scored = engine.run_episodes(walker, key[None])
    assert len(trace.reward) == scored.length[0]
    np.testing.assert_allclose(trace.reward, scored.rewards[0, : len(trace.reward)], atol=1e-4)
    source = np.asarray(trace.source)
    for time in range(len(source)):
        real = source[time] >= 0
        np.testing.assert_allclose(
            trace.channels[time, real], trace.sensors[time, source[time, real]], atol=1e-6
        )
    assert len({tuple(row) for row in source.tolist()}) >= 2


def test_the_ant_is_shown_with_the_names_of_its_sensors(tmp_path, key):
    pytest.importorskip("pybullet_envs_gymnasium", reason="the extra `ant` is not installed")
    world = make_world("gym:AntBulletEnv-v0")
    assert len(set(world.sensor_names)) == 28
    agent = AttentionNeuronConfig(num_queries=4, message_size=4).build(28, 8, key)
    trace = trace_episode(agent, world, Shuffle(), key, 6)
    assert trace.states.shape == (6, 240, 320, 3)
    assert not np.array_equal(trace.states[0], trace.states[5])  # it moves
    assert write_video(tmp_path / "ant.mp4", trace, world, "ant") == 3
    figures.episode(tmp_path / "ant.png", trace, world.sensor_names)
    assert (tmp_path / "ant.png").stat().st_size > 20_000


@pytest.mark.parametrize(
    ("asked", "happened"),
    [
        (dict(steps=8), "shuffled"),
        (dict(steps=8, flags=PerturbationFlags(reshuffle_every=3)), "reshuffled every 3"),
        (
            dict(steps=8, flags=PerturbationFlags(reshuffle_every=8, noise_channels=2)),
            "+2 noise channels + shuffled",
        ),
        (dict(steps=8, plain=True), "plain"),
        (
            dict(steps=900, flags=PerturbationFlags(reshuffle_every=600), seed=3),
            "shuffled",
        ),  # ends early
    ],
)
def test_a_caption_names_what_happened(asked, happened, capsys):
    recipe = recipes.find("cartpole-pi")
    agent = Agent(recipe.draw_policy(jax.random.key(0)), recipe, {})
    show.show(agent, **dict(video=None, figure=None, seed=0) | asked)
    assert capsys.readouterr().out.startswith(f"cartpole-pi, {happened}: return")


def test_a_world_that_does_not_draw_itself_has_a_figure_and_no_video(walker, key, tmp_path):
    world = make_world("gym:tests.host_worlds:Mute-v0")
    trace = trace_episode(walker, world, Identity(), key, 5)
    figures.episode(tmp_path / "mute.png", trace, world.sensor_names)
    with pytest.raises(ConfigError, match="does not draw itself"):
        write_video(tmp_path / "mute.mp4", trace, world, "mute")
    assert [path.name for path in tmp_path.iterdir()] == ["mute.png"]


class Drawn(CartPoleSwingUpHarder):
    """A world that somebody else has added: it draws itself its own way."""

    id = "Drawn"
    steps_per_second = 10

    def draw(self, state):
        return np.full((32, 48, 3), int(state.time), np.uint8)


def test_a_world_of_ones_own_is_shown(policy, key, tmp_path, monkeypatch):
    monkeypatch.setitem(registry._parts, "Drawn", Drawn)
    world = make_world("Drawn")
    trace = trace_episode(policy, world, Identity(), key, 8)
    assert image(world, trace, 3).max() == image(world, trace, 3).min() == 3
    assert write_video(tmp_path / "own.mp4", trace, world, "own") == 8


def test_drawing_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.delitem(sys.modules, "sensorium.analysis")
    with pytest.raises(MissingExtraError, match=r"needs sklearn: pip install 'sensorium\[draw\]'"):
        importlib.import_module("sensorium.analysis")


def test_without_the_extra_that_draws_a_table_is_refused_in_a_sentence():
    script = (
        "import sys; sys.modules['sklearn'] = None\n"
        "sys.argv = ['sensorium', 'reproduce', 'table-3']\n"
        "from sensorium.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install 'sensorium[draw]'" in done.stderr


def test_an_evaluation_draws_nothing():
    """What scores agents, in a process of its own, imports none of the extra's packages."""
    script = (
        "import sys, sensorium.cli, sensorium.reproduce.counterparts, sensorium.training.run\n"
        "print(sorted({'imageio', 'sklearn', 'sensorium.analysis'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "env", ["Entities", "gym:tests.host_worlds:Rows-v0?observe=entities&presence=0"]
)
def test_entities_are_shown(env, tmp_path):
    world = make_world(env)
    policy = AttentionNeuronConfig().build(world.observation_spec, world.actions, jax.random.key(0))
    recipe = dataclasses.replace(recipes.RECIPES["cartpole-pi"], env=env)
    agent = Agent(policy, recipe, {})
    drawn = tmp_path / "episode.png"
    show.show(agent, video=None, figure=drawn, steps=5, seed=0)
    assert drawn.stat().st_size > 10_000
    with pytest.raises(ConfigError, match="does not draw itself"):
        show.show(agent, video=tmp_path / "episode.mp4", figure=None, steps=5, seed=0)


def test_digests_of_motors_are_shown_whose_wires_change_in_the_middle(tmp_path, capsys):
    recipe = recipes.RECIPES["thrusters-motors"]
    agent = Agent(recipe.draw_policy(jax.random.key(0)), recipe, {})
    drawn = tmp_path / "episode.png"
    show.show(agent, video=None, figure=drawn, seed=0)
    assert drawn.stat().st_size > 10_000
    assert "motors rewired with signs every 100: return" in capsys.readouterr().out
    trace = trace_episode(agent.policy, make_world("Thrusters"), Identity(), jax.random.key(0), 50)
    assert trace.digest.shape == (50, 5, 8)
    assert not trace.digest[0].any()
    assert (np.linalg.norm(trace.digest[-1], axis=0) > 0).all()
    show.show(agent, video=tmp_path / "episode.mp4", figure=None, steps=4, seed=0)
    assert (tmp_path / "episode.mp4").stat().st_size > 1_000


def test_digests_are_shown_relative_to_the_largest_of_their_kind():
    """Two kinds of channels of three inputs; a kind that knows nothing stays blank."""
    digest = np.zeros((6, 2), np.float32)
    digest[1], digest[4] = (2.0, -1.0), (0.0, 0.1)
    expected = np.zeros((6, 2))
    expected[1], expected[4] = (1.0, -0.5), (0.0, 1.0)
    np.testing.assert_allclose(digest_levels(digest, 3), expected)
    assert np.abs(digest_levels(digest, 5)).max() == 1  # of no kinds that are known
    assert not digest_levels(np.zeros((6, 2)), 3).any()
