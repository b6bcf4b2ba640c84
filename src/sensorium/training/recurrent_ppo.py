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

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.pool import PoolVectorEnv
from sensorium.errors import ConfigError, WorldError
from sensorium.policies import Linear, Policy, as_population
from sensorium.rollout import Engine, HostEngine
from sensorium.training.critic import Critic, identity_loss
from sensorium.training.trainer import DrawPolicy, Metrics, Trainer
from sensorium.types import Key, PyTree, Scalar

_ATTEMPTS = 3  # at a step with workers that die


@dataclasses.dataclass(frozen=True)
class RecurrentPpoConfig:
    """Settings of PPO for agents with memory."""

    rollouts: int = 64
    """Environments side by side."""
    horizon: int = 64
    """Steps of each between two rounds of updates, through which gradients flow."""
    rounds: int = 32
    """In a generation."""
    total_rounds: int = 640
    """Over how many rounds the learning rates fall to zero."""
    epochs: int = 10
    """How often each round is learned from."""
    groups: int = 8
    """Into which the environments of a round are divided, for an update each."""
    learning_rate: float = 3e-4
    """Of the agent, at the start."""
    critic_learning_rate: float = 1e-3
    """Of the critic, at the start."""
    critic_sizes: tuple[int, ...] = (128, 128)
    """Hidden layers of the critic."""
    critic_rounds: int = 4
    """At the start, in which only the critic learns: the agent may be good already."""
    discount: float = 0.99
    """γ, for each step of the world."""
    trace_decay: float = 0.9
    """λ of generalised advantage estimation."""
    clip_range: float = 0.4
    """ε: how far an update may move the probability of an action."""
    exploration: float = -1.2
    """Logarithm of the first standard deviation of actions."""
    hold_exploration: int = 4
    """Steps for which the same noise is added to the actions."""
    identity_weight: float = 0.0
    """Weight of a second lesson: each sensor learns to tell which one it is."""
    gradient_clip: float = 0.5
    """Largest norm of a gradient."""

    def build(self, draw: DrawPolicy, engine: Engine) -> "RecurrentPpo":
        """Set up the trainer of an agent; ConfigError where settings or the world do not fit."""
        if not isinstance(engine, HostEngine):
            raise ConfigError("PPO trains in worlds on the host (`gym:` and an id).")
        if self.rollouts % self.groups:
            raise ConfigError(
                f"{self.rollouts} environments do not divide into {self.groups} groups."
            )
        return RecurrentPpo(self, draw, engine)


class Student(NamedTuple):
    """What the policy's gradient changes."""

    policy: Policy
    exploration: Float[Array, " A"]
    """Logarithm of the standard deviation of each action."""
    probe: Linear
    """From what a sensor says to which one it is; the last class is noise."""


class RewardScale(NamedTuple):
    """Running moments of discounted returns; rewards are divided by their standard deviation."""

    steps: Float[Array, ""]
    mean: Float[Array, ""]
    squares: Float[Array, ""]


class Learner(NamedTuple):
    """All that a run needs to go on."""

    student: Student
    optimizer: PyTree
    critic: Critic
    critic_optimizer: PyTree
    scale: RewardScale
    rounds: Int[Array, ""]
    key: Key


class Memories(NamedTuple):
    """Of the environments side by side, the last axis of every leaf."""

    carry: PyTree
    senses: PyTree


class Moment(NamedTuple):
    """What was sensed and done in one step of all R environments; a round stacks T of them."""

    started: Bool[Array, "... R"]
    readings: Float[Array, "... C R"]
    sources: Int[Array, "... C R"]
    drawn: Float[Array, "... A R"]
    """Actions before they are cut to [-1, 1]."""
    log_probability: Float[Array, "... R"]


class Outcome(NamedTuple):
    """What came of it."""

    observation: Float[Array, "T N R"]
    """Before the step, unperturbed."""
    next_observation: Float[Array, "T N R"]
    """After it, and before any restart."""
    reward: Float[Array, "T R"]
    terminated: Bool[Array, "T R"]
    done: Bool[Array, "T R"]
    """Terminated, truncated or lost."""


