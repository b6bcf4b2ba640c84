"""Gradients through the differentiable world, with a critic that sees the true state.

The short-horizon actor-critic of Xu et al. 2022 (SHAC), for agents with memory and anonymous senses.
Many worlds run side by side and restart when an episode ends. Each update backs up the discounted return
of a short window, plus the critic's value of where the window ends, through world *and* LSTM:

    maximise  E[ Σₖ γᵏ rₜ₊ₖ + γʰ V(sₜ₊ₕ) ],    V fitted to TD(λ) targets

The critic reads the true state in its true order. It is only a judge and is thrown away after training:
the agent itself never sees more than its shuffled sensors. Departures from SHAC:

- the asymmetric critic;
- gradients are shortened in each world at each step (`world_gradient_clip`): swinging poles are chaotic;
- a second lesson, thrown away after training: each sensor tells which one it is (`identity_weight`);
- an exponential average of the weights is the agent that is tested and kept.

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
from sensorium.layers import Linear
from sensorium.policies import Policy
from sensorium.rollout import over_devices, require_device
from sensorium.training.critic import Critic, identity_loss
from sensorium.training.trainer import (
    DrawPolicy,
    Metrics,
    Trainer,
    TrainerConfig,
    TrainingContext,
    averaged,
)
from sensorium.types import Key, PyTree, Scalar


@dataclasses.dataclass(frozen=True)
class ShortHorizonConfig(TrainerConfig):
    """Settings of short-horizon actor-critic."""

    population: int = 1
    """Learners that train side by side, each from weights of its own."""
    rollouts: int = 64
    """Worlds of each learner."""
    horizon: int = 64
    """Steps in a window, through which gradients flow."""
    updates_per_generation: int = 100
    """Windows, and so updates, in a generation."""
    total_updates: int = 15_000
    """Over how many updates the learning rate falls to a twentieth of its start."""
    learning_rate: float = 3e-3
    """Of the agent, at the start."""
    critic_learning_rate: float = 3e-3
    """Of the critic."""
    critic_epochs: int = 2
    """Steps of the critic on each window."""
    critic_sizes: tuple[int, ...] = (64, 64)
    """Hidden layers of the critic."""
    discount: float = 0.995
    """γ, for each step of the world."""
    trace_decay: float = 0.95
    """λ of the critic's targets."""
    target_rate: float = 0.02
    """How fast the target critic follows, for each update."""
    average_decay: float = 0.995
    """Of the exponential average of the weights."""
    identity_weight: float = 0.3
    """Weight of a second lesson: each sensor learns to tell which one it is (see `identity_loss`)."""
    world_gradient_clip: float = 0.1
    """Largest norm of what flows back through one world in one step, in units of its share of the loss.

    Swinging poles are chaotic: without this a single world can drown all others."""
    gradient_clip: float = 1.0
    """Largest norm of a gradient; longer ones are shortened to it."""

    def build(self, context: TrainingContext) -> "ShortHorizon":
        """Set up the trainer of an agent; ConfigError where settings or the world do not fit."""
        world = require_device(
            context.engine.world,
            "Gradients flow through worlds in JAX only; use evolution or cloning for this one.",
        )
        return ShortHorizon(self, context.draw, world)


class Student(NamedTuple):
    """What gradients change: the agent, and a probe that is thrown away after training."""

    policy: Policy
    probe: Linear
    """From what a sensor says to which one it is; the last class is noise."""


class Worlds(NamedTuple):
    """All worlds of a learner between two steps; the last axis is the R worlds."""

    observation: Float[Array, "N R"]
    state: PyTree
    carry: PyTree


class Window(NamedTuple):
    """What happened in one window, for the critic."""

    features: Float[Array, "T F R"]
    next_features: Float[Array, "T F R"]
    """Of the state that a step led to, before any restart."""
    reward: Float[Array, "T R"]
    terminated: Bool[Array, "T R"]
    truncated: Bool[Array, "T R"]


class Learner(NamedTuple):
    """One agent in training, with its critic and its worlds."""

    student: Student
    average: Policy
    """Exponential average of the student's policy; the one that is tested and kept."""
    optimizer: PyTree
    critic: Critic
    target_critic: Critic
    critic_optimizer: PyTree
    worlds: Worlds
    key: Key


# Batch last throughout: a step of all worlds is then plain matrix products without transposes
_over_worlds = partial(jax.vmap, in_axes=-1, out_axes=-1)


