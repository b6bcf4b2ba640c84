"""The recurrent baseline: an LSTM in front of the layers of a feed-forward agent.

It may find out in an episode what its motors do, but knows both sensors and motors by their places.
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.layers import LSTM
from sensorium.layers.lstm import Memory
from sensorium.policies.action_distributions import (
    ActionDistribution,
    Gaussian,
    Outputs,
    distribution_of,
)
from sensorium.policies.controller import Controller
from sensorium.policies.policy import Policy, PolicyConfig, Trace, check_sensors
from sensorium.types import Action, Actions, Key, Observation, ObservationSpec, count_of


class RecurrentCarry(NamedTuple):
    """What the agent remembers."""

    memory: Memory
    action: Action
    """Of the step before."""


class RecurrentPolicy(Policy):
    """An LSTM that receives the readings and the action before, then tanh layers."""

    fixed_inputs = True

    lstm: LSTM
    controller: Controller
    num_actions: int = eqx.field(static=True)
    distribution: ActionDistribution = eqx.field(static=True, default=Gaussian())

    def initial_carry(self, spec: ObservationSpec) -> RecurrentCarry:
        """Return blank memory; ConfigError unless there are as many sensors as it was built for."""
        expected = self.lstm.weight_ih.shape[1] - self.num_actions
        check_sensors(spec, expected, "A recurrent agent")
        return RecurrentCarry(self.lstm.initial_memory(), jnp.zeros(self.num_actions))

    def encode(
        self, observation: Observation, carry: RecurrentCarry
    ) -> tuple[Float[Array, " H"], RecurrentCarry, Trace]:
        """Advance the LSTM."""
        memory = self.lstm(jnp.concatenate([observation, carry.action]), carry.memory)
        return memory.hidden, carry._replace(memory=memory), Trace()

    def decide(
        self, features: Float[Array, " H"], carry: RecurrentCarry
    ) -> tuple[Outputs, RecurrentCarry]:
        """Apply the layers."""
        return self.controller(features), carry

    def memory_features(self, carry: RecurrentCarry) -> Float[Array, " H"]:
        """Return the hidden units of its LSTM."""
        return carry.memory.hidden

    def after_action(self, carry: RecurrentCarry, action: Action) -> RecurrentCarry:
        """Remember the action."""
        return carry._replace(action=self.distribution.feedback(action))


@dataclasses.dataclass(frozen=True)
class RecurrentConfig(PolicyConfig):
    """A recurrent agent."""

    memory_size: int = 64
    """Units of the LSTM."""
    hidden_sizes: tuple[int, ...] = (64,)
    """Units of the layers behind it."""

    def build(self, spec: ObservationSpec, actions: Actions, key: Key) -> RecurrentPolicy:
        """Draw an agent for exactly as many sensors."""
        num_actions, keys = count_of(actions), jax.random.split(key, 2)
        inputs = check_sensors(spec) + num_actions
        sizes = (self.memory_size, *self.hidden_sizes, num_actions)
        return RecurrentPolicy(
            lstm=LSTM(inputs, self.memory_size, key=keys[0]),
            controller=Controller(sizes, key=keys[1]),
            num_actions=num_actions,
            distribution=distribution_of(actions),
        )
