"""A small package of somebody else's: one part of each kind, as `docs/extend.md` describes them."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

import sensorium
from sensorium.policies import Policy, PolicyConfig, Trace, as_population, from_vector, to_vector
from sensorium.training.trainer import Metrics


class RoomsState(NamedTuple):
    """Temperatures of the rooms, relative to what is wanted, and the time."""

    temperatures: jax.Array
    time: jax.Array


@sensorium.register
@dataclasses.dataclass(frozen=True)
class Rooms(sensorium.Environment):
    """Three rooms and one heater: keep the mean temperature where it is wanted."""

    id = "Rooms"
    num_sensors = 3
    num_actions = 1
    sensor_names = ("kitchen", "hall", "attic")
    max_steps = 20
    solved_return = -4.0
    default_params = ()

    def reset_env(self, key, params):
        state = RoomsState(jax.random.uniform(key, (3,), minval=-1.0), jnp.zeros((), jnp.int32))
        return state.temperatures, state

    def step_env(self, key, state, action, params):
        temperatures = 0.9 * state.temperatures + 0.3 * jnp.clip(action, -1, 1)
        reward = -jnp.abs(jnp.mean(temperatures))
        state = RoomsState(temperatures, state.time + 1)
        return temperatures, state, reward, jnp.zeros((), bool), {}

    def observe(self, state):
        return state.temperatures

    def draw(self, state):
        shade = np.uint8(127 + 100 * np.tanh(np.asarray(state.temperatures)))
        return np.broadcast_to(shade[None, :, None], (48, 3, 3)).repeat(24, axis=1).copy()


class Valve(gymnasium.Env):
    """A valve that follows a pressure: reward -|pressure - valve| a step."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._read(), {}

    def step(self, action):
        reward = -abs(float(self._pressure.mean() - action[0]))
        return self._read(), reward, False, False, {}

    def _read(self):
        self._pressure = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return self._pressure


if "foreign/Valve-v0" not in gymnasium.registry:
    gymnasium.register("foreign/Valve-v0", Valve, max_episode_steps=10)


class MeanPolicy(Policy):
    """Acts on the mean of all readings: in any order, of any number."""

    weight: jax.Array
    num_actions: int = eqx.field(static=True)

    def initial_carry(self, spec):
        return ()

    def encode(self, observation, carry):
        code = jnp.mean(observation)[None]
        return code, carry, Trace(code)

    def decide(self, features, carry):
        return self.weight @ features, carry


@sensorium.register
@dataclasses.dataclass(frozen=True)
class MeanConfig(PolicyConfig):
    """Settings of `MeanPolicy`."""

    size: float = 1.0

    def build(self, spec, actions, key):
        count = sensorium.types.count_of(actions)
        return MeanPolicy(self.size * jax.random.normal(key, (count, 1)), count)


@sensorium.register
@dataclasses.dataclass(frozen=True)
class Offset(sensorium.Perturbation):
    """Every sensor reads too much by the same amount, drawn for each episode."""

    largest: float = 0.1

    def output_spec(self, spec):
        return spec

    def init(self, key, spec):
        return jax.random.uniform(key, (), maxval=self.largest)

    def apply(self, key, state, observation):
        return observation + state, state

    def sensor_of_channel(self, state, spec):
        return jnp.arange(spec)

    def __str__(self):
        return f"offset up to {self.largest:g}"


class ClimbState(NamedTuple):
    """The best parameters so far, what they were worth, and the key."""

    best: jax.Array
    score: jax.Array
    key: jax.Array


class Climb(sensorium.Trainer):
    """Hill climbing: keep a random step if it scores better on the same episodes."""

    def __init__(self, config: "ClimbConfig", context: Any):
        self.config, self.context = config, context
        self._like = context.draw(jax.random.key(0))

    def init(self, key):
        key, key_draw = jax.random.split(key)
        return ClimbState(to_vector(self.context.draw(key_draw)), jnp.asarray(-jnp.inf), key)

    def step(self, state):
        key, key_step, key_episodes = jax.random.split(state.key, 3)
        tried = state.best + self.config.size * jax.random.normal(key_step, state.best.shape)
        both = jnp.stack([state.best, tried])
        policies = eqx.filter_vmap(lambda vector: from_vector(vector, self._like))(both)
        keys = jax.random.split(key_episodes, 8)
        totals = self.context.engine.totals(policies, keys)
        returns = jnp.asarray(totals.returns).mean(axis=1)
        winner = jnp.argmax(returns)
        metrics = Metrics(int(totals.steps.sum()), {"best": returns.max(), "mean": returns.mean()})
        return ClimbState(both[winner], returns[winner], key), metrics

    def candidates(self, state):
        return as_population(from_vector(state.best, self._like))


@sensorium.register
@dataclasses.dataclass(frozen=True)
class ClimbConfig(sensorium.TrainerConfig):
    """Settings of `Climb`."""

    size: float = 0.5

    def build(self, context):
        return Climb(self, context)
