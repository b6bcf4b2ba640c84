"""A world with perturbed observations and actions is a world."""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from sensorium.envs.base import Environment
from sensorium.perturbations.perturbation import Identity, Perturbation, begin
from sensorium.seeding import stream
from sensorium.types import (
    Action,
    Actions,
    Flag,
    Key,
    ObservationSpec,
    PyTree,
    Scalar,
    Sensed,
    shape_of,
)


class PerturbedState(NamedTuple):
    """State of the world and of the perturbation."""

    world: PyTree
    perturbation: PyTree
    time: Array


@dataclasses.dataclass(frozen=True)
class Perturbed(Environment):
    """`world` with every observation passed through `perturbation`, and every action too if it acts on them.

    The same key gives the same start as in `world` itself, so that episodes can be compared in pairs.
    """

    world: Environment
    perturbation: Perturbation = Identity()

    id = "Perturbed"

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """After the perturbation."""
        return shape_of(self.perturbation.output_spec(self.world.observation_spec))

    @property
    def raw_observation_spec(self) -> ObservationSpec:
        """What the world shows before the perturbation."""
        return self.world.raw_observation_spec

    @property
    def num_sensors(self) -> int:
        """Channels after the perturbation; ConfigError in a world of images."""
        _ = self.world.num_sensors
        return self.observation_shape[0]

    @property
    def num_actions(self) -> int:
        """As in the world."""
        return self.world.num_actions

    @property
    def actions(self) -> Actions:
        """As in the world."""
        return self.world.actions

    @property
    def unperturbed(self) -> Environment:
        """The world itself."""
        return self.world

    @property
    def sensor_names(self) -> tuple[str, ...]:
        """Channels by their numbers, as they have no fixed meaning any more."""
        return tuple(f"channel {index}" for index in range(self.num_sensors))

    @property
    def max_steps(self) -> int:
        """As in the world."""
        return self.world.max_steps

    @property
    def steps_per_second(self) -> int:
        """As in the world."""
        return self.world.steps_per_second

    @property
    def solved_return(self) -> float:
        """As in the world."""
        return self.world.solved_return

    @property
    def scored_episodes(self) -> int:
        """As in the world."""
        return self.world.scored_episodes

    @property
    def default_params(self) -> Any:
        """As in the world."""
        return self.world.default_params

    def draw(self, state: PerturbedState) -> UInt8[np.ndarray, "height width 3"] | None:
        """Draw the world, unperturbed."""
        return self.world.draw(state.world)

    def reset_env(self, key: Key, params: Any) -> tuple[Sensed, PerturbedState]:
        """Start the world, then the perturbation."""
        observation, world = self.world.reset_env(key, params)
        key_init, key_apply = jax.random.split(stream(key, "senses"))
        spec, actions = self.world.observation_spec, self.world.num_actions
        perturbation_state = begin(self.perturbation, key_init, spec, actions)
        observation, perturbation_state = self.perturbation.apply(
            key_apply, perturbation_state, observation
        )
        return observation, PerturbedState(world, perturbation_state, self.world.time(world))

    def step_env(
        self, key: Key, state: PerturbedState, action: Action, params: Any
    ) -> tuple[Sensed, PerturbedState, Scalar, Flag, dict[str, Any]]:
        """Perturb the action, advance the world, then perturb what it shows."""
        key_world, key_perturbation = jax.random.split(key)
        between = state.perturbation
        if self.perturbation.perturbs_actions:
            key_action = stream(key, "action")
            action, between = self.perturbation.perturb_action(key_action, between, action)
        observation, world, reward, terminated, info = self.world.step_env(
            key_world, state.world, action, params
        )
        observation, between = self.perturbation.apply(key_perturbation, between, observation)
        state = PerturbedState(world, between, self.world.time(world))
        return observation, state, reward, terminated, info

    def observe(self, state: PerturbedState) -> Sensed:
        """Return what the sensors of the world read, unperturbed."""
        return self.world.observe(state.world)

    def sensor_of_channel(self, state: PerturbedState) -> Int[Array, " N"]:
        """Follow each channel back through the perturbation."""
        return self.perturbation.sensor_of_channel(state.perturbation, self.world.observation_spec)

    def critic_features(self, state: PerturbedState) -> Float[Array, " F"]:
        """Return those of the world: a critic receives the unperturbed state."""
        return self.world.critic_features(state.world)
