"""Imitation: a student learns the actions of an expert from a batch of sequences of steps.

Sequences go through the student's memory in windows; gradients flow within a window, and there is an update
after each. What a student receives is perturbed anew each time. Of a warm-up nothing but the memory is
computed: next to nothing for a student that remembers only its last frames.
"""

import dataclasses
import operator
from functools import partial
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from sensorium.bridges.advised import num_boxes, privileged
from sensorium.envs import World
from sensorium.errors import ConfigError
from sensorium.perturbations import begin
from sensorium.policies import Policy
from sensorium.rollout import each_share
from sensorium.training import auxiliary
from sensorium.training.learner import Learner, Optimizer, mean_figures, where
from sensorium.training.rounds import Round, after_time, remembered
from sensorium.training.trainer import Trainer, TrainerConfig, TrainingContext
from sensorium.types import Key, PyTree, Scalar, num_sensors_of

_MAX_GRAD_NORM = 0.5


@dataclasses.dataclass(frozen=True)
class ImitationConfig(TrainerConfig):
    """Settings of batches, of the loss and of the optimiser."""

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
    surprise_coef: float = 0.0
    """Weight of what the student did not expect, if it expects anything (`Policy.surprise`)."""
    privileged_coef: float = 0.0
    """Weight of the privileged loss: the memory predicts what the expert knows beside its action."""
    attention_coef: float = 0.0
    """Weight of the attention loss: attention goes to where in an image the expert says to look."""
    ema_decay: float = 0.0
    """Of what is tested and kept: an exponential moving average of the student after each update."""

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
        if self.action_weights and len(self.action_weights) != world.num_actions:
            raise ConfigError(
                f"There are {len(self.action_weights)} action_weights for {world.num_actions} action(s)."
            )
        sensors = num_sensors_of(world.raw_observation_spec) is not None
        if self.attention_coef and (self.freeze_encoder or sensors):
            raise ConfigError("attention_coef asks for images, and for an encoder that learns.")