class ShortHorizon(Trainer):
    """Short-horizon actor-critic of one agent in one differentiable world."""

    def __init__(self, config: ShortHorizonConfig, draw: DrawPolicy, world: Environment):
        """Set up."""
        self.config = config
        self.draw = draw
        self.world = world
        rate = optax.cosine_decay_schedule(config.learning_rate, config.total_updates, 0.05)
        self._optimizer = optax.chain(
            optax.clip_by_global_norm(config.gradient_clip), optax.adam(rate, b1=0.7, b2=0.95)
        )
        # Of one world's share of the loss, which is a mean over worlds and steps
        share = 1 / (config.rollouts * config.horizon * (1 - config.discount))
        self._largest_cotangent = config.world_gradient_clip * share
        self._critic_optimizer = optax.chain(
            optax.clip_by_global_norm(1.0), optax.adam(config.critic_learning_rate)
        )

    def init(self, key: Key) -> Learner:
        """P learners with weights, worlds and keys of their own."""
        return jax.vmap(self._init_learner)(jax.random.split(key, self.config.population))

    def step(self, state: Learner) -> tuple[Learner, Metrics]:
        """`updates_per_generation` windows of every learner."""
        state, returns = self._train(state)
        earned = np.asarray(returns)  # of all devices, which must not wait for one another
        config = self.config
        steps = config.population * config.rollouts * config.horizon * config.updates_per_generation
        figures = {"best": jnp.asarray(earned.max()), "mean": jnp.asarray(earned.mean())}
        return state, Metrics(steps, figures)

    @partial(jax.jit, static_argnames="self")
    def _train(self, state: Learner) -> tuple[Learner, Float[Array, " P"]]:
        """The learners after a generation, and what each earned an episode."""

        def train(learner: Learner) -> tuple[Learner, Scalar]:
            updates = self.config.updates_per_generation
            learner, rewards = jax.lax.scan(self._update, learner, None, length=updates)
            # A window is not an episode: what it earns a step, times the steps of an episode
            return learner, jnp.mean(rewards) * self.world.max_steps

        return over_devices(jax.vmap(train), state, self.config.population)

    def candidates(self, state: Learner) -> Policy:
        """The averaged weights of every learner."""
        return state.average

    def _init_learner(self, key: Key) -> Learner:
        key, key_policy, key_probe, key_critic, key_worlds = jax.random.split(key, 5)
        policy = self.draw(key_policy)
        starts = jax.random.split(key_worlds, self.config.rollouts)
        params = self.world.default_params
        observation, state = jax.vmap(
            lambda start: self.world.reset_env(start, params), out_axes=-1
        )(starts)
        carry = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf[..., None], (*leaf.shape, len(starts))),
            policy.initial_carry(self.world.num_sensors),
        )
        features = self.world.critic_features(jax.tree.map(lambda leaf: leaf[..., 0], state))
        critic = Critic((features.shape[0], *self.config.critic_sizes), key=key_critic)
        student = Student(policy, self._draw_probe(policy, key_probe))
        return Learner(
            student=student,
            average=policy,
            optimizer=self._optimizer.init(student),
            critic=critic,
            target_critic=critic,
            critic_optimizer=self._critic_optimizer.init(critic),
            worlds=Worlds(observation, state, carry),
            key=key,
        )

    def _update(self, learner: Learner, _: None) -> tuple[Learner, Scalar]:
        key, key_window = jax.random.split(learner.key)
        gradient, (worlds, window) = jax.grad(self._actor_loss, has_aux=True)(
            learner.student, learner.target_critic, key_window, learner.worlds
        )
        updates, optimizer = self._optimizer.update(gradient, learner.optimizer)
        student = optax.apply_updates(learner.student, updates)
        critic, critic_optimizer = self._fit_critic(learner, window)
        config = self.config
        return Learner(
            student=student,
            average=averaged(learner.average, student.policy, 1 - config.average_decay),
            optimizer=optimizer,
            critic=critic,
            target_critic=averaged(learner.target_critic, critic, config.target_rate),
            critic_optimizer=critic_optimizer,
            worlds=jax.lax.stop_gradient(worlds),
            key=key,
        ), jnp.mean(window.reward) / (1 - config.discount)

    def _actor_loss(
        self, student: Student, critic: Critic, key: Key, worlds: Worlds
    ) -> tuple[Scalar, tuple[Worlds, Window]]:
        """Minus the mean discounted return of a window, and what happened in it."""
        policy = student.policy
        discount = self.config.discount
        value, look = _over_worlds(critic), _over_worlds(self.world.critic_features)

        def step(now: tuple, key: Key) -> tuple[tuple, Window]:
            worlds, weight, total, identity = now
            worlds = _clip_backwards(worlds, self._largest_cotangent)
            features, sources = look(worlds.state), _over_worlds(self.world.sources)(worlds.state)
            keys = jax.random.split(key, self.config.rollouts)
            said, worlds, reward, terminated, truncated, next_features = _over_worlds(
                partial(self._advance, policy)
            )(keys, worlds)
            if self.config.identity_weight and said.size:  # a feed-forward agent has none
                identity = identity + _over_worlds(partial(identity_loss, student.probe))(
                    said, sources
                )
            reward = (1 - discount) * reward  # values are then of size 1
            total = total + weight * reward
            # Running out of time is not an end in itself: what would have followed counts
            total = total + jnp.where(truncated, weight * discount * value(next_features), 0.0)
            weight = jnp.where(terminated | truncated, 1.0, discount * weight)
            window = Window(features, next_features, reward, terminated, truncated)
            return (worlds, weight, total, identity), jax.lax.stop_gradient(window)

        rollouts = self.config.rollouts
        start = (worlds, jnp.ones(rollouts), jnp.zeros(rollouts), jnp.zeros(rollouts))
        (worlds, weight, total, identity), window = jax.lax.scan(
            step, start, jax.random.split(key, self.config.horizon)
        )
        total = total + weight * value(look(worlds.state))  # SHAC eq. 5
        loss = -jnp.mean(total) / (1 - discount) + self.config.identity_weight * jnp.mean(identity)
        return loss / self.config.horizon, (worlds, window)

    def _advance(self, policy: Policy, key: Key, worlds: Worlds) -> tuple:
        """One world, one step; starts anew where the episode ended."""
        action, carry, _ = policy.step(worlds.observation, worlds.carry)
        said = policy.sensor_features(carry)
        key_step, key_reset = jax.random.split(key)
        params = self.world.default_params
        observation, state, reward, terminated, truncated, _ = self.world.advance(
            key_step, worlds.state, action, params
        )
        features = self.world.critic_features(state)
        fresh_observation, fresh_state = self.world.reset_env(key_reset, params)
        fresh = Worlds(fresh_observation, fresh_state, policy.initial_carry(self.world.num_sensors))
        worlds = jax.tree.map(
            lambda new, old: jnp.where(terminated | truncated, new, old),
            fresh,
            Worlds(observation, state, carry),
        )
        return said, worlds, reward, terminated, truncated, features

    def _draw_probe(self, policy: Policy, key: Key) -> Linear:
        world = self.world
        said = policy.sensor_features(policy.initial_carry(world.num_sensors))
        return Linear(said.shape[0], world.num_sensors + 1, key=key)

    def _fit_critic(self, learner: Learner, window: Window) -> tuple[Critic, PyTree]:
        """A few steps towards TD(λ) targets of the target critic."""
        config = self.config
        values = jax.vmap(_over_worlds(learner.target_critic))(window.next_features)
        values = jnp.where(window.terminated, 0.0, values)

        def back(future: Array, now: tuple) -> tuple[Array, Array]:
            reward, value, done = now
            mixed = (1 - config.trace_decay) * value + config.trace_decay * future
            target = reward + config.discount * jnp.where(done, value, mixed)
            return target, target

        done = window.terminated | window.truncated
        _, targets = jax.lax.scan(back, values[-1], (window.reward, values, done), reverse=True)

        def loss(critic: Critic) -> Scalar:
            return jnp.mean((jax.vmap(_over_worlds(critic))(window.features) - targets) ** 2)

        def fit(now: tuple[Critic, PyTree], _: None) -> tuple[tuple[Critic, PyTree], None]:
            critic, optimizer = now
            updates, optimizer = self._critic_optimizer.update(jax.grad(loss)(critic), optimizer)
            return (optax.apply_updates(critic, updates), optimizer), None

        start = (learner.critic, learner.critic_optimizer)
        return jax.lax.scan(fit, start, None, length=config.critic_epochs)[0]


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _clip_backwards(worlds: Worlds, largest: float) -> Worlds:
    """`worlds` itself; on the way back, the gradient of each world is shortened to `largest`."""
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
