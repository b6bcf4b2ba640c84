"""The interface of every agent: the carry comes in and goes out, and there is no hidden state.

    carry = policy.initial_carry(spec)
    action, carry = policy(observation, carry)

One agent, one step; batch with `jax.vmap` or `equinox.filter_vmap`.
"""

import abc
import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sensorium.errors import ConfigError, check_whole_settings
from sensorium.policies.action_distributions import ActionDistribution, Gaussian, Outputs
from sensorium.policies.observations import check_observation
from sensorium.types import (
    Action,
    Actions,
    Attention,
    Code,
    Key,
    ObservationSpec,
    Order,
    PyTree,
    Scalar,
    Sensed,
    in_words,
    num_sensors_of,
    shape_of,
)


class Trace(NamedTuple):
    """What happened inside a policy in one step; None for what it does not have."""

    code: Code | None = None
    attention: Attention | None = None
    digest: Float[Array, "K motors"] | None = None
    """What each motor seems to change, of an agent that finds it out."""


class Policy(eqx.Module):
    """An agent. Parameters are leaves, memory is an explicit carry.

    A policy is an encoder and a decision: `encode` turns an observation into features, `decide` turns those
    into the outputs of the last layer, and `distribution` says what action these are. A new policy implements
    `initial_carry` and `decide`, and `encode` if there is something to encode; `check_policy` holds it to the
    contract.
    """

    num_actions: eqx.AbstractVar[int]

    fixed_inputs: ClassVar[bool] = False
    """Whether it knows sensors, or patches of images, by their places, so that it fails in another order."""

    fixed_outputs: ClassVar[bool] = True
    """Whether it knows motors by their places, so that it fails if they are rewired."""

    @property
    def zero_is_absent(self) -> bool:
        """Whether a sensor that always reads zero acts as one that is not there; the default is no."""
        return False

    @property
    def distribution(self) -> ActionDistribution:
        """What the outputs of `decide` mean; the default is a Gaussian behind a tanh."""
        return Gaussian()

    @abc.abstractmethod
    def initial_carry(self, spec: ObservationSpec) -> PyTree:
        """Return the carry at the start of an episode.

        Args:
            spec: N, how many channels each observation will have; the shape of entities (N, F) or of images.

        Raises:
            ConfigError: The policy cannot work with that many.
        """

    def encode(self, observation: Any, carry: PyTree) -> tuple[PyTree, PyTree, Trace]:
        """Compute the features of an observation; by default they are the observation itself.

        Args:
            observation: N readings or rows of them, float; or an image.
            carry: From `initial_carry`, or from the step before.

        Returns:
            Features, the carry after the encoder, and what happened inside.
        """
        return observation, carry, Trace()

    @abc.abstractmethod
    def decide(self, features: PyTree, carry: PyTree) -> tuple[Outputs, PyTree]:
        """Compute the outputs of the last layer, which `distribution` turns into an action.

        Args:
            features: From `encode`.
            carry: From the same `encode`.

        Returns:
            A numbers of any size, and the new carry.
        """

    def step(self, observation: Any, carry: PyTree) -> tuple[Action, PyTree, Trace]:
        """Take one step without checks, for use inside compiled code.

        Args:
            observation: N readings or rows of them, float; or an image.
            carry: From `initial_carry`, or from the step before.

        Returns:
            Actions in [-1, 1] or logits, the new carry, and what happened inside. What is not used costs
            nothing once compiled.
        """
        features, carry, trace = self.encode(observation, carry)
        outputs, carry = self.decide(features, carry)
        action = self.distribution.action(outputs)
        return action, self.after_action(carry, action), trace

    @property
    def hidden_rows(self) -> int:
        """How many of the lowest rows of an image the agent was not shown in training.

        They have to be hidden before patches are shuffled, so `evaluate` does it and not the agent; see
        `sensorium.perturbations.HideRows`. The default suits most agents.
        """
        return 0

    def patches(self, height: int, width: int) -> tuple[np.ndarray, int]:
        """Return the corner (row, column) of each patch that it attends to, and their size in pixels.

        Raises:
            ConfigError: The agent does not attend to patches of images; the default.
        """
        raise ConfigError(
            f"{type(self).__name__} does not attend to patches of an image of {height} x {width}."
        )

    @property
    def num_attended(self) -> int:
        """How many patches are shown as attended to; the default is that of the papers."""
        return 10

    def takes(self, spec: ObservationSpec) -> bool:
        """Check whether `initial_carry` accepts observations of that kind."""
        try:
            self.initial_carry(spec)
        except ConfigError:
            return False
        return True

    def fitted_to(self, wanted: "Policy") -> "Policy":
        """Return a policy that acts as this one and has the architecture of `wanted`, where there is one.

        Args:
            wanted: A policy; its weights are those of new units.

        Returns:
            That policy, or this one if there is no such; the default.
        """
        del wanted
        return self

    def reordered(self, carry: PyTree, order: Order) -> PyTree:
        """Return the carry after its sensors moved: place `i` now holds what `order[i]` held.

        The default suits policies without memory of single sensors.
        """
        return carry

    def after_action(self, carry: PyTree, action: Action) -> PyTree:
        """Return the carry after `action`, the policy's own or another's, was taken.

        The default suits policies that do not use their previous action.
        """
        return carry

    def explored(self, action: Action, carry: PyTree) -> Action:
        """Return an action of another as this agent would change it to learn from it, after `decide`.

        The default suits agents that do not change it.
        """
        del carry
        return action

    def sensor_features(self, carry: PyTree) -> Float[Array, "H N"]:
        """Return the features of each sensor after a step; empty for policies without such features."""
        return jnp.zeros((0, 0))

    def memory_features(self, carry: PyTree) -> Float[Array, " H"]:
        """Return the state of its LSTM after a step; empty for policies without one of a fixed size."""
        return jnp.zeros(0)

    def surprise(self, carry: PyTree) -> Scalar:
        """Return how wrong its expectations were in the last step; 0 if it has none."""
        del carry
        return jnp.zeros(())

    def with_motors(self, count: int) -> "Policy":
        """Return the policy with another number of motors, and the same weights.

        Raises:
            ConfigError: It has one output for each motor that it knows; the default.
        """
        if count != self.num_actions:
            raise ConfigError(
                f"{type(self).__name__} has {self.num_actions} outputs in fixed places; motor neurons "
                f"(MotorNeuronsConfig) can act on {count} motors."
            )
        return self

    def with_code_scale(self, factor: float) -> "Policy":
        """Return the policy with the sum over its sensors multiplied by `factor` (AN section 4.1).

        Used for sensors that are there several times. The default suits policies that do not sum.
        """
        return self

    def without_shortcuts(self) -> "Policy":
        """Return the same policy, computed as it is defined, for programs that are not JAX."""
        return self

    def __call__(self, observation: Any, carry: PyTree) -> tuple[Action, PyTree]:
        """Take one checked step.

        Args:
            observation: N readings, finite numbers; rows of them, where a row of NaN is absent; or an image
                of bytes. An array, or whatever makes one.
            carry: From `initial_carry`, or from the step before.

        Returns:
            Actions in [-1, 1] or logits, and the new carry.

        Raises:
            ObservationError: Wrong shape or dtype, or (outside of compiled code) NaN or infinity.
        """
        action, carry, _ = self.step(self.check(observation, carry), carry)
        return action, carry

    def check(self, observation: Any, carry: PyTree) -> Sensed:
        """Return the observation as `step` takes it; ObservationError if this agent cannot work with it.

        The default suits agents of scalar sensors.
        """
        del carry
        return check_observation(observation)


