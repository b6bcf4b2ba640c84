"""PPO for agents of pictures, on the device: the controller learns, the eyes stay as they are.

A student who has been taught what a teacher does (`imitation.py`) has not been taught what to do where its
own eyes fail. That only the reward can teach. What the eyes make of a picture is worked out once, when it is
seen; the updates of proximal policy optimisation (Schulman et al. 2017) then go through the controller's
memory alone, which costs next to nothing beside the look.

Exploration is noise before the last tanh: noise after it would, cut off at -1 and 1, press pedals that the
agent wants released, and an agent that has learned to make up for that drives too fast without it.

The critic is given the true state, the time and what has been earned, or the end of a lap would surprise it.
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from sensorium.envs import Environment
from sensorium.errors import ConfigError
from sensorium.policies import Policy, as_population
from sensorium.rollout import over_devices, require_device
from sensorium.training.critic import Critic
from sensorium.training.policy_gradient import (
    advantage_estimates,
    clipped_objective,
    exploration_at,
    log_probability,
)
from sensorium.training.trainer import (
    DrawPolicy,
    Metrics,
    Trainer,
    TrainerConfig,
    TrainingContext,
    averaged,
    check_sees,
)
from sensorium.types import Key, PyTree, Scalar, Sensed


@dataclasses.dataclass(frozen=True)
class ControllerPpoConfig(TrainerConfig):
    """Settings of PPO for the controllers of agents who see."""

    may_be_zero = ("critic_windows",)

    rollouts: int = 256
    """Episodes side by side; one of CarRacing takes 22 MB."""
    window: int = 125
    """Steps of each between two rounds of updates, through which gradients flow."""
    windows: int = 12
    """In a generation."""
    total_windows: int = 60
    """Over how many the learning rate falls to a twentieth, and exploration to its last."""
    epochs: int = 4
    """How often each window is learned from."""
    groups: int = 4
    """Into which the episodes are divided, for an update each."""
    learning_rate: float = 2e-4
    """Of the agent, at the start."""
    critic_learning_rate: float = 1e-3
    """Of the critic."""
    critic_sizes: tuple[int, ...] = (128, 128)
    """Hidden layers of the critic."""
    critic_windows: int = 4
    """At the start, in which only the critic learns: the agent is good already."""
    discount: float = 0.99
    """γ, for each step of the world."""
    trace_decay: float = 0.95
    """λ of generalised advantage estimation."""
    clip_range: float = 0.2
    """ε: how far an update may move the probability of an action."""
    exploration: float = 0.1
    """Standard deviation of the noise on actions before their tanh, at the start."""
    last_exploration: float = 0.05
    """The same at the end; it falls by the same factor with each window."""
    hold_exploration: int = 4
    """Steps for which the same noise is added."""
    reward_scale: float = 0.02
    """What rewards are multiplied by, so that values are of about 1."""
    gradient_clip: float = 0.5
    """Largest norm of a gradient."""
    averaging: float = 0.9
    """Of what is tested and kept: a running mean of the agent after each window, with this memory."""

    def build(self, context: TrainingContext) -> "ControllerPpo":
        """Set up the trainer of an agent; ConfigError where settings, the agent or the world do not fit."""
        world = require_device(
            context.engine.world, "PPO of controllers trains in worlds on the device."
        )
        check_sees(context.draw, "PPO of controllers")
        cohorts, rest = divmod(world.max_steps, self.window)
        if rest:
            raise ConfigError(
                f"Episodes of {world.max_steps} steps do not divide into windows of {self.window}."
            )
        for name, parts in (("cohorts, one for each window", cohorts), ("groups", self.groups)):
            if self.rollouts % parts:
                raise ConfigError(f"{self.rollouts} episodes do not divide into {parts} {name}.")
        return ControllerPpo(self, context.draw, world)


class Learner(NamedTuple):
    """All that a run needs to go on."""

    policy: Policy
    mean: Policy
    """Of the last policies."""
    optimizer: PyTree
    critic: Critic
    critic_optimizer: PyTree
    windows: Int[Array, ""]
    key: Key


class Lane(NamedTuple):
    """An episode under way."""

    observation: Sensed
    world: PyTree
    carry: PyTree
    alive: Bool[Array, ""]
    earned: Float[Array, ""]
    """So far."""


class Moment(NamedTuple):
    """What was seen and done in a step, and what came of it; R episodes by T steps."""

    seen: PyTree
    drawn: Float[Array, "*R T A"]
    """Actions before their tanh."""
    likely: Float[Array, "*R T"]
    """Logarithm of their probability."""
    alive: Bool[Array, "*R T"]
    """Whether the episode went on until then; the rest counts for nothing."""
    features: Float[Array, "*R T F"]
    """For the critic, of the moment before the step."""
    next_features: Float[Array, "*R T F"]
    reward: Float[Array, "*R T"]
    done: Bool[Array, "*R T"]


class ControllerPpo(Trainer):
    """PPO of one agent in one world on the device."""

    def __init__(self, config: ControllerPpoConfig, draw: DrawPolicy, world: Environment):
        """Set up; see `ControllerPpoConfig.build`."""
        self.config, self.draw, self.world = config, draw, world
        self._cohorts = world.max_steps // config.window
        updates = config.total_windows * config.epochs * config.groups
        rate = optax.linear_schedule(config.learning_rate, config.learning_rate / 20, updates)
        self._optimizer, self._critic_optimizer = (
            optax.chain(optax.clip_by_global_norm(config.gradient_clip), optax.adam(rate, eps=1e-5))
            for rate in (rate, config.critic_learning_rate)
        )

    def init(self, key: Key) -> Learner:
        """The agent as it is, and a critic who knows nothing."""
        key, key_policy, key_critic = jax.random.split(key, 3)
        policy = self.draw(key_policy)
        assert isinstance(policy, Policy)
        _, state = jax.eval_shape(self.world.reset, key)
        features = 2 + jax.eval_shape(self.world.critic_features, state).size
        critic = Critic((features, *self.config.critic_sizes), key=key_critic)
        return Learner(
            policy,
            policy,
            self._optimizer.init(eqx.filter(policy, eqx.is_inexact_array)),
            critic,
            self._critic_optimizer.init(critic),
            jnp.zeros((), jnp.int32),
            key,
        )

    def step(self, state: Learner) -> tuple[Learner, Metrics]:
        """Episodes in cohorts, of which one restarts before each window: all phases are in every one."""
        config = self.config
        key, key_generation = jax.random.split(state.key)
        state = state._replace(key=key)
        key_begin, *keys = jax.random.split(key_generation, 1 + config.windows)
        cohorts = self._stagger(state.policy, key_begin, self._exploration(state.windows))
        returns: list[np.ndarray] = []
        figures: list[dict[str, np.ndarray]] = []
        for number, key_window in enumerate(keys):
            key_begin, key_learn, *key_cohorts = jax.random.split(key_window, 2 + self._cohorts)
            old = -number % self._cohorts
            if number:
                returns.append(np.asarray(cohorts[old].earned))
                cohorts[old] = self._begin(state.policy, key_begin)
            exploration = self._exploration(state.windows)
            before = jax.tree.map(_gather, *[lanes.carry for lanes in cohorts])
            collected = []
            for cohort, key_cohort in enumerate(key_cohorts):
                cohorts[cohort], moments = self._run_window(
                    state.policy, cohorts[cohort], key_cohort, exploration
                )
                collected.append(moments)
            state, figure = self._learn(
                state, before, jax.tree.map(_gather, *collected), exploration, key_learn
            )
            figures.append(figure)
        env_steps = int(sum(each.pop("env_steps") for each in figures))
        means = {name: np.mean([each[name] for each in figures]) for name in figures[0]}
        earned = jnp.asarray(np.concatenate(returns or [np.full(1, np.nan, np.float32)]))
        return state, Metrics(env_steps, {"best": earned.max(), "mean": earned.mean()} | means)

    def candidates(self, state: Learner) -> Policy:
        """The mean of the last agents, without exploration."""
        return as_population(state.mean)

    def _exploration(self, windows: Int[Array, ""]) -> Scalar:
        """Logarithm of the standard deviation of actions before their tanh."""
        config = self.config
        done = windows / config.total_windows
        return exploration_at(config.exploration, config.last_exploration, done)

    def _stagger(self, policy: Policy, key: Key, exploration: Scalar) -> list[Lane]:
        """Cohorts, each a window further than the one before."""
        cohorts = []
        for windows, key_cohort in enumerate(jax.random.split(key, self._cohorts)):
            key_begin, *keys = jax.random.split(key_cohort, 1 + windows)
            lanes = self._begin(policy, key_begin)
            for key_window in keys:
                lanes, _ = self._run_window(policy, lanes, key_window, exploration)
            cohorts.append(lanes)
        return cohorts

    @partial(jax.jit, static_argnames="self")
    def _begin(self, policy: Policy, key: Key) -> Lane:
        """A cohort of episodes."""
        world, count = self.world, self.config.rollouts // self._cohorts

        def begin(key: Key, policy: Policy) -> Lane:
            observation, state = world.reset_env(key, world.default_params)
            carry = policy.initial_carry(world.senses)
            return Lane(observation, state, carry, jnp.ones((), bool), jnp.zeros(()))

        keys = jax.random.split(key, count)
        return over_devices(jax.vmap(begin, in_axes=(0, None)), keys, count, policy)

    @partial(jax.jit, static_argnames="self", donate_argnames="lanes")
    def _run_window(
        self, policy: Policy, lanes: Lane, key: Key, exploration: Scalar
    ) -> tuple[Lane, Moment]:
        """A window in every lane."""
        count = len(lanes.alive)

        def run(each: tuple, policy: Policy, exploration: Scalar) -> tuple[Lane, Moment]:
            def one(lane: Lane, key: Key) -> tuple[Lane, Moment]:
                return self._run_lane(policy, lane, key, exploration)

            return jax.vmap(one)(*each)

        return over_devices(run, (lanes, jax.random.split(key, count)), count, policy, exploration)

    def _run_lane(
        self, policy: Policy, lane: Lane, key: Key, exploration: Scalar
    ) -> tuple[Lane, Moment]:
        """A window: see, draw an action around the agent's own, do it."""
        world, hold = self.world, self.config.hold_exploration
        key_noise, key_world = jax.random.split(key)

        def step(now: Lane, time: Int[Array, ""]) -> tuple[Lane, Moment]:
            seen, carry, _ = policy.encode(now.observation, now.carry)
            sums, carry = policy.decide(seen, carry)
            noise = jax.random.normal(jax.random.fold_in(key_noise, time // hold), sums.shape)
            drawn = sums + jnp.exp(exploration) * noise
            action = jnp.tanh(drawn)
            observation, state, reward, terminated, truncated, _ = world.advance(
                jax.random.fold_in(key_world, time), now.world, action, world.default_params
            )
            reward = jnp.where(now.alive, reward, 0.0)
            after = Lane(
                observation,
                state,
                policy.told(carry, action),
                now.alive & ~terminated & ~truncated,
                now.earned + reward,
            )
            moment = Moment(
                seen,
                drawn,
                log_probability(drawn, sums, exploration),
                now.alive,
                self._features(now),
                self._features(after),
                reward,
                terminated | truncated | ~now.alive,
            )
            return after, moment

        return jax.lax.scan(step, lane, jnp.arange(self.config.window))

    def _features(self, lane: Lane) -> Float[Array, " F"]:
        """What the critic is told."""
        late = self.world.time(lane.world) / self.world.max_steps
        earned = self.config.reward_scale * lane.earned
        return jnp.concatenate([self.world.critic_features(lane.world), jnp.stack([late, earned])])

    def _learn(
        self, state: Learner, before: PyTree, moments: Moment, exploration: Scalar, key: Key
    ) -> tuple[Learner, dict[str, np.ndarray]]:
        """Epochs over one window."""
        config = self.config
        advantages, targets, explained = self._judge(state.critic, moments)
        everything = jax.tree.map(np.asarray, (before, moments, advantages, targets))
        now = (state.policy, state.optimizer, state.critic, state.critic_optimizer)
        teach = state.windows >= config.critic_windows
        divergence = jnp.zeros(())
        for epoch in range(config.epochs):
            order = np.asarray(
                jax.random.permutation(jax.random.fold_in(key, epoch), config.rollouts)
            )
            for chosen in np.split(order, config.groups):
                group = jax.tree.map(lambda leaf, chosen=chosen: leaf[chosen], everything)
                now, divergence = self._update(now, group, exploration, teach)
        policy, optimizer, critic, critic_optimizer = now
        mean = averaged(state.mean, policy, 1 - config.averaging)
        state = Learner(
            policy, mean, optimizer, critic, critic_optimizer, state.windows + 1, state.key
        )
        return state, {
            "divergence": np.asarray(divergence),
            "explained": np.asarray(explained),
            "exploration": np.asarray(jnp.exp(exploration)),
            "env_steps": np.sum(moments.alive),
        }

    @partial(jax.jit, static_argnames="self")
    def _judge(
        self, critic: Critic, moments: Moment
    ) -> tuple[Float[Array, "R T"], Float[Array, "R T"], Scalar]:
        """Advantages, what the critic should have said, and how much of that it did say."""
        config = self.config
        values, next_values = (
            _values(critic, features) for features in (moments.features, moments.next_features)
        )
        # Over time first, as the estimates want it
        advantages = advantage_estimates(
            config.reward_scale * moments.reward.T,
            values.T,
            jnp.where(moments.done, 0.0, next_values).T,
            moments.done.T,
            config.discount,
            config.trace_decay,
        ).T
        targets = advantages + values
        mean = partial(_mean, moments.alive)
        spread = mean((targets - mean(targets)) ** 2)
        explained = 1 - mean(advantages**2) / (spread + 1e-8)
        centred = advantages - mean(advantages)
        return centred / (jnp.sqrt(mean(centred**2)) + 1e-8), targets, explained

    @partial(jax.jit, static_argnames="self")
    def _update(
        self, now: tuple, group: tuple, exploration: Scalar, teach: Bool[Array, ""]
    ) -> tuple[tuple, Scalar]:
        """One update from one group of episodes; of the agent only if `teach`."""
        policy, optimizer, critic, critic_optimizer = now
        before, moments, advantages, targets = group
        gradient, divergence = jax.grad(self._policy_loss, has_aux=True)(
            policy, before, moments, advantages, exploration
        )
        updates, moved = self._optimizer.update(gradient, optimizer)
        new = (optax.apply_updates(policy, updates), moved)
        policy, optimizer = jax.tree.map(
            lambda new, old: jnp.where(teach, new, old), new, (policy, optimizer)
        )

        def value_loss(critic: Critic) -> Scalar:
            return _mean(moments.alive, (_values(critic, moments.features) - targets) ** 2)

        updates, critic_optimizer = self._critic_optimizer.update(
            jax.grad(value_loss)(critic), critic_optimizer
        )
        critic = optax.apply_updates(critic, updates)
        return (policy, optimizer, critic, critic_optimizer), divergence

    def _policy_loss(
        self,
        policy: Policy,
        before: PyTree,
        moments: Moment,
        advantages: Float[Array, "R T"],
        exploration: Scalar,
    ) -> tuple[Scalar, Scalar]:
        """PPO's clipped objective (eq. 7 there) through the controller's memory, and the divergence."""

        def episode(carry: PyTree, moment: Moment) -> Float[Array, " T"]:
            def step(carry: PyTree, moment: Moment) -> tuple[PyTree, Scalar]:
                sums, carry = policy.decide(moment.seen, carry)
                return carry, log_probability(moment.drawn, sums, exploration)

            return jax.lax.scan(step, carry, moment)[1]

        log_ratio = jax.vmap(episode)(before, moments) - moments.likely
        gained, divergence = clipped_objective(log_ratio, advantages, self.config.clip_range)
        return -_mean(moments.alive, gained), _mean(moments.alive, divergence)


def _mean(alive: Bool[Array, "R T"], values: Float[Array, "R T"]) -> Scalar:
    """Over the steps before the ends of episodes."""
    return jnp.sum(jnp.where(alive, values, 0.0)) / jnp.maximum(jnp.sum(alive), 1)


def _values(critic: Critic, features: Float[Array, "R T F"]) -> Float[Array, "R T"]:
    return jax.vmap(jax.vmap(critic))(features)


def _gather(*parts: Array) -> np.ndarray:
    """Of all cohorts, one after the other, taken from the devices."""
    return np.concatenate([np.asarray(part) for part in parts])
