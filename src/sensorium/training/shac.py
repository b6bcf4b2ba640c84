"""Short-horizon actor-critic (SHAC, Xu et al. 2022): gradients through a differentiable world.

Many worlds run side by side and restart when an episode ends. Each update backs up the discounted return
of a short window, plus the critic's value of where the window ends, through world *and* LSTM:

    maximise  E[ Σₖ γᵏ rₜ₊ₖ + γʰ V(sₜ₊ₕ) ],    V fitted to TD(λ) targets

Departures from SHAC:

- policies have memory and anonymous sensors; the critic reads the true state in its true order, and is thrown
  away after training;
- gradients are clipped in each world at each step (`max_world_grad_norm`): swinging poles are chaotic;
- auxiliary losses: each sensor predicts which one it is (`sensor_id_coef`), and the agent what it will sense
  (`surprise_coef`), if it does;
- an exponential moving average of the weights is what is tested and kept.

P learners with seeds of their own train side by side; the run keeps the best.
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from sensorium.envs import Environment
from sensorium.errors import ConfigError
from sensorium.policies import Policy
from sensorium.rollout import over_devices, require_device, spread, truth_size
from sensorium.training.auxiliary import Probed, identity_loss, with_probe
from sensorium.training.critic import Critic
from sensorium.training.learner import Learner, Optimizer, moving_average
from sensorium.training.trainer import (
    DrawPolicy,
    Metrics,
    Trainer,
    TrainerConfig,
    TrainingContext,
)
from sensorium.types import Key, PyTree, Scalar

_CRITIC_LEARNING_RATE = 3e-3
_TARGET_RATE = 0.02  # how fast the target critic follows, for each update
_MAX_GRAD_NORM = 1.0


@dataclasses.dataclass(frozen=True)
class ShacConfig(TrainerConfig):
    """Settings of short-horizon actor-critic."""

    population: int = 1
    """Learners that train side by side, each from weights of its own."""
    num_envs: int = 64
    """Worlds of each learner."""
    num_steps: int = 64
    """Steps in a window, through which gradients flow."""
    num_iterations: int = 100
    """Windows, and so updates, in a generation."""
    learning_rate: float = 3e-3
    """Of the policy, at the start; it falls to a twentieth along a cosine."""
    critic_epochs: int = 2
    """Steps of the critic on each window."""
    critic_sizes: tuple[int, ...] = (64, 64)
    """Hidden layers of the critic."""
    discount: float = 0.995
    """γ, for each step of the world."""
    gae_lambda: float = 0.95
    """λ of the critic's targets."""
    ema_decay: float = 0.995
    """Of the exponential average of the weights."""
    sensor_id_coef: float = 0.3
    """Weight of the sensor identity loss: each sensor predicts which one it is (see `identity_loss`)."""
    surprise_coef: float = 1.0
    """Weight of what the agent did not expect, if it expects anything (`Policy.surprise`)."""
    max_world_grad_norm: float = 0.1
    """Largest norm of what flows back through one world in one step, in units of its share of the loss.

    Swinging poles are chaotic: without this a single world dominates the gradient."""

    def build(self, context: TrainingContext) -> "Shac":
        """Set up the trainer of an agent; ConfigError where settings or the world do not fit."""
        world = require_device(
            context.engine.world,
            "Gradients flow through worlds in JAX only; use evolution, PPO or DAgger for this one.",
        )
        if not truth_size(world):
            raise ConfigError(
                f"{world.id} offers no `critic_features`, which the critic of SHAC reads."
            )
        return Shac(self, context.draw, world, context.generations)


class Worlds(NamedTuple):
    """All worlds of a learner between two steps; the last axis is the R worlds."""

    observation: Float[Array, "... R"]
    state: PyTree
    carry: PyTree


class Window(NamedTuple):
    """The steps of one window, for the critic."""

    features: Float[Array, "T F R"]
    next_features: Float[Array, "T F R"]
    """Of the state that a step led to, before any restart."""
    reward: Float[Array, "T R"]
    terminated: Bool[Array, "T R"]
    truncated: Bool[Array, "T R"]


class ShacState(NamedTuple):
    """One policy in training, with its critic and its worlds."""

    learner: Learner
    critic: Learner
    target_critic: Critic
    worlds: Worlds
    key: Key


# Batch last throughout: a step of all worlds is then plain matrix products without transposes
_over_worlds = partial(jax.vmap, in_axes=-1, out_axes=-1)


