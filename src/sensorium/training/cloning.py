"""Cloning: a student learns to do what a teacher does, from what the teacher saw (AN section 4.2).

Sequences of T steps go through the student's memory in windows; gradients flow within a window. The
action fed back to the sensors is the one that was really taken, with noise on it, so that a student does
not lean on it. The loss is the squared difference of actions; Adam, gradients clipped by their norm.

Past the paper:

- the senses of the student are perturbed as the recipe says, while the teacher sees all;
- rounds of DAgger (Ross et al. 2011, algorithm 3.1): the student acts, the teacher says what it would
  have done, and what was seen and said joins the sequences;
- a second lesson: each sensor learns to tell which one it is, if `identity_weight` says so;
- the learning rate falls along a cosine, and what is kept may be a running mean of the student.
"""

import contextlib
import dataclasses
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from sensorium.errors import ConfigError
from sensorium.perturbations import Identity
from sensorium.policies import Policy, as_population
from sensorium.rollout import each_share
from sensorium.rollout.acting import PolicyActor
from sensorium.rollout.host import HostEngine, Transcript, seeds_of
from sensorium.serialisation import load_arrays, save_arrays
from sensorium.training.critic import Student, draw_student, identity_loss
from sensorium.training.demonstrations import Sequences, collect, cut, join, previous
from sensorium.training.lanes import Memories, blank
from sensorium.training.teachers import Teacher, as_teacher
from sensorium.training.trainer import (
    DrawPolicy,
    Metrics,
    Trainer,
    TrainerConfig,
    TrainingContext,
    averaged,
    require_host_engine,
)
from sensorium.types import Key, PyTree, Scalar

_DAGGER = 0xDA66E2  # folded into the key of the state for the episodes of a round


@dataclasses.dataclass(frozen=True)
class CloningConfig(TrainerConfig):
    """Settings of cloning; the defaults are the paper's for the ant, where it gives them."""

    may_be_zero = ("episodes", "dagger_every", "dagger_rounds")

    episodes: int = 1000
    """Demonstrations; if 0, DAgger begins before the first generation, with the student as it starts."""
    steps: int = 500
    """Steps of a demonstration, and of the sequences that are learned from."""
    batch: int = 64
    """Sequences in a batch."""
    window: int = 100
    """Steps that gradients flow back through; there is an update after each window."""
    learning_rate: float = 1e-3
    """Of Adam, at the start."""
    gradient_clip: float = 0.5
    """Largest norm of a gradient."""
    action_noise: float = 0.03
    """Standard deviation of the noise on the action that is fed back."""
    batches: int = 16
    """Batches in a generation."""
    total_batches: int = 1600
    """Batches after which the learning rate has fallen to a twentieth."""
    dagger_every: int = 0
    """Generations from one round of DAgger to the next; 0 for none."""
    dagger_episodes: int = 64
    """Episodes of a round, of full length."""
    dagger_rounds: int = 10
    """How many rounds there are at most."""
    identity_weight: float = 0.0
    """Weight of the second lesson."""
    averaging: float = 0.0
    """Of what is tested, kept and acts: a running mean of the student after each update, with this memory."""

    def build(self, context: TrainingContext) -> "Cloning":
        """Set up the trainer; demonstrations are kept in the directory.

        Raises:
            ConfigError: There is no expert, the world is not on the host, or settings do not fit.
        """
        engine = require_host_engine(context.engine, "Cloning")
        expert = as_teacher(context.expert, engine.world)
        if not self.episodes and not self.dagger_every:
            raise ConfigError(
                "Cloning needs demonstrations or DAgger; episodes and dagger_every are 0."
            )
        if self.steps % self.window:
            raise ConfigError(
                f"Sequences of {self.steps} steps do not divide into windows of {self.window}."
            )
        return Cloning(self, context.draw, engine, expert, context.directory)


class CloningState(NamedTuple):
    """All that a run needs to go on; demonstrations and rounds of DAgger lie beside it."""

    student: Student
    mean: Policy
    optimizer: PyTree
    key: Key
    generation: Int[Array, ""]


class Batch(NamedTuple):
    """Sequences side by side: time first, the batch last."""

    observations: Float[Array, "T N B"]
    previous: Float[Array, "T A B"]
    wanted: Float[Array, "T A B"]
    alive: Float[Array, "T B"]