class Imitation(Trainer):
    """A trainer whose student learns from batches of labelled steps."""

    def __init__(
        self, config: Any, context: TrainingContext, num_batches: int, expert: Any
    ) -> None:
        """Set up.

        Args:
            config: An `ImitationConfig`.
            context: Of the training.
            num_batches: Of the whole training.
            expert: What gives advice.
        """
        self.config, self.draw, self.engine = config, context.draw, context.engine
        self.world: World = context.engine.world
        spec = self.world.raw_observation_spec
        self._num_privileged = self._num_boxes = 0
        if config.privileged_coef:
            count = len(privileged(expert))
            self._num_privileged = auxiliary.given(count, "privileged_coef", "privileged")
        if config.attention_coef:
            self._num_boxes = auxiliary.given(num_boxes(expert), "attention_coef", "boxes")
            student = eqx.filter_eval_shape(self.draw, jax.random.key(0))
            height, width, *_ = cast(tuple[int, ...], spec)
            self._patches = student.patches(height, width)
        equal = (1.0,) * self.world.num_actions
        self._weights = np.array(config.action_weights or equal, np.float32)
        images = num_sensors_of(spec) is None and not config.freeze_encoder
        # Of lanes, in what is of one step: each image stays in one piece, all else is fastest side by side
        self._axis = 0 if images else -1
        updates = num_batches * (config.num_steps // config.window)
        self._optimizer = Optimizer(
            optax.cosine_decay_schedule(config.learning_rate, updates, 0.01),
            _MAX_GRAD_NORM,
            config.ema_decay,
        )

    def _begin(self, key_student: Key, key_probe: Key) -> Learner:
        """Draw the student and its probes."""
        seen, raw = self.world.observation_spec, self.world.raw_observation_spec
        model = auxiliary.with_probe(
            self.draw(key_student), seen, raw, key_probe, self._num_privileged
        )
        return self._optimizer.init(model)

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
            memory = remembered(batch.memory, known, memory, self._axis)
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
            warm_up = min(max(config.warm_up_steps - start, 0), config.window)
            of_shares, memory = self._gradients(lanes, learner.model, key_window, warm_up)
            memory = jax.tree.map(lambda leaf: jnp.concatenate([*leaf], self._axis), memory)
            # Taken from the devices before their sum: see `each_share`
            gradient, figure = jax.tree.map(lambda leaf: np.asarray(leaf).sum(0), of_shares)
            learner = self._update(learner, jax.tree.map(lambda g, by=counting: by * g, gradient))
            figures.append(figure)
        return learner, mean_figures(figures)

    @partial(jax.jit, static_argnames="self")
    def _blank(self, student: Policy, keys: Array) -> PyTree:
        """Make the memories at the start of sequences: of student and perturbation."""
        return jax.vmap(partial(self._blank_lane, student), out_axes=self._axis)(keys)

    def _blank_lane(self, student: Policy, key: Key) -> PyTree:
        state: PyTree = ()
        if not self.config.freeze_encoder:
            spec, actions = self.world.raw_observation_spec, self.world.num_actions
            state = begin(self.world.perturbation, key, spec, actions)
        return student.initial_carry(self.world.observation_spec), state

    @partial(jax.jit, static_argnames=("self", "warm_up"))
    def _gradients(
        self, lanes: tuple, model: auxiliary.Probed, key: Key, warm_up: int
    ) -> tuple[tuple, PyTree]:
        """Compute gradient, figures and the memories after the window of each device's share of a batch."""

        def share(lanes: tuple, model: auxiliary.Probed, key: Key) -> tuple[tuple, PyTree]:
            loss = eqx.filter_grad(self.imitation_loss, has_aux=True)
            gradient, (figures, memory) = loss(model, *lanes, key, warm_up)
            return (gradient, figures), memory

        axes = self._axis, after_time(self._axis), -1, -1
        return each_share(share, lanes, model, key, axes=axes)

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
        warm_up: int = 0,
    ) -> tuple[Scalar, tuple[dict[str, Scalar], PyTree]]:
        """Compute how far the student's actions are from the expert's along a window.

        Args:
            model: The student, and the probe of its sensors.
            memory: Before the window, the lanes on the last axis, or the first if there are images.
            window: Its steps; likewise, after the axis of time.
            weights: Of the steps.
            lanes: Their places in the batch, from which the keys of their perturbations derive.
            key: Of the perturbations.
            warm_up: How many of the first steps do not count: nothing but the memory is computed of them.

        Returns:
            The loss, a weighted sum; figures, and the memory after the window.
        """
        config, student, perturbation = self.config, model.policy, self.world.perturbation

        def one(
            lane: Array, key: Key, before: PyTree, now: Round
        ) -> tuple[PyTree, dict[str, Scalar]]:
            key_start, key_apply = jax.random.split(jax.random.fold_in(key, lane))
            carry, state = where(now.started, self._blank_lane(student, key_start), before)
            step = now.labelled
            features, losses = step.received, {}
            if not config.freeze_encoder:
                received, state = perturbation.apply(key_apply, state, step.received)
                features, carry, trace = student.encode(received, carry)
                if config.attention_coef:
                    boxes = step.privileged[-4 * self._num_boxes :].reshape(-1, 4)
                    losses["attention_loss"] = auxiliary.attention_loss(
                        trace.attention, self._patches, boxes
                    )
                if config.sensor_id_coef:
                    sources = perturbation.sensor_of_channel(state, self.world.raw_observation_spec)
                    heard = student.sensor_features(carry)
                    losses["sensor_id_loss"] = auxiliary.identity_loss(model.probe, heard, sources)
            if config.surprise_coef:
                losses["surprise"] = student.surprise(carry)
            outputs, carry = student.decide(features, carry)
            apart = student.distribution.imitation_loss
            losses["loss"] = apart(outputs, step.expert_action, self._weights)
            if model.privileged is not None:
                losses["privileged_loss"] = auxiliary.privileged_loss(
                    model.privileged,
                    student.memory_features(carry),
                    step.privileged[: self._num_privileged],
                )
            after = student.after_action(carry, step.action), state
            return where(now.alive, after, before), losses

        axis = self._axis
        of_lanes = jax.vmap(one, in_axes=(0, None, axis, axis), out_axes=(axis, -1))

        def advance(memory: PyTree, now: tuple[Key, Round]) -> tuple[PyTree, dict[str, Array]]:
            return of_lanes(lanes, now[0], memory, now[1])

        keys = jax.random.split(key, len(weights))
        first, others = (
            jax.tree.map(operator.itemgetter(steps), (keys, window))
            for steps in (slice(warm_up), slice(warm_up, None))
        )
        memory, _ = jax.lax.scan(lambda *at: (advance(*at)[0], None), memory, first)
        memory, losses = jax.lax.scan(advance, memory, others)
        figures = {name: jnp.sum(weights[warm_up:] * each) for name, each in losses.items()}
        loss = figures["loss"]
        loss += config.sensor_id_coef * figures.get("sensor_id_loss", 0.0)
        loss += config.surprise_coef * figures.get("surprise", 0.0)
        loss += config.privileged_coef * figures.get("privileged_loss", 0.0)
        loss += config.attention_coef * figures.get("attention_loss", 0.0)
        return loss, (figures, jax.lax.stop_gradient(memory))
