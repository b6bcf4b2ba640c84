"""Classical controllers that identify what they control, as rivals of motor neurons.

All have the number of motors built in, and some of the physics: `LeastSquares` which sensors are velocities.
Settings were tuned on bodies of other seeds (docs/experiments.md).
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sensorium.policies import Policy
from sensorium.policies.action_distributions import ActionDistribution, Gaussian, Outputs
from sensorium.policies.policy import check_sensors
from sensorium.types import Action, Observation, ObservationSpec

_STEP = 0.1  # s, of both worlds
_START = 8  # steps in which motors are tried out in any case
_LARGEST_TRACE = 1e3  # of the covariance, which grows while nothing moves
_RICCATI_STEPS = 3  # in each step, from the solution of the step before
_COST_OF_ACTION = 0.02
_LARGEST_COST = 1e4


class Model(NamedTuple):
    """A linear model of what inputs do, by recursive least squares with exponential forgetting."""

    weights: Float[Array, "K Z"]
    covariance: Float[Array, "Z Z"]

    def after(
        self, inputs: Float[Array, " Z"], error: Float[Array, " K"], forget: float
    ) -> "Model":
        """Return the model after it has seen one error."""
        seen = self.covariance @ inputs
        gain = seen / (forget + inputs @ seen)
        covariance = (self.covariance - jnp.outer(gain, seen)) / forget
        covariance *= jnp.minimum(1.0, _LARGEST_TRACE / jnp.trace(covariance))
        covariance += 1e-6 * jnp.eye(len(inputs))
        return Model(self.weights + jnp.outer(error, gain), covariance)


class RivalCarry(NamedTuple):
    """What a classical controller remembers."""

    model: Model
    inputs: Float[Array, " Z"]
    """Of the model, at the step before."""
    before: Observation
    cost: Float[Array, "N N"]
    """The solution of the Riccati equation so far; of no sensors where there is none."""
    time: Int[Array, ""]


class Classical(Policy):
    """What classical controllers have in common: motors are tried out as long as the model errs."""

    fixed_inputs = True
    fixed_outputs = False

    num_actions: int = eqx.field(static=True)
    forget: float = eqx.field(static=True)
    """What the weight of a step is multiplied by in each later one."""
    noise: float = eqx.field(static=True)
    """Standard deviation of the noise of an untried motor."""

    @property
    def distribution(self) -> ActionDistribution:
        """Numbers, cut off at -1 and 1."""
        return Gaussian(clipped=True)

    def with_motors(self, count: int) -> "Classical":
        """Return the same controller of another number of motors."""
        return dataclasses.replace(self, num_actions=count)

    def tried_out(
        self, action: Float[Array, " M"], error: Float[Array, ""], time: Int[Array, ""]
    ) -> Outputs:
        """Scale actions until none is beyond 1, and add noise."""
        action = jnp.nan_to_num(action / jnp.maximum(1.0, jnp.abs(action).max()))
        drawn = jax.random.normal(jax.random.fold_in(jax.random.key(0), time), action.shape)
        return action + self.noise * jnp.minimum(1.0, error + (time < _START)) * drawn


class LeastSquares(Classical):
    """Recursive least squares of what motors do to a velocity, and the pseudo-inverse of that.

    Of thrusters it knows that the frame of the body turns; of an arm, that a target which jumps is not the
    work of motors.
    """

    ridge: float = eqx.field(static=True)
    largest_change: float = eqx.field(static=True)
    """m/s, beyond which the target has jumped; of an arm."""

    def initial_carry(self, spec: ObservationSpec) -> RivalCarry:
        """Know nothing; ConfigError unless there are five sensors, of thrusters, or two, of an arm."""
        count = check_sensors(spec)
        channels, motors = _channels(count), self.num_actions
        model = Model(jnp.zeros((channels, motors)), 100.0 * jnp.eye(motors))
        nothing = jnp.zeros((0, 0))
        return RivalCarry(
            model, jnp.zeros(motors), jnp.zeros(count), nothing, jnp.zeros((), jnp.int32)
        )

    def decide(self, features: Observation, carry: RivalCarry) -> tuple[Outputs, RivalCarry]:
        """Compare what changed with what should have, and reach for what is wanted."""
        before = carry.before
        change = (features - before) / _STEP
        if len(features) == 2:
            wanted = -features / _STEP
            far = jnp.linalg.norm(change) > self.largest_change
        else:
            turned = before[4] * jnp.stack([before[3], -before[2], 0.0])
            change, far = change[2:] - turned, jnp.zeros((), bool)
            wanted = -jnp.concatenate([features[:2], jnp.zeros(1)]) - features[2:] * jnp.array(
                [1.8, 1.8, 2.0]
            )
        error = change - carry.model.weights @ carry.inputs
        error = jnp.where((carry.time > 0) & ~far, error, 0.0)
        model = carry.model.after(carry.inputs, error, self.forget)
        effect = model.weights
        gram = effect @ effect.T + self.ridge * jnp.eye(len(effect))
        action = effect.T @ jnp.linalg.solve(gram, wanted)
        outputs = self.tried_out(action, jnp.linalg.norm(error), carry.time)
        return outputs, carry._replace(model=model, before=features, time=carry.time + 1)

    def after_action(self, carry: RivalCarry, action: Action) -> RivalCarry:
        """Remember the action."""
        return carry._replace(inputs=action)


class SelfTuning(Classical):
    """Recursive least squares of a linear model of all sensors, and a quadratic regulator of it.

    It knows no sensor by its name: all should be zero.
    """

    def initial_carry(self, spec: ObservationSpec) -> RivalCarry:
        """Expect that nothing changes, and that motors do nothing."""
        count, motors = check_sensors(spec), self.num_actions
        weights = jnp.eye(count, count + motors)
        model = Model(weights, 10.0 * jnp.eye(count + motors))
        blank = jnp.zeros(count + motors)
        return RivalCarry(model, blank, jnp.zeros(count), jnp.eye(count), jnp.zeros((), jnp.int32))

    def decide(self, features: Observation, carry: RivalCarry) -> tuple[Outputs, RivalCarry]:
        """Compare readings with those expected, solve for the best feedback a little further, and act."""
        count = len(features)
        error = jnp.where(carry.time > 0, features - carry.model.weights @ carry.inputs, 0.0)
        model = carry.model.after(carry.inputs, error, self.forget)
        state, effect = model.weights[:, :count], model.weights[:, count:]
        cost, feedback = carry.cost, jnp.zeros((self.num_actions, count))
        for _ in range(_RICCATI_STEPS):
            gram = _COST_OF_ACTION * jnp.eye(self.num_actions) + effect.T @ cost @ effect
            feedback = jnp.linalg.solve(gram, effect.T @ cost @ state)
            cost = jnp.eye(count) + state.T @ cost @ (state - effect @ feedback)
            cost = (cost + cost.T) / 2
            cost *= jnp.minimum(1.0, _LARGEST_COST / jnp.trace(cost))
        outputs = self.tried_out(-feedback @ features, 5 * jnp.linalg.norm(error), carry.time)
        return outputs, carry._replace(model=model, before=features, cost=cost, time=carry.time + 1)

    def after_action(self, carry: RivalCarry, action: Action) -> RivalCarry:
        """Remember readings and action."""
        return carry._replace(inputs=jnp.concatenate([carry.before, action]))


def _channels(count: int) -> int:
    return 2 if count == 2 else count - 2
