"""Tiny worlds whose best return is known; each isolates one thing that a trainer must get right."""

import dataclasses
import tempfile
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from sensorium.envs import Environment
from sensorium.policies import FeedForwardConfig
from sensorium.recipes import Stage
from sensorium.serialisation import save_pytree
from sensorium.training import EvolutionConfig, TrainingContext

UNTRAINED = (Stage("none", EvolutionConfig()),)
"""Stages of an agent that a test draws instead of training it."""


class Stopped(Exception):
    """Raised in place of whatever stops a run."""


def stop_after(generation, stage=None):
    """For `on_generation`: stop a run after a generation of a stage."""

    def stop(row):
        if row["generation"] == generation and stage in (None, row["stage"]):
            raise Stopped

    return stop


def context(draw, engine, expert=None, generations=1, directory=None):
    """What a trainer is built from; what it keeps on disk goes to a new folder where none is named."""
    directory = directory or Path(tempfile.mkdtemp(prefix="sensorium-tests-"))
    return TrainingContext(FeedForwardConfig(), draw, engine, directory, generations, expert=expert)


def trainer_of(engine, agent, config, expert=None, directory=None, generations=5):
    """What trains an agent from random weights in the world of an engine."""
    world = engine.world

    def draw(key):
        return agent.build(world.observation_spec, world.actions, key)

    return config.build(context(draw, engine, expert, generations, directory))


def save_untrained(path, recipe):
    """Write an untrained agent of a recipe to a file."""
    save_pytree(path, recipe.draw_policy(jax.random.key(0)), {"recipe": recipe.to_json()})


class ProbeState(NamedTuple):
    """What the sensors read, what pays, and the time."""

    readings: Array
    time: Array


@dataclasses.dataclass(frozen=True)
class FollowWorld(Environment):
    """One sensor; reward -|reading - action|. The best return is 0."""

    id = "Follow"
    num_sensors = 1
    num_actions = 1
    sensor_names = ("reading",)
    max_steps = 20
    solved_return = -1.0
    default_params = ()

    def reset_env(self, key, params):
        readings = jax.random.uniform(key, (self.num_sensors,), jnp.float32, -1.0, 1.0)
        state = ProbeState(readings, jnp.zeros((), jnp.int32))
        return self.observe(state), state

    def step_env(self, key, state, action, params):
        reward = -jnp.abs(state.readings[0] - action[0])
        state = ProbeState(self.move(key, state.readings), state.time + 1)
        return self.observe(state), state, reward, jnp.zeros((), bool), {}

    def move(self, key, readings):
        return jax.random.uniform(key, readings.shape, jnp.float32, -1.0, 1.0)

    def observe(self, state):
        return state.readings

    def critic_features(self, state):
        return state.readings


class OneMattersWorld(FollowWorld):
    """Three sensors: the first stays for the whole episode and pays, the others are new each step."""

    id = "OneMatters"
    num_sensors = 3
    sensor_names = ("first", "second", "third")
    alike = False

    def move(self, key, readings):
        fresh = super().move(key, readings)
        return readings if self.alike else fresh.at[0].set(readings[0])


class ChoosingWorld(FollowWorld):
    """Two readings, each of which asks for one of two options: 1 a step where both are right."""

    id = "Choosing"
    num_sensors = 2
    num_actions = 4
    actions = (2, 2)
    sensor_names = ("first", "second")

    def step_env(self, key, state, action, params):
        chosen = jnp.argmax(action.reshape(2, 2), axis=1)
        reward = jnp.all(chosen == (state.readings > 0)).astype(jnp.float32)
        state = ProbeState(self.move(key, state.readings), state.time + 1)
        return self.observe(state), state, reward, jnp.zeros((), bool), {}
