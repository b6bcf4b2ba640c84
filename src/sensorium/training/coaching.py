"""Coaching: a teacher for one student, trained where that student gets.

A teacher that was trained alone knows no way back from where its student stumbles, and what it says there is
of no use to DAgger. A coach is a feed-forward agent that reads the true observation and

- first copies the student;
- then takes turns with it: each acts in half of the lanes, and they change over after some rounds. So the
  coach begins where the student has come to, and learns by PPO (Schulman et al. 2017) how to go on from
  there. Its critic judges what both earn together: a good turn ends where the student gets on;
- stays near to what the student does (as Messikommer et al. 2025): what cannot be followed is not worth
  teaching.

The student does not change here; it learns from its coach by cloning. Each generation starts its
environments anew, so a run resumes bit for bit.
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.errors import ConfigError
from sensorium.perturbations import Identity, Perturbation
from sensorium.policies import Policy, as_population
from sensorium.rollout import HostEngine
from sensorium.training.critic import Critic
from sensorium.training.host_ppo import HostPpo, HostPpoConfig, mean_of, summed_up
from sensorium.training.lanes import Memories, Moment, Outcome, RewardScale, act_by, judge
from sensorium.training.policy_gradient import clipped_objective, log_probability
from sensorium.training.teachers import check_fit
from sensorium.training.trainer import (
    DrawPolicy,
    Metrics,
    TrainingContext,
    require_host_engine,
)
from sensorium.types import Key, PyTree, Scalar


@dataclasses.dataclass(frozen=True)
class CoachingConfig(HostPpoConfig):
    """Settings of coaching; `rollouts` is an even number."""

    may_be_zero = ("copy_rounds",)

    senses: Perturbation = Identity()
    """What happens to the senses of the student."""
    turn: int = 8
    """Rounds after which student and coach change over: long enough for a student to get into trouble."""
    copy_rounds: int = 64
    """At the start, in which the coach copies the student; it acts in the second half of them."""
    batch: int = 512
    """Steps in an update."""
    nearness: float = 0.5
    """Weight of the squared difference of the coach's actions from the student's."""
    exploration: float = 0.15
    """Standard deviation of the noise on the coach's actions, at the start."""
    last_exploration: float = 0.12
    """The same at the end."""

    def build(self, context: TrainingContext) -> "Coaching":
        """Set up the trainer of a coach, a policy without memory; the context's expert is its student.

        Raises:
            ConfigError: There is no student, the coach has a memory, the world is not on the host or its
                observations are perturbed, or settings do not fit.
        """
        student = context.expert
        if not isinstance(student, Policy):
            raise ConfigError("A coach needs a student; name one with --expert.")
        engine = require_host_engine(context.engine, "Coaching")
        if engine.world.perturbation != Identity():
            raise ConfigError(
                "A coach senses the world as it is; `senses` says what happens to its student's."
            )
        world = dataclasses.replace(engine.world, perturbation=self.senses)
        student.initial_carry(world.num_sensors)
        check_fit("The student", world, world.raw_observation_shape, student.num_actions)
        if self.rollouts % 2 or self.rollouts * self.horizon % self.batch:
            raise ConfigError(
                f"{self.rollouts} environments x {self.horizon} steps do not divide into two halves and "
                f"batches of {self.batch}."
            )
        return Coaching(self, context.draw, engine, student)


class Learner(NamedTuple):
    """What an update changes."""

    coach: Policy
    optimizer: PyTree
    critic: Critic
    critic_optimizer: PyTree


class CoachingState(NamedTuple):
    """All that a run needs to go on."""

    learner: Learner
    scale: RewardScale
    rounds: Int[Array, ""]
    key: Key


class Steps(NamedTuple):
    """Steps of both, in any order."""

    observation: Float[Array, "N S"]
    student: Float[Array, "A S"]
    """What the student would have done."""
    drawn: Float[Array, "A S"]
    log_probability: Float[Array, " S"]
    advantage: Float[Array, " S"]
    target: Float[Array, " S"]
    coached: Bool[Array, " S"]
    """Whether the coach acted."""


