"""Students to compare twins with: what an engineer would try first against cross-wired sensors."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.errors import ConfigError
from sensorium.policies import Policy, PolicyConfig, Trace
from sensorium.policies.action_distributions import (
    ActionDistribution,
    Gaussian,
    Outputs,
    distribution_of,
)
from sensorium.policies.controller import Controller
from sensorium.policies.policy import check_sensors
from sensorium.registry import register
from sensorium.types import Action, Actions, Key, Observation, ObservationSpec, Order, count_of


class Frames(NamedTuple):
    """Memory of `FrameStack`."""

    readings: Float[Array, "frames N"]
    action: Action


class FrameStack(Policy):
    """Deep Sets over sensors, each of which gives its last readings and the previous action; no LSTM."""

    sensor: Controller
    decision: Controller
    num_frames: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    distribution: ActionDistribution = eqx.field(static=True, default=Gaussian())

    def initial_carry(self, spec: ObservationSpec) -> Frames:
        """Return readings of zero."""
        return Frames(
            jnp.zeros((self.num_frames, check_sensors(spec))), jnp.zeros(self.num_actions)
        )

    def encode(self, observation: Observation, carry: Frames) -> tuple[Array, Frames, Trace]:
        """Sum the messages of all sensors."""
        readings = jnp.concatenate([carry.readings[1:], jnp.arcsinh(observation)[None]])
        message = jax.vmap(lambda own: self.sensor(jnp.concatenate([own, carry.action])))
        code = jnp.tanh(jnp.mean(jnp.tanh(message(readings.T)), axis=0))
        return code, carry._replace(readings=readings), Trace(code)

    def decide(self, features: Array, carry: Frames) -> tuple[Outputs, Frames]:
        """Apply the controller to the sum."""
        return self.decision(features), carry

    def reordered(self, carry: Frames, order: Order) -> Frames:
        """Move the readings of each sensor along with it."""
        return carry._replace(readings=carry.readings[:, order])

    def after_action(self, carry: Frames, action: Action) -> Frames:
        """Remember the action."""
        return carry._replace(action=self.distribution.feedback(action))


@register
@dataclasses.dataclass(frozen=True)
class FrameStackConfig(PolicyConfig):
    """Settings of `FrameStack`."""

    num_frames: int = 8
    """Readings that each sensor gives."""
    hidden_size: int = 64
    """Width of its network."""
    code_size: int = 64
    """Width of what is summed."""

    def build(self, spec: ObservationSpec, actions: Actions, key: Key) -> FrameStack:
        """Draw an agent for any number of sensors."""
        check_sensors(spec)
        count = count_of(actions)
        key_sensor, key_decision = jax.random.split(key)
        sizes = (self.num_frames + count, self.hidden_size, self.code_size)
        return FrameStack(
            sensor=Controller(sizes, key=key_sensor),
            decision=Controller((self.code_size, self.hidden_size, count), key=key_decision),
            num_frames=self.num_frames,
            num_actions=count,
            distribution=distribution_of(actions),
        )


class Recurrent(NamedTuple):
    """Memory of `RecurrentPolicy`."""

    hidden: Float[Array, " H"]
    action: Action


class RecurrentPolicy(Policy):
    """A GRU over all readings in the order in which they come, which has to find out what is where."""

    cell: eqx.nn.GRUCell
    decision: Controller
    num_places: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    distribution: ActionDistribution = eqx.field(static=True, default=Gaussian())

    def initial_carry(self, spec: ObservationSpec) -> Recurrent:
        """Return a blank memory; ConfigError for more sensors than there are places."""
        if check_sensors(spec) > self.num_places:
            raise ConfigError(
                f"This GRU has {self.num_places} places, and there are {spec} sensors."
            )
        return Recurrent(jnp.zeros(self.cell.hidden_size), jnp.zeros(self.num_actions))

    def encode(self, observation: Observation, carry: Recurrent) -> tuple[Array, Recurrent, Trace]:
        """Advance the GRU; places without a sensor read zero."""
        places = jnp.zeros(self.num_places).at[: len(observation)].set(jnp.arcsinh(observation))
        hidden = self.cell(jnp.concatenate([places, carry.action]), carry.hidden)
        return hidden, carry._replace(hidden=hidden), Trace(hidden)

    def decide(self, features: Array, carry: Recurrent) -> tuple[Outputs, Recurrent]:
        """Apply the controller to the memory."""
        return self.decision(features), carry

    def after_action(self, carry: Recurrent, action: Action) -> Recurrent:
        """Remember the action."""
        return carry._replace(action=self.distribution.feedback(action))


@register
@dataclasses.dataclass(frozen=True)
class RecurrentConfig(PolicyConfig):
    """Settings of `RecurrentPolicy`."""

    hidden_size: int = 128
    """Units of the GRU."""

    def build(self, spec: ObservationSpec, actions: Actions, key: Key) -> RecurrentPolicy:
        """Draw an agent for up to twice as many sensors, or five more."""
        num_sensors, count = check_sensors(spec), count_of(actions)
        places = max(2 * num_sensors, num_sensors + 5)
        key_cell, key_decision = jax.random.split(key)
        return RecurrentPolicy(
            cell=eqx.nn.GRUCell(places + count, self.hidden_size, key=key_cell),
            decision=Controller((self.hidden_size, 64, count), key=key_decision),
            num_places=places,
            num_actions=count,
            distribution=distribution_of(actions),
        )
