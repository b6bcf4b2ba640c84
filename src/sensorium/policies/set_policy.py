"""Agents that pool any number of anonymous sensors, or of entities, into a code, and act on the code.

AttentionNeuron's scalar agents (CartPole, Ant) are this with the AttentionNeuron layer; the Deep Sets
and Set Transformer baselines are this with theirs.
"""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.errors import ConfigError
from sensorium.layers import (
    AttentionNeuron,
    DeepSets,
    KeyMap,
    PublishedNonlinearKeys,
    SensorMemory,
    SetTransformer,
    split_absent,
)
from sensorium.policies.action_distributions import (
    ActionDistribution,
    Gaussian,
    Outputs,
    distribution_of,
)
from sensorium.policies.controller import Controller
from sensorium.policies.observations import check_observation
from sensorium.policies.policy import (
    Policy,
    PolicyConfig,
    Trace,
    check_sensors,
)
from sensorium.policies.widen import widened
from sensorium.types import (
    Action,
    Actions,
    Code,
    Key,
    ObservationSpec,
    Order,
    Sensors,
    count_of,
    in_words,
    shape_of,
)


def sensors_and_features(spec: ObservationSpec) -> tuple[int, int]:
    """Return N and F of scalar sensors, of which F is 1, or of entities; ConfigError for anything else."""
    if isinstance(spec, tuple) and len(spec) == 2 and spec[1] > 0:
        return check_sensors(spec[0]), spec[1]
    return check_sensors(spec), 1


class SetCarry(NamedTuple):
    """Memory of every sensor, and what all of them receive beside their readings."""

    memory: SensorMemory
    feedback: Float[Array, " feedback"]
    """The previous action; after it the previous code, if the policy has `code_feedback`."""
    previous: Sensors | None = None
    """The readings of the step before, if the policy has `with_change`; zeros at the start, and where an
    entity was absent."""