@dataclasses.dataclass(frozen=True)
class PolicyConfig(abc.ABC):
    """The settings of a kind of policy: a frozen dataclass, which `register` makes known to recipes."""

    may_be_zero: ClassVar[tuple[str, ...]] = ()
    """Whole numbers among the settings that count from 0 on; all others count from 1 on."""

    def __post_init__(self) -> None:
        """Raise ConfigError if a setting that is a whole number does not fit."""
        check_whole_settings(self, self.may_be_zero)

    @abc.abstractmethod
    def build(self, spec: ObservationSpec, actions: Actions, key: Key) -> Policy:
        """Draw a policy with random weights.

        Args:
            spec: N scalar sensors, or the shape of entities (N, F) or of images.
            actions: A, or the numbers of options of discrete choices.
            key: Random key; the architecture does not depend on it.

        Raises:
            ConfigError: A policy with these settings cannot work with such observations.
        """


def features_of(policy: Policy, spec: ObservationSpec) -> PyTree:
    """Return the shapes of the features that a policy computes of observations."""
    images = num_sensors_of(spec) is None
    shown = jnp.zeros(shape_of(spec), jnp.uint8 if images else jnp.float32)

    def encode(policy: Policy) -> PyTree:
        return policy.encode(shown, policy.initial_carry(spec))[0]

    return eqx.filter_eval_shape(encode, policy)


