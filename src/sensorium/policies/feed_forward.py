"""The feed-forward baseline: every sensor has its fixed place, so a shuffle breaks it."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp

from sensorium.errors import ConfigError
from sensorium.policies.controller import Controller
from sensorium.policies.policy import Policy, PolicyConfig, Trace, check_sensors
from sensorium.types import Action, Key, Observation, Senses


class FeedForwardPolicy(Policy):
    """Inputs divided by fixed scales, tanh layers, tanh output; no memory."""

    controller: Controller
    input_scales: tuple[float, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def initial_carry(self, senses: Senses) -> tuple[()]:
        """Nothing; ConfigError unless there are as many scalar sensors as it was built for."""
        check_sensors(senses, len(self.input_scales), "A feed-forward agent")
        return ()

    def step(self, observation: Observation, carry: tuple[()]) -> tuple[Action, tuple[()], Trace]:
        """Scale and apply the network."""
        check_sensors(observation.shape[0], len(self.input_scales), "A feed-forward agent")
        scales = jnp.asarray(self.input_scales, observation.dtype)
        return self.controller(observation / scales), carry, Trace()


@dataclasses.dataclass(frozen=True)
class FeedForwardConfig(PolicyConfig):
    """A feed-forward agent."""

    hidden_sizes: tuple[int, ...] = (16,)
    """Units of the hidden layers."""
    input_scales: tuple[float, ...] = ()
    """What each input is divided by; empty for ones."""
    clipped: bool = False
    """Cut actions off at -1 and 1, as agents of Stable-Baselines3's PPO do, instead of a tanh."""

    def build(self, senses: Senses, num_actions: int, key: Key) -> FeedForwardPolicy:
        """Draw an agent for exactly as many sensors; ConfigError if the scales do not fit."""
        num_sensors = check_sensors(senses)
        scales = self.input_scales or (1.0,) * num_sensors
        if len(scales) != num_sensors:
            raise ConfigError(f"There are {num_sensors} sensors but {len(scales)} input scales.")
        sizes = (num_sensors, *self.hidden_sizes, num_actions)
        return FeedForwardPolicy(
            controller=Controller(sizes, clipped=self.clipped, key=key),
            input_scales=scales,
            num_actions=num_actions,
        )
