"""Several perturbations as one: after one another, or one of them by chance."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from sensorium.errors import ConfigError
from sensorium.perturbations.perturbation import Identity, Perturbation, check_sensors
from sensorium.types import (
    Action,
    Image,
    Key,
    ObservationSpec,
    PyTree,
    Sensed,
    num_sensors_of,
    shape_of,
    spec_of,
    with_num_sensors,
)


@dataclasses.dataclass(frozen=True)
class Compose(Perturbation):
    """Several perturbations, the first one nearest to the world."""

    parts: tuple[Perturbation, ...]

    @property
    def code_scale(self) -> float:
        """Product of the factors of all parts."""
        factor = 1.0
        for part in self.parts:
            factor *= part.code_scale
        return factor

    def output_spec(self, spec: ObservationSpec) -> ObservationSpec:
        """Pass the specification through all parts in turn."""
        for part in self.parts:
            spec = part.output_spec(spec)
        return spec

    def init(self, key: Key, spec: ObservationSpec) -> PyTree:
        """Draw the state of each part."""
        states = []
        for index, part in enumerate(self.parts):
            states.append(part.init(jax.random.fold_in(key, index), spec))
            spec = part.output_spec(spec)
        return tuple(states)

    def apply(self, key: Key, state: PyTree, observation: Sensed) -> tuple[Array, PyTree]:
        """Pass the observation through all parts in turn."""
        states = []
        for index, (part, part_state) in enumerate(zip(self.parts, state, strict=True)):
            observation, part_state = part.apply(
                jax.random.fold_in(key, index), part_state, observation
            )
            states.append(part_state)
        return observation, tuple(states)

    @property
    def perturbs_actions(self) -> bool:
        """Whether any part does."""
        return any(part.perturbs_actions for part in self.parts)

    def init_actions(self, state: PyTree, num_actions: int) -> PyTree:
        """Add to the state of each part."""
        pairs = zip(self.parts, state, strict=True)
        return tuple(part.init_actions(part_state, num_actions) for part, part_state in pairs)

    def perturb_action(self, key: Key, state: PyTree, action: Action) -> tuple[Action, PyTree]:
        """Pass the action through all parts, the one nearest to the agent first."""
        states = list(state)
        for index, part in reversed(list(enumerate(self.parts))):
            action, states[index] = part.perturb_action(
                jax.random.fold_in(key, index), states[index], action
            )
        return action, tuple(states)

    def wanted_action(self, state: PyTree, command: Action) -> Action:
        """Go back through all parts, the one nearest to the world first."""
        for part, part_state in zip(self.parts, state, strict=True):
            command = part.wanted_action(part_state, command)
        return command

    def sensor_of_channel(self, state: PyTree, spec: ObservationSpec) -> Int[Array, " channels"]:
        """Follow each channel back through all parts."""
        carried = jnp.arange(check_sensors(self, spec))
        for part, part_state in zip(self.parts, state, strict=True):
            source = part.sensor_of_channel(part_state, with_num_sensors(spec, carried.shape[0]))
            carried = jnp.where(source >= 0, carried[source], -1)
        return carried

    def carried(self, key: Key, state: PyTree, marks: Image) -> Image:
        """Move the marks through all parts in turn."""
        for index, (part, part_state) in enumerate(zip(self.parts, state, strict=True)):
            marks = part.carried(jax.random.fold_in(key, index), part_state, marks)
        return marks

    def within(self, steps: int) -> Perturbation:
        """Return all parts, each within `steps`."""
        return compose(*(part.within(steps) for part in self.parts))

    def __str__(self) -> str:
        return " + ".join(str(part) for part in self.parts) or "plain"


@dataclasses.dataclass(frozen=True)
class OneOf(Perturbation):
    """One of several perturbations, drawn for each episode.

    Where parts give different numbers of sensors, those of the narrower ones are followed by channels that
    always read zero. For AttentionNeuron, with linear or invariant nonlinear keys, with or without the code
    fed back, they change nothing: a sensor's message is its reading times its attention. Deep Sets and Set
    Transformer compute features of a zero too, and feed-forward agents receive zeros in the last places.
    Entities are followed by absent ones, which change nothing.
    """

    parts: tuple[Perturbation, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ConfigError("OneOf needs at least one perturbation to choose from.")

    @property
    def code_scale(self) -> float:
        """That of the parts; ConfigError if they differ."""
        factors = {part.code_scale for part in self.parts}
        if len(factors) > 1:
            raise ConfigError(f"The parts of {str(self)!r} scale an agent's code differently.")
        return factors.pop()

    def output_spec(self, spec: ObservationSpec) -> ObservationSpec:
        """Return as many sensors as the widest part gives; ConfigError for images of different shapes."""
        specs = {part.output_spec(spec) for part in self.parts}
        counts = [count for each in specs if (count := num_sensors_of(each)) is not None]
        if len(counts) == len(specs):
            return with_num_sensors(spec, max(counts))
        if len(specs) > 1:
            raise ConfigError(f"The parts of {str(self)!r} give images of different shapes.")
        return specs.pop()

    def init(self, key: Key, spec: ObservationSpec) -> tuple[Int[Array, ""], PyTree]:
        """Draw which part it is, and the state of each."""
        self.output_spec(spec)
        key_choice, key_parts = jax.random.split(key)
        choice = jax.random.randint(key_choice, (), 0, len(self.parts))
        keys = jax.random.split(key_parts, len(self.parts))
        return choice, tuple(part.init(k, spec) for part, k in zip(self.parts, keys, strict=True))

    def apply(self, key: Key, state: PyTree, observation: Sensed) -> tuple[Array, PyTree]:
        """Apply the part that was drawn; the states of the others stay as they are."""
        shape = shape_of(self.output_spec(spec_of(observation.shape)))

        def through(index: int) -> Callable[[tuple[PyTree, ...]], tuple[Array, PyTree]]:
            def apply(states: tuple[PyTree, ...]) -> tuple[Array, PyTree]:
                shown, after = self.parts[index].apply(key, states[index], observation)
                return _padded(shown, shape, 0 if shown.ndim == 1 else jnp.nan), (
                    *states[:index],
                    after,
                    *states[index + 1 :],
                )

            return apply

        choice, states = state
        branches = [through(index) for index in range(len(self.parts))]
        shown, states = jax.lax.switch(choice, branches, states)
        return shown, (choice, states)

    @property
    def perturbs_actions(self) -> bool:
        """Whether any part does."""
        return any(part.perturbs_actions for part in self.parts)

    def init_actions(self, state: PyTree, num_actions: int) -> PyTree:
        """Add to the state of each part."""
        choice, states = state
        pairs = zip(self.parts, states, strict=True)
        return choice, tuple(part.init_actions(s, num_actions) for part, s in pairs)

    def perturb_action(self, key: Key, state: PyTree, action: Action) -> tuple[Action, PyTree]:
        """Perturb the action by the part that was drawn; the states of the others move on as well."""
        choice, states = state
        pairs = zip(self.parts, states, strict=True)
        actions, states = zip(
            *(part.perturb_action(key, s, action) for part, s in pairs), strict=True
        )
        return jnp.stack(actions)[choice], (choice, states)

    def wanted_action(self, state: PyTree, command: Action) -> Action:
        """Go back through the part that was drawn."""
        choice, states = state
        pairs = zip(self.parts, states, strict=True)
        return jnp.stack([part.wanted_action(s, command) for part, s in pairs])[choice]

    def sensor_of_channel(self, state: PyTree, spec: ObservationSpec) -> Int[Array, " channels"]:
        """Return those of the part that was drawn; -1 for the channels that were added."""
        choice, states = state
        shape = shape_of(self.output_spec(spec))
        pairs = zip(self.parts, states, strict=True)
        each = [_padded(part.sensor_of_channel(s, spec), shape[:1], -1) for part, s in pairs]
        return jnp.stack(each)[choice]

    def carried(self, key: Key, state: PyTree, marks: Image) -> Image:
        """Move the marks as the part that was drawn does."""
        choice, states = state
        each = [part.carried(key, s, marks) for part, s in zip(self.parts, states, strict=True)]
        return jnp.stack(each)[choice]

    def within(self, steps: int) -> Perturbation:
        """Return one of the parts, each within `steps`."""
        return OneOf(tuple(part.within(steps) for part in self.parts))

    def __str__(self) -> str:
        return "one of (" + ", ".join(str(part) for part in self.parts) + ")"


def _padded(channels: Array, shape: tuple[int, ...], value: int | float) -> Array:
    """Pad channels with `value` to the number that `shape` has; leave images as they are."""
    if channels.shape == shape:
        return channels
    more = [(0, shape[0] - channels.shape[0]), *[(0, 0)] * (channels.ndim - 1)]
    return jnp.pad(channels, more, constant_values=value)


def compose(*parts: Perturbation) -> Perturbation:
    """Compose the parts, one after another: `Identity` for none, the part itself for one."""
    parts = tuple(part for part in parts if part != Identity())
    if not parts:
        return Identity()
    return parts[0] if len(parts) == 1 else Compose(parts)