class SetPolicy(Policy):
    """A pooling layer and a controller."""

    layer: AttentionNeuron | DeepSets | SetTransformer
    controller: Controller
    num_actions: int = eqx.field(static=True)
    distribution: ActionDistribution = eqx.field(static=True, default=Gaussian())
    code_scale: float = eqx.field(static=True, default=1.0)
    code_feedback: bool = eqx.field(static=True, default=False)
    """Whether sensors receive the previous code as well as the previous action; the paper's do not.

    The code is the same for all sensors, so the policy stays invariant. The LSTM of a sensor that has
    just been rewired can then compare its readings with the code of all others, and adapt in a few
    steps."""

    squash: float = eqx.field(static=True, default=0.0)
    """Readings are compressed to asinh(reading / squash), which is still zero at zero; 0 leaves them."""

    with_change: bool = eqx.field(static=True, default=False)
    """Whether each sensor receives the change of its reading as well; the paper's do not.

    How a reading changes after an action tells which sensor it is."""

    def initial_carry(self, spec: ObservationSpec) -> SetCarry:
        """Return blank memories and zero feedback.

        Raises:
            ConfigError: There is no sensor, they are of other features, or as many as NLA as published does
                not take.
        """
        num_sensors, num_features = sensors_and_features(spec)
        if num_features != self.num_features:
            if self.num_features == 1:
                check_sensors(spec)
            raise ConfigError(
                f"The agent takes entities of {self.num_features} features, not {in_words(spec)}."
            )
        keys = getattr(self.layer, "nonlinear_keys", None)
        if isinstance(keys, PublishedNonlinearKeys):
            check_sensors(num_sensors, keys.weight.shape[0], "NLA as published")
        feedback = jnp.zeros(self.num_actions + self._fed_back)
        previous = jnp.zeros(shape_of(spec)) if self.with_change else None
        return SetCarry(self.layer.initial_memory(num_sensors), feedback, previous)

    @property
    def num_features(self) -> int:
        """F, the numbers that each sensor reads: 1 of scalar sensors."""
        inputs = self.layer.lstm.weight_ih.shape[-1] - self.num_actions - self._fed_back
        return inputs // (1 + self.with_change)

    @property
    def _fed_back(self) -> int:
        """How many numbers of the previous code sensors receive."""
        return self.controller.layers[0].weight.shape[-1] if self.code_feedback else 0

    def encode(self, observation: Sensors, carry: SetCarry) -> tuple[Code, SetCarry, Trace]:
        """Pool all sensors into the code.

        Entities may be more or fewer than in the step before: those in further rows have blank memories.
        """
        if self.squash:
            observation = jnp.arcsinh(observation / self.squash)
        if observation.ndim == 2:
            carry = _with_rows(carry, observation)
        # Only AttentionNeuron takes the change
        change = {} if carry.previous is None else {"change": observation - carry.previous}
        pooled = self.layer(observation, carry.feedback, carry.memory, self.code_scale, **change)
        previous = split_absent(observation)[0] if change else None
        feedback = carry.feedback
        if self.code_feedback:
            feedback = jnp.concatenate([feedback[: self.num_actions], pooled.code])
        trace = Trace(pooled.code, pooled.attention)
        return pooled.code, SetCarry(pooled.memory, feedback, previous), trace

    def decide(self, features: Code, carry: SetCarry) -> tuple[Outputs, SetCarry]:
        """Apply the controller to the code."""
        return self.controller(features), carry

    @property
    def zero_is_absent(self) -> bool:
        """True of AttentionNeuron without NLA, whose keys depend on how many sensors there are."""
        layer = self.layer
        return isinstance(layer, AttentionNeuron) and layer.nonlinear_keys is None

    def fitted_to(self, wanted: Policy) -> Policy:
        """Return it with larger LSTMs or a wider positional table, if `wanted` has these."""
        return widened(self, wanted) or self

    def reordered(self, carry: SetCarry, order: Order) -> SetCarry:
        """Move the memory of each sensor along with it."""
        previous = None if carry.previous is None else carry.previous[order]
        return carry._replace(memory=carry.memory.reordered(order), previous=previous)

    def after_action(self, carry: SetCarry, action: Action) -> SetCarry:
        """Feed back the action (its tanh, as the papers do; a one-hot vector of discrete choices)."""
        action = self.distribution.feedback(action)
        feedback = jnp.concatenate([action, carry.feedback[self.num_actions :]])
        return carry._replace(feedback=feedback)

    def check(self, observation: Any, carry: SetCarry) -> Sensors:
        """Return the observation as `step` takes it; ObservationError if this agent cannot work with it."""
        del carry
        rows = self.num_features > 1 or getattr(observation, "shape", ())[1:] == (1,)
        return check_observation(observation, self.num_features if rows else None)

    def sensor_features(self, carry: SetCarry) -> Float[Array, "H N"]:
        """Return the LSTM output of each sensor."""
        return carry.memory.hidden

    def with_code_scale(self, factor: float) -> "SetPolicy":
        """Multiply the sum over sensors by `factor`; no effect on a softmax (Set Transformer)."""
        return dataclasses.replace(self, code_scale=self.code_scale * factor)


def _with_rows(carry: SetCarry, observation: Sensors) -> SetCarry:
    """Return the carry for as many entities: the first ones keep their memory, further ones begin blank."""
    count, known = observation.shape[0], carry.memory.hidden.shape[1]
    if count == known:
        return carry

    def columns(leaf: Array) -> Array:
        return jnp.pad(leaf[:, :count], ((0, 0), (0, max(count - known, 0))))

    previous = None if carry.previous is None else columns(carry.previous.T).T
    return carry._replace(memory=jax.tree.map(columns, carry.memory), previous=previous)


