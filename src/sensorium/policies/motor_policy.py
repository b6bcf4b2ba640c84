"""Agents that do not know the order, signs, gains or number of their motors.

    policy = MotorNeuronsConfig().build(5, 8, key)
    policy.with_motors(64)  # the same weights

They find out what each motor does while they act (`sensorium.layers.motor_neurons`).
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.errors import ConfigError
from sensorium.layers.motor_neurons import MotorMemory, MotorNeurons
from sensorium.layers.motor_senses import (
    AnonymousSenses,
    NamedSenses,
    Perceived,
    Senses,
    SensesMemory,
)
from sensorium.policies.action_distributions import Outputs
from sensorium.policies.policy import Policy, PolicyConfig, Trace, check_sensors
from sensorium.types import (
    Action,
    Actions,
    Key,
    Observation,
    ObservationSpec,
    Order,
    PyTree,
    Scalar,
)


class MotorCarry(NamedTuple):
    """Memory of every sensor and of every motor."""

    senses: SensesMemory
    motors: MotorMemory
    surprise: Scalar
    """How wrong expectations were in the last step."""


class AnyMotors(Policy):
    """Policies that act on any number of motors; their carry has `motors`, with the last `action`."""

    fixed_outputs = False

    def with_motors(self, count: int) -> "AnyMotors":
        """Return the same agent with another number of motors; ConfigError if that is none."""
        if count < 1:
            raise ConfigError(f"An agent needs at least one motor, got {count}.")
        return dataclasses.replace(self, num_actions=count)

    def after_action(self, carry: PyTree, action: Action) -> PyTree:
        """Remember the action, whoever chose it."""
        return carry._replace(motors=carry.motors._replace(action=action))


def motors_in(actions: Actions) -> int:
    """Return how many motors there are; ConfigError if actions are choices."""
    if not isinstance(actions, int):
        raise ConfigError("Motor neurons are for actions that are numbers, not for choices.")
    return actions


class MotorPolicy(AnyMotors):
    """Senses, and motor neurons; `num_actions` may change with the same weights (`with_motors`)."""

    senses: Senses
    motors: MotorNeurons
    num_actions: int = eqx.field(static=True)
    code_scale: float = eqx.field(static=True, default=1.0)
    """Factor on sums over sensors without names."""

    @property
    def fixed_inputs(self) -> bool:  # type: ignore[override]
        """Whether it knows sensors by their places."""
        return self.senses.fixed_inputs

    def with_code_scale(self, factor: float) -> "MotorPolicy":
        """Multiply sums over sensors by `factor`, if they have no names."""
        if self.fixed_inputs:
            return self
        return dataclasses.replace(self, code_scale=self.code_scale * factor)

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
        foreseen = self.motors.foreseen(carry.motors)
        perceived, senses = self.senses(observation, foreseen, carry.senses, carry.motors.time)
        trace = Trace(attention=perceived.attention, digest=carry.motors.digest)
        return perceived, carry._replace(senses=senses, surprise=perceived.surprise), trace

    def decide(self, features: Perceived, carry: MotorCarry) -> tuple[Outputs, MotorCarry]:
        """Learn what motors do, and use it."""
        outputs, motors = self.motors(features, carry.motors, self.code_scale)
        return outputs, carry._replace(motors=motors)

    def reordered(self, carry: MotorCarry, order: Order) -> MotorCarry:
        """Move the memory of each sensor along with it; what motors know of it too."""
        if self.fixed_inputs:
            return carry
        channels, motors = self.senses.channels_after(order), carry.motors
        motors = motors if channels is None else motors.of_channels(channels)
        return carry._replace(senses=carry.senses.reordered(order), motors=motors)

    def sensor_features(self, carry: MotorCarry) -> Float[Array, "H N"]:
        """Return the state of the recurrent unit in each sensor without a name."""
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class _MotorConfig(PolicyConfig):
    learns_noise: bool = True
    """Whether training changes how much noise motors have of their own. An expert has none, so imitation
    would take it away, and with it all that motors find out."""

    def _policy(self, senses: Senses, actions: Actions) -> MotorPolicy:
        motors = MotorNeurons(learns_noise=self.learns_noise)
        return MotorPolicy(senses=senses, motors=motors, num_actions=motors_in(actions))


@dataclasses.dataclass(frozen=True)
class MotorNeuronsConfig(_MotorConfig):
    """An agent with motor neurons, and sensors in known places."""

    hidden_size: int = 32
    """Units between the readings and what is wished for, and as many for what is expected."""
    change_scale: float = 10.0
    """About how many steps it takes a reading to change by 1."""

    def build(self, spec: ObservationSpec, actions: Actions, key: Key) -> MotorPolicy:
        """Draw an agent; ConfigError unless actions are numbers."""
        senses = NamedSenses(check_sensors(spec), self.hidden_size, self.change_scale, key=key)
        return self._policy(senses, actions)


@dataclasses.dataclass(frozen=True)
class AnonymousMotorNeuronsConfig(_MotorConfig):
    """An agent with motor neurons that does not know the order of its sensors either."""

    may_be_zero = ("num_queries",)

    hidden_size: int = 16
    """Units of the recurrent network in each sensor."""
    wish_size: int = 24
    """Units between what a sensor knows and what it wishes for."""
    num_queries: int = 0
    """How many queries attend to the sensors, where what is good for one depends on others; 0 for none."""
    message_size: int = 16
    """Width of queries and keys."""
    change_scale: float = 10.0
    """About how many steps it takes a reading to change by 1."""

    def build(self, spec: ObservationSpec, actions: Actions, key: Key) -> MotorPolicy:
        """Draw an agent for any number of sensors; ConfigError unless actions are numbers."""
        check_sensors(spec)
        senses = AnonymousSenses(
            self.hidden_size,
            self.wish_size,
            self.change_scale,
            self.num_queries,
            self.message_size,
            key=key,
        )
        return self._policy(senses, actions)
