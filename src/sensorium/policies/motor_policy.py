"""Agents that do not know the order, signs, gains or number of their motors.

    policy = MotorNeuronsConfig().build(5, 8, key)
    policy.with_motors(64)  # the same weights

They find out what each motor does while they act (`sensorium.layers.motor_neurons`).
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.errors import ConfigError
from sensorium.layers.motor_neurons import (
    AnonymousSenses,
    MotorMemory,
    MotorNeurons,
    NamedSenses,
    Perceived,
    SensesMemory,
)
from sensorium.policies.action_distributions import Outputs
from sensorium.policies.policy import Policy, PolicyConfig, Trace, check_sensors
from sensorium.types import Action, Actions, Key, Observation, ObservationSpec, Order, Scalar


class MotorCarry(NamedTuple):
    """Memory of every sensor and of every motor."""

    senses: SensesMemory
    motors: MotorMemory
    surprise: Scalar
    """How much of the last change nobody expected."""


class MotorPolicy(Policy):
    """Senses, and motor neurons; `num_actions` may change with the same weights (`with_motors`)."""

    fixed_outputs = False

    senses: NamedSenses | AnonymousSenses
    motors: MotorNeurons
    num_actions: int = eqx.field(static=True)

    @property
    def fixed_inputs(self) -> bool:  # type: ignore[override]
        """Whether it knows sensors by their places."""
        return self.senses.fixed_inputs

    def with_motors(self, count: int) -> "MotorPolicy":
        """Return the same agent with another number of motors; ConfigError if that is none."""
        if count < 1:
            raise ConfigError(f"An agent needs at least one motor, got {count}.")
        return dataclasses.replace(self, num_actions=count)

    def initial_carry(self, spec: ObservationSpec) -> MotorCarry:
        """Return the carry at the start: motors know nothing of themselves.

        Raises:
            ConfigError: There is no sensor, or not as many as the agent knows by their places.
        """
        expected = len(self.senses.rate) if isinstance(self.senses, NamedSenses) else None
        count = check_sensors(spec, expected, "A motor policy of named sensors")
        return MotorCarry(
            self.senses.initial_memory(count),
            self.motors.initial_memory(self.senses.num_channels(count), self.num_actions),
            jnp.zeros(()),
        )

    def encode(
        self, observation: Observation, carry: MotorCarry
    ) -> tuple[Perceived, MotorCarry, Trace]:
        """Compare what changed with what was expected, and with what the last action should have changed."""
        time = carry.motors.time
        before = jnp.where(time > 0, carry.senses.before, observation)
        memory = carry.senses._replace(
            before=before, earlier=jnp.where(time > 1, carry.senses.earlier, before)
        )
        change, expected = self.senses.change(observation, memory)
        foreseen = self.motors.foreseen(carry.motors)
        known = time >= self.senses.num_steps
        error = jnp.where(known, change - expected - foreseen, 0.0)
        perceived, senses = self.senses(observation, change, foreseen, error, memory)
        # What is expected should follow from what happens, not make it happen
        missed = jnp.where(known, jax.lax.stop_gradient(change - foreseen) - expected, 0.0)
        surprise = jnp.mean(jnp.log1p(missed**2)) if self.fixed_inputs else jnp.zeros(())
        trace = Trace(digest=carry.motors.digest)
        return perceived, carry._replace(senses=senses, surprise=surprise), trace

    def decide(self, features: Perceived, carry: MotorCarry) -> tuple[Outputs, MotorCarry]:
        """Learn what motors do, and use it."""
        outputs, motors = self.motors(features, carry.motors)
        return outputs, carry._replace(motors=motors)

    def after_action(self, carry: MotorCarry, action: Action) -> MotorCarry:
        """Remember the action, whoever chose it."""
        return carry._replace(motors=carry.motors._replace(action=action))

    def reordered(self, carry: MotorCarry, order: Order) -> MotorCarry:
        """Move the memory of each sensor along with it; what motors know of it too."""
        if self.fixed_inputs:
            return carry
        senses = jax.tree.map(lambda leaf: leaf[..., order], carry.senses)
        channels = jnp.concatenate([order, len(order) + order])
        return carry._replace(senses=senses, motors=carry.motors.of_channels(channels))

    def sensor_features(self, carry: MotorCarry) -> Float[Array, "H N"]:
        """Return the state of the recurrent unit in each anonymous sensor."""
        return carry.senses.hidden

    def surprise(self, carry: MotorCarry) -> Scalar:
        """Return how much of the last change nobody expected."""
        return carry.surprise

    def motors_reordered(
        self, carry: MotorCarry, order: Order, sign: Float[Array, " M"] | None = None
    ) -> MotorCarry:
        """Return the carry after its motors moved: place `j` now holds what `order[j]` held, times a sign."""
        sign = jnp.ones(len(order)) if sign is None else sign
        return carry._replace(motors=carry.motors.reordered(order, sign))


@dataclasses.dataclass(frozen=True)
class MotorNeuronsConfig(PolicyConfig):
    """An agent with motor neurons, and sensors in known places."""

    hidden_size: int = 32
    """Units between the readings and what is wished for, and as many for what is expected."""
    change_scale: float = 10.0
    """About how many steps it takes a reading to change by 1."""

    def build(self, spec: ObservationSpec, actions: Actions, key: Key) -> MotorPolicy:
        """Draw an agent; ConfigError unless actions are numbers."""
        senses = NamedSenses(check_sensors(spec), self.hidden_size, self.change_scale, key=key)
        return MotorPolicy(
            senses=senses, motors=MotorNeurons(together=True), num_actions=_num_motors(actions)
        )


@dataclasses.dataclass(frozen=True)
class AnonymousMotorNeuronsConfig(PolicyConfig):
    """An agent with motor neurons that does not know the order of its sensors either."""

    hidden_size: int = 16
    """Units of the recurrent network in each sensor."""
    wish_size: int = 24
    """Units between it and what a sensor wishes for."""
    change_scale: float = 10.0
    """About how many steps it takes a reading to change by 1."""

    def build(self, spec: ObservationSpec, actions: Actions, key: Key) -> MotorPolicy:
        """Draw an agent for any number of sensors; ConfigError unless actions are numbers."""
        check_sensors(spec)
        senses = AnonymousSenses(self.hidden_size, self.wish_size, self.change_scale, key=key)
        return MotorPolicy(
            senses=senses, motors=MotorNeurons(together=False), num_actions=_num_motors(actions)
        )


def _num_motors(actions: Actions) -> int:
    if not isinstance(actions, int):
        raise ConfigError("Motor neurons are for actions that are numbers, not for choices.")
    return actions
