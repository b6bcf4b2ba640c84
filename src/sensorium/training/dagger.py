"""Behaviour cloning and DAgger (Ross et al. 2011, algorithm 3.1) in one, for every policy, world and expert.

A student acts in its world, an expert labels each step with the action that it would take, and the student
learns these from all steps of the last rounds. Before the first round the expert may act alone
(`demonstration_rounds`); with those only, this is behaviour cloning (AN section 4.2).

- A round is whole episodes, or a few steps of episodes that go on in the next round of the generation: then
  the student is corrected early, before its errors add up.
- The expert reads all without perturbation; the student receives perturbed observations. Unperturbed ones are
  stored, and perturbed anew in each batch.
- The student learns from sequences of steps (`imitation.py`). The memory before a round is known; a sequence
  that starts elsewhere may warm its memory up first.
- With `freeze_encoder` the features are stored instead, so that further batches of an image cost little.
- In the first generations the expert may have a share in the actions (β): without it, a student may visit
  little but failures.

A round holds `num_envs` times `rollout_steps` observations, of images as bytes: 1,000 episodes of 500 frames
of 84 x 84 pixels take 3.5 GB, and `buffer_rounds` bounds how many rounds are held. Rounds that are needed
again lie in the run's data folder, so that a run resumes bit for bit.
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from sensorium.bridges.advised import EnvExpert, weighs
from sensorium.envs import World
from sensorium.errors import ConfigError
from sensorium.policies import Policy, as_population, features_of
from sensorium.rollout import Collector, open_collector
from sensorium.rollout.acting import Actor
from sensorium.training.experts import Asked, Dataset, ask, read_dataset
from sensorium.training.imitation import Imitation, ImitationConfig
from sensorium.training.learner import Learner, mean_figures
from sensorium.training.rounds import Buffer, Following, Labelled, Round, sequences
from sensorium.training.trainer import Metrics, TrainingContext
from sensorium.types import Key, Scalar


@dataclasses.dataclass(frozen=True)
class DaggerConfig(ImitationConfig):
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
    demonstration_beta: float = 1.0
    """Its share in the actions of these; 0 for what a student that is trained already visits by itself."""
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
        super().check(world)
        if not self.action_noise or min(self.action_noise) < 0:
            raise ConfigError("action_noise needs standard deviations from 0 on, at least one.")
        if not 0 <= self.demonstration_beta <= 1:
            raise ConfigError(
                f"demonstration_beta is a share from 0 to 1, got {self.demonstration_beta}."
            )


class DaggerState(NamedTuple):
    """All that a run needs to resume, beside the rounds in its data folder."""

    learner: Learner
    generation: Int[Array, ""]
    key: Key


class Dagger(Imitation):
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
        self._parts = max(config.num_rounds, 1)  # of a generation, each with its batches
        batches = context.generations * self._parts * config.num_batches
        super().__init__(config, context, batches, advisor)
        known = self._num_privileged, self._num_boxes
        self.compiled_for = config, self.world, context.generations, known
        self.expert, self._advisor = expert, advisor
        # The last round alone, if each generation has its own, is never needed again; nor is a dataset
        saves = (config.buffer_rounds != 1 or not config.num_rounds) and dataset is None
        directory = context.directory if saves else None
        self._buffer = Buffer(config.buffer_rounds, directory, self._structure)
        if dataset is not None:
            self._buffer.add(0, dataset)

    def init(self, key: Key) -> DaggerState:
        key, key_student, key_probe = jax.random.split(key, 3)
        learner = self._begin(key_student, key_probe)
        return DaggerState(learner, jnp.zeros((), jnp.int32), key)

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
                self._collect(collectors[-1], learner, config.demonstration_beta, number, key_act)
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
            self.world.perturbation,
            jnp.asarray(beta, jnp.float32),
            jnp.asarray(np.resize(np.array(config.action_noise, np.float32), config.num_envs)),
            config.freeze_encoder,
            weighs(self._advisor),
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
        return Round(Labelled(received, 0, 0, 0, 0), 0, 0, memory)

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
            axis=self._axis,
        )
        figures = []
        for number, batch in enumerate(batches):
            key_batch = jax.random.fold_in(key_batches, number)
            learner, figure = self._learn_batch(learner, *batch, key_batch)
            figures.append(figure)
        return learner, figures
