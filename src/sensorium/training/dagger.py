"""Behaviour cloning and DAgger (Ross et al. 2011, algorithm 3.1) in one, for every policy, world and expert.

A student acts in its world, an expert labels each step with the action that it would take, and the student
learns these from all steps of the last rounds. Before the first round the expert may act alone
(`demonstration_rounds`); with those only, this is behaviour cloning (AN section 4.2).

- A round is whole episodes, or a few steps of episodes that go on in the next round of the generation: then
  the student is corrected early, before its errors add up.
- The expert reads all without perturbation; the student receives perturbed observations. Unperturbed ones are
  stored, and perturbed anew in each batch.
- Sequences of steps go through the student's memory in windows; gradients flow within a window, and there is
  an update after each. The memory before a round is known; a sequence that starts elsewhere may warm its
  memory up first.
- With `freeze_encoder` the features are stored instead, so that further batches of an image cost little.
- In the first generations the expert may have a share in the actions (β): without it, a student may visit
  little but failures.

A round holds `num_envs` times `rollout_steps` observations, of images as bytes: 1,000 episodes of 500 frames
of 84 x 84 pixels take 3.5 GB, and `buffer_rounds` bounds how many rounds are held. Rounds that are needed
again lie in the run's data folder, so that a run resumes bit for bit.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from sensorium.bridges.advised import EnvExpert
from sensorium.envs import World
from sensorium.errors import ConfigError
from sensorium.policies import Policy, as_population, features_of
from sensorium.rollout import Collector, each_share, open_collector
from sensorium.rollout.acting import Actor
from sensorium.training import auxiliary
from sensorium.training.experts import Asked, Dataset, ask, read_dataset
from sensorium.training.learner import Learner, Optimizer, mean_figures, where
from sensorium.training.rounds import Buffer, Following, Labelled, Round, remembered, sequences
from sensorium.training.trainer import Metrics, Trainer, TrainerConfig, TrainingContext
from sensorium.types import Key, PyTree, Scalar

_MAX_GRAD_NORM = 0.5


@dataclasses.dataclass(frozen=True)
class DaggerConfig(TrainerConfig):
    """Settings of behaviour cloning and DAgger."""

    may_be_zero = (
        *("rollout_steps", "demonstration_rounds", "num_rounds", "buffer_rounds"),
        *("beta_generations", "warm_up_steps"),
    )

    num_envs: int = 64
    """Episodes side by side in a round."""
    rollout_steps: int = 0
    """Steps of each in a round; 0 for those of a whole episode."""
    demonstration_rounds: int = 0
    """Rounds before the first generation in which the expert acts."""
    num_rounds: int = 1
    """Rounds in a generation in which the student acts; 0 for none. Episodes go on from one to the next."""
    buffer_rounds: int = 0
    """How many of the last rounds batches are drawn from; 0 for all."""
    beta_generations: int = 0
    """Generations over which the expert's share in the actions falls from all to nothing."""
    action_noise: tuple[float, ...] = (0.03,)
    """Standard deviations of the noise on the actions taken, assigned to the episodes in turn; of discrete
    actions how often a random one is taken."""
    num_batches: int = 16
    """Batches after each round, or in a generation that has none."""
    batch_size: int = 64
    """Sequences in a batch."""
    num_steps: int = 500
    """Of a sequence; never more than a round has."""
    window: int = 100
    """Steps that gradients flow back through; there is an update after each window."""
    warm_up_steps: int = 0
    """Steps at the start of a sequence, which make a memory and do not count in the loss."""
    freeze_encoder: bool = False
    """Leave the encoder of the student as it is."""
    learning_rate: float = 1e-3
    """Of Adam, at the start; it falls along a cosine to a hundredth."""
    action_weights: tuple[float, ...] = ()
    """Weights of the errors of the actions, where they differ in size; all 1 by default."""
    sensor_id_coef: float = 0.0
    """Weight of the sensor identity loss: each sensor predicts from its features which one it is."""
    privileged_coef: float = 0.0
    """Weight of the privileged loss: the memory predicts what the expert knows beside its action."""
    ema_decay: float = 0.0
    """Of what is tested and kept: an exponential moving average of the student after each update."""

    def build(self, context: TrainingContext) -> "Dagger":
        """Set up the trainer.

        Raises:
            ConfigError: There is no expert, it does not fit the world, or settings do not fit.
        """
        world = context.engine.world
        asked, advisor = ask(context.expert, world, "DAgger")
        config = dataclasses.replace(self, rollout_steps=self.rollout_steps or world.max_steps)
        config = dataclasses.replace(config, num_steps=min(self.num_steps, config.rollout_steps))
        config.check(world)
        dataset = None
        if isinstance(context.expert, Dataset):
            if self.num_rounds or self.demonstration_rounds or self.freeze_encoder:
                raise ConfigError(
                    "A dataset is learned from as it is: set num_rounds and demonstration_rounds to 0, and "
                    "freeze_encoder to false."
                )
            dataset = Round.of_dataset(read_dataset(context.expert, world, config.rollout_steps))
        return Dagger(config, context, asked, advisor, dataset)

    def check(self, world: World) -> None:
        """Raise ConfigError if settings do not fit each other or the world."""
        if self.num_steps % self.window:
            raise ConfigError(
                f"Sequences of {self.num_steps} steps do not divide into windows of {self.window}."
            )
        if self.warm_up_steps >= self.num_steps:
            raise ConfigError(
                f"Sequences of {self.num_steps} steps leave nothing after {self.warm_up_steps} to warm up."
            )
        if not self.action_noise or min(self.action_noise) < 0:
            raise ConfigError("action_noise needs standard deviations from 0 on, at least one.")
        if self.action_weights and len(self.action_weights) != world.num_actions:
            raise ConfigError(
                f"There are {len(self.action_weights)} action_weights for {world.num_actions} action(s)."
            )


