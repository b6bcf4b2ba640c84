"""PPO for agents with memory and anonymous senses, in any world on the host.

Proximal policy optimisation (Schulman et al. 2017) where worlds have no gradients. Environments run side by
side in worker processes. After each horizon the agent goes through what it sensed once more, from the
memories that it had then, and gradients flow back through the whole horizon. The critic reads the
unperturbed observation in its own order; it is only a judge and is thrown away after training.

Each generation starts its environments anew, the first episode of each cut short at a random step, so that
all phases of an episode are in every round; a run then resumes bit for bit from the state of the learner.
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

from sensorium.errors import ConfigError
from sensorium.policies import Policy, as_population
from sensorium.rollout import HostEngine, each_share
from sensorium.training.critic import Critic, Student, draw_student, identity_loss
from sensorium.training.host_ppo import HostPpo, HostPpoConfig, summed_up
from sensorium.training.lanes import (
    Memories,
    Moment,
    Outcome,
    RewardScale,
    explore,
    judge,
    values_along,
)
from sensorium.training.policy_gradient import clipped_objective, log_probability
from sensorium.training.trainer import (
    DrawPolicy,
    Metrics,
    TrainingContext,
    require_host_engine,
)
from sensorium.types import Key, PyTree, Scalar


@dataclasses.dataclass(frozen=True)
class RecurrentPpoConfig(HostPpoConfig):
    """Settings of PPO for agents with memory; gradients flow through a whole horizon."""

    may_be_zero = ("critic_rounds",)

    groups: int = 8
    """Into which the environments of a round are divided, for an update each."""
    critic_rounds: int = 4
    """At the start, in which only the critic learns: the agent may be good already."""
    clip_range: float = 0.4
    """ε: how far an update may move the probability of an action."""
    identity_weight: float = 0.0
    """Weight of a second lesson: each sensor learns to tell which one it is."""

    def build(self, context: TrainingContext) -> "RecurrentPpo":
        """Set up the trainer of an agent; ConfigError where settings or the world do not fit."""
        engine = require_host_engine(context.engine, "PPO of agents with memory")
        if self.rollouts % self.groups:
            raise ConfigError(
                f"{self.rollouts} environments do not divide into {self.groups} groups."
            )
        return RecurrentPpo(self, context.draw, engine)


class Learner(NamedTuple):
    """All that a run needs to go on."""

    student: Student
    optimizer: PyTree
    critic: Critic
    critic_optimizer: PyTree
    scale: RewardScale
    rounds: Int[Array, ""]
    key: Key


class RecurrentPpo(HostPpo):
    """PPO of one agent in one world on the host."""

    config: RecurrentPpoConfig

    def __init__(self, config: RecurrentPpoConfig, draw: DrawPolicy, engine: HostEngine):
        super().__init__(config, draw, engine, engine.world, updates=config.groups)

    def init(self, key: Key) -> Learner:
        key, key_policy, key_probe, key_critic = jax.random.split(key, 4)
        student = draw_student(self.draw, self.world.num_sensors, key_policy, key_probe)
        sizes = (*self.world.raw_observation_shape, *self.config.critic_sizes)
        critic = Critic(sizes, key=key_critic)
        return Learner(
            student=student,
            optimizer=self._optimizer.init(eqx.filter(student, eqx.is_inexact_array)),
            critic=critic,
            critic_optimizer=self._critic_optimizer.init(critic),
            scale=RewardScale.unknown(),
            rounds=jnp.zeros((), jnp.int32),
            key=key,
        )

    def step(self, state: Learner) -> tuple[Learner, Metrics]:
        """`rounds` rounds of acting and learning."""
        config = self.config
        key, key_generation = jax.random.split(state.key)
        state = state._replace(key=key)
        key_lanes, key_rounds = jax.random.split(key_generation)
        lanes = self._lanes(key_lanes)
        figures: list[dict[str, Scalar]] = []
        for number in range(config.rounds):
            key_collect, key_learn = jax.random.split(jax.random.fold_in(key_rounds, number))
            exploration = self._exploration(state.rounds)
            before, moments, outcome = lanes.collect(
                state.student.policy, partial(explore, exploration), config.horizon, key_collect
            )
            outcome, scale = lanes.scaled(outcome, state.scale)
            state, figure = self._learn(
                state._replace(scale=scale), exploration, before, moments, outcome, key_learn
            )
            figures.append(figure)
        return state, summed_up(lanes, figures)

    def candidates(self, state: Learner) -> Policy:
        """What the agent does without exploration."""
        return as_population(state.student.policy)

    def _learn(
        self,
        learner: Learner,
        exploration: Scalar,
        before: Memories,
        moments: Moment,
        outcome: Outcome,
        key: Key,
    ) -> tuple[Learner, dict[str, Scalar]]:
        """Epochs over one round."""
        config = self.config
        advantages, targets, explained = self._judge(learner.critic, outcome)
        now = (learner.student, learner.optimizer, learner.critic, learner.critic_optimizer)
        teach = learner.rounds >= config.critic_rounds
        everything = (before, moments, outcome.observation, advantages, targets)
        # Compiled one by one: all updates in one loop of XLA take four times as long on a CPU
        figures = []
        for epoch in range(config.epochs):
            order = jax.random.permutation(jax.random.fold_in(key, epoch), config.rollouts)
            for chosen in jnp.split(order, config.groups):
                group = _pick(everything, chosen)
                student, _, critic, _ = now
                of_shares = self._gradients(group, student, critic, exploration)
                # Taken from the devices before their mean: see `each_share`
                gradients, figure = jax.tree.map(lambda leaf: np.asarray(leaf).mean(0), of_shares)
                now = self._update(now, gradients, teach)
                figures.append(figure)
        figures = jax.tree.map(lambda *values: jnp.asarray(np.mean(values)), *figures)
        figures |= {"explained": explained, "exploration": jnp.exp(exploration)}
        return Learner(*now, learner.scale, learner.rounds + 1, learner.key), figures

    @partial(jax.jit, static_argnames="self")
    def _judge(self, critic: Critic, outcome: Outcome) -> tuple[Array, Array, Scalar]:
        config = self.config
        advantages, targets, explained = judge(critic, outcome, config.discount, config.trace_decay)
        advantages = (advantages - jnp.mean(advantages)) / (jnp.std(advantages) + 1e-8)
        return advantages, targets, explained

    @partial(jax.jit, static_argnames="self")
    def _gradients(
        self, group: tuple, student: Student, critic: Critic, exploration: Scalar
    ) -> tuple[tuple[Student, Critic], dict[str, Array]]:
        """Of the losses of the agent and of the critic, for each device's share of a group."""

        def share(
            group: tuple, student: Student, critic: Critic, exploration: Scalar
        ) -> tuple[tuple[Student, Critic], dict[str, Scalar]]:
            before, moments, observation, advantages, targets = group
            gradient, figures = jax.grad(self._policy_loss, has_aux=True)(
                student, before, moments, exploration, advantages
            )

            def value_loss(critic: Critic) -> Scalar:
                return jnp.mean((values_along(critic, observation) - targets) ** 2)

            figures["value_loss"], critic_gradient = jax.value_and_grad(value_loss)(critic)
            return (gradient, critic_gradient), figures

        return each_share(share, group, student, critic, exploration)

    @partial(jax.jit, static_argnames="self")
    def _update(
        self, now: tuple, gradients: tuple[Student, Critic], teach: Bool[Array, ""]
    ) -> tuple:
        """One update; of the agent only if `teach`."""
        student, optimizer, critic, critic_optimizer = now
        gradient, critic_gradient = gradients
        updates, moved = self._optimizer.update(gradient, optimizer)
        new = (optax.apply_updates(student, updates), moved)
        student, optimizer = _where(teach, new, (student, optimizer))
        updates, critic_optimizer = self._critic_optimizer.update(critic_gradient, critic_optimizer)
        critic = optax.apply_updates(critic, updates)
        return student, optimizer, critic, critic_optimizer

    def _policy_loss(
        self,
        student: Student,
        before: Memories,
        moments: Moment,
        exploration: Scalar,
        advantages: Float[Array, "T R"],
    ) -> tuple[Scalar, dict[str, Scalar]]:
        """PPO's clipped objective (eq. 7 there), through the memories of the agent."""
        policy = student.policy
        blank = policy.initial_carry(self.world.num_sensors)

        def one(started: Array, carry: PyTree, readings: Array, drawn: Array) -> tuple:
            carry = _where(started, blank, carry)
            mean, carry, _ = policy.step(readings, carry)
            said = policy.sensor_features(carry)
            return mean, said, policy.told(carry, jnp.clip(drawn, -1, 1))

        def step(carry: PyTree, moment: Moment) -> tuple[PyTree, tuple[Array, Array]]:
            mean, said, carry = _side_by_side(one)(
                moment.started, carry, moment.readings, moment.drawn
            )
            now = log_probability(moment.drawn, mean, exploration)
            identity = jnp.zeros(())
            if self.config.identity_weight and said.size:
                told = _side_by_side(partial(identity_loss, student.probe))(said, moment.sources)
                identity = jnp.mean(told)
            return carry, (now, identity)

        _, (now, identity) = jax.lax.scan(step, before.carry, moments)
        log_ratio = now - moments.log_probability
        gained, divergence = clipped_objective(log_ratio, advantages, self.config.clip_range)
        figures = {"divergence": jnp.mean(divergence), "identity": jnp.mean(identity)}
        return -jnp.mean(gained) + self.config.identity_weight * jnp.mean(identity), figures


def _where(condition: Array, new: PyTree, old: PyTree) -> PyTree:
    """One tree or the other."""
    return jax.tree.map(lambda new, old: jnp.where(condition, new, old), new, old)


@jax.jit
def _pick(everything: PyTree, chosen: Int[Array, " group"]) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.take(leaf, chosen, axis=-1), everything)


_side_by_side = partial(jax.vmap, in_axes=-1, out_axes=-1)
