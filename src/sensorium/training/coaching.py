"""Coaching: an expert for one student, trained in the states that the student visits.

An expert that was trained alone has not visited the states in which its student fails, so that its labels
there are of no use to DAgger. A coach is a policy without memory that reads the unperturbed observation and

- first copies the student;
- then takes turns with it: each acts in half of the lanes, and they change over after some iterations. So the
  coach begins in states of the student, and learns by PPO (Schulman et al. 2017) how to act from there. Its
  critic estimates the return of both together: a good turn ends in a state from which the student does well;
- stays near to the actions of the student (as Messikommer et al. 2025): actions that a student cannot imitate
  are of no use as labels.

The student does not change here; it learns from its coach by DAgger. Each generation starts its environments
anew, so a run resumes bit for bit.
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
from sensorium.perturbations import Identity, Perturbation
from sensorium.policies import Policy, as_population
from sensorium.rollout import Behaviour, Segment, StepContext, perturbed, truth_size
from sensorium.training.actor_critic import ActorCritic, ActorCriticConfig, clipped_objective
from sensorium.training.critic import Critic, Discounter, RewardScale, normalised
from sensorium.training.learner import Learner, mean_figures, mean_over
from sensorium.training.trainer import TrainingContext
from sensorium.types import Action, Key, PyTree, Scalar, in_words


@dataclasses.dataclass(frozen=True)
class CoachingConfig(ActorCriticConfig):
    """Settings of coaching; `num_envs` is an even number."""

    may_be_zero = ("copy_iterations",)

    student_perturbation: Perturbation = Identity()
    """Perturbation of the observations of the student."""
    turn: int = 8
    """Iterations after which student and coach change over: long enough for a student to fail."""
    copy_iterations: int = 64
    """Iterations at the start, in which the coach copies the student; it acts in the second half of them."""
    nearness: float = 0.5
    """Weight of the squared difference of the coach's actions from the student's."""
    clip_epsilon: float = 0.2
    action_std: float = 0.15
    last_action_std: float = 0.12

    def build(self, context: TrainingContext) -> "Coaching":
        """Set up the trainer of a coach, a policy without memory; the context's expert is its student.

        Raises:
            ConfigError: There is no student, the coach has a memory, observations are perturbed or images, or
                settings do not fit.
        """
        student, world = context.expert, context.engine.world
        if not isinstance(student, Policy):
            raise ConfigError("A coach needs a student; name one with --expert.")
        if world.perturbation != Identity():
            raise ConfigError(
                "A coach receives the world as it is; `student_perturbation` is for its student."
            )
        if not isinstance(world.raw_observation_spec, int):
            raise ConfigError(
                f"A coach reads scalar sensors, and this world shows {in_words(world.raw_observation_spec)}."
            )
        student.initial_carry(perturbed(world, self.student_perturbation).observation_spec)
        if student.num_actions != world.num_actions:
            raise ConfigError(
                f"The student has {student.num_actions} action(s), but the world takes "
                f"{world.num_actions}."
            )
        if self.num_envs % 2 or self.num_envs * self.num_steps % self.num_minibatches:
            raise ConfigError(
                f"{self.num_envs} environments x {self.num_steps} steps do not divide into two halves and "
                f"{self.num_minibatches} minibatches."
            )
        if jax.tree.leaves(
            context.draw(jax.random.key(0)).initial_carry(world.raw_observation_spec)
        ):
            raise ConfigError("A coach must have no memory; use a feed-forward policy.")
        return Coaching(self, context, student)


class CoachingState(NamedTuple):
    """All that a run needs to resume."""

    coach: Learner
    critic: Learner
    scale: RewardScale
    iterations: Int[Array, ""]
    key: Key


class Taken(NamedTuple):
    """What is recorded of a step."""

    observation: Float[Any, "..."]
    """Without perturbation."""
    student_action: Float[Any, "..."]
    """What the student would have done."""
    drawn: Float[Any, "..."]
    log_prob: Float[Any, "..."]
    coached: Bool[Any, "..."]
    """Whether the coach acted."""


class Steps(NamedTuple):
    """Steps of all lanes, one after the other."""

    taken: Taken
    advantages: Float[Any, " S"]
    inputs: Float[Any, "S F"]
    """Of the critic."""
    targets: Float[Any, " S"]
    """Of the critic."""
    alive: Bool[Any, " S"]


class InTurns(Behaviour):
    """A student, or in some lanes its coach, which explores."""

    student: Policy
    coach: Policy
    coached: Bool[Array, " lanes"]
    spread: Scalar
    hold_noise: int = eqx.field(static=True)

    def initial_carry(self, world: World) -> PyTree:
        """Make the carry of the student at the start of an episode."""
        return self.student.initial_carry(world.observation_spec)

    def act(self, context: StepContext, carry: PyTree) -> tuple[Action, PyTree, Taken]:
        """Compute the actions of both, and take the coach's in its lanes."""
        student_action, carry, _ = self.student.step(context.observation, carry)
        distribution = self.coach.distribution
        outputs = outputs_of(self.coach, context.unperturbed)
        drawn = distribution.draw(context.held_key(self.hold_noise), outputs, self.spread)
        coached = self.coached[context.lane]
        action = jnp.where(coached, distribution.to_action(drawn), student_action)
        log_prob = distribution.log_prob(drawn, outputs, self.spread)
        record = Taken(context.unperturbed, student_action, drawn, log_prob, coached)
        return action, self.student.after_action(carry, action), record


