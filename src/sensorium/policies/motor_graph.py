"""Agents that pair each motor with the sensors that it moves: a graph of sensors and motors.

    policy = MotorGraphConfig().build(28, 8, key)

Sensors and motors are the two sides of a graph; its edges are the digests, found out in each episode: what a
unit of motor j changes in sensor i, and in the change of sensor i. Both sides have recurrent units with
shared weights and send messages along the edges, so that agents know the order of neither:

    ν_j  = σ √2 cos(π k_j (t + ½) / T)   for T = M + 2 steps or more, each at a frequency of its own
    D   <- D + (y - D u) kᵀ              with k = P ν / (νᵀ P ν + c), P = 1 / (1 + Σ ν² / c) of each motor
    W    ∝ softmax_motors(κ |D|) exp(κ |D| + b)     over sensors: which one a motor moves, and it alone
    s_j  = tanh(4 Σ_i W_ij D_ij)         which way around it is, as far as that is known
    u_j  = s_j tanh(key_jᵀ v) or ν_j     v from the readings that queries found, key_j from messages to j

For the first T steps an agent acts by ν alone, whose T values are at right angles for all motors, and to
what is always there. What it means to do later depends on what it senses, so that its effect cannot be told
from what would have happened anyhow; so digests learn from ν alone, and stay as they are later. y are the
changes of the readings; b is learnt, nothing of D is. Units do not receive the last action: in imitation
they would repeat it.

Sensors expect a change, and say how uncertain that is. Where they are wrong by much more for some steps,
wires have changed: then an agent tries its motors anew.

Another order of the motors gives the same actions in that order, and a motor that is turned around the
opposite action, if memory and frequencies move along. Cost grows as the number of sensors times motors.
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sensorium.layers.gated import Gated
from sensorium.layers.linear import Linear
from sensorium.layers.motor_trials import cosines, learnt, limited, matched
from sensorium.policies.action_distributions import Outputs
from sensorium.policies.controller import Controller
from sensorium.policies.motor_policy import AnyMotors, motors_in
from sensorium.policies.policy import Policy, PolicyConfig, Trace, check_sensors
from sensorium.types import (
    Action,
    Actions,
    Attention,
    Key,
    Observation,
    ObservationSpec,
    Order,
    Scalar,
)

_LARGEST_ACTION = 0.99
_LARGEST_CHANGE = 3.0  # about; feet that touch the ground change more
_LARGEST_SURPRISE = 10.0  # of a sensor: a single one is no reason for doubts
_DOUBT_RATE = 0.2


class Motors(NamedTuple):
    """Memory of M motors."""

    units: Float[Array, "M G"]
    """State of the recurrent unit in each."""
    digest: Float[Array, "2 N M"]
    """What a unit of each changes in each sensor, and in its change: D."""
    energy: Float[Array, " M"]
    """The sum of the squares of its actions while it vibrated."""
    action: Action
    """Of the step before."""
    number: Int[Array, " M"]
    """Of the frequency of each."""
    sign: Float[Array, " M"]
    """Of its vibration: 1, or -1 where a motor was turned around with its memory."""


class GraphCarry(NamedTuple):
    """Memory of both sides."""

    before: Observation
    """Readings of the step before."""
    earlier: Observation
    """And of the one before that."""
    hidden: Float[Array, "H N"]
    """State of the recurrent unit in each sensor."""
    motors: Motors
    surprise: Scalar
    """How unlikely the last change was: minus the logarithm of its density, on average over sensors."""
    doubt: Scalar
    """The square of how wrong expectations were of late, in standard deviations: 1 if they are right."""
    time: Int[Array, ""]
    """Steps since motors began to vibrate."""
    clock: Int[Array, ""]
    """Steps since the start."""


class Graph(NamedTuple):
    """What sensors make of a step, for the motors."""

    messages: Float[Array, "M E"]
    """To each motor."""
    code: Float[Array, " Q"]
    """What queries found."""
    direction: Float[Array, " M"]
    """s: which way around each motor is."""


class MotorGraph(AnyMotors):
    """Recurrent units on both sides; `num_actions` may change with the same weights (`with_motors`)."""

    fixed_inputs = False

    sensor: Gated
    motor: Gated
    key: Linear
    queries: Float[Array, "Q D"]
    controller: Controller
    moved: Linear
    of_sensor: Linear
    of_change: Linear
    to_own: Linear
    to_sensor: Linear
    to_change: Linear
    to_mover: Linear
    from_code: Linear
    motor_key: Linear
    expects: Controller
    num_actions: int = eqx.field(static=True)
    change_scale: float = eqx.field(static=True)
    excitation: float = eqx.field(static=True)
    extra_steps: int = eqx.field(static=True)
    match_rounds: int = eqx.field(static=True)
    doubt_limit: float = eqx.field(static=True)
    renewal: int = eqx.field(static=True)
    code_scale: float = eqx.field(static=True, default=1.0)

    def initial_carry(self, spec: ObservationSpec) -> GraphCarry:
        """Return the carry at the start; ConfigError if there is no sensor."""
        sensors, motors = check_sensors(spec), self.num_actions
        return GraphCarry(
            before=jnp.zeros(sensors),
            earlier=jnp.zeros(sensors),
            hidden=jnp.zeros((self.sensor.size, sensors)),
            motors=Motors(
                units=jnp.zeros((motors, self.motor.size)),
                digest=jnp.zeros((2, sensors, motors)),
                energy=jnp.zeros(motors),
                action=jnp.zeros(motors),
                number=jnp.arange(motors, dtype=jnp.int32),
                sign=jnp.ones(motors),
            ),
            surprise=jnp.zeros(()),
            doubt=jnp.ones(()),
            time=jnp.zeros((), jnp.int32),
            clock=jnp.zeros((), jnp.int32),
        )

    def encode(
        self, observation: Observation, carry: GraphCarry
    ) -> tuple[Graph, GraphCarry, Trace]:
        """Remember each sensor, learn what the last action changed, and send messages to motors."""
        before = jnp.where(carry.clock > 0, carry.before, observation)
        earlier = jnp.where(carry.clock > 1, carry.earlier, before)
        changes = jnp.stack([observation - before, observation - 2 * before + earlier])
        changes = limited(self.change_scale * changes, _LARGEST_CHANGE)
        carry = self._surprised(carry, changes[0])
        motors, steps = carry.motors, self._trial_steps(carry)
        tried = jnp.where((carry.time > 0) & (carry.time <= steps), motors.action, 0.0)
        trial = learnt(motors.digest, motors.energy, tried, changes)
        digest, energy = jax.lax.stop_gradient(trial)
        pattern = digest / jnp.sqrt(jnp.sum(digest**2, axis=-1, keepdims=True) + 1e-4)
        match, direction = self._matched(digest[0], carry.hidden.T)
        _, code = self._attended(carry.hidden.T, before)
        inputs = jnp.concatenate(
            [
                jnp.stack([observation, *changes]).T,
                (pattern[0] * direction[None]) @ jax.vmap(self.to_sensor)(motors.units),
                (pattern[1] * direction[None]) @ jax.vmap(self.to_change)(motors.units),
                (match / self.code_scale) @ jax.vmap(self.to_mover)(motors.units),
                jnp.tile(self.from_code(code), (observation.size, 1)),
            ],
            axis=1,
        )
        hidden = jax.vmap(self.sensor)(inputs, carry.hidden.T)
        attention, code = self._attended(hidden, observation)
        match, direction = self._matched(digest[0], hidden)
        own = match.T @ jax.vmap(self.to_own)(hidden)
        effect = pattern[0].T @ jax.vmap(self.of_sensor)(hidden)
        effect += pattern[1].T @ jax.vmap(self.of_change)(hidden)
        effect *= self.code_scale * direction[:, None]
        messages = jnp.concatenate([own, effect, jnp.abs(direction)[:, None]], axis=1)
        carry = carry._replace(
            before=observation,
            earlier=before,
            hidden=hidden.T,
            motors=motors._replace(digest=digest, energy=energy),
        )
        features = Graph(messages, code, direction)
        return features, carry, Trace(attention=attention, digest=digest[0])

    def decide(self, features: Graph, carry: GraphCarry) -> tuple[Outputs, GraphCarry]:
        """Let each motor decide."""
        motors = carry.motors
        units = jax.vmap(self.motor)(features.messages, motors.units)
        keys = jax.vmap(self.motor_key)(jnp.concatenate([units, features.messages], axis=1))
        wanted = jnp.tanh(keys) @ self.controller(features.code)
        wanted = features.direction * jnp.tanh(wanted)
        action = jnp.clip(self._tried_or(wanted, carry), -_LARGEST_ACTION, _LARGEST_ACTION)
        motors = motors._replace(units=units)
        carry = carry._replace(motors=motors, time=carry.time + 1, clock=carry.clock + 1)
        return jnp.arctanh(action), carry

    def explored(self, action: Action, carry: GraphCarry) -> Action:
        """Return the vibration at the start, and the action of another after it."""
        return self._tried_or(action, carry._replace(time=carry.time - 1))

    def reordered(self, carry: GraphCarry, order: Order) -> GraphCarry:
        """Move the memory of each sensor along with it; what motors know of it too."""
        motors = carry.motors._replace(digest=carry.motors.digest[:, order])
        return carry._replace(
            before=carry.before[order],
            earlier=carry.earlier[order],
            hidden=carry.hidden[:, order],
            motors=motors,
        )

    def motors_reordered(
        self, carry: GraphCarry, order: Order, sign: Float[Array, " M"] | None = None
    ) -> GraphCarry:
        """Return the carry after its motors moved: place `j` now holds what `order[j]` held, times a sign."""
        sign, motors = jnp.ones(len(order)) if sign is None else sign, carry.motors
        moved = Motors(
            units=motors.units[order],
            digest=motors.digest[..., order] * sign[None, None],
            energy=motors.energy[order],
            action=motors.action[order] * sign,
            number=motors.number[order],
            sign=motors.sign[order] * sign,
        )
        return carry._replace(motors=moved)

    def sensor_features(self, carry: GraphCarry) -> Float[Array, "H N"]:
        """Return the state of the recurrent unit in each sensor."""
        return carry.hidden

    def surprise(self, carry: GraphCarry) -> Scalar:
        """Return how unlikely sensors thought the last change."""
        return carry.surprise

    def fitted_to(self, wanted: Policy) -> "MotorGraph":
        """Return it with the settings of `wanted` for how motors are tried, and when."""
        if not isinstance(wanted, MotorGraph):
            return self
        names = "excitation", "extra_steps", "match_rounds", "doubt_limit", "renewal"
        return dataclasses.replace(self, **{name: getattr(wanted, name) for name in names})

    def with_code_scale(self, factor: float) -> "MotorGraph":
        """Multiply sums over sensors by `factor`."""
        return dataclasses.replace(self, code_scale=self.code_scale * factor)

    def _trial_steps(self, carry: GraphCarry) -> Int[Array, ""]:
        """Return for how many steps motors do nothing but vibrate."""
        # In ONNX the number of motors is free, and cannot be counted in Python
        return jnp.sum(jnp.ones_like(carry.motors.energy)).astype(jnp.int32) + self.extra_steps

    def _tried_or(self, action: Action, carry: GraphCarry) -> Action:
        """Return how motors vibrate during a trial, and `action` after it."""
        motors, steps = carry.motors, self._trial_steps(carry)
        vibration = self.excitation * motors.sign * cosines(motors.number, carry.time, steps)
        vibration = jnp.clip(vibration, -_LARGEST_ACTION, _LARGEST_ACTION)
        return jnp.where(carry.time < steps, vibration, action)

    def _surprised(self, carry: GraphCarry, change: Observation) -> GraphCarry:
        """Compare a change with what was expected; begin anew with motors if that was wrong for long."""

        def expected(hidden: Array, own: Scalar) -> Array:
            return self.expects(jnp.append(hidden, own))

        own = carry.motors.digest[0] @ carry.motors.action
        mean, log_scale = jax.vmap(expected)(carry.hidden.T, own).T
        wrong = ((change - mean) * jnp.exp(-log_scale)) ** 2
        surprise = jnp.where(carry.clock > 0, jnp.mean(wrong / 2 + log_scale), 0.0)
        trial = carry.time < self._trial_steps(carry)
        now = jnp.where(trial, 1.0, jnp.mean(jnp.minimum(wrong, _LARGEST_SURPRISE)))
        doubt = carry.doubt + _DOUBT_RATE * (jax.lax.stop_gradient(now) - carry.doubt)
        anew = doubt > self.doubt_limit
        if self.renewal:
            anew |= (carry.clock > 0) & (carry.clock % self.renewal == 0)
        blank = jax.tree.map(jnp.zeros_like, carry.motors)
        blank = blank._replace(number=carry.motors.number, sign=carry.motors.sign)
        return carry._replace(
            motors=jax.tree.map(partial(jnp.where, anew), blank, carry.motors),
            surprise=surprise,
            doubt=jnp.where(anew, 1.0, doubt),
            time=jnp.where(anew, 0, carry.time),
        )

    def _matched(
        self, digest: Float[Array, "N M"], hidden: Float[Array, "N H"]
    ) -> tuple[Float[Array, "N M"], Float[Array, " M"]]:
        """Return W and s."""
        match = matched(jnp.abs(digest), jax.vmap(self.moved)(hidden), self.match_rounds)
        return match, jnp.tanh(4 * jnp.sum(match * digest, axis=0))

    def _attended(
        self, hidden: Float[Array, "N H"], readings: Observation
    ) -> tuple[Attention, Float[Array, " Q"]]:
        """Return where queries attend, and the readings that they find."""
        attention = jax.nn.softmax(self.queries @ jax.vmap(self.key)(hidden).T, axis=-1)
        return attention, attention @ readings


@dataclasses.dataclass(frozen=True)
class MotorGraphConfig(PolicyConfig):
    """An agent that knows neither its sensors nor its motors, and pairs them."""

    may_be_zero = ("match_rounds", "renewal")

    hidden_size: int = 32
    """Units of each sensor."""
    motor_size: int = 24
    """Units of each motor."""
    num_queries: int = 32
    """How many queries attend to the sensors."""
    message_size: int = 12
    """Width of messages."""
    key_size: int = 24
    """Width of queries and keys."""
    controller_sizes: tuple[int, ...] = (128, 128)
    """Hidden layers between what queries find and what motors should do."""
    change_scale: float = 7.0
    """About how many steps it takes a reading to change by 1."""
    excitation: float = 0.5
    """σ: the root mean square of the vibration."""
    extra_steps: int = 2
    """Steps of a trial beyond one for each motor."""
    match_rounds: int = 0
    """How often sensors that several motors claim are divided among them, so that each motor has one."""
    doubt_limit: float = 1e9
    """Motors are tried anew if sensors are wrong by more: a mean square, of standard deviations."""
    renewal: int = 0
    """After how many steps they are tried anew anyhow; 0 for never."""

    def build(self, spec: ObservationSpec, actions: Actions, key: Key) -> MotorGraph:
        """Draw an agent; ConfigError unless actions are numbers."""
        check_sensors(spec)
        keys = iter(jax.random.split(key, 15))
        wide, heard = self.message_size, 2 * self.message_size + 1
        return MotorGraph(
            sensor=Gated(3 + 4 * wide, self.hidden_size, key=next(keys)),
            motor=Gated(heard, self.motor_size, key=next(keys)),
            key=Linear(self.hidden_size, self.key_size, key=next(keys)),
            queries=jax.random.normal(next(keys), (self.num_queries, self.key_size)),
            controller=Controller(
                (self.num_queries, *self.controller_sizes, self.key_size), key=next(keys)
            ),
            moved=Linear(self.hidden_size, 1, key=next(keys)),
            of_sensor=Linear(self.hidden_size, wide, key=next(keys)),
            of_change=Linear(self.hidden_size, wide, key=next(keys)),
            to_own=Linear(self.hidden_size, wide, key=next(keys)),
            to_sensor=Linear(self.motor_size, wide, key=next(keys)),
            to_change=Linear(self.motor_size, wide, key=next(keys)),
            to_mover=Linear(self.motor_size, wide, key=next(keys)),
            from_code=Linear(self.num_queries, wide, key=next(keys)),
            motor_key=Linear(self.motor_size + heard, self.key_size, key=next(keys)),
            expects=Controller((self.hidden_size + 1, 16, 2), key=next(keys)),
            num_actions=motors_in(actions),
            change_scale=self.change_scale,
            excitation=self.excitation,
            extra_steps=self.extra_steps,
            match_rounds=self.match_rounds,
            doubt_limit=self.doubt_limit,
            renewal=self.renewal,
        )
