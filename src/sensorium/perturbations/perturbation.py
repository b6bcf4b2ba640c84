"""The interface of perturbations, which stand between a world and an agent.

A perturbation is a small immutable value. It is drawn once an episode and applied every step:

    state = perturbation.init(key, spec)
    observation, state = perturbation.apply(key, state, observation)

`spec` says what the world shows: a number of scalar sensors, or the shape of its entities (N, F) or images.
What happens to scalar sensors happens to entities row by row; a row of NaN is absent. A perturbation may act
on the agent's actions too, with the same state, to which it may add by their number (`begin` does both):

    state = perturbation.init_actions(state, num_actions)
    action, state = perturbation.perturb_action(key, state, action)
"""

import abc
import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from sensorium.errors import ConfigError
from sensorium.types import (
    Action,
    Image,
    Key,
    ObservationSpec,
    PyTree,
    Sensed,
    in_words,
    num_sensors_of,
    shape_of,
)


class Perturbation(abc.ABC):
    """A change of the observations of a world, and perhaps of the agent's actions."""

    @property
    def code_scale(self) -> float:
        """Factor by which an agent should scale the sum over its sensors; see `Duplicate`."""
        return 1.0

    @abc.abstractmethod
    def output_spec(self, spec: ObservationSpec) -> ObservationSpec:
        """Return the specification after the perturbation.

        Raises:
            ConfigError: The perturbation cannot be applied to such observations.
        """

    @abc.abstractmethod
    def init(self, key: Key, spec: ObservationSpec) -> PyTree:
        """Draw what stays fixed for an episode; arrays, or nothing."""

    @abc.abstractmethod
    def apply(self, key: Key, state: PyTree, observation: Sensed) -> tuple[Sensed, PyTree]:
        """Perturb one observation.

        Args:
            key: Random key, a new one every step.
            state: From `init`, or from the step before.
            observation: N readings, N rows of features, or an image.

        Returns:
            As many readings as `output_spec` says, or rows or an image of that shape; and the new state.
        """

    @property
    def perturbs_actions(self) -> bool:
        """Whether `perturb_action` does something; by default it does not, and engines leave it out."""
        return False

    def init_actions(self, state: PyTree, num_actions: int) -> PyTree:
        """Add what depends on the number of actions to the state of `init`; nothing by default."""
        del num_actions
        return state

    def perturb_action(self, key: Key, state: PyTree, action: Action) -> tuple[Action, PyTree]:
        """Perturb one action on its way to the world; nothing happens by default.

        Args:
            key: Random key, a new one every step.
            state: As `apply` of the same step returned it.
            action: As the agent gave it: A numbers in [-1, 1]. The agent's own memory of it stays as it is.

        Returns:
            A numbers in [-1, 1], as the world gets them; and the new state.
        """
        del key
        return action, state

    def wanted_action(self, state: PyTree, command: Action) -> Action:
        """Return the action that motors would get as `command`: what an expert of the bare world advises.

        Of motors in another order, with other signs or factors; a lag is the expert's own affair, and motors
        that are cut do nothing whatever they get.

        Args:
            state: As `apply` of the same step returned it.
            command: A numbers, as the world should get them.

        Returns:
            A numbers, as the agent should give them.
        """
        del state
        return command

    @abc.abstractmethod
    def sensor_of_channel(self, state: PyTree, spec: ObservationSpec) -> Int[Array, " channels"]:
        """Return the sensor that each channel carries, -1 for noise; `state` is what `apply` returned."""

    def carried(self, key: Key, state: PyTree, marks: Image) -> Image:
        """Move marks on the pixels of an image as `apply` of the same key and state moves the pixels.

        By default marks are perturbed like pixels; perturbations that mix pixels leave marks where they are.
        """
        return self.apply(key, state, marks)[0]

    def within(self, steps: int) -> "Perturbation":
        """Return the perturbation of the first `steps` steps of an episode: what comes later is left out."""
        del steps
        return self

    @abc.abstractmethod
    def __str__(self) -> str:
        """Return a short name for tables."""


@dataclasses.dataclass(frozen=True)
class Identity(Perturbation):
    """No perturbation."""

    def output_spec(self, spec: ObservationSpec) -> ObservationSpec:
        """Return `spec`, unchanged."""
        return spec

    def init(self, key: Key, spec: ObservationSpec) -> PyTree:
        """Return no state."""
        del key, spec
        return ()

    def apply(self, key: Key, state: PyTree, observation: Sensed) -> tuple[Array, PyTree]:
        """Pass the observation on."""
        del key
        return observation, state

    def sensor_of_channel(self, state: PyTree, spec: ObservationSpec) -> Int[Array, " channels"]:
        """Return the sensors in their own order."""
        del state
        return jnp.arange(check_sensors(self, spec))

    def __str__(self) -> str:
        return "plain"


def begin(perturbation: Perturbation, key: Key, spec: ObservationSpec, num_actions: int) -> PyTree:
    """Draw the state of a perturbation at the start of an episode, in a world with so many actions."""
    return perturbation.init_actions(perturbation.init(key, spec), num_actions)


def check_sensors(perturbation: Perturbation, spec: ObservationSpec) -> int:
    """Return the number of scalar sensors or entities of `spec`; ConfigError if it is of images."""
    count = num_sensors_of(spec)
    if count is None:
        raise ConfigError(
            f"{str(perturbation)!r} happens to scalar sensors and entities, not to {in_words(spec)}."
        )
    return count


def check_perturbation(perturbation: Perturbation, spec: ObservationSpec = 5) -> None:
    """Hold a perturbation to the contract of this module, on a made-up episode of three steps.

    Args:
        perturbation: The perturbation to check.
        spec: A number of scalar sensors, or the shape of entities or images, to try it with.

    Raises:
        ConfigError: It breaks the contract; the message says which clause.
    """
    name = type(perturbation).__name__
    hash(perturbation)  # a value, usable as a static argument
    state = begin(perturbation, jax.random.key(0), spec, 3)
    count = num_sensors_of(spec)
    if count is not None:
        numbers = jnp.linspace(-1.0, 1.0, math.prod(shape_of(spec)), dtype=jnp.float32)
        observation: Array = numbers.reshape(shape_of(spec))
    else:
        observation = jax.random.bits(jax.random.key(1), shape_of(spec), jnp.uint8)
    expected = shape_of(perturbation.output_spec(spec))
    structure = jax.eval_shape(lambda: state)
    for step in range(3):
        shown, state = perturbation.apply(jax.random.key(step), state, observation)
        if shown.shape != expected:
            raise ConfigError(f"{name} promises shape {expected}, gave {shown.shape}.")
        if shown.dtype != observation.dtype:
            raise ConfigError(f"{name} turns {observation.dtype} into {shown.dtype}.")
        if count and perturbation.sensor_of_channel(state, spec).shape != expected[:1]:
            raise ConfigError(
                f"{name} does not name the source of each of its {expected[0]} channels."
            )
        action = jnp.linspace(-1.0, 1.0, 3, dtype=jnp.float32)
        done, state = perturbation.perturb_action(jax.random.key(step), state, action)
        if jax.eval_shape(lambda state=state: state) != structure:
            raise ConfigError(f"{name} changes the structure of its state in a step.")
        if done.shape != action.shape or bool(jnp.any(~(jnp.abs(done) <= 1))):
            raise ConfigError(f"{name} turns 3 actions in [-1, 1] into {done}.")
        if not perturbation.perturbs_actions and bool(jnp.any(done != action)):
            raise ConfigError(
                f"{name} perturbs actions, but its `perturbs_actions` says that it does not."
            )
