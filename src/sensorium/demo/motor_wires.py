"""Wires from the outputs of an agent to the motors of its world, which the controls decide."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sensorium.demo.messages import Controls
from sensorium.errors import ConfigError
from sensorium.perturbations import Identity
from sensorium.types import Action, Key, ObservationSpec, PyTree


class Wires(NamedTuple):
    """What arrives at each of A motors."""

    output: Int[np.ndarray | Array, " A"]
    """Of the agent, that the motor is wired to."""
    sign: Float[np.ndarray | Array, " A"]
    """-1 if the wire changes the sign, 0 if it is cut."""


@dataclasses.dataclass(frozen=True)
class WireMotors(Identity):
    """Actions go through wires that are written into the state; at first each to its own motor."""

    count: int
    """A; 0 where actions are choices, which have no wires."""

    def check(self, controls: Controls) -> None:
        """Raise ConfigError if there are no such motors."""
        marked = (*controls.motors_reversed, *controls.motors_cut)
        if not self.count and (controls.motors or marked):
            raise ConfigError("The actions of this world are choices: it has no motors to rewire.")
        if controls.motors and sorted(controls.motors) != list(range(self.count)):
            raise ConfigError(f"A wire must lead to each of the motors 0 to {self.count - 1}.")
        if marked and max(marked) >= self.count:
            raise ConfigError(f"There are outputs 0 to {self.count - 1}, no output {max(marked)}.")

    def wires(self, controls: Controls) -> Wires:
        """Return the wires that the controls ask for."""
        sign = np.ones(self.count, np.float32)
        sign[list(controls.motors_reversed)] = -1.0
        sign[list(controls.motors_cut)] = 0.0
        output = np.argsort(controls.motors or np.arange(self.count)).astype(np.int32)
        return Wires(output, sign[output])

    def init(self, key: Key, spec: ObservationSpec) -> Wires:
        del key, spec
        return Wires(jnp.arange(self.count), jnp.ones(self.count))

    @property
    def perturbs_actions(self) -> bool:
        return self.count > 0

    def perturb_action(self, key: Key, state: PyTree, action: Action) -> tuple[Action, PyTree]:
        """Take the action of each motor from its wire."""
        del key
        return state.sign * action[state.output] if self.count else action, state

    def __str__(self) -> str:
        return "motors wired by hand"