class RecurrentPpo(Trainer):
    """PPO of one agent in one world on the host."""

    def __init__(self, config: RecurrentPpoConfig, draw: DrawPolicy, engine: HostEngine):
        self.config = config
        self.draw = draw
        self.engine = engine
        self.world: HostWorld = engine.world
        self.steps_per_generation = config.rollouts * config.horizon * config.rounds
        updates = config.total_rounds * config.epochs * config.groups
        self._optimizer, self._critic_optimizer = (
            optax.chain(
                optax.clip_by_global_norm(config.gradient_clip),
                optax.adam(optax.linear_schedule(rate, 0.0, updates), eps=1e-5),
            )
            for rate in (config.learning_rate, config.critic_learning_rate)
        )
        self._pool: PoolVectorEnv | None = None

    def init(self, key: Key) -> Learner:
        key, key_policy, key_probe, key_critic = jax.random.split(key, 4)
        policy, world = self.draw(key_policy), self.world
        said = policy.sensor_features(policy.initial_carry(world.num_sensors))
        probe = Linear(said.shape[0], world.num_sensors + 1, key=key_probe)
        exploration = jnp.full(world.num_actions, self.config.exploration)
        student = Student(policy, exploration, probe)
        critic = Critic((*world.raw_observation_shape, *self.config.critic_sizes), key=key_critic)
        return Learner(
            student=student,
            optimizer=self._optimizer.init(eqx.filter(student, eqx.is_inexact_array)),
            critic=critic,
            critic_optimizer=self._critic_optimizer.init(critic),
            scale=RewardScale(*(jnp.zeros(()) for _ in range(3))),
            rounds=jnp.zeros((), jnp.int32),
            key=key,
        )

    def step(self, state: Learner) -> tuple[Learner, Metrics]:
        """`rounds` rounds of acting and learning."""
        key, key_generation = jax.random.split(state.key)
        state = state._replace(key=key)
        lanes = _Lanes(self._open_pool(), self.world, self.config, key_generation)
        figures: list[dict[str, Scalar]] = []
        for number in range(self.config.rounds):
            key_round = jax.random.fold_in(key_generation, number)
            before, moments, outcome = lanes.live(state.student, key_round)
            outcome, scale = lanes.scaled(outcome, state.scale)
            state, figure = self._learn(
                state._replace(scale=scale), before, moments, outcome, key_round
            )
            figures.append(figure)
        extra = jax.tree.map(lambda *values: jnp.mean(jnp.stack(values)), *figures)
        returns = jnp.asarray(lanes.returns or [jnp.nan])
        return state, Metrics(jnp.max(returns), jnp.mean(returns), extra)

    def candidates(self, state: Learner) -> Policy:
        """What the agent does without exploration."""
        return as_population(state.student.policy)

    def _open_pool(self) -> PoolVectorEnv:
        if self._pool is None:
            self._pool = self.engine.open_pool(self.config.rollouts)
        return self._pool

    def _learn(
        self, learner: Learner, before: Memories, moments: Moment, outcome: Outcome, key: Key
    ) -> tuple[Learner, dict[str, Scalar]]:
        """Epochs over one round."""
        config = self.config
        advantages, targets, explained = self._judge(learner.critic, outcome)
        now = (learner.student, learner.optimizer, learner.critic, learner.critic_optimizer)
        everything = (before, moments, outcome.observation, advantages, targets)
        # Compiled one by one: all updates in one loop of XLA take four times as long on a CPU
        figures = []
        for epoch in range(config.epochs):
            order = jax.random.permutation(jax.random.fold_in(key, epoch), config.rollouts)
            for chosen in jnp.split(order, config.groups):
                teach = learner.rounds >= config.critic_rounds
                now, figure = self._update(now, _pick(everything, chosen), teach)
                figures.append(figure)
        figures = jax.tree.map(lambda *values: jnp.mean(jnp.stack(values)), *figures)
        figures |= {"explained": explained, "exploration": jnp.exp(jnp.mean(now[0].exploration))}
        return Learner(*now, learner.scale, learner.rounds + 1, learner.key), figures

    @partial(jax.jit, static_argnames="self")
    def _judge(self, critic: Critic, outcome: Outcome) -> tuple[Array, Array, Scalar]:
        """Advantages, what the critic should have said, and how much of that it did say."""
        values = _values(critic, outcome.observation)
        next_values = _values(critic, outcome.next_observation)
        advantages = advantage_estimates(
            outcome.reward,
            values,
            jnp.where(outcome.terminated, 0.0, next_values),
            outcome.done,
            self.config.discount,
            self.config.trace_decay,
        )
        targets = advantages + values
        explained = 1 - jnp.var(advantages) / (jnp.var(targets) + 1e-8)
        advantages = (advantages - jnp.mean(advantages)) / (jnp.std(advantages) + 1e-8)
        return advantages, targets, explained

    @partial(jax.jit, static_argnames="self")
    def _update(
        self, now: tuple, group: tuple, teach: Bool[Array, ""]
    ) -> tuple[tuple, dict[str, Scalar]]:
        """One update from one group of environments; of the agent only if `teach`."""
        student, optimizer, critic, critic_optimizer = now
        before, moments, observation, advantages, targets = group
        gradient, figures = jax.grad(self._policy_loss, has_aux=True)(
            student, before, moments, advantages
        )
        updates, moved = self._optimizer.update(gradient, optimizer)
        new = (optax.apply_updates(student, updates), moved)
        student, optimizer = _where(teach, new, (student, optimizer))

        def value_loss(critic: Critic) -> Scalar:
            return jnp.mean((_values(critic, observation) - targets) ** 2)

        figures["value_loss"], gradient = jax.value_and_grad(value_loss)(critic)
        updates, critic_optimizer = self._critic_optimizer.update(gradient, critic_optimizer)
        critic = optax.apply_updates(critic, updates)
        return (student, optimizer, critic, critic_optimizer), figures

    def _policy_loss(
        self, student: Student, before: Memories, moments: Moment, advantages: Float[Array, "T R"]
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
            now = _log_probability(moment.drawn, mean, student.exploration)
            identity = jnp.zeros(())
            if self.config.identity_weight and said.size:
                told = _side_by_side(partial(identity_loss, student.probe))(said, moment.sources)
                identity = jnp.mean(told)
            return carry, (now, identity)

        _, (now, identity) = jax.lax.scan(step, before.carry, moments)
        log_ratio = now - moments.log_probability
        ratio, reach = jnp.exp(log_ratio), self.config.clip_range
        clipped = jnp.clip(ratio, 1 - reach, 1 + reach)
        loss = -jnp.mean(jnp.minimum(ratio * advantages, clipped * advantages))
        figures = {
            "divergence": jnp.mean(ratio - 1 - log_ratio),
            "clipped": jnp.mean(jnp.abs(ratio - 1) > reach),
            "identity": jnp.mean(identity),
        }
        return loss + self.config.identity_weight * jnp.mean(identity), figures


def advantage_estimates(
    rewards: Float[Array, "T R"],
    values: Float[Array, "T R"],
    next_values: Float[Array, "T R"],
    done: Bool[Array, "T R"],
    discount: float,
    trace_decay: float,
) -> Float[Array, "T R"]:
    """Generalised advantage estimation (Schulman et al. 2016, eq. 16).

    Args:
        rewards: Of each step.
        values: Of the states before each step.
        next_values: Of the states after it, zero where the world terminated.
        done: Whether the episode ended there, for whatever reason.
        discount: γ.
        trace_decay: λ.
    """

    def back(later: Array, now: tuple) -> tuple[Array, Array]:
        surprise, done = now
        advantage = surprise + discount * trace_decay * jnp.where(done, 0.0, later)
        return advantage, advantage

    surprises = rewards + discount * next_values - values
    start = jnp.zeros(rewards.shape[1])
    return jax.lax.scan(back, start, (surprises, done), reverse=True)[1]


class _Lanes:
    """The environments of a generation, and what each remembers from round to round."""

    def __init__(self, pool: PoolVectorEnv, world: HostWorld, config: RecurrentPpoConfig, key: Key):
        self._pool = pool
        self._world = world
        self._config = config
        self._random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        self._memories: Memories | None = None
        count = config.rollouts
        self._started = np.ones(count, bool)
        self._steps = np.zeros(count, int)
        self._limit = self._random.integers(1, world.max_steps + 1, count)
        self._total = np.zeros(count)
        self._discounted = np.zeros(count)
        self._losses = 0
        self._observations = self._reset(self._started)
        self.returns: list[float] = []
        """Of the episodes that ended by themselves or at the world's own limit."""

    def live(self, student: Student, key: Key) -> tuple[Memories, Moment, Outcome]:
        """One round: the memories before it, what was sensed and done, and what came of it."""
        moments, outcomes = [], []
        if self._memories is None:
            self._memories = _blank(student, self._world, self._config.rollouts)
        before = self._memories
        key, key_noise = jax.random.split(key)
        for step in range(self._config.horizon):
            observations = self._observations
            actions, moment, self._memories = _act(
                student,
                self._world,
                self._memories,
                jnp.array(self._started),
                jnp.asarray(observations, jnp.float32),
                jax.random.fold_in(key, step),
                jax.random.fold_in(key_noise, step // self._config.hold_exploration),
            )
            moments.append(moment)
            seen, *rest = self._advance(np.asarray(actions))
            outcomes.append((observations.T, seen.T, *rest))
        stacked = (np.stack(column) for column in zip(*outcomes, strict=True))
        outcome = Outcome(*(jnp.asarray(column) for column in stacked))
        return before, jax.tree.map(lambda *leaves: jnp.stack(leaves), *moments), outcome

    def scaled(self, outcome: Outcome, scale: RewardScale) -> tuple[Outcome, RewardScale]:
        """The outcome with rewards of about 1, and what is now known of their size."""
        count, mean, squares = (float(value) for value in scale)
        rewards, done = np.asarray(outcome.reward), np.asarray(outcome.done)
        for reward, over in zip(rewards, done, strict=True):
            self._discounted = self._config.discount * self._discounted + reward
            new = count + len(reward)
            away = self._discounted.mean() - mean
            squares += self._discounted.var() * len(reward) + away**2 * count * len(reward) / new
            mean, count = mean + away * len(reward) / new, new
            self._discounted = np.where(over, 0.0, self._discounted)
        deviation = np.sqrt(squares / count + 1e-8)
        scale = RewardScale(*(jnp.asarray(value, jnp.float32) for value in (count, mean, squares)))
        return outcome._replace(reward=jnp.asarray(rewards / deviation, jnp.float32)), scale

    def _advance(self, actions: np.ndarray) -> tuple[np.ndarray, ...]:
        seen, rewards, terminated, truncated, infos = self._pool.step(
            self._world.to_env_actions(actions)
        )
        lost = self._mind_losses(infos)
        if not np.isfinite(seen).all():
            raise WorldError(f"{self._world.name} showed NaN or infinity.")
        self._steps += 1
        self._total += rewards
        over = terminated | truncated | (self._steps >= self._world.max_steps)
        self.returns += [float(total) for total in self._total[over & ~lost]]
        done = over | lost | (self._steps >= self._limit)
        self._started = done
        self._observations = self._reset(done) if done.any() else seen
        return seen, rewards.astype(np.float32), terminated, done

    def _reset(self, which: Bool[np.ndarray, " R"]) -> np.ndarray:
        drawn = self._random.integers(2**31, size=len(which))
        seeds = [int(seed) if reset else None for seed, reset in zip(drawn, which, strict=True)]
        if self._steps.any():  # only the first episode of each is cut short
            self._limit[which] = self._world.max_steps
        self._steps[which] = 0
        self._total[which] = 0.0
        observations, infos = self._pool.reset(seed=seeds, options={"reset_mask": which})
        lost = self._mind_losses(infos)
        return self._reset(lost) if lost.any() else observations

    def _mind_losses(self, infos: dict[str, object]) -> Bool[np.ndarray, " R"]:
        """Which environments are gone with their worker; an episode that is lost ends there."""
        lost = np.broadcast_to(np.asarray(infos.get("lost", False)), self._started.shape)
        self._losses = self._losses + 1 if lost.any() else 0
        if self._losses >= _ATTEMPTS:
            raise WorldError(
                f"{self._world.name} cannot go on: its worker {infos['reason']}, "
                f"{_ATTEMPTS} times in a row."
            )
        return lost


@eqx.filter_jit
def _act(
    student: Student,
    world: HostWorld,
    memories: Memories,
    started: Bool[Array, " R"],
    observations: Float[Array, "R N"],
    key: Key,
    key_noise: Key,
) -> tuple[Float[Array, "R A"], Moment, Memories]:
    """One step of the senses and the exploring agent, in every lane."""
    policy, perturbation = student.policy, world.perturbation
    count, sensors = observations.shape
    deviations = jnp.exp(student.exploration)

    noise = jax.random.normal(key_noise, (world.num_actions, count))

    def lane(
        key: Key, started: Array, memories: Memories, observation: Array, noise: Array
    ) -> tuple:
        key_init, key_apply = jax.random.split(key)
        blank = Memories(
            policy.initial_carry(world.num_sensors), perturbation.init(key_init, sensors)
        )
        carry, senses = _where(started, blank, memories)
        readings, senses = perturbation.apply(key_apply, senses, observation)
        sources = perturbation.sources(senses, sensors)
        mean, carry, _ = policy.step(readings, carry)
        drawn = mean + deviations * noise
        carry = policy.told(carry, jnp.clip(drawn, -1, 1))
        return readings, sources, mean, drawn, Memories(carry, senses)

    readings, sources, mean, drawn, memories = jax.vmap(
        lane, in_axes=(0, -1, -1, -1, -1), out_axes=-1
    )(jax.random.split(key, count), started, memories, observations.T, noise)
    log_probability = _log_probability(drawn, mean, student.exploration)
    moment = Moment(started, readings, sources, drawn, log_probability)
    return jnp.clip(drawn, -1, 1).T, moment, memories


@eqx.filter_jit
def _blank(student: Student, world: HostWorld, count: int) -> Memories:
    """Memories to be replaced at once, since all episodes start."""

    def lane(key: Key) -> Memories:
        senses = world.perturbation.init(key, world.raw_observation_shape[0])
        return Memories(student.policy.initial_carry(world.num_sensors), senses)

    return jax.vmap(lane, out_axes=-1)(jax.random.split(jax.random.key(0), count))


def _log_probability(
    drawn: Float[Array, "A R"], mean: Float[Array, "A R"], exploration: Float[Array, " A"]
) -> Float[Array, " R"]:
    """Of Gaussian actions, but for a constant."""
    away = (drawn - mean) * jnp.exp(-exploration)[:, None]
    return -jnp.sum(0.5 * away**2 + exploration[:, None], axis=0)


def _values(critic: Critic, observations: Float[Array, "T N R"]) -> Float[Array, "T R"]:
    return jax.vmap(_side_by_side(critic))(observations)


@jax.jit
def _pick(everything: PyTree, chosen: Int[Array, " group"]) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.take(leaf, chosen, axis=-1), everything)


def _where(condition: Array, new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda new, old: jnp.where(condition, new, old), new, old)


_side_by_side = partial(jax.vmap, in_axes=-1, out_axes=-1)
