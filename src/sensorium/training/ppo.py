"""Proximal policy optimisation (Schulman et al. 2017) for policies with memory, in every world.

Lanes of episodes run side by side (`rollout/transitions.py`). After each segment the policy goes through what
it received once more, from the memory that it had then, and gradients flow back through the whole segment.
With `freeze_encoder` the features of each observation are computed once, when it is collected, and only what
comes after the encoder learns, which costs little beside encoding an image.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sensorium.envs import World
from sensorium.errors import ConfigError
from sensorium.policies import Policy, as_population, features_of
from sensorium.rollout import Behaviour, Segment, StepContext, each_share, truth_size
from sensorium.training.actor_critic import ActorCritic, ActorCriticConfig, clipped_objective
from sensorium.training.auxiliary import Probed, identity_loss, with_probe
from sensorium.training.critic import Critic, Discounter, RewardScale, normalised, values
from sensorium.training.learner import (
    Learner,
    mean_figures,
    mean_over,
    moving_average,
    to_batch_last,
    where,
)
from sensorium.training.trainer import TrainingContext
from sensorium.types import Action, Key, PyTree, Scalar, Sensed


@dataclasses.dataclass(frozen=True)
class PpoConfig(ActorCriticConfig):
    """Settings of PPO; gradients flow through the `num_steps` of an iteration."""

    may_be_zero = ("critic_iterations",)

    critic_iterations: int = 4
    """At the start, in which only the critic learns: the policy may be good already."""
    freeze_encoder: bool = False
    """Leave the encoder of the policy as it is."""
    entropy_coef: float = 0.0
    """Weight of the entropy of discrete actions."""
    sensor_id_coef: float = 0.0
    """Weight of the sensor identity loss: each sensor predicts from its features which one it is."""
    ema_decay: float = 0.0
    """Of what is tested and kept: an exponential moving average of the policy after each iteration."""

    def build(self, context: TrainingContext) -> "Ppo":
        """Set up the trainer; ConfigError where settings do not fit."""
        if self.num_envs % self.num_minibatches:
            raise ConfigError(
                f"{self.num_envs} environments do not divide into {self.num_minibatches} minibatches."
            )
        return Ppo(self, context)


class PpoState(NamedTuple):
    """All that a run needs to resume."""

    learner: Learner
    critic: Learner
    scale: RewardScale
    iterations: Int[Array, ""]
    key: Key


class Explored(NamedTuple):
    """What is recorded of a step."""

    received: PyTree
    """The observation, or its features if the encoder is frozen."""
    sensor_of_channel: Int[Array, "..."]
    drawn: Float[Array, "..."]
    log_prob: Float[Array, "..."]


class Exploring(Behaviour):
    """A policy that draws its actions."""

    policy: Policy
    spread: Scalar
    hold_noise: int = eqx.field(static=True)
    freeze_encoder: bool = eqx.field(static=True)

    def initial_carry(self, world: World) -> PyTree:
        """Make the carry of the policy at the start of an episode."""
        return self.policy.initial_carry(world.observation_spec)

    def act(self, context: StepContext, carry: PyTree) -> tuple[Action, PyTree, Explored]:
        """Draw an action."""
        policy, distribution = self.policy, self.policy.distribution
        features, carry, _ = policy.encode(context.observation, carry)
        outputs, carry = policy.decide(features, carry)
        drawn = distribution.draw(context.held_key(self.hold_noise), outputs, self.spread)
        action = distribution.to_action(drawn)
        record = Explored(
            features if self.freeze_encoder else context.observation,
            context.sensor_of_channel,
            drawn,
            distribution.log_prob(drawn, outputs, self.spread),
        )
        return action, policy.after_action(carry, action), record

    def view(self, context: StepContext, carry: PyTree) -> Float[Array, " F"]:
        """Return the true state, or what the policy knows if there is none."""
        if context.truth.size:
            return context.truth
        return what_it_knows(self.policy, context.observation, carry)


def what_it_knows(policy: Policy, observation: Sensed, carry: PyTree) -> Float[Array, " F"]:
    """Compute the memory of a policy after an observation, or its features if it has no memory."""
    features, carry, _ = policy.encode(observation, carry)
    memory = policy.memory_features(policy.decide(features, carry)[1])
    leaves = [memory] if memory.size else jax.tree.leaves(features)
    return jnp.concatenate([jnp.ravel(leaf) for leaf in leaves])


def _knows(policy: Policy, world: World) -> int:
    """Count the numbers of `what_it_knows`."""
    carry = eqx.filter_eval_shape(policy.initial_carry, world.observation_spec)
    memory = eqx.filter_eval_shape(policy.memory_features, carry)
    features = jax.tree.leaves(features_of(policy, world.observation_spec))
    return memory.size or sum(leaf.size for leaf in features)


class Batch(NamedTuple):
    """The episodes of a minibatch, on the last axis of every array."""

    carry: PyTree
    """Memory of the policy before the segment."""
    started: Bool[Any, "T B"]
    alive: Bool[Any, "T B"]
    record: Explored
    inputs: Float[Any, "T F B"]
    """Of the critic."""
    advantages: Float[Any, "T B"]
    targets: Float[Any, "T B"]
    """Of the critic."""


class Ppo(ActorCritic):
    """PPO of one policy in one world."""

    def __init__(self, config: PpoConfig, context: TrainingContext):
        """Set up; see `PpoConfig.build`."""
        super().__init__(config, context, context.engine.world)

    def init(self, key: Key) -> PpoState:
        """Make the state: the policy to begin with, and an untrained critic."""
        key, key_policy, key_probe, key_critic = jax.random.split(key, 4)
        policy = self.draw(key_policy)
        model = with_probe(
            policy, self.world.observation_spec, self.world.raw_observation_spec, key_probe
        )
        size = truth_size(self.world) or _knows(policy, self.world)
        critic = Critic((2 + size, *self.config.critic_sizes), key=key_critic)
        return PpoState(
            learner=self._optimizer.init(model),
            critic=self._critic_optimizer.init(critic),
            scale=RewardScale.unknown(),
            iterations=jnp.zeros((), jnp.int32),
            key=key,
        )

    def candidates(self, state: PpoState) -> Policy:
        """Return the averaged policy, which acts without exploration."""
        return as_population(state.learner.average.policy)

    def _behaviour(self, state: PpoState, spread: Scalar) -> Exploring:
        policy, config = state.learner.model.policy, self.config
        return Exploring(policy, spread, config.hold_noise, config.freeze_encoder)

    def _learn(
        self, state: PpoState, segment: Segment, discounter: Discounter, spread: Scalar, key: Key
    ) -> tuple[PpoState, dict[str, Scalar]]:
        """Learn from one segment in epochs."""
        config, carry, steps = self.config, segment.memory.carry, segment.transitions
        estimates = self._estimate(state, steps, discounter)
        advantages = normalised(steps.alive, estimates.advantages)
        record = (steps.started, steps.alive, steps.record)
        over_time = (*record, estimates.inputs, advantages, estimates.targets)
        everything = jax.tree.map(np.asarray, over_time)
        learner, critic = state.learner, state.critic
        # Compiled one by one: all updates in one loop of XLA take four times as long on a CPU
        figures = []
        for epoch in range(config.num_epochs):
            order = jax.random.permutation(jax.random.fold_in(key, epoch), config.num_envs)
            for lanes in np.split(np.asarray(order), config.num_minibatches):
                before = jax.tree.map(lambda leaf, of=lanes: np.moveaxis(leaf[of], 0, -1), carry)
                batch = Batch(before, *to_batch_last(everything, lanes))
                of_shares = self._gradients(batch, learner.model, critic.model, spread)
                # Taken from the devices before their mean: see `each_share`
                gradients, figure = jax.tree.map(lambda leaf: np.asarray(leaf).mean(0), of_shares)
                learner, critic = self._update(
                    learner, critic, gradients, state.iterations >= config.critic_iterations
                )
                figures.append(figure)
        average = moving_average(state.learner.average, learner.model, config.ema_decay)
        learner = learner._replace(average=average)
        figure = mean_figures(figures) | {"explained": estimates.explained}
        return PpoState(learner, critic, estimates.scale, state.iterations + 1, state.key), figure

    @partial(jax.jit, static_argnames="self")
    def _gradients(
        self, batch: Batch, model: Probed, critic: Critic, spread: Scalar
    ) -> tuple[tuple[Probed, Critic], dict[str, Array]]:
        """Compute gradients of the losses of policy and critic for each device's share of a minibatch."""

        def share(
            batch: Batch, model: Probed, critic: Critic, spread: Scalar
        ) -> tuple[tuple[Probed, Critic], dict[str, Scalar]]:
            gradient, figures = eqx.filter_grad(self.policy_loss, has_aux=True)(
                model, batch, spread
            )

            def value_loss(critic: Critic) -> Scalar:
                return mean_over(batch.alive, (values(critic, batch.inputs) - batch.targets) ** 2)

            figures["value_loss"], critic_gradient = jax.value_and_grad(value_loss)(critic)
            return (gradient, critic_gradient), figures

        return each_share(share, batch, model, critic, spread)

    @partial(jax.jit, static_argnames="self")
    def _update(
        self,
        learner: Learner,
        critic: Learner,
        gradients: tuple[Probed, Critic],
        learns: Bool[Array, ""],
    ) -> tuple[Learner, Learner]:
        """Update once; the policy only if it `learns` already."""
        gradient, critic_gradient = gradients
        learner = where(learns, self._optimizer.update(learner, gradient), learner)
        return learner, self._critic_optimizer.update(critic, critic_gradient)

    def policy_loss(
        self, model: Probed, batch: Batch, spread: Scalar
    ) -> tuple[Scalar, dict[str, Scalar]]:
        """Compute the clipped loss (eq. 7) through the memory of the policy, and figures beside it."""
        config, policy = self.config, model.policy
        distribution, blank = policy.distribution, policy.initial_carry(self.world.observation_spec)

        def one(started: Array, carry: PyTree, now: Explored) -> tuple:
            carry = where(started, blank, carry)
            features = now.received
            if not config.freeze_encoder:
                features, carry, _ = policy.encode(now.received, carry)
            outputs, carry = policy.decide(features, carry)
            carry = policy.after_action(carry, distribution.to_action(now.drawn))
            identity = jnp.zeros(())
            if config.sensor_id_coef:
                of_sensors = policy.sensor_features(carry)
                identity = identity_loss(model.probe, of_sensors, now.sensor_of_channel)
            log_prob = distribution.log_prob(now.drawn, outputs, spread)
            return carry, (log_prob, distribution.entropy(outputs, spread), identity)

        def step(carry: PyTree, now: tuple) -> tuple[PyTree, tuple[Array, Array, Array]]:
            started, record = now
            return jax.vmap(one, in_axes=-1, out_axes=-1)(started, carry, record)

        _, (log_prob, entropy, identity) = jax.lax.scan(
            step, batch.carry, (batch.started, batch.record)
        )
        log_ratio = jnp.where(batch.alive, log_prob - batch.record.log_prob, 0.0)
        gained, divergence = clipped_objective(log_ratio, batch.advantages, config.clip_epsilon)
        mean = partial(mean_over, batch.alive)
        loss = -mean(gained) - config.entropy_coef * mean(entropy)
        figures = {"divergence": mean(divergence), "entropy": mean(entropy)}
        if config.sensor_id_coef:
            figures["sensor_id_loss"] = mean(identity)
            loss += config.sensor_id_coef * figures["sensor_id_loss"]
        return loss, figures
