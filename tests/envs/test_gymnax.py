"""What is written for gymnax's interface runs on our worlds, where gymnax is installed."""

import jax
import jax.numpy as jnp
import pytest

from sensorium.envs import make

purerl = pytest.importorskip(
    "gymnax.wrappers.purerl", reason="gymnax is not installed", exc_type=ImportError
)


def test_gymnaxs_log_wrapper_counts_our_episodes(key):
    env = purerl.LogWrapper(make("CartPoleSwingUpHarder"))
    observation, state = env.reset(key)
    assert observation.shape == (5,)

    def step(now, key):
        *_, terminated, truncated, info = out = env.step(key, now, jnp.ones(1))
        return out[1], (terminated | truncated, info["returned_episode_lengths"])

    # Pushed to one side all the time, every episode ends at the edge
    _, (done, lengths) = jax.lax.scan(step, state, jax.random.split(key, 400))
    ends = [int(index) for index in jnp.flatnonzero(done)]
    assert len(ends) >= 2
    assert int(lengths[ends[1]]) == ends[1] - ends[0]