class Coaching(ActorCritic):
    """Training of a coach for one student in one world."""

    def __init__(self, config: CoachingConfig, context: TrainingContext, student: Policy):
        """Set up; see `CoachingConfig.build`."""
        world = perturbed(context.engine.world, config.student_perturbation)
        super().__init__(config, context, world)
        self.student = student

    def init(self, key: Key) -> CoachingState:
        key, key_coach, key_critic = jax.random.split(key, 3)
        sizes = (2 + truth_size(self.world), *self.config.critic_sizes)
        return CoachingState(
            coach=self._optimizer.init(self.draw(key_coach)),
            critic=self._critic_optimizer.init(Critic(sizes, key=key_critic)),
            scale=RewardScale.unknown(),
            iterations=jnp.zeros((), jnp.int32),
            key=key,
        )

    def candidates(self, state: CoachingState) -> Policy:
        """Return the coach."""
        return as_population(state.coach.model)

    def _behaviour(self, state: CoachingState, spread: Scalar) -> InTurns:
        coached = self._coached(state.iterations)
        return InTurns(self.student, state.coach.model, coached, spread, self.config.hold_noise)

    def _coached(self, iterations: Int[Array, ""]) -> Bool[Array, " B"]:
        """Return in which lanes the coach acts."""
        theirs = (jnp.arange(self.config.num_envs) + iterations // self.config.turn) % 2 == 0
        return theirs & (iterations >= self.config.copy_iterations // 2)

    def _learn(
        self,
        state: CoachingState,
        segment: Segment,
        discounter: Discounter,
        spread: Scalar,
        key: Key,
    ) -> tuple[CoachingState, dict[str, Scalar]]:
        """Learn from the steps of a segment in epochs."""
        config, steps = self.config, segment.transitions
        theirs = steps.record.coached & steps.alive
        estimates = self._estimate(state, steps, discounter)
        advantages = normalised(theirs, estimates.advantages)
        everything = jax.tree.map(
            lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:]),
            Steps(steps.record, advantages, estimates.inputs, estimates.targets, steps.alive),
        )
        copying = state.iterations < config.copy_iterations
        coach, critic, figures = state.coach, state.critic, []
        for epoch in range(config.num_epochs):
            order = jax.random.permutation(
                jax.random.fold_in(key, epoch), len(everything.advantages)
            )
            for chosen in np.split(np.asarray(order), self.config.num_minibatches):
                batch = jax.tree.map(lambda leaf, of=chosen: leaf[of], everything)
                coach, critic, figure = self._update(coach, critic, batch, spread, copying)
                figures.append(figure)
        figure = mean_figures(figures) | {"explained": estimates.explained}
        return CoachingState(
            coach, critic, estimates.scale, state.iterations + 1, state.key
        ), figure

    @partial(jax.jit, static_argnames="self")
    def _update(
        self,
        coach: Learner,
        critic: Learner,
        batch: Steps,
        spread: Scalar,
        copying: Bool[Array, ""],
    ) -> tuple[Learner, Learner, dict[str, Scalar]]:
        gradient, figures = jax.grad(self._loss, has_aux=True)(coach.model, batch, spread, copying)

        def value_loss(critic: Critic) -> Scalar:
            return mean_over(batch.alive, (jax.vmap(critic)(batch.inputs) - batch.targets) ** 2)

        figures["value_loss"], of_critic = jax.value_and_grad(value_loss)(critic.model)
        return (
            self._optimizer.update(coach, gradient),
            self._critic_optimizer.update(critic, of_critic),
            figures,
        )

    def _loss(
        self, coach: Policy, batch: Steps, spread: Scalar, copying: Bool[Array, ""]
    ) -> tuple[Scalar, dict[str, Scalar]]:
        """Compute PPO's clipped loss (eq. 7 there) where the coach acted, and nearness everywhere."""
        config, taken, distribution = self.config, batch.taken, coach.distribution
        outputs = jax.vmap(partial(outputs_of, coach))(taken.observation)
        weights = np.ones(self.world.num_actions, np.float32)
        apart = mean_over(
            batch.alive,
            jax.vmap(partial(distribution.imitation_loss, weights=weights))(
                outputs, taken.student_action
            ),
        )
        log_prob = jax.vmap(partial(distribution.log_prob, spread=spread))(taken.drawn, outputs)
        theirs = taken.coached & batch.alive
        # May be huge where the action was not the coach's
        log_ratio = jnp.where(theirs, log_prob - taken.log_prob, 0.0)
        gained, divergence = clipped_objective(log_ratio, batch.advantages, config.clip_epsilon)
        gain = mean_over(theirs, gained)
        loss = jnp.where(copying, apart, config.nearness * apart - gain)
        return loss, {"apart": apart, "divergence": mean_over(theirs, divergence)}


def outputs_of(coach: Policy, observation: Float[Array, " N"]) -> Float[Array, " A"]:
    """Compute the outputs of a policy without memory."""
    features, carry, _ = coach.encode(observation, coach.initial_carry(observation.shape[0]))
    return coach.decide(features, carry)[0]
