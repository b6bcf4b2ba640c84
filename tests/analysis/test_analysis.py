"""What is shown is what happened."""

import numpy as np
import pytest

from sensorium.analysis import figures
from sensorium.analysis.traces import collect_codes, trace_episode
from sensorium.envs import CartPoleSwingUpHarder, Perturbed
from sensorium.evaluation import evaluation_keys
from sensorium.perturbations import Identity, NoiseChannels, Reshuffle, Shuffle, compose
from sensorium.rollout import run_episode
from sensorium.zoo import load

STEPS = 60


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
