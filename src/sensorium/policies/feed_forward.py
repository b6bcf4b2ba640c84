"""The feed-forward baseline: every sensor has its fixed place, so that it fails under a shuffle."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from sensorium.errors import ConfigError
from sensorium.policies.action_distributions import (
    ActionDistribution,
    Gaussian,
    Outputs,
    distribution_of,
)
from sensorium.policies.controller import Controller
from sensorium.policies.policy import Policy, PolicyConfig, Trace, check_sensors
from sensorium.types import Actions, Key, Observation, ObservationSpec, count_of


class FeedForwardPolicy(Policy):
    """Inputs divided by fixed scales, then tanh layers; no memory."""

    fixed_inputs = True

    controller: Controller
    input_scales: tuple[float, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    distribution: ActionDistribution = eqx.field(static=True, default=Gaussian())

    def initial_carry(self, spec: ObservationSpec) -> tuple[()]:
        """Return nothing; ConfigError unless there are as many scalar sensors as it was built for."""
        check_sensors(spec, len(self.input_scales), "A feed-forward agent")
        return ()

    def encode(self, observation: Observation, carry: tuple[()]) -> tuple[Array, tuple[()], Trace]:
        """Scale the readings."""
        check_sensors(observation.shape[0], len(self.input_scales), "A feed-forward agent")
        scales = jnp.asarray(self.input_scales, observation.dtype)
        return observation / scales, carry, Trace()

    def decide(self, features: Array, carry: tuple[()]) -> tuple[Outputs, tuple[()]]:
        """Apply the network."""
        return self.controller(features), carry


@dataclasses.dataclass(frozen=True)
class FeedForwardConfig(PolicyConfig):
    """A feed-forward agent."""

    hidden_sizes: tuple[int, ...] = (16,)
    """Units of the hidden layers."""
    input_scales: tuple[float, ...] = ()
    """What each input is divided by; empty for ones."""
    clipped: bool = False
    """Cut actions off at -1 and 1, as agents of Stable-Baselines3's PPO do, instead of a tanh."""

    def build(self, spec: ObservationSpec, actions: Actions, key: Key) -> FeedForwardPolicy:
        """Draw an agent for exactly as many sensors; ConfigError if the scales do not fit."""
        num_sensors = check_sensors(spec)
        scales = self.input_scales or (1.0,) * num_sensors
        if len(scales) != num_sensors:
            raise ConfigError(f"There are {num_sensors} sensors but {len(scales)} input scales.")
        sizes = (num_sensors, *self.hidden_sizes, count_of(actions))
        return FeedForwardPolicy(
            controller=Controller(sizes, key=key),
            input_scales=scales,
            num_actions=count_of(actions),
            distribution=distribution_of(actions, clipped=self.clipped),
        )
