"""More sensors or fewer: copies, noise, and sensors that are missing or read zero."""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from sensorium.errors import ConfigError, check_counts
from sensorium.perturbations.perturbation import Perturbation, check_sensors
from sensorium.types import Key, ObservationSpec, PyTree, Sensors, with_num_sensors


@dataclasses.dataclass(frozen=True)
class Duplicate(Perturbation):
    """Every sensor `copies` times.

    A policy that sums over its sensors then receives everything that often, so the paper scales the sum by
    0.5 for two copies (AN section 4.1); `code_scale` is that factor, and evaluation applies it.
    """

    copies: int = 2

    def __post_init__(self) -> None:
        check_counts(1, "Duplicate", copies=self.copies)

    @property
    def code_scale(self) -> float:
        """One over the number of copies."""
        return 1.0 / self.copies

    def output_spec(self, spec: ObservationSpec) -> ObservationSpec:
        """Return `copies` times the number of sensors."""
        return with_num_sensors(spec, check_sensors(self, spec) * self.copies)

    def init(self, key: Key, spec: ObservationSpec) -> PyTree:
        """Return no state."""
        del key, spec
        return ()

    def apply(self, key: Key, state: PyTree, observation: Sensors) -> tuple[Array, PyTree]:
        """Repeat the whole observation."""
        del key
        return jnp.tile(observation, (self.copies, *[1] * (observation.ndim - 1))), state

    def sensor_of_channel(self, state: PyTree, spec: ObservationSpec) -> Int[Array, " channels"]:
        """Return all sensors, once for each copy."""
        del state
        return jnp.tile(jnp.arange(check_sensors(self, spec)), self.copies)

    def __str__(self) -> str:
        return "doubled" if self.copies == 2 else f"{self.copies} copies"


@dataclasses.dataclass(frozen=True)
class DuplicateSome(Perturbation):
    """Up to `most` more sensors, copies of some that are drawn for each episode, and so is their number.

    The sum over sensors is not scaled. For agents of entities that are to meet more of them than in training:
    things that are there twice are one obstacle still.
    """

    most: int = 10

    def __post_init__(self) -> None:
        check_counts(1, "DuplicateSome", most=self.most)

    def output_spec(self, spec: ObservationSpec) -> ObservationSpec:
        """Return the number of sensors and `most` more."""
        return with_num_sensors(spec, check_sensors(self, spec) + self.most)

    def init(self, key: Key, spec: ObservationSpec) -> Int[Array, " most"]:
        """Draw what each further sensor copies; -1 if it is absent."""
        key_number, key_copied = jax.random.split(key)
        number = jax.random.randint(key_number, (), 0, self.most + 1)
        copied = jax.random.randint(key_copied, (self.most,), 0, check_sensors(self, spec))
        return jnp.where(jnp.arange(self.most) < number, copied, -1)

    def apply(
        self, key: Key, state: Int[Array, " most"], observation: Sensors
    ) -> tuple[Array, Int[Array, " most"]]:
        """Append the copies; absent scalar sensors read zero, and absent entities NaN."""
        del key
        entities = observation.ndim > 1
        present = (state >= 0).reshape(-1, *[1] * (observation.ndim - 1))
        more = jnp.where(present, observation[state], jnp.nan if entities else 0.0)
        return jnp.concatenate([observation, more]), state

    def sensor_of_channel(
        self, state: Int[Array, " most"], spec: ObservationSpec
    ) -> Int[Array, " channels"]:
        """Return all sensors, then those that are copied, or -1."""
        return jnp.concatenate([jnp.arange(check_sensors(self, spec)), state])

    def __str__(self) -> str:
        return f"up to {self.most} copies of some"


