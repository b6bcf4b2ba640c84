"""Motors that are not wired as they were: the same for any number of actions."""

import abc
import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sensorium.errors import ConfigError, check_counts
from sensorium.perturbations.perturbation import Perturbation
from sensorium.seeding import stream
from sensorium.types import Action, Key, ObservationSpec, PyTree, Sensed, num_sensors_of


class Wiring(NamedTuple):
    """What the wires of the motors are drawn from."""

    key: Key
    age: Int[Array, ""]
    """For how many steps they have been as they are."""


@dataclasses.dataclass(frozen=True)
class MotorPerturbation(Perturbation, abc.ABC):
    """A change of actions alone; what it draws is drawn for each episode."""

    def output_spec(self, spec: ObservationSpec) -> ObservationSpec:
        """Return `spec`, unchanged."""
        return spec

    @property
    def perturbs_actions(self) -> bool:
        """It does."""
        return True

    def init(self, key: Key, spec: ObservationSpec) -> Wiring:
        """Draw the key of this episode."""
        del spec
        return Wiring(stream(key, "motors"), jnp.zeros((), jnp.int32))

    def apply(self, key: Key, state: Wiring, observation: Sensed) -> tuple[Sensed, PyTree]:
        """Pass the observation on."""
        del key
        return observation, state._replace(age=state.age + 1)

    def sensor_of_channel(self, state: PyTree, spec: ObservationSpec) -> Int[Array, " channels"]:
        """Return the sensors in their own order."""
        del state
        return jnp.arange(num_sensors_of(spec) or 0)


@dataclasses.dataclass(frozen=True)
class RewireMotors(MotorPerturbation):
    """A random order of the motors, a new one every `every` steps in mid-episode."""

    every: int | None = None
    """Steps; None for one order an episode."""
    signed: bool = False
    """Whether random motors are turned around as well."""

    def __post_init__(self) -> None:
        if self.every is not None:
            check_counts(1, "RewireMotors", every=self.every)

    def perturb_action(self, key: Key, state: Wiring, action: Action) -> tuple[Action, Wiring]:
        """Send each action to the motor that it is wired to."""
        del key
        order, sign = self._wires(state, len(action))
        return (action * sign)[order], state

    def wanted_action(self, state: Wiring, command: Action) -> Action:
        """Go back along the wires."""
        order, sign = self._wires(state, len(command))
        return sign * jnp.zeros_like(command).at[order].set(command)

    def _wires(
        self, state: Wiring, count: int
    ) -> tuple[Int[Array, " motors"], Float[Array, " motors"]]:
        """Return which action each motor gets, and the sign of each action on its way."""
        times = 0 if self.every is None else (state.age - 1) // self.every
        key_order, key_sign = jax.random.split(jax.random.fold_in(state.key, times))
        order = jax.random.permutation(key_order, count)
        signs = jax.random.rademacher(key_sign, (count,), jnp.float32)
        return order, signs if self.signed else jnp.ones(count)

    def within(self, steps: int) -> Perturbation:
        """Return one without changes if there is none within `steps`."""
        late = self.every is not None and self.every >= steps
        return dataclasses.replace(self, every=None) if late else self

    def __str__(self) -> str:
        when = "" if self.every is None else f" every {self.every}"
        return f"motors rewired{' with signs' if self.signed else ''}{when}"


@dataclasses.dataclass(frozen=True)
class ReverseMotors(MotorPerturbation):
    """All motors turn around, from a step on."""

    after: int = 0
    """Steps."""

    def __post_init__(self) -> None:
        check_counts(0, "ReverseMotors", after=self.after)

    def perturb_action(self, key: Key, state: Wiring, action: Action) -> tuple[Action, Wiring]:
        """Change all signs, if it is time."""
        del key
        return self.wanted_action(state, action), state

    def wanted_action(self, state: Wiring, command: Action) -> Action:
        """Do the same: twice is nothing."""
        return jnp.where(state.age > self.after, -command, command)

    def __str__(self) -> str:
        return "motors reversed" + (f" after {self.after}" if self.after else "")


@dataclasses.dataclass(frozen=True)
class ScaleMotors(MotorPerturbation):
    """Each motor is weaker by a factor of its own, drawn for each episode."""

    least: float = 0.5
    """The smallest factor; the largest is 1."""

    def __post_init__(self) -> None:
        if not 0 <= self.least <= 1:
            raise ConfigError(f"ScaleMotors takes a factor from 0 to 1, got {self.least}.")

    def perturb_action(self, key: Key, state: Wiring, action: Action) -> tuple[Action, Wiring]:
        """Multiply each action."""
        del key
        return action * self._factors(state, action), state

    def wanted_action(self, state: Wiring, command: Action) -> Action:
        """Ask for more of weak motors, but no more than they can do."""
        factors = jnp.maximum(self._factors(state, command), 1e-6)
        return jnp.clip(command / factors, -1.0, 1.0)

    def _factors(self, state: Wiring, action: Action) -> Float[Array, " motors"]:
        return jax.random.uniform(state.key, action.shape, action.dtype, self.least, 1.0)

    def __str__(self) -> str:
        return f"motors scaled from {self.least:g}"


@dataclasses.dataclass(frozen=True)
class CutMotors(MotorPerturbation):
    """Random motors do nothing, from a step on."""

    share: float = 0.5
    """Of the motors; rounded down, so that one at least is left."""
    after: int = 0
    """Steps."""

    def __post_init__(self) -> None:
        check_counts(0, "CutMotors", after=self.after)
        if not 0 <= self.share < 1:
            raise ConfigError(f"CutMotors takes a share from 0 to less than 1, got {self.share}.")

    def perturb_action(self, key: Key, state: Wiring, action: Action) -> tuple[Action, Wiring]:
        """Leave the others as they are."""
        del key
        cut = jax.random.permutation(state.key, len(action)) < int(self.share * len(action))
        return jnp.where(cut & (state.age > self.after), 0.0, action), state

    def __str__(self) -> str:
        return f"{self.share:.0%} of motors cut" + (f" after {self.after}" if self.after else "")


@dataclasses.dataclass(frozen=True)
class LagMotors(MotorPerturbation):
    """A first-order lag of each motor behind its action; motors start at zero."""

    share: float = 0.5
    """Of what a motor did in the step before that is left; the rest is the action."""

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise ConfigError(f"LagMotors takes a share from 0 to less than 1, got {self.share}.")

    def init(self, key: Key, spec: ObservationSpec) -> PyTree:
        """Return no state: it is of the motors."""
        del key, spec
        return ()

    def apply(self, key: Key, state: PyTree, observation: Sensed) -> tuple[Sensed, PyTree]:
        """Pass the observation on."""
        del key
        return observation, state

    def init_actions(self, state: PyTree, num_actions: int) -> Array:
        """Return what motors do: nothing."""
        del state
        return jnp.zeros(num_actions)

    def perturb_action(self, key: Key, state: Array, action: Action) -> tuple[Action, Array]:
        """Mix the action with what motors did."""
        del key
        done = self.share * state + (1 - self.share) * action
        return done, done

    def __str__(self) -> str:
        return f"motors lag by {self.share:g}"