class Shac(Trainer):
    """Short-horizon actor-critic of one policy in one differentiable world."""

    def __init__(self, config: ShacConfig, draw: DrawPolicy, world: Environment, generations: int):
        """Set up; the learning rate falls over all generations."""
        self.config = config
        self.draw = draw
        self.world = world
        self.compiled_for = config, world, generations
        updates = generations * config.num_iterations
        self._optimizer = Optimizer(
            optax.cosine_decay_schedule(config.learning_rate, updates, 0.05),
            _MAX_GRAD_NORM,
            config.ema_decay,
            b1=0.7,
            b2=0.95,
        )
        # Of one world's share of the loss, which is a mean over worlds and steps
        share = 1 / (config.num_envs * config.num_steps * (1 - config.discount))
        self._largest_cotangent = config.max_world_grad_norm * share
        self._critic_optimizer = Optimizer(_CRITIC_LEARNING_RATE, _MAX_GRAD_NORM)

    def init(self, key: Key) -> ShacState:
        """Make P learners with weights, worlds and keys of their own."""
        return jax.vmap(self._init_learner)(jax.random.split(key, self.config.population))

    def step(self, state: ShacState) -> tuple[ShacState, Metrics]:
        """Train every learner for `num_iterations` windows."""
        state, returns = self._train(spread(state, self.config.population))
        earned = np.asarray(returns)  # of all devices, which must not wait for one another
        config = self.config
        steps = config.population * config.num_envs * config.num_steps * config.num_iterations
        figures = {"best": jnp.asarray(earned.max()), "mean": jnp.asarray(earned.mean())}
        return state, Metrics(steps, figures)

    @partial(jax.jit, static_argnames="self")
    def _train(self, state: ShacState) -> tuple[ShacState, Float[Array, " P"]]:
        """Train the learners for a generation; also return the mean return of each, for a whole episode."""

        def train(learner: ShacState) -> tuple[ShacState, Scalar]:
            updates = self.config.num_iterations
            learner, rewards = jax.lax.scan(self._update, learner, None, length=updates)
            # A window is not an episode: its mean reward, times the steps of an episode
            return learner, jnp.mean(rewards) * self.world.max_steps

        return over_devices(jax.vmap(train), state, self.config.population)

    def candidates(self, state: ShacState) -> Policy:
        """Return the averaged weights of every learner."""
        return state.learner.average.policy

    def _init_learner(self, key: Key) -> ShacState:
        key, key_policy, key_probe, key_critic, key_worlds = jax.random.split(key, 5)
        policy = self.draw(key_policy)
        starts = jax.random.split(key_worlds, self.config.num_envs)
        params = self.world.default_params
        observation, state = jax.vmap(
            lambda start: self.world.reset_env(start, params), out_axes=-1
        )(starts)
        carry = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf[..., None], (*leaf.shape, len(starts))),
            policy.initial_carry(self.world.observation_spec),
        )
        features = self.world.critic_features(jax.tree.map(lambda leaf: leaf[..., 0], state))
        critic = Critic((features.shape[0], *self.config.critic_sizes), key=key_critic)
        sensors = self.world.raw_observation_spec
        model = with_probe(policy, self.world.observation_spec, sensors, key_probe)
        return ShacState(
            learner=self._optimizer.init(model),
            critic=self._critic_optimizer.init(critic),
            target_critic=critic,
            worlds=Worlds(observation, state, carry),
            key=key,
        )

    def _update(self, state: ShacState, _: None) -> tuple[ShacState, Scalar]:
        config = self.config
        key, key_window = jax.random.split(state.key)
        gradient, (worlds, window) = jax.grad(self._actor_loss, has_aux=True)(
            state.learner.model, state.target_critic, key_window, state.worlds
        )
        critic = self._fit_critic(state, window)
        return ShacState(
            learner=self._optimizer.update(state.learner, gradient),
            critic=critic,
            target_critic=moving_average(state.target_critic, critic.model, 1 - _TARGET_RATE),
            worlds=jax.lax.stop_gradient(worlds),
            key=key,
        ), jnp.mean(window.reward) / (1 - config.discount)

    def _actor_loss(
        self, model: Probed, critic: Critic, key: Key, worlds: Worlds
    ) -> tuple[Scalar, tuple[Worlds, Window]]:
        """Compute minus the mean discounted return of a window; also return its steps."""
        policy = model.policy
        discount = self.config.discount
        value, look = _over_worlds(critic), _over_worlds(self.world.critic_features)

        def step(now: tuple, key: Key) -> tuple[tuple, Window]:
            worlds, weight, total, losses = now
            worlds = _clip_backwards(worlds, self._largest_cotangent)
            features, sensor_of_channel = (
                look(worlds.state),
                _over_worlds(self.world.sensor_of_channel)(worlds.state),
            )
            keys = jax.random.split(key, self.config.num_envs)
            of_sensors, surprise, worlds, reward, terminated, truncated, next_features = (
                _over_worlds(partial(self._advance, policy))(keys, worlds)
            )
            if self.config.sensor_id_coef and of_sensors.size:  # a feed-forward agent has none
                identity = _over_worlds(partial(identity_loss, model.probe))(
                    of_sensors, sensor_of_channel
                )
                losses = losses + self.config.sensor_id_coef * identity
            losses = losses + self.config.surprise_coef * surprise
            reward = (1 - discount) * reward  # values are then of size 1
            total = total + weight * reward
            # The time limit is no end of the world: the value of what would have followed counts
            total = total + jnp.where(truncated, weight * discount * value(next_features), 0.0)
            weight = jnp.where(terminated | truncated, 1.0, discount * weight)
            window = Window(features, next_features, reward, terminated, truncated)
            return (worlds, weight, total, losses), jax.lax.stop_gradient(window)

        num_envs = self.config.num_envs
        start = (worlds, jnp.ones(num_envs), jnp.zeros(num_envs), jnp.zeros(num_envs))
        (worlds, weight, total, losses), window = jax.lax.scan(
            step, start, jax.random.split(key, self.config.num_steps)
        )
        total = total + weight * value(look(worlds.state))  # SHAC eq. 5
        loss = -jnp.mean(total) / (1 - discount) + jnp.mean(losses)
        return loss / self.config.num_steps, (worlds, window)

    def _advance(self, policy: Policy, key: Key, worlds: Worlds) -> tuple:
        """Step one world once; start anew if the episode ended."""
        action, carry, _ = policy.step(worlds.observation, worlds.carry)
        of_sensors, surprise = policy.sensor_features(carry), policy.surprise(carry)
        key_step, key_reset = jax.random.split(key)
        params = self.world.default_params
        observation, state, reward, terminated, truncated, _ = self.world.advance(
            key_step, worlds.state, action, params
        )
        features = self.world.critic_features(state)
        fresh_observation, fresh_state = self.world.reset_env(key_reset, params)
        fresh = Worlds(
            fresh_observation, fresh_state, policy.initial_carry(self.world.observation_spec)
        )
        worlds = jax.tree.map(
            lambda new, old: jnp.where(terminated | truncated, new, old),
            fresh,
            Worlds(observation, state, carry),
        )
        return of_sensors, surprise, worlds, reward, terminated, truncated, features

    def _fit_critic(self, state: ShacState, window: Window) -> Learner:
        """Fit the critic in a few steps to TD(λ) targets of the target critic."""
        config = self.config
        values = jax.vmap(_over_worlds(state.target_critic))(window.next_features)
        values = jnp.where(window.terminated, 0.0, values)

        def back(future: Array, now: tuple) -> tuple[Array, Array]:
            reward, value, done = now
            mixed = (1 - config.gae_lambda) * value + config.gae_lambda * future
            target = reward + config.discount * jnp.where(done, value, mixed)
            return target, target

        done = window.terminated | window.truncated
        _, targets = jax.lax.scan(back, values[-1], (window.reward, values, done), reverse=True)

        def loss(critic: Critic) -> Scalar:
            return jnp.mean((jax.vmap(_over_worlds(critic))(window.features) - targets) ** 2)

        def fit(learner: Learner, _: None) -> tuple[Learner, None]:
            return self._critic_optimizer.update(learner, jax.grad(loss)(learner.model)), None

        return jax.lax.scan(fit, state.critic, None, length=config.critic_epochs)[0]


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _clip_backwards(worlds: Worlds, largest: float) -> Worlds:
    """Return `worlds`; in the backward pass, shorten the gradient of each world to `largest`."""
    del largest
    return worlds


def _clip_backwards_forth(worlds: Worlds, largest: float) -> tuple[Worlds, None]:
    del largest
    return worlds, None


def _clip_backwards_back(largest: float, _: None, gradient: Worlds) -> tuple[Worlds]:
    leaves = [leaf for leaf in jax.tree.leaves(gradient) if leaf.dtype != jax.dtypes.float0]
    squares = sum(jnp.sum(leaf**2, axis=tuple(range(leaf.ndim - 1))) for leaf in leaves)
    factor = jnp.minimum(1.0, largest / jnp.sqrt(jnp.maximum(squares, 1e-30)))
    return (
        jax.tree.map(
            lambda leaf: leaf if leaf.dtype == jax.dtypes.float0 else leaf * factor, gradient
        ),
    )


_clip_backwards.defvjp(_clip_backwards_forth, _clip_backwards_back)
