"""Cloning: a student learns to do what a teacher does, from what the teacher saw (AN section 4.2).

Sequences of T steps go through the student's memory in windows; gradients flow within a window. The
action fed back to the sensors is the one that was really taken, with noise on it, so that a student does
not lean on it. The loss is the squared difference of actions; Adam, gradients clipped by their norm.

Past the paper:

- the senses of the student are perturbed as the recipe says, while the teacher sees all;
- rounds of DAgger (Ross et al. 2011, algorithm 3.1): the student acts, the teacher says what it would
  have done, and what was seen and said joins the sequences;
- the learning rate falls along a cosine.
"""

import contextlib
import dataclasses
from functools import partial
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from sensorium.errors import ConfigError
from sensorium.perturbations import Identity, Perturbation
from sensorium.policies import Policy, as_population
from sensorium.rollout import Engine
from sensorium.rollout.acting import PolicyActor
from sensorium.rollout.host import HostEngine, Transcript, seeds_of
from sensorium.serialisation import load_arrays, save_arrays
from sensorium.training.demonstrations import Sequences, collect, cut, join, previous
from sensorium.training.teachers import Teacher
from sensorium.training.trainer import DrawPolicy, Metrics, Trainer
from sensorium.types import Key, PyTree, Scalar

_DAGGER = 0xDA66E2  # folded into the key of the state for the episodes of a round


@dataclasses.dataclass(frozen=True)
class CloningConfig:
    """Settings of cloning; the defaults are the paper's for the ant, where it gives them."""

    teacher: str = ""
    """An agent of the zoo or a file of one, or a model of Stable-Baselines3 (a zip file)."""
    episodes: int = 1000
    """Demonstrations."""
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

    def build(
        self, draw: DrawPolicy, engine: Engine, teacher: Teacher | None, directory: Path
    ) -> "Cloning":
        """Set up the trainer.

        Args:
            draw: Draws a student.
            engine: Runs the student in its world, with its senses perturbed.
            teacher: Whom to learn from.
            directory: Where demonstrations are kept.

        Raises:
            ConfigError: There is no teacher, the world is not on the host, or settings do not fit.
        """
        if teacher is None:
            raise ConfigError("Cloning needs a teacher; name one with --teacher.")
        if not isinstance(engine, HostEngine):
            raise ConfigError("Cloning works with worlds on the host (`gym:` and an id).")
        if self.steps % self.window:
            raise ConfigError(
                f"Sequences of {self.steps} steps do not divide into windows of {self.window}."
            )
        return Cloning(self, draw, engine, teacher, directory)


