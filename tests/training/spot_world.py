"""A small world of images, and whom trainers of agents who see are tried with."""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sensorium.envs import Environment
from sensorium.policies import AttentionAgentConfig, FeedForwardConfig


class Spot(NamedTuple):
    """Where a bright spot is, and since when."""

    left: jax.Array
    time: jax.Array


@dataclasses.dataclass(frozen=True)
class SpotWorld(Environment):
    """A dark image with a bright spot on one side; to point at it pays, to brake costs."""

    id = "Spot"
    observation_shape: ClassVar[tuple[int, ...]] = (24, 24, 3)
    num_actions = 2
    num_sensors = 0
    sensor_names: ClassVar[tuple[str, ...]] = ()
    max_steps = 20
    solved_return = 10.0
    default_params = None

    def reset_env(self, key, params):
        """Draw a side."""
        state = Spot(jax.random.bernoulli(key), jnp.zeros((), jnp.int32))
        return self.observe(state), state

    def step_env(self, key, state, action, params):
        """Pay; half way the spot may change sides."""
        reward = action[0] * jnp.where(state.left, -1.0, 1.0) - 0.1 * action[1]
        left = jnp.where(state.time == 9, jax.random.bernoulli(key), state.left)
        state = Spot(left, state.time + 1)
        return self.observe(state), state, reward, jnp.zeros((), bool), {}

    def observe(self, state):
        """The image."""
        bright = jnp.full((7, 7, 3), 255, jnp.uint8)
        column = jnp.where(state.left, 0, 17)
        return jax.lax.dynamic_update_slice(
            jnp.zeros((24, 24, 3), jnp.uint8), bright, (8, column, 0)
        )

    def critic_features(self, state):
        """Which side, and how long it will be sure."""
        return jnp.stack([state.left, state.time / 20])


WORLD = SpotWorld()
EYES = AttentionAgentConfig(top=4, hidden_size=8)


def bold_expert(features, actions):
    """One who does much: its weights are larger than those that are drawn."""
    drawn = FeedForwardConfig((8,)).build(features, actions, jax.random.key(7))
    return jax.tree.map(lambda weight: 3 * weight, drawn)


def flat(tree):
    """All of its arrays as one vector."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def assert_encoder_is_frozen(encoder, start, end):
    """Weights and their average are the same bits in the encoder, and others behind it."""
    for name in ("model", "average"):
        old, new = (getattr(state.learner, name).policy for state in (start, end))
        np.testing.assert_array_equal(flat(getattr(new, encoder)), flat(getattr(old, encoder)))
        assert not np.allclose(flat(new.lstm), flat(old.lstm))