class Cloning(Trainer):
    """Cloning of one teacher."""

    def __init__(
        self,
        config: CloningConfig,
        draw: DrawPolicy,
        engine: HostEngine,
        teacher: Teacher,
        directory: Path,
    ):
        self.config = config
        self.draw = draw
        self.engine = engine
        self.teacher = teacher
        self.directory = directory
        updates = config.total_batches * (config.steps // config.window)
        self._optimizer = optax.chain(
            optax.clip_by_global_norm(config.gradient_clip),
            optax.adam(optax.cosine_decay_schedule(config.learning_rate, updates, 0.05)),
        )
        self._sequences: Sequences | None = None  # gathered by the first step
        self._rounds = 0  # of DAgger that are among them
        self._env_steps = 0  # simulated in this generation

    def init(self, key: Key) -> CloningState:
        key, key_student, key_probe = jax.random.split(key, 3)
        student = draw_student(self.draw, self.engine.world.num_sensors, key_student, key_probe)
        optimizer = self._optimizer.init(student)
        return CloningState(student, student.policy, optimizer, key, jnp.zeros((), jnp.int32))

    def step(self, state: CloningState) -> tuple[CloningState, Metrics]:
        """A round of DAgger if it is time, then the batches of a generation."""
        self._env_steps = 0
        sequences = self._gather(state)
        told_of = []
        key, key_choice = jax.random.split(state.key)
        chosen = np.asarray(
            jax.random.randint(
                key_choice, (self.config.batches, self.config.batch), 0, len(sequences.lengths)
            )
        )
        for rows in chosen:
            key, key_batch = jax.random.split(key)
            state, told = self._learn(state, _batch(sequences, rows), key_batch)
            told_of.append(told)
        state = state._replace(key=key, generation=state.generation + 1)
        figures = jax.tree.map(lambda *values: jnp.asarray(np.mean(values)), *told_of)
        figures = figures | {"sequences": len(sequences.lengths)}
        return state, Metrics(self._env_steps, figures)

    def candidates(self, state: CloningState) -> Policy:
        """The student, or the mean of the last ones."""
        return as_population(state.mean)

    def _gather(self, state: CloningState) -> Sequences:
        """Have all sequences at hand that the generation learns from, whether made now or before."""
        config = self.config
        known = [] if self._sequences is None else [self._sequences]
        if not known and config.episodes:
            world = dataclasses.replace(
                self.engine.world, time_limit=config.steps, perturbation=Identity()
            )
            with contextlib.closing(HostEngine(world, workers=self.engine.workers)) as engine:
                folder = self.directory / "demonstrations"
                collected = folder.exists()
                shown = collect(folder, self.teacher, engine, config.episodes)
            self._env_steps += 0 if collected else int(shown.lengths.sum())
            known.append(self._labelled(shown))
        due = int(state.generation) // config.dagger_every if config.dagger_every else 0
        due += not config.episodes
        while self._rounds < min(due, config.dagger_rounds):
            self._rounds += 1
            file = self.directory / "dagger" / f"round-{self._rounds:03d}.safetensors"
            if file.exists():
                seen = Transcript(**load_arrays(file))
            else:
                seen = self._let_student_act(state)
                self._env_steps += int(seen.lengths.sum())
                save_arrays(file, seen._asdict())
            known.append(self._labelled(seen))
        self._sequences = join(*known)
        return self._sequences

    def _labelled(self, seen: Transcript) -> Sequences:
        wanted = self.teacher.label(seen.observations[:, :-1], previous(seen))
        return cut(seen, wanted, self.config.steps)

    def _let_student_act(self, state: CloningState) -> Transcript:
        keys = jax.random.split(jax.random.fold_in(state.key, _DAGGER), self.config.dagger_episodes)
        return self.engine.transcribe(
            lambda: PolicyActor(as_population(state.mean), self.engine.world, keys),
            seeds_of(keys),
        )

    def _learn(
        self, state: CloningState, batch: Batch, key: Key
    ) -> tuple[CloningState, dict[str, Scalar]]:
        """One batch: an update after each window, memories carried from window to window."""
        config = self.config
        key_noise, key_senses, key_steps = jax.random.split(key, 3)
        noise = config.action_noise * jax.random.normal(key_noise, batch.previous.shape)
        batch = batch._replace(previous=batch.previous + noise.at[0].set(0.0))
        world, keys = self.engine.world, jax.random.split(key_senses, config.batch)
        memories = blank(state.student.policy, world, keys)
        now = (state.student, state.mean, state.optimizer)
        figures = []
        # Compiled one by one: all updates in one loop of XLA take four times as long on a CPU
        for number, start in enumerate(range(0, config.steps, config.window)):
            window = jax.tree.map(lambda leaf: leaf[start : start + config.window], batch)
            lanes = (memories, window, jnp.arange(config.batch))
            of_shares, memories = self._gradients(
                lanes, now[0], jax.random.fold_in(key_steps, number)
            )
            memories = jax.tree.map(lambda leaf: jnp.concatenate([*leaf], -1), memories)
            # Taken from the devices before their mean: see `each_share`
            gradient, figure = jax.tree.map(lambda leaf: np.asarray(leaf).mean(0), of_shares)
            now = self._update(now, gradient)
            figures.append(figure)
        student, mean, optimizer = now
        told = jax.tree.map(lambda *values: jnp.asarray(np.mean(values)), *figures)
        return state._replace(student=student, mean=mean, optimizer=optimizer), told

    @partial(jax.jit, static_argnames="self")
    def _gradients(self, lanes: tuple, student: Student, key: Key) -> tuple[tuple, Memories]:
        """For each device's share of a batch: gradient and figures, and the memories after the window."""

        def share(lanes: tuple, student: Student, key: Key) -> tuple[tuple, Memories]:
            gradient, (figures, memories) = jax.grad(self._loss, has_aux=True)(student, *lanes, key)
            return (gradient, figures), memories

        return each_share(share, lanes, student, key)

    @partial(jax.jit, static_argnames="self")
    def _update(self, now: tuple, gradient: Student) -> tuple:
        student, mean, optimizer = now
        updates, optimizer = self._optimizer.update(gradient, optimizer)
        student = optax.apply_updates(student, updates)
        mean = averaged(mean, student.policy, 1 - self.config.averaging)
        return student, mean, optimizer

    def _loss(
        self,
        student: Student,
        memories: Memories,
        window: Batch,
        lanes: Int[Array, " B"],
        key: Key,
    ) -> tuple[Scalar, tuple[dict[str, Scalar], Memories]]:
        """Mean squared difference of actions along a window, and the memories at its end."""
        perturbation, identity_weight = self.engine.world.perturbation, self.config.identity_weight
        policy = student.policy

        def one(
            lane: Array, key: Key, memories: Memories, observation: Array, previous: Array
        ) -> tuple[Array, Memories, Scalar]:
            carry, senses = memories
            readings, senses = perturbation.apply(
                jax.random.fold_in(key, lane), senses, observation
            )
            action, carry, _ = policy.step(readings, policy.told(carry, previous))
            identity = jnp.zeros(())
            said = policy.sensor_features(carry)
            if identity_weight and said.size:
                sources = perturbation.sources(senses, len(observation))
                identity = identity_loss(student.probe, said, sources)
            return action, Memories(carry, senses), identity

        def step(memories: Memories, what: tuple) -> tuple[Memories, tuple[Array, Array]]:
            key, observation, previous = what
            action, memories, identity = jax.vmap(one, in_axes=(0, None, -1, -1, -1), out_axes=-1)(
                lanes, key, memories, observation, previous
            )
            return memories, (action, identity)

        keys = jax.random.split(key, len(window.alive))
        memories, (actions, identity) = jax.lax.scan(
            step, memories, (keys, window.observations, window.previous)
        )
        apart = jnp.mean((actions - window.wanted) ** 2, axis=1)
        count = jnp.maximum(jnp.sum(window.alive), 1.0)
        loss, identity = (jnp.sum(each * window.alive) / count for each in (apart, identity))
        figures = {"loss": loss, "identity": identity}
        return loss + identity_weight * identity, (figures, jax.lax.stop_gradient(memories))


def _batch(sequences: Sequences, rows: np.ndarray) -> Batch:
    steps = sequences.observations.shape[1]
    alive = np.arange(steps)[:, None] < sequences.lengths[rows]
    observations, previous, wanted = (
        jnp.asarray(array[rows].transpose(1, 2, 0)) for array in sequences[:3]
    )
    return Batch(observations, previous, wanted, jnp.asarray(alive, jnp.float32))