@dataclasses.dataclass(frozen=True)
class NoiseChannels(Perturbation):
    """`count` more channels or entities of Gaussian noise, drawn anew every step (AN section 4.1: 5 of 0.1).

    The paper halves the sum over sensors there, too; here it stays as it is.
    """

    count: int = 5
    sigma: float = 0.1

    def __post_init__(self) -> None:
        check_counts(0, "NoiseChannels", count=self.count)
        if not 0 <= self.sigma < math.inf:
            raise ConfigError(
                f"NoiseChannels: sigma must be a finite number of at least 0, got {self.sigma:g}."
            )

    def output_spec(self, spec: ObservationSpec) -> ObservationSpec:
        """Return the number of sensors and `count` more."""
        return with_num_sensors(spec, check_sensors(self, spec) + self.count)

    def init(self, key: Key, spec: ObservationSpec) -> PyTree:
        """Return no state."""
        del key, spec
        return ()

    def apply(self, key: Key, state: PyTree, observation: Sensors) -> tuple[Array, PyTree]:
        """Append the noise."""
        shape = (self.count, *observation.shape[1:])
        noise = self.sigma * jax.random.normal(key, shape, observation.dtype)
        return jnp.concatenate([observation, noise]), state

    def sensor_of_channel(self, state: PyTree, spec: ObservationSpec) -> Int[Array, " channels"]:
        """Return all sensors, then -1 for noise."""
        del state
        return jnp.concatenate([jnp.arange(check_sensors(self, spec)), jnp.full(self.count, -1)])

    def __str__(self) -> str:
        sigma = "" if self.sigma == 0.1 else f" of sigma {self.sigma:g}"
        return f"+{self.count} noise channels{sigma}"


@dataclasses.dataclass(frozen=True)
class Drop(Perturbation):
    """`count` sensors, drawn for each episode, are missing; the rest keep their order."""

    count: int = 1

    def __post_init__(self) -> None:
        check_counts(0, "Drop", count=self.count)

    def output_spec(self, spec: ObservationSpec) -> ObservationSpec:
        """Return `count` fewer; raise ConfigError if none would be left."""
        num_sensors = check_sensors(self, spec)
        if self.count >= num_sensors:
            raise ConfigError(
                f"Dropping {self.count} of {num_sensors} sensors would leave none; "
                f"drop at most {num_sensors - 1}."
            )
        return with_num_sensors(spec, num_sensors - self.count)

    def init(self, key: Key, spec: ObservationSpec) -> Int[Array, " kept"]:
        """Draw the sensors that are left."""
        kept = check_sensors(self, self.output_spec(spec))
        return jnp.sort(jax.random.permutation(key, check_sensors(self, spec))[:kept])

    def apply(
        self, key: Key, state: Int[Array, " kept"], observation: Sensors
    ) -> tuple[Array, Int[Array, " kept"]]:
        """Keep the sensors that are left."""
        del key
        return observation[state], state

    def sensor_of_channel(
        self, state: Int[Array, " kept"], spec: ObservationSpec
    ) -> Int[Array, " kept"]:
        """Return the sensors that are left."""
        del spec
        return state

    def __str__(self) -> str:
        return f"{self.count} dropped"


@dataclasses.dataclass(frozen=True)
class Silence(Perturbation):
    """`count` sensors, drawn for each episode, read zero: as `Drop` for agents that need all their inputs."""

    count: int = 1

    def __post_init__(self) -> None:
        check_counts(0, "Silence", count=self.count)

    def output_spec(self, spec: ObservationSpec) -> ObservationSpec:
        """Return the number of all sensors; raise ConfigError if all would be silent."""
        num_sensors = check_sensors(self, spec)
        if self.count >= num_sensors:
            raise ConfigError(
                f"Silencing {self.count} of {num_sensors} sensors would leave none; "
                f"silence at most {num_sensors - 1}."
            )
        return spec

    def init(self, key: Key, spec: ObservationSpec) -> Bool[Array, " N"]:
        """Draw which sensors read zero."""
        num_sensors = check_sensors(self, self.output_spec(spec))
        return jax.random.permutation(key, num_sensors) < self.count

    def apply(
        self, key: Key, state: Bool[Array, " N"], observation: Sensors
    ) -> tuple[Array, Bool[Array, " N"]]:
        """Set them to zero; absent entities stay absent."""
        del key
        if observation.ndim == 1:
            return jnp.where(state, 0.0, observation), state
        return jnp.where(state[:, None] & ~jnp.isnan(observation), 0.0, observation), state

    def sensor_of_channel(
        self, state: Bool[Array, " N"], spec: ObservationSpec
    ) -> Int[Array, " N"]:
        """Return the sensor of each channel: its own, silent or not."""
        del state
        return jnp.arange(check_sensors(self, spec))

    def __str__(self) -> str:
        return f"{self.count} silent"
