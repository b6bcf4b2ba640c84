"""The fused engine gives the episodes of the readable one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium.envs import CartPoleSwingUpHarder, Perturbed
from sensorium.perturbations import NoiseChannels, Reshuffle, Shuffle, compose
from sensorium.policies import (
    AttentionNeuronConfig,
    DeepSetsConfig,
    FeedForwardConfig,
    KeyMap,
    from_vector,
    to_vector,
)
from sensorium.rollout import (
    fused_returns,
    returns_of_population,
    run_episode,
    run_episodes,
    run_population,
)
from sensorium.rollout.sharding import episodes_of_policy


class ShortCartPole(CartPoleSwingUpHarder):
    """Too short for rounding to grow: swinging poles are chaotic."""

    max_steps = 30


POLICIES = {
    "plain": AttentionNeuronConfig(reading_scale=0.2),
    "bias, scale and hidden layer": AttentionNeuronConfig(
        bias=True, scale=True, controller_sizes=(4,), reading_scale=0.2
    ),
    "NLA invariant": AttentionNeuronConfig(key_map=KeyMap.NLA_INVARIANT, reading_scale=0.2),
    "NLA published": AttentionNeuronConfig(key_map=KeyMap.NLA_PUBLISHED, reading_scale=0.2),
    "code fed back": AttentionNeuronConfig(code_feedback=True, reading_scale=0.2),
    "feed-forward": FeedForwardConfig((16,), (2.4, 10.0, 1.0, 1.0, 10.0)),
    "not fused": DeepSetsConfig(),
}


def stack(policy, population, key):
    vector = to_vector(policy)
    spread = 0.1 * jax.random.normal(key, (population, vector.size))
    return eqx.filter_vmap(lambda v: from_vector(v, policy))(vector + spread)


@pytest.mark.parametrize("name", POLICIES)
def test_same_returns_as_the_readable_engine(name, key):
    policies = stack(POLICIES[name].build(5, 1, key), 6, key)
    keys = jax.random.split(key, 4)
    plain = run_population(policies, ShortCartPole(), keys).total
    # A block size that does not divide the population: the rest is padded
    fused = fused_returns(policies, ShortCartPole(), keys, block_episodes=16)
    error = np.abs(np.asarray(plain - fused))
    assert float(np.abs(plain).max()) > 1.0
    assert error.max() < 2e-3, f"{name}: max {error.max()}, mean {error.mean()}"


@pytest.mark.parametrize(
    "perturbation",
    [Shuffle(), compose(NoiseChannels(3), Reshuffle(10))],
    ids=str,
)
def test_perturbed_worlds_draw_the_same_noise(perturbation, key):
    policies = stack(POLICIES["plain"].build(5, 1, key), 3, key)
    world, keys = Perturbed(ShortCartPole(), perturbation), jax.random.split(key, 4)
    plain = run_population(policies, world, keys).total
    np.testing.assert_allclose(fused_returns(policies, world, keys), plain, atol=2e-3)


class SharedOut(ShortCartPole):
    """Only where all devices share rows: programs for one are compiled for other worlds."""


@pytest.mark.parametrize("population", [1, 4, 5])
def test_devices_share_the_population(population, key, every_device):
    assert len(every_device) == 2
    policies = stack(POLICIES["plain"].build(5, 1, key), population, key)
    keys = jax.random.split(key, 3)
    shared = returns_of_population(policies, SharedOut(), keys)
    alone = eqx.filter_jit(fused_returns)(policies, ShortCartPole(), keys)
    assert shared.shape == (population, 3)
    assert len(shared.devices()) == (1 if population % 2 else 2)
    np.testing.assert_allclose(shared, alone, atol=1e-3)


def test_rewards_stop_at_the_first_end(paper_agent):
    class Ends(ShortCartPole):
        def step_env(self, key, state, action, params):
            observation, state, _, _, info = super().step_env(key, state, action, params)
            return observation, state, jnp.float32(1.0), state.time == 7, info

    episode = run_episode(paper_agent, Ends(), jax.random.key(0))
    assert float(episode.total) == 7.0
    assert int(episode.length) == 7
    np.testing.assert_array_equal(episode.rewards[7:], 0.0)


def test_tanh_of_the_hot_path_is_tanh():
    from sensorium.rollout.fused import _tanh

    x = jnp.concatenate([jnp.linspace(-12, 12, 20001), jnp.array([0.0, 1e-20, -1e-6])])
    exact = np.tanh(np.asarray(x, np.float64))
    np.testing.assert_allclose(_tanh(x), exact, atol=4e-7)


class EndsSomewhere(ShortCartPole):
    """Ends at a step that the start decides."""

    def step_env(self, key, state, action, params):
        observation, state, reward, _, info = super().step_env(key, state, action, params)
        return observation, state, reward, state.time >= 5 + 8 * jnp.abs(observation[0]), info


def test_a_batch_lives_until_its_last_episode_ends(paper_agent):
    world, keys = EndsSomewhere(), jax.random.split(jax.random.key(3), 6)
    together = run_episodes(paper_agent, world, keys)
    assert len(set(together.length.tolist())) > 2
    for number, key in enumerate(keys):
        alone = run_episode(paper_agent, world, key)
        assert int(alone.length) == int(together.length[number])
        np.testing.assert_allclose(alone.rewards, together.rewards[number], atol=1e-4)


def test_episodes_of_one_policy_are_shared_out_to_all_devices(paper_agent, every_device):
    assert len(every_device) == 2
    world = EndsSomewhere()
    for count in (6, 7):  # seven do not divide
        keys = jax.random.split(jax.random.key(4), count)
        shared = episodes_of_policy(paper_agent, world, keys)
        alone = run_episodes(paper_agent, world, keys)
        np.testing.assert_array_equal(shared.length, alone.length)
        np.testing.assert_allclose(shared.total, alone.total, atol=1e-3)
