"""Imitation for agents of pictures, on the device: the controller learns, the eyes stay as they are.

As in `imitation.py` a student acts in its own world, and a teacher that gets the true state gives at each
step the action it would take there (DAgger, Ross et al. 2011). But what the eyes made of each picture is
remembered: to learn from it again costs next to nothing beside the look, so that each generation of episodes
can be followed by thousands of updates, on all steps of the last ones. Gradients go through the controller's
memory along sequences of some hundred steps.
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
from sensorium.rollout import each_share, over_devices
from sensorium.training.imitation import apart, check_lesson, teacher_share
from sensorium.training.trainer import (
    DrawPolicy,
    Metrics,
    Trainer,
    TrainerConfig,
    TrainingContext,
    averaged,
    check_sees,
)
from sensorium.types import Key, Keys, PyTree, Scalar, Sensed


@dataclasses.dataclass(frozen=True)
class ControllerImitationConfig(TrainerConfig):
    """Settings of imitation for the controllers of agents who see."""

    may_be_zero = ("warm_up", "teacher_generations")

    rollouts: int = 128
    """Episodes of a generation, side by side; one of CarRacing takes 22 MB while it lasts."""
    remembered: int = 10
    """Generations whose episodes are learned from; the oldest are forgotten."""
    updates: int = 4000
    """In a generation."""
    batch: int = 64
    """Sequences in an update."""
    steps: int = 200
    """Of a sequence."""
    warm_up: int = 50
    """Its first steps, which make a memory and are not learned from, unless the episode begins there."""
    learning_rate: float = 3e-3
    """Of Adam; it falls to a hundredth along a cosine in each generation, as each tests an agent."""
    teacher_generations: int = 0
    """Over how many the teacher's share in what is done falls from all to nothing; 0 for none at all."""
    action_weights: tuple[float, ...] = ()
    """What the squared differences of the actions count, where they differ in size; all 1 by default."""
    action_noise: tuple[float, ...] = (0.15, 0.03, 0.03, 0.03)
    """Standard deviations of the noise on what is done, dealt out to the episodes in turn."""
    gradient_clip: float = 0.5
    """Largest norm of a gradient."""
    averaging: float = 0.998
    """Of what acts, is tested and kept: a running mean of the students of all updates, with this memory."""

    def build(self, context: TrainingContext) -> "ControllerImitation":
        """Set up the trainer; the expert is a policy whose sensors are the world's `critic_features`.

        Raises:
            ConfigError: There is no expert, or the policy, the world or settings do not fit.
        """
        check_sees(context.draw, "Imitation of controllers")
        world, teacher = check_lesson(context.engine.world, context.expert, self.action_weights)
        if not 0 <= self.warm_up < self.steps <= world.max_steps:
            raise ConfigError(
                f"Sequences of {self.steps} steps, {self.warm_up} of them to warm up, do not fit into "
                f"episodes of {world.max_steps}."
            )
        if not self.action_noise:
            raise ConfigError("action_noise needs at least one standard deviation; 0 is none.")
        return ControllerImitation(self, context.draw, world, teacher)


class Samples(NamedTuple):
    """What was seen and wanted in each of T steps of R episodes."""

    seen: PyTree
    wanted: Float[Array | np.ndarray, "..."]
    alive: Bool[Array | np.ndarray, "..."]
    """Whether the episode went on until then; the rest counts for nothing."""


class ControllerImitationState(NamedTuple):
    """All that a run needs to go on."""

    student: Policy
    mean: Policy
    """Of the last students."""
    optimizer: PyTree
    remembered: Samples
    """Of the last generations, each in its place; blank at first."""
    generation: Int[Array, ""]
    key: Key


