"""The interface of everything that can happen to the senses.

A perturbation is a small immutable value. It is drawn once an episode and applied every step:

    state = perturbation.init(key, num_sensors)
    observation, state = perturbation.apply(key, state, observation)
"""

import abc
import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sensorium.errors import ConfigError
from sensorium.types import Key, Observation, PyTree


class Perturbation(abc.ABC):
    """What happens between the sensors of a world and the agent."""

    @property
    def code_scale(self) -> float:
        """Factor by which an agent should scale the sum over its sensors; see `Duplicate`."""
        return 1.0

    @abc.abstractmethod
    def num_channels(self, num_sensors: int) -> int:
        """How many channels arrive if the world has `num_sensors`.

        Raises:
            ConfigError: It cannot be applied to that many.
        """

    @abc.abstractmethod
    def init(self, key: Key, num_sensors: int) -> PyTree:
        """Draw what stays fixed for an episode; arrays, or nothing."""

    @abc.abstractmethod
    def apply(
        self, key: Key, state: PyTree, observation: Observation
    ) -> tuple[Float[Array, " channels"], PyTree]:
        """Perturb one observation.

        Args:
            key: Random key, a new one every step.
            state: From `init`, or from the step before.
            observation: N readings.

        Returns:
            `num_channels(N)` readings, and the new state.
        """

    @abc.abstractmethod
    def sources(self, state: PyTree, num_sensors: int) -> Int[Array, " channels"]:
        """Which sensor each channel carries now, -1 for noise; of the state that `apply` returned."""

    @abc.abstractmethod
    def __str__(self) -> str:
        """Short name for tables."""


@dataclasses.dataclass(frozen=True)
class Identity(Perturbation):
    """Nothing happens."""

    def num_channels(self, num_sensors: int) -> int:
        """All of them."""
        return num_sensors

    def init(self, key: Key, num_sensors: int) -> PyTree:
        """No state."""
        del key, num_sensors
        return ()

    def apply(self, key: Key, state: PyTree, observation: Observation) -> tuple[Array, PyTree]:
        """Pass it on."""
        del key
        return observation, state

    def sources(self, state: PyTree, num_sensors: int) -> Int[Array, " channels"]:
        """Each carries its own."""
        del state
        return jnp.arange(num_sensors)

    def __str__(self) -> str:
        return "plain"


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

    def num_channels(self, num_sensors: int) -> int:
        """Through all parts in turn."""
        for part in self.parts:
            num_sensors = part.num_channels(num_sensors)
        return num_sensors

    def init(self, key: Key, num_sensors: int) -> PyTree:
        """State of each part."""
        states = []
        for index, part in enumerate(self.parts):
            states.append(part.init(jax.random.fold_in(key, index), num_sensors))
            num_sensors = part.num_channels(num_sensors)
        return tuple(states)

    def apply(self, key: Key, state: PyTree, observation: Observation) -> tuple[Array, PyTree]:
        """Through all parts in turn."""
        states = []
        for index, (part, part_state) in enumerate(zip(self.parts, state, strict=True)):
            observation, part_state = part.apply(
                jax.random.fold_in(key, index), part_state, observation
            )
            states.append(part_state)
        return observation, tuple(states)

    def sources(self, state: PyTree, num_sensors: int) -> Int[Array, " channels"]:
        """Followed back through all parts."""
        carried = jnp.arange(num_sensors)
        for part, part_state in zip(self.parts, state, strict=True):
            source = part.sources(part_state, carried.shape[0])
            carried = jnp.where(source >= 0, carried[source], -1)
        return carried

    def __str__(self) -> str:
        return " + ".join(str(part) for part in self.parts) or "plain"


def compose(*parts: Perturbation) -> Perturbation:
    """The parts one after another; `Identity` for none, the part itself for one."""
    parts = tuple(part for part in parts if part != Identity())
    if not parts:
        return Identity()
    return parts[0] if len(parts) == 1 else Compose(parts)


def check_perturbation(perturbation: Perturbation, num_sensors: int = 5) -> None:
    """Hold a perturbation to the contract of this module, on a made-up episode of three steps.

    Raises:
        ConfigError: It breaks the contract; the message says which clause.
    """
    name = type(perturbation).__name__
    hash(perturbation)  # a value, usable as a static argument
    state = perturbation.init(jax.random.key(0), num_sensors)
    readings = jnp.linspace(-1.0, 1.0, num_sensors, dtype=jnp.float32)
    expected = perturbation.num_channels(num_sensors)
    structure = jax.eval_shape(lambda: state)
    for step in range(3):
        channels, state = perturbation.apply(jax.random.key(step), state, readings)
        if channels.shape != (expected,):
            raise ConfigError(f"{name} promises {expected} channels, gave shape {channels.shape}.")
        if perturbation.sources(state, num_sensors).shape != (expected,):
            raise ConfigError(
                f"{name} does not name the source of each of its {expected} channels."
            )
        if jax.eval_shape(lambda state=state: state) != structure:
            raise ConfigError(f"{name} changes the structure of its state in a step.")