class DaggerState(NamedTuple):
    """All that a run needs to resume, beside the rounds in its data folder."""

    learner: Learner
    generation: Int[Array, ""]
    key: Key


class Dagger(Trainer):
    """DAgger of one student."""

    def __init__(
        self,
        config: DaggerConfig,
        context: TrainingContext,
        expert: Asked,
        advisor: Actor | EnvExpert | None,
        dataset: Round | None = None,
    ):
        """Set up; see `DaggerConfig.build`."""
        if not config.demonstration_rounds and not config.num_rounds and dataset is None:
            raise ConfigError(
                "DAgger needs rounds to learn from; demonstration_rounds and num_rounds are 0."
            )
        self.config, self.draw, self.engine = config, context.draw, context.engine
        self.world: World = context.engine.world
        self.compiled_for = config, self.world, context.generations
        self.expert, self._advisor = expert, advisor
        self._num_privileged = auxiliary.count_privileged(advisor) if config.privileged_coef else 0
        equal = (1.0,) * self.world.num_actions
        self._weights = np.array(config.action_weights or equal, np.float32)
        self._parts = max(config.num_rounds, 1)  # of a generation, each with its batches
        batches = context.generations * self._parts * config.num_batches
        updates = batches * (config.num_steps // config.window)
        self._optimizer = Optimizer(
            optax.cosine_decay_schedule(config.learning_rate, updates, 0.01),
            _MAX_GRAD_NORM,
            config.ema_decay,
        )
        # The last round alone, if each generation has its own, is never needed again; nor is a dataset
        saves = (config.buffer_rounds != 1 or not config.num_rounds) and dataset is None
        directory = context.directory if saves else None
        self._buffer = Buffer(config.buffer_rounds, directory, self._structure)
        if dataset is not None:
            self._buffer.add(0, dataset)

    def init(self, key: Key) -> DaggerState:
        key, key_student, key_probe = jax.random.split(key, 3)
        seen, raw = self.world.observation_spec, self.world.raw_observation_spec
        model = auxiliary.with_probe(
            self.draw(key_student), seen, raw, key_probe, self._num_privileged
        )
        return DaggerState(self._optimizer.init(model), jnp.zeros((), jnp.int32), key)

    def step(self, state: DaggerState) -> tuple[DaggerState, Metrics]:
        """Collect and learn, `num_rounds` times."""
        config, generation = self.config, int(state.generation)
        key, key_first, key_lanes, key_rounds = jax.random.split(state.key, 4)
        learner, beta = state.learner, self._beta(generation)
        first = self._first(generation)
        collectors: list[Collector] = []
        if generation:
            self._buffer.recall(first)
        else:
            for number in range(first):
                key_begin, key_act = jax.random.split(jax.random.fold_in(key_first, number))
                collectors.append(self._open(key_begin))
                self._collect(collectors[-1], learner, 1.0, number, key_act)
        if config.num_rounds:
            collectors.append(self._open(key_lanes))
        figures = []
        for number in range(self._parts):
            key_act, key_learn = jax.random.split(jax.random.fold_in(key_rounds, number))
            if config.num_rounds:
                self._collect(collectors[-1], learner, beta, first + number, key_act)
            learner, of_batches = self._learn(learner, key_learn)
            figures += of_batches
        state = DaggerState(learner, state.generation + 1, key)
        rounds = jnp.asarray(len(self._buffer.rounds))
        return state, Metrics.of(collectors, mean_figures(figures) | {"rounds": rounds})

    def candidates(self, state: DaggerState) -> Policy:
        """Return the student, or its moving average."""
        return as_population(state.learner.average.policy)

    def saved(self, state: DaggerState) -> None:
        """Delete the rounds that no later generation needs."""
        self._buffer.forget(self._first(int(state.generation)))

    def _first(self, generation: int) -> int:
        """Return the number of the first round of a generation."""
        return self.config.demonstration_rounds + generation * self.config.num_rounds

    def _open(self, key: Key) -> Collector:
        return open_collector(
            self.engine, self.config.num_envs, key, cut_first=False, expert=self._advisor
        )

    def _collect(
        self, collector: Collector, learner: Learner, beta: float, number: int, key: Key
    ) -> None:
        """Collect a round; the oldest is dropped if there are too many."""
        config = self.config
        behaviour = Following(
            learner.model.policy,
            self.expert,
            jnp.asarray(beta, jnp.float32),
            jnp.asarray(np.resize(np.array(config.action_noise, np.float32), config.num_envs)),
            config.freeze_encoder,
        )
        (carry, state), steps = collector.collect(behaviour, config.rollout_steps, key)
        memory = carry[0], () if config.freeze_encoder else state
        self._buffer.add(number, Round(steps.record, steps.started, steps.alive, memory))

    def _structure(self) -> Round:
        """Return the tree structure of a round."""
        key, frozen = jax.random.key(0), self.config.freeze_encoder
        student = eqx.filter_eval_shape(self.draw, key)
        received = features_of(student, self.world.observation_spec) if frozen else 0
        memory = eqx.filter_eval_shape(self._blank_lane, student, key)
        return Round(Labelled(received, 0, 0, 0), 0, 0, memory)

    def _beta(self, generation: int) -> float:
        """Return the expert's share: all in the first generation, nothing after `beta_generations`."""
        last = self.config.beta_generations
        return max(1 - generation / last, 0.0) if last else 0.0

    def _learn(self, learner: Learner, key: Key) -> tuple[Learner, list[dict[str, Scalar]]]:
        """Learn from batches of the rounds in the buffer."""
        config = self.config
        key_choice, key_batches = jax.random.split(key)
        batches = sequences(
            self._buffer.rounds,
            np.random.default_rng(np.asarray(jax.random.key_data(key_choice))),
            num_batches=config.num_batches,
            batch_size=config.batch_size,
            num_steps=config.num_steps,
            warm_up_steps=config.warm_up_steps,
        )
        figures = []
        for number, batch in enumerate(batches):
            key_batch = jax.random.fold_in(key_batches, number)
            learner, figure = self._learn_batch(learner, *batch, key_batch)
            figures.append(figure)
        return learner, figures

    def _learn_batch(
        self,
        learner: Learner,
        batch: Round,
        counts: Float[Any, "T B"],
        known: Bool[Any, " B"],
        key: Key,
    ) -> tuple[Learner, dict[str, Scalar]]:
        """Learn from one batch: an update after each window, memories carried from window to window."""
        config = self.config
        key_apply, key_steps = jax.random.split(key)
        keys = jax.random.split(key_apply, config.batch_size)
        memory = self._blank(learner.model.policy, keys)
        if known.any():
            memory = remembered(batch.memory, known, memory)
        batch = batch._replace(memory=None)
        figures = []
        # Compiled one by one: all updates in one loop of XLA take four times as long on a CPU
        for number, start in enumerate(range(0, config.num_steps, config.window)):
            window, weights = jax.tree.map(
                lambda leaf, at=start: leaf[at : at + config.window], (batch, counts)
            )
            counting = weights.mean()  # a window in which few steps count moves the student less
            weights = weights / max(weights.sum(), 1.0)
            lanes = (memory, window, weights, jnp.arange(config.batch_size))
            key_window = jax.random.fold_in(key_steps, number)
            of_shares, memory = self._gradients(lanes, learner.model, key_window)
            memory = jax.tree.map(lambda leaf: jnp.concatenate([*leaf], -1), memory)
            # Taken from the devices before their sum: see `each_share`
            gradient, figure = jax.tree.map(lambda leaf: np.asarray(leaf).sum(0), of_shares)
            learner = self._update(learner, jax.tree.map(lambda g, by=counting: by * g, gradient))
            figures.append(figure)
        return learner, mean_figures(figures)

    @partial(jax.jit, static_argnames="self")
    def _blank(self, student: Policy, keys: Array) -> PyTree:
        """Make the memories at the start of sequences, on the last axis: of student and perturbation."""
        return jax.vmap(partial(self._blank_lane, student), out_axes=-1)(keys)

    def _blank_lane(self, student: Policy, key: Key) -> PyTree:
        state: PyTree = ()
        if not self.config.freeze_encoder:
            state = self.world.perturbation.init(key, self.world.raw_observation_spec)
        return student.initial_carry(self.world.observation_spec), state

    @partial(jax.jit, static_argnames="self")
    def _gradients(self, lanes: tuple, model: auxiliary.Probed, key: Key) -> tuple[tuple, PyTree]:
        """Compute gradient, figures and the memories after the window of each device's share of a batch."""

        def share(lanes: tuple, model: auxiliary.Probed, key: Key) -> tuple[tuple, PyTree]:
            loss = eqx.filter_grad(self.imitation_loss, has_aux=True)
            gradient, (figures, memory) = loss(model, *lanes, key)
            return (gradient, figures), memory

        return each_share(share, lanes, model, key)

    @partial(jax.jit, static_argnames="self")
    def _update(self, learner: Learner, gradient: PyTree) -> Learner:
        return self._optimizer.update(learner, gradient)

    def imitation_loss(
        self,
        model: auxiliary.Probed,
        memory: PyTree,
        window: Round,
        weights: Float[Array, "T B"],
        lanes: Int[Array, " B"],
        key: Key,
    ) -> tuple[Scalar, tuple[dict[str, Scalar], PyTree]]:
        """Compute how far the student's actions are from the expert's along a window.

        Args:
            model: The student, and the probe of its sensors.
            memory: Before the window, the lanes on the last axis.
            window: Its steps; of every array the lanes are the last axis.
            weights: Of the steps.
            lanes: Their places in the batch, from which the keys of their perturbations derive.
            key: Of the perturbations.

        Returns:
            The loss, a weighted sum; figures, and the memory after the window.
        """
        config, student, perturbation = self.config, model.policy, self.world.perturbation

        def one(
            lane: Array, key: Key, memory: PyTree, started: Array, now: Labelled
        ) -> tuple[PyTree, dict[str, Scalar]]:
            key_start, key_apply = jax.random.split(jax.random.fold_in(key, lane))
            carry, state = where(started, self._blank_lane(student, key_start), memory)
            features, losses = now.received, {}
            if not config.freeze_encoder:
                received, state = perturbation.apply(key_apply, state, now.received)
                features, carry, _ = student.encode(received, carry)
                if config.sensor_id_coef:
                    sources = perturbation.sensor_of_channel(state, self.world.raw_observation_spec)
                    heard = student.sensor_features(carry)
                    losses["sensor_id_loss"] = auxiliary.identity_loss(model.probe, heard, sources)
            outputs, carry = student.decide(features, carry)
            apart = student.distribution.imitation_loss
            losses["loss"] = apart(outputs, now.expert_action, self._weights)
            if model.privileged is not None:
                losses["privileged_loss"] = auxiliary.privileged_loss(
                    model.privileged, student.memory_features(carry), now.privileged
                )
            return (student.after_action(carry, now.action), state), losses

        def step(memory: PyTree, now: tuple) -> tuple[PyTree, dict[str, Array]]:
            key, started, labelled = now
            return jax.vmap(one, in_axes=(0, None, -1, -1, -1), out_axes=-1)(
                lanes, key, memory, started, labelled
            )

        keys = jax.random.split(key, len(weights))
        memory, losses = jax.lax.scan(step, memory, (keys, window.started, window.labelled))
        figures = {name: jnp.sum(weights * each) for name, each in losses.items()}
        loss = figures["loss"]
        loss += config.sensor_id_coef * figures.get("sensor_id_loss", 0.0)
        loss += config.privileged_coef * figures.get("privileged_loss", 0.0)
        return loss, (figures, jax.lax.stop_gradient(memory))