class ControllerImitation(Trainer):
    """Imitation of one teacher in one world on the device."""

    def __init__(
        self,
        config: ControllerImitationConfig,
        draw: DrawPolicy,
        world: Environment,
        teacher: Policy,
    ):
        """Set up; see `ControllerImitationConfig.build`."""
        self.config, self.draw, self.world, self.teacher = config, draw, world, teacher
        self._weights = np.array(config.action_weights or [1.0] * world.num_actions, np.float32)
        self._noise = np.resize(np.array(config.action_noise, np.float32), config.rollouts)
        once = optax.cosine_decay_schedule(config.learning_rate, config.updates, alpha=0.01)
        self._optimizer = optax.chain(
            optax.clip_by_global_norm(config.gradient_clip),
            optax.adam(lambda count: once(count % config.updates)),
        )

    def init(self, key: Key) -> ControllerImitationState:
        """The student as it is, with no episodes yet."""
        key, key_student = jax.random.split(key)
        student = self.draw(key_student)
        assert isinstance(student, Policy)
        keys = jax.eval_shape(lambda: jax.random.split(key, self.config.rollouts))
        generation, _ = jax.eval_shape(
            self._run_episodes, student, keys, self._noise, jnp.zeros(())
        )
        remembered = jax.tree.map(
            lambda leaf: jnp.zeros(
                (self.config.remembered * leaf.shape[0], *leaf.shape[1:]), leaf.dtype
            ),
            generation,
        )
        optimizer = self._optimizer.init(eqx.filter(student, eqx.is_inexact_array))
        return ControllerImitationState(
            student, student, optimizer, remembered, jnp.zeros((), jnp.int32), key
        )

    def step(self, state: ControllerImitationState) -> tuple[ControllerImitationState, Metrics]:
        """Episodes of the mean of the last students, and updates on all that is remembered."""
        config = self.config
        key, key_episodes, key_learn = jax.random.split(state.key, 3)
        keys = jax.random.split(key_episodes, config.rollouts)
        share = teacher_share(int(state.generation), config.teacher_generations)
        samples, earned = self._run_episodes(state.mean, keys, self._noise, jnp.asarray(share))
        place = int(state.generation) % config.remembered * config.rollouts
        remembered = jax.tree.map(
            lambda old, new: old.at[place : place + config.rollouts].set(np.asarray(new)),
            state.remembered,
            samples,
        )
        everything = jax.tree.map(np.asarray, remembered)
        moments = np.argwhere(everything.alive)
        random = np.random.default_rng(np.asarray(jax.random.key_data(key_learn)))
        now, losses = (state.student, state.mean, state.optimizer), []
        for _ in range(config.updates):
            lanes = self._draw_sequences(everything, moments, random)
            of_shares = self._gradients(lanes, now[0])
            # Taken from the devices before their sum: see `each_share`
            gradient, loss = jax.tree.map(lambda leaf: np.asarray(leaf).sum(0), of_shares)
            now = self._update(now, gradient)
            losses.append(loss)
        student, mean, optimizer = now
        state = ControllerImitationState(
            student, mean, optimizer, remembered, state.generation + 1, key
        )
        figures = {
            "best": jnp.max(earned),
            "mean": jnp.mean(earned),
            "loss": jnp.asarray(np.mean(losses)),
            "teacher": jnp.asarray(share),
        }
        return state, Metrics(int(np.sum(samples.alive)), figures)

    def candidates(self, state: ControllerImitationState) -> Policy:
        """The mean of the last students."""
        return as_population(state.mean)

    @partial(jax.jit, static_argnames="self")
    def _run_episodes(
        self, student: Policy, keys: Keys, noise: Float[Array, " R"], share: Scalar
    ) -> tuple[Samples, Float[Array, " R"]]:
        """An episode for each key, and what was earned in it."""

        def run(each: tuple[Keys, Array], student: Policy, share: Scalar) -> tuple[Samples, Array]:
            one = jax.vmap(self._run_episode, in_axes=(None, 0, 0, None))
            return one(student, *each, share)

        return over_devices(run, (keys, noise), len(keys), student, share)

    def _run_episode(
        self, student: Policy, key: Key, noise: Scalar, share: Scalar
    ) -> tuple[Samples, Scalar]:
        """See, ask the teacher, do a mean of what both would, with noise."""
        world = self.world
        key_begin, key_steps = jax.random.split(key)
        observation, begun = world.reset_env(key_begin, world.default_params)
        knows = world.critic_features(begun).shape[0]
        carries = student.initial_carry(world.senses), self.teacher.initial_carry(knows)

        def step(
            now: tuple[Sensed, PyTree, tuple[PyTree, PyTree], Bool[Array, ""]], key: Key
        ) -> tuple[tuple, tuple[Samples, Scalar]]:
            observation, state, (carry, teacher_carry), alive = now
            key_noise, key_world = jax.random.split(key)
            wanted, teacher_carry, _ = self.teacher.step(
                world.critic_features(state), teacher_carry
            )
            seen, carry, _ = student.encode(observation, carry)
            sums, carry = student.decide(seen, carry)
            both = share * wanted + (1 - share) * jnp.tanh(sums)
            done = jnp.clip(both + noise * jax.random.normal(key_noise, sums.shape), -1, 1)
            observation, state, reward, terminated, truncated, _ = world.advance(
                key_world, state, done, world.default_params
            )
            carries = student.told(carry, done), teacher_carry
            after = observation, state, carries, alive & ~terminated & ~truncated
            return after, (Samples(seen, wanted, alive), jnp.where(alive, reward, 0.0))

        start = observation, begun, carries, jnp.ones((), bool)
        keys = jax.random.split(key_steps, world.max_steps)
        _, (samples, rewards) = jax.lax.scan(step, start, keys)
        return samples, jnp.sum(rewards)

    def _draw_sequences(
        self, everything: Samples, moments: Int[np.ndarray, "M 2"], random: np.random.Generator
    ) -> tuple[Samples, Float[np.ndarray, "T B"]]:
        """Sequences side by side, the batch last, and what each step counts; the sum is 1.

        Each is drawn around a step before the end of its episode, which comes at any place of it after the
        warm-up.
        """
        config = self.config
        rows, when = random.choice(moments, config.batch).T
        before = random.integers(config.warm_up, config.steps, config.batch)
        first = (when - before).clip(0, self.world.max_steps - config.steps)
        place = np.arange(config.steps)[:, None]
        batch = jax.tree.map(lambda leaf: np.moveaxis(leaf[rows, first + place], 1, -1), everything)
        warm = (place >= config.warm_up) | (first == 0)
        counts = (batch.alive & warm).astype(np.float32)
        return batch, counts / counts.sum()

    @partial(jax.jit, static_argnames="self")
    def _gradients(
        self, lanes: tuple[Samples, Float[Array | np.ndarray, "T B"]], student: Policy
    ) -> tuple[Policy, Float[Array, " shares"]]:
        """For each device's share of a batch, its part of the gradient and of the loss."""

        def share(
            lanes: tuple[Samples, Float[Array, "T B"]], student: Policy
        ) -> tuple[Policy, Scalar]:
            loss, gradient = jax.value_and_grad(self._loss)(student, *lanes)
            return gradient, loss

        return each_share(share, lanes, student)

    def _loss(self, student: Policy, batch: Samples, counts: Float[Array, "T B"]) -> Scalar:
        """How far what the student would do is from what was wanted."""
        blank = student.initial_carry(self.world.senses)

        def sequence(samples: Samples) -> Float[Array, " T"]:
            def step(carry: PyTree, moment: Samples) -> tuple[PyTree, Scalar]:
                sums, carry = student.decide(moment.seen, carry)
                return carry, apart(jnp.tanh(sums), jnp.asarray(moment.wanted), self._weights)

            return jax.lax.scan(step, blank, samples)[1]

        return jnp.sum(counts * jax.vmap(sequence, in_axes=-1, out_axes=-1)(batch))

    @partial(jax.jit, static_argnames="self")
    def _update(self, now: tuple, gradient: Policy) -> tuple:
        """The student after an update, and the mean moved on; to the last bit, eyes stay as they are."""
        student, mean, optimizer = now
        updates, optimizer = self._optimizer.update(gradient, optimizer)
        student = optax.apply_updates(student, updates)
        mean = averaged(mean, student, 1 - self.config.averaging)
        return student, mean, optimizer