class CloningState(NamedTuple):
    """All that a run needs to go on; demonstrations and rounds of DAgger lie beside it."""

    student: Policy
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

    steps_per_generation: int

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
        self.steps_per_generation = config.batches * config.batch * config.steps
        updates = config.total_batches * (config.steps // config.window)
        self._optimizer = optax.chain(
            optax.clip_by_global_norm(config.gradient_clip),
            optax.adam(optax.cosine_decay_schedule(config.learning_rate, updates, 0.05)),
        )
        self._sequences: Sequences | None = None  # gathered by the first step
        self._rounds = 0  # of DAgger that are among them

    def init(self, key: Key) -> CloningState:
        key, key_student = jax.random.split(key)
        student = self.draw(key_student)
        optimizer = self._optimizer.init(eqx.filter(student, eqx.is_inexact_array))
        return CloningState(student, optimizer, key, jnp.zeros((), jnp.int32))

    def step(self, state: CloningState) -> tuple[CloningState, Metrics]:
        """A round of DAgger if it is time, then the batches of a generation."""
        sequences = self._gather(state)
        losses = []
        key, key_choice = jax.random.split(state.key)
        chosen = np.asarray(
            jax.random.randint(
                key_choice, (self.config.batches, self.config.batch), 0, len(sequences.lengths)
            )
        )
        for rows in chosen:
            key, key_batch = jax.random.split(key)
            state, loss = self._learn(state, _batch(sequences, rows), key_batch)
            losses.append(loss)
        state = state._replace(key=key, generation=state.generation + 1)
        loss = jnp.mean(jnp.stack(losses))
        extra = {"loss": loss, "sequences": jnp.asarray(len(sequences.lengths))}
        return state, Metrics(-loss, -loss, extra)

    def candidates(self, state: CloningState) -> Policy:
        """The student."""
        return as_population(state.student)

    def _gather(self, state: CloningState) -> Sequences:
        """Have all sequences at hand that the generation learns from, whether made now or before."""
        config = self.config
        if self._sequences is None:
            world = dataclasses.replace(
                self.engine.world, time_limit=config.steps, perturbation=Identity()
            )
            with contextlib.closing(HostEngine(world, workers=self.engine.workers)) as engine:
                folder = self.directory / "demonstrations"
                shown = collect(folder, self.teacher, engine, config.episodes)
            self._sequences = self._labelled(shown)
        due = int(state.generation) // config.dagger_every if config.dagger_every else 0
        while self._rounds < min(due, config.dagger_rounds):
            self._rounds += 1
            file = self.directory / "dagger" / f"round-{self._rounds:03d}.safetensors"
            if file.exists():
                seen = Transcript(**load_arrays(file))
            else:
                seen = self._let_student_act(state)
                save_arrays(file, seen._asdict())
            self._sequences = join(self._sequences, self._labelled(seen))
        return self._sequences

    def _labelled(self, seen: Transcript) -> Sequences:
        wanted = self.teacher.label(seen.observations[:, :-1], previous(seen))
        return cut(seen, wanted, self.config.steps)

    def _let_student_act(self, state: CloningState) -> Transcript:
        keys = jax.random.split(jax.random.fold_in(state.key, _DAGGER), self.config.dagger_episodes)
        return self.engine.transcribe(
            lambda: PolicyActor(as_population(state.student), self.engine.world, keys),
            seeds_of(keys),
        )

    @partial(jax.jit, static_argnames="self")
    def _learn(self, state: CloningState, batch: Batch, key: Key) -> tuple[CloningState, Scalar]:
        """One batch: an update after each window, memories carried from window to window."""
        config = self.config
        key_noise, key_senses, key_steps = jax.random.split(key, 3)
        noise = config.action_noise * jax.random.normal(key_noise, batch.previous.shape)
        batch = batch._replace(previous=batch.previous + noise.at[0].set(0.0))
        windows = jax.tree.map(lambda leaf: leaf.reshape(-1, config.window, *leaf.shape[1:]), batch)
        width = batch.alive.shape[1]
        world = self.engine.world
        carry = _side_by_side(state.student.initial_carry(world.num_sensors), width)
        senses = jax.vmap(lambda key: world.perturbation.init(key, world.raw_senses), out_axes=-1)(
            jax.random.split(key_senses, width)
        )

        def update(now: tuple, window: tuple) -> tuple[tuple, Scalar]:
            student, optimizer, carry, senses = now
            (loss, (carry, senses)), gradient = eqx.filter_value_and_grad(_loss, has_aux=True)(
                student, world.perturbation, carry, senses, *window
            )
            updates, optimizer = self._optimizer.update(gradient, optimizer)
            student = eqx.apply_updates(student, updates)
            return (student, optimizer, carry, senses), loss

        arrays, static = eqx.partition(state.student, eqx.is_array)

        def update_arrays(now: tuple, window: tuple) -> tuple[tuple, Scalar]:
            (student, *others), loss = update((eqx.combine(now[0], static), *now[1:]), window)
            return (eqx.filter(student, eqx.is_array), *others), loss

        keys = jax.random.split(key_steps, config.steps).reshape(-1, config.window)
        now, losses = jax.lax.scan(
            update_arrays, (arrays, state.optimizer, carry, senses), (windows, keys)
        )
        student = eqx.combine(now[0], static)
        return state._replace(student=student, optimizer=now[1]), jnp.mean(losses)


def _batch(sequences: Sequences, rows: np.ndarray) -> Batch:
    steps = sequences.observations.shape[1]
    alive = np.arange(steps)[:, None] < sequences.lengths[rows]
    observations, previous, wanted = (
        jnp.asarray(array[rows].transpose(1, 2, 0)) for array in sequences[:3]
    )
    return Batch(observations, previous, wanted, jnp.asarray(alive, jnp.float32))


def _loss(
    student: Policy,
    perturbation: Perturbation,
    carry: PyTree,
    senses: PyTree,
    window: Batch,
    keys: Array,
) -> tuple[Scalar, tuple[PyTree, PyTree]]:
    """Mean squared difference of actions along a window, and the memories at its end."""
    width = window.alive.shape[1]

    def one(
        carry: PyTree, senses: PyTree, key: Key, observation: Array, previous: Array
    ) -> tuple[Array, PyTree, PyTree]:
        readings, senses = perturbation.apply(key, senses, observation)
        action, carry, _ = student.step(readings, student.told(carry, previous))
        return action, carry, senses

    def step(now: tuple, what: tuple) -> tuple[tuple, Array]:
        key, observation, previous = what
        carry, senses = now
        action, carry, senses = jax.vmap(one, in_axes=(-1, -1, 0, -1, -1), out_axes=-1)(
            carry, senses, jax.random.split(key, width), observation, previous
        )
        return (carry, senses), action

    now, actions = jax.lax.scan(step, (carry, senses), (keys, window.observations, window.previous))
    differences = jnp.mean((actions - window.wanted) ** 2, axis=1)
    loss = jnp.sum(differences * window.alive) / jnp.maximum(jnp.sum(window.alive), 1.0)
    return loss, jax.lax.stop_gradient(now)


def _side_by_side(carry: PyTree, width: int) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.repeat(leaf[..., None], width, axis=-1), carry)