@dataclasses.dataclass(frozen=True)
class AttentionNeuronConfig(PolicyConfig):
    """An AttentionNeuron agent; the defaults are the paper's CartPole agent of 913 parameters."""

    num_queries: int = 16
    """M, the length of the code; of entities of F features M x F."""
    hidden_size: int = 8
    """Units of the LSTM that every sensor carries."""
    message_size: int = 32
    """Width of queries and keys."""
    position_size: int = 8
    """Width of the positional table that makes the queries."""
    controller_sizes: tuple[int, ...] = ()
    """Hidden layers between code and action."""
    bias: bool = False
    """Biases in the query and key projections."""
    scale: bool = False
    """Divide scores by the square root of message_size."""
    key_map: KeyMap = KeyMap.LINEAR
    """The NLA switch."""
    reading_scale: float = 1.0
    """Factor on the first weights of readings; less than 1 where readings are large."""
    code_feedback: bool = False
    """Whether sensors receive the previous code too (see `SetPolicy.code_feedback`)."""
    squash: float = 0.0
    """About how large readings are, where some are far larger than others (see `SetPolicy.squash`)."""
    with_change: bool = False
    """Whether sensors receive the change of their reading too (see `SetPolicy.with_change`)."""

    def build(self, spec: ObservationSpec, actions: Actions, key: Key) -> SetPolicy:
        """Draw an agent; how many sensors matters for nonlinear keys as published only."""
        (num_sensors, num_features), num_actions = sensors_and_features(spec), count_of(actions)
        code_size = self.num_queries * num_features
        key_layer, key_map, key_controller = jax.random.split(key, 3)
        layer = AttentionNeuron(
            num_actions + code_size * self.code_feedback,
            num_queries=self.num_queries,
            hidden_size=self.hidden_size,
            message_size=self.message_size,
            position_size=self.position_size,
            bias=self.bias,
            scale=self.scale,
            nonlinear_keys=self.key_map.draw(self.num_queries, num_sensors, key_map),
            with_change=self.with_change,
            num_features=num_features,
            key=key_layer,
        )
        layer = eqx.tree_at(
            lambda layer: layer.lstm.weight_ih,
            layer,
            layer.lstm.weight_ih.at[:, :num_features].multiply(self.reading_scale),
        )
        sizes = (code_size, *self.controller_sizes, num_actions)
        controller = Controller(sizes, key=key_controller)
        return SetPolicy(
            layer=layer,
            controller=controller,
            num_actions=num_actions,
            distribution=distribution_of(actions),
            code_feedback=self.code_feedback,
            squash=self.squash,
            with_change=self.with_change,
        )


@dataclasses.dataclass(frozen=True)
class DeepSetsConfig(PolicyConfig):
    """A Deep Sets agent; the defaults give 911 parameters for one action."""

    code_size: int = 11
    """Length of the code."""
    hidden_size: int = 8
    """Units of the LSTM that every sensor carries."""
    message_size: int = 24
    """Width of what is summed over the sensors."""

    def build(self, spec: ObservationSpec, actions: Actions, key: Key) -> SetPolicy:
        """Draw an agent for any number of sensors."""
        return _with_linear_controller(DeepSets, self, spec, actions, key)


@dataclasses.dataclass(frozen=True)
class SetTransformerConfig(PolicyConfig):
    """A Set Transformer agent; the defaults give 911 parameters for one action."""

    code_size: int = 11
    """Length of the code."""
    hidden_size: int = 8
    """Units of the LSTM that every sensor carries."""
    message_size: int = 12
    """Width of keys and values."""

    def build(self, spec: ObservationSpec, actions: Actions, key: Key) -> SetPolicy:
        """Draw an agent for any number of sensors."""
        return _with_linear_controller(SetTransformer, self, spec, actions, key)


def _with_linear_controller(
    layer: type[DeepSets] | type[SetTransformer],
    config: DeepSetsConfig | SetTransformerConfig,
    spec: ObservationSpec,
    actions: Actions,
    key: Key,
) -> SetPolicy:
    """Build a pooling layer with the settings of a config, and a linear layer on its code."""
    _, num_features = sensors_and_features(spec)
    num_actions = count_of(actions)
    key_layer, key_controller = jax.random.split(key)
    sizes = dataclasses.asdict(config) | {"num_features": num_features}
    return SetPolicy(
        layer=layer(num_actions, **sizes, key=key_layer),
        controller=Controller((config.code_size, num_actions), key=key_controller),
        num_actions=num_actions,
        distribution=distribution_of(actions),
    )