def as_population(policy: Policy) -> Policy:
    """Turn one policy into a population of one: its arrays get a leading axis of length 1."""
    return jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, policy)


def check_sensors(spec: ObservationSpec, expected: int | None = None, why: str = "") -> int:
    """Return the number of scalar sensors of `spec`.

    Args:
        spec: N, or the shape of images.
        expected: How many there must be; None for any number.
        why: What takes that many only.

    Raises:
        ConfigError: They are images, fewer than one, or not as many as expected.
    """
    if not isinstance(spec, int):
        able = "; an AttentionAgent can" if len(spec) == 3 else ""
        if len(spec) == 2:
            able = (
                "; AttentionNeuron can, and ?observe=flat behind an environment's name makes scalar sensors "
                "of them"
            )
        raise ConfigError(f"An agent of scalar sensors cannot take {in_words(spec)}{able}.")
    if spec < 1:
        raise ConfigError(f"An agent needs at least one sensor, got {spec}.")
    if expected is not None and spec != expected:
        raise ConfigError(f"{why} takes exactly {expected} sensors, got {spec}.")
    return spec


def check_policy(policy: Policy, spec: ObservationSpec = 5) -> None:
    """Hold a policy to the contract of this module, on two steps of made-up readings.

    Args:
        policy: The policy to check.
        spec: How many channels, or entities of so many features (N, F), to try it with.

    Raises:
        ConfigError: It breaks the contract; the message says which clause.
    """
    carry, shape = policy.initial_carry(spec), shape_of(spec)
    readings = jnp.linspace(-1.0, 1.0, math.prod(shape), dtype=jnp.float32).reshape(shape)
    before = jax.tree.map(lambda leaf: (jnp.shape(leaf), jnp.result_type(leaf)), carry)
    action, after = policy(readings, carry)
    shapes = jax.tree.map(lambda leaf: (jnp.shape(leaf), jnp.result_type(leaf)), after)
    name = type(policy).__name__
    if shapes != before:
        raise ConfigError(f"{name} changes the structure, shapes or dtypes of its carry in a step.")
    if action.shape != (policy.num_actions,):
        raise ConfigError(
            f"{name} has {policy.num_actions} actions but returned shape {action.shape}."
        )
    if policy.distribution.bounded and not bool(jnp.all(jnp.abs(action) <= 1)):
        raise ConfigError(f"{name} returned an action outside of [-1, 1].")
    again, _ = policy(readings, carry)
    if not bool(jnp.all(again == action)):
        raise ConfigError(f"{name} gives two actions for one input: it keeps hidden state.")