class Coaching(HostPpo):
    """Training of a coach for one student in one world on the host."""

    config: CoachingConfig

    def __init__(
        self, config: CoachingConfig, draw: DrawPolicy, engine: HostEngine, student: Policy
    ):
        self._batches = config.rollouts * config.horizon // config.batch
        world = dataclasses.replace(engine.world, perturbation=config.senses)
        super().__init__(config, draw, engine, world, updates=self._batches)
        self.student = student

    def init(self, key: Key) -> CoachingState:
        key, key_coach, key_critic = jax.random.split(key, 3)
        coach = self.draw(key_coach)
        sensors = self.world.raw_observation_shape
        if jax.tree.leaves(coach.initial_carry(*sensors)):
            raise ConfigError("A coach must have no memory; use a feed-forward agent.")
        critic = Critic((*sensors, *self.config.critic_sizes), key=key_critic)
        learner = Learner(
            coach, self._optimizer.init(coach), critic, self._critic_optimizer.init(critic)
        )
        return CoachingState(learner, RewardScale.unknown(), jnp.zeros((), jnp.int32), key)

    def step(self, state: CoachingState) -> tuple[CoachingState, Metrics]:
        """`rounds` rounds of acting and learning."""
        config = self.config
        key, key_generation = jax.random.split(state.key)
        state = state._replace(key=key)
        key_lanes, key_rounds = jax.random.split(key_generation)
        lanes = self._lanes(key_lanes)
        figures: list[dict[str, Scalar]] = []
        for number in range(config.rounds):
            key_collect, key_learn = jax.random.split(jax.random.fold_in(key_rounds, number))
            exploration, coached = self._exploration(state.rounds), self._coached(state.rounds)
            act = partial(_in_turns, state.learner.coach, coached, exploration)
            _, moments, outcome = lanes.collect(self.student, act, config.horizon, key_collect)
            outcome, scale = lanes.scaled(outcome, state.scale)
            steps, explained = self._steps(state.learner.critic, coached, moments, outcome)
            copying = state.rounds < config.copy_rounds
            learner, figure = self._learn(state.learner, steps, exploration, copying, key_learn)
            figures.append(figure | {"explained": explained, "exploration": jnp.exp(exploration)})
            state = CoachingState(learner, scale, state.rounds + 1, state.key)
        return state, summed_up(lanes, figures)

    def candidates(self, state: CoachingState) -> Policy:
        """The coach."""
        return as_population(state.learner.coach)

    def _coached(self, rounds: Int[Array, ""]) -> Bool[Array, " R"]:
        """In which lanes it is the coach's turn."""
        theirs = (jnp.arange(self.config.rollouts) + rounds // self.config.turn) % 2 == 0
        return theirs & (rounds >= self.config.copy_rounds // 2)

    @partial(jax.jit, static_argnames="self")
    def _steps(
        self, critic: Critic, coached: Bool[Array, " R"], moments: Moment, outcome: Outcome
    ) -> tuple[Steps, Scalar]:
        """The steps of a round one beside the other, and how much of them the critic foresaw."""
        config = self.config
        advantages, targets, explained = judge(critic, outcome, config.discount, config.trace_decay)
        theirs = jnp.broadcast_to(coached, advantages.shape)
        mean = jnp.mean(advantages, where=theirs)  # NaN if there are none, and not used then
        deviation = jnp.std(advantages, where=theirs)
        steps = Steps(
            observation=outcome.observation,
            student=moments.mean,
            drawn=moments.drawn,
            log_probability=moments.log_probability,
            advantage=(advantages - mean) / (deviation + 1e-8),
            target=targets,
            coached=theirs,
        )

        def flat(leaf: Array) -> Array:
            return jnp.moveaxis(leaf, 0, -1).reshape(*leaf.shape[1:-1], -1)

        return jax.tree.map(flat, steps), explained

    def _learn(
        self, learner: Learner, steps: Steps, exploration: Scalar, copying: Array, key: Key
    ) -> tuple[Learner, dict[str, Scalar]]:
        """Epochs over the steps of a round."""
        figures = []
        for epoch in range(self.config.epochs):
            order = jax.random.permutation(jax.random.fold_in(key, epoch), len(steps.target))
            for chosen in jnp.split(order, self._batches):
                learner, figure = self._update(learner, steps, chosen, exploration, copying)
                figures.append(figure)
        return learner, mean_of(figures)

    @partial(jax.jit, static_argnames="self")
    def _update(
        self,
        learner: Learner,
        steps: Steps,
        chosen: Int[Array, " B"],
        exploration: Scalar,
        copying: Bool[Array, ""],
    ) -> tuple[Learner, dict[str, Scalar]]:
        batch = jax.tree.map(lambda leaf: jnp.take(leaf, chosen, axis=-1), steps)
        gradient, figures = jax.grad(self._loss, has_aux=True)(
            learner.coach, batch, exploration, copying
        )
        updates, optimizer = self._optimizer.update(gradient, learner.optimizer)
        coach = optax.apply_updates(learner.coach, updates)

        def value_loss(critic: Critic) -> Scalar:
            return jnp.mean((jax.vmap(critic, in_axes=-1)(batch.observation) - batch.target) ** 2)

        figures["value_loss"], gradient = jax.value_and_grad(value_loss)(learner.critic)
        updates, critic_optimizer = self._critic_optimizer.update(
            gradient, learner.critic_optimizer
        )
        critic = optax.apply_updates(learner.critic, updates)
        return Learner(coach, optimizer, critic, critic_optimizer), figures

    def _loss(
        self, coach: Policy, batch: Steps, exploration: Scalar, copying: Bool[Array, ""]
    ) -> tuple[Scalar, dict[str, Scalar]]:
        """PPO's clipped objective (eq. 7 there) where the coach acted, and nearness everywhere."""
        config = self.config
        advice = _advise(coach, batch.observation)
        apart = jnp.mean((advice - batch.student) ** 2)
        log_ratio = log_probability(batch.drawn, advice, exploration) - batch.log_probability
        log_ratio = jnp.where(batch.coached, log_ratio, 0.0)  # may be huge where nobody drew
        gained, divergence = clipped_objective(log_ratio, batch.advantage, config.clip_range)
        count = jnp.maximum(batch.coached.sum(), 1)
        gain = jnp.sum(jnp.where(batch.coached, gained, 0.0)) / count
        loss = jnp.where(copying, apart, config.nearness * apart - gain)
        return loss, {"apart": apart, "divergence": jnp.sum(divergence) / count}


@eqx.filter_jit
def _in_turns(
    coach: Policy,
    coached: Bool[Array, " R"],
    exploration: Scalar,
    student: Policy,
    world: HostWorld,
    *now: PyTree,
) -> tuple[Float[Array, "R A"], Moment, Memories]:
    """One step of the student, or where `coached` of its coach, who explores, with its probabilities."""

    def choose(mean: Array, observations: Array, noise: Array) -> tuple[Array, Array]:
        advice = _advise(coach, observations)
        drawn = jnp.where(coached, advice + jnp.exp(exploration) * noise, mean)
        return drawn, log_probability(drawn, advice, exploration)

    return act_by(student, world, *now, choose=choose)


def _advise(coach: Policy, observations: Float[Array, "N R"]) -> Float[Array, "A R"]:
    """What a coach, who has no memory, would do."""

    def one(observation: Array) -> Array:
        return coach.step(observation, coach.initial_carry(observation.shape[0]))[0]

    return jax.vmap(one, in_axes=-1, out_axes=-1)(observations)
