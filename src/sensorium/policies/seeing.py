"""Agents of pictures in two parts: eyes, and a controller that acts on what they make of a picture."""

import abc
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.policies.policy import Policy, Trace
from sensorium.types import Action, PyTree


class SeeingPolicy(Policy):
    """An agent whose controller can learn while its eyes stay as they are (`ControllerPpoConfig`)."""

    @abc.abstractmethod
    def see(self, observation: Any, carry: PyTree) -> tuple[PyTree, PyTree, Trace]:
        """What the eyes make of a picture, the carry after a look at it, and what happened inside."""

    @abc.abstractmethod
    def control(self, seen: PyTree, carry: PyTree) -> tuple[Float[Array, " A"], PyTree]:
        """Actions before their tanh, and the carry after them.

        Args:
            seen: What the eyes made of a picture.
            carry: After the look at it.
        """

    def step(self, observation: Any, carry: PyTree) -> tuple[Action, PyTree, Trace]:
        """Look, remember, act."""
        seen, carry, trace = self.see(observation, carry)
        sums, carry = self.control(seen, carry)
        return jnp.tanh(sums), carry, trace
