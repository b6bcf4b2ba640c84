"""Imitation on the device: a student who sees learns from a teacher who knows.

The student acts for whole episodes in its own world; at each step the teacher, which gets the true state,
gives the action it would take there, and the student learns to do the same (DAgger, Ross et al. 2011).
Nothing is stored: worlds on the device are faster than any disk. Gradients flow back through the student's
memory along windows of some steps, and there is an update after each window.

In the first episodes the teacher has a hand on the wheel, or the student would see little but its own
accidents: what is done is a mean of both, and the teacher's share falls to nothing.
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

from sensorium.envs import Environment, World
from sensorium.errors import ConfigError
from sensorium.policies import Policy, as_population
from sensorium.rollout import over_devices, require_device
from sensorium.training.trainer import (
    DrawPolicy,
    Metrics,
    Trainer,
    TrainerConfig,
    TrainingContext,
    averaged,
)
from sensorium.types import Action, Key, Keys, PyTree, Scalar, Sensed


@dataclasses.dataclass(frozen=True)
class ImitationConfig(TrainerConfig):
    """Settings of imitation."""

    may_be_zero = ("teacher_generations",)

    rollouts: int = 32
    """Episodes side by side; a generation is that many."""
    window: int = 20
    """Steps that gradients flow back through; there is an update after each window."""
    learning_rate: float = 3e-3
    """Of Adam, at the start; it falls to a hundredth along a cosine."""
    total_generations: int = 100
    """Over how many generations the learning rate falls."""
    teacher_generations: int = 20
    """Over how many the teacher's share in what is done falls from all to nothing; 0 for none at all."""
    action_weights: tuple[float, ...] = ()
    """What the squared differences of the actions count, where they differ in size; all 1 by default."""
    action_noise: float = 0.1
    """Standard deviation of the noise on what is done, so that there is something to put right."""
    gradient_clip: float = 0.5
    """Largest norm of a gradient."""
    averaging: float = 0.99
    """Of what is tested and kept: a running mean of the student after each window, with this memory."""

    def build(self, context: TrainingContext) -> "Imitation":
        """Set up the trainer; the expert is a policy whose sensors are the world's `critic_features`.

        Raises:
            ConfigError: There is no expert, it does not fit the world, or settings do not fit.
        """
        world, teacher = check_lesson(context.engine.world, context.expert, self.action_weights)
        if world.max_steps % self.window:
            raise ConfigError(
                f"Episodes of {world.max_steps} steps do not divide into windows of {self.window}."
            )
        return Imitation(self, context.draw, world, teacher)


class ImitationState(NamedTuple):
    """All that a run needs to go on."""

    student: Policy
    mean: Policy
    """Of the students of the last windows."""
    optimizer: PyTree
    key: Key
    generation: Int[Array, ""]


class Lane(NamedTuple):
    """An episode under way."""

    observation: Sensed
    world: PyTree
    student: PyTree
    """What the student carries."""
    teacher: PyTree
    alive: Bool[Array, ""]


class WindowSums(NamedTuple):
    """What happened in a window, summed over its steps."""

    loss: Float[Array | np.ndarray, "..."]
    """Differences of actions."""
    steps: Float[Array | np.ndarray, "..."]
    """How many were before the end of the episode."""
    earned: Float[Array | np.ndarray, "..."]


class Imitation(Trainer):
    """Imitation of one teacher in one world."""

    def __init__(
        self, config: ImitationConfig, draw: DrawPolicy, world: Environment, teacher: Policy
    ):
        """Set up; see `ImitationConfig.build`."""
        self.config, self.draw, self.world, self.teacher = config, draw, world, teacher
        self._windows = world.max_steps // config.window
        self._weights = np.array(config.action_weights or [1.0] * world.num_actions, np.float32)
        rate = optax.cosine_decay_schedule(
            config.learning_rate, config.total_generations * self._windows, alpha=0.01
        )
        self._optimizer = optax.chain(
            optax.clip_by_global_norm(config.gradient_clip), optax.adam(rate)
        )

    def init(self, key: Key) -> ImitationState:
        """Draw a student."""
        key, key_draw = jax.random.split(key)
        student = self.draw(key_draw)
        optimizer = self._optimizer.init(eqx.filter(student, eqx.is_array))
        return ImitationState(student, student, optimizer, key, jnp.zeros((), jnp.int32))

    def step(self, state: ImitationState) -> tuple[ImitationState, Metrics]:
        """One episode in every lane."""
        key, key_begin, key_windows = jax.random.split(state.key, 3)
        lanes = self._begin(state.student, jax.random.split(key_begin, self.config.rollouts))
        share = jnp.asarray(teacher_share(int(state.generation), self.config.teacher_generations))
        student, mean, optimizer = state.student, state.mean, state.optimizer
        blank = np.zeros(self.config.rollouts, np.float32)
        total = WindowSums(blank, blank, blank)
        for window_key in jax.random.split(key_windows, self._windows):
            gradients, (sums, lanes) = self._run_window(student, lanes, window_key, share)
            # Taken from the devices: means over several of them can wait for one another for ever
            gradients, sums = jax.tree.map(np.asarray, (gradients, sums))
            student, mean, optimizer = self._learn(student, mean, optimizer, gradients)
            total = jax.tree.map(np.add, total, sums)
        state = ImitationState(student, mean, optimizer, key, state.generation + 1)
        loss = jnp.asarray(total.loss.sum() / total.steps.sum())
        figures = {"best": jnp.max(total.earned), "mean": jnp.mean(total.earned), "loss": loss}
        return state, Metrics(int(total.steps.sum()), figures | {"teacher": share})

    def candidates(self, state: ImitationState) -> Policy:
        """The mean of the last students."""
        return as_population(state.mean)

    @partial(jax.jit, static_argnames="self")
    def _begin(self, student: Policy, keys: Keys) -> Lane:
        """An episode in every lane."""
        world = self.world

        def begin(key: Key, student: Policy) -> Lane:
            observation, state = world.reset_env(key, world.default_params)
            features = world.critic_features(state)
            return Lane(
                observation,
                state,
                student.initial_carry(world.senses),
                self.teacher.initial_carry(features.shape[0]),
                jnp.ones((), bool),
            )

        begin_all = jax.vmap(begin, in_axes=(0, None))
        return over_devices(begin_all, keys, self.config.rollouts, student)

    @partial(jax.jit, static_argnames="self", donate_argnames="lanes")
    def _run_window(
        self, student: Policy, lanes: Lane, key: Key, share: Scalar
    ) -> tuple[Policy, tuple[WindowSums, Lane]]:
        """A window in every lane: its gradient, what happened, and the lane after it."""
        count = self.config.rollouts

        def run(each: tuple, student: Policy, share: Scalar) -> tuple:
            one = jax.grad(self._run_lane, has_aux=True)
            return jax.vmap(one, in_axes=(None, 0, 0, None))(student, *each, share)

        each = lanes, jax.random.split(key, count)
        return over_devices(run, each, count, student, share)

    @partial(jax.jit, static_argnames="self")
    def _learn(
        self, student: Policy, mean: Policy, optimizer: PyTree, gradients: Policy
    ) -> tuple[Policy, Policy, PyTree]:
        """One update, with the mean of the gradients of all lanes; the mean of the students moves on."""
        gradient = jax.tree.map(lambda leaf: jnp.mean(leaf, 0), gradients)
        updates, optimizer = self._optimizer.update(gradient, optimizer)
        student = optax.apply_updates(student, updates)
        mean = averaged(mean, student, 1 - self.config.averaging)
        return student, mean, optimizer

    def _run_lane(
        self, student: Policy, lane: Lane, key: Key, share: Scalar
    ) -> tuple[Scalar, tuple[WindowSums, Lane]]:
        """Difference of actions along a window; what happened, and the lane after it."""
        world = self.world

        def step(now: Lane, key: Key) -> tuple[Lane, WindowSums]:
            key_noise, key_world = jax.random.split(key)
            wanted, teacher_carry, _ = self.teacher.step(
                world.critic_features(now.world), now.teacher
            )
            action, carry, _ = student.step(now.observation, now.student)
            loss = jnp.where(now.alive, apart(action, wanted, self._weights), 0.0)
            done = self._act(key_noise, share * wanted + (1 - share) * action)
            observation, state, reward, terminated, truncated, _ = world.advance(
                key_world, now.world, done, world.default_params
            )
            after = Lane(
                observation,
                state,
                student.told(carry, done),
                teacher_carry,
                now.alive & ~terminated & ~truncated,
            )
            alive = now.alive.astype(jnp.float32)
            return after, WindowSums(loss, alive, alive * reward)

        lane, sums = jax.lax.scan(step, lane, jax.random.split(key, self.config.window))
        sums = jax.tree.map(jnp.sum, sums)
        return sums.loss / self.config.window, jax.lax.stop_gradient((sums, lane))

    def _act(self, key: Key, action: Action) -> Action:
        """What is done: with noise, and no gradient goes through the world."""
        noise = self.config.action_noise * jax.random.normal(key, action.shape)
        return jax.lax.stop_gradient(jnp.clip(action + noise, -1, 1))


def check_lesson(
    world: World, teacher: Any, action_weights: tuple[float, ...]
) -> tuple[Environment, Policy]:
    """Both; ConfigError if the world is not on the device, nobody teaches or not all actions have weights."""
    world = require_device(world, "Imitation works with worlds on the device; clone in the others.")
    if not isinstance(teacher, Policy):
        raise ConfigError("Imitation needs an agent of ours as its expert; name one with --expert.")
    state = jax.eval_shape(
        lambda key: world.reset_env(key, world.default_params)[1], jax.random.key(0)
    )
    (features,) = jax.eval_shape(world.critic_features, state).shape
    teacher.initial_carry(features)
    if teacher.num_actions != world.num_actions:
        raise ConfigError(
            f"The expert has {teacher.num_actions} action(s), but the world takes {world.num_actions}."
        )
    if action_weights and len(action_weights) != world.num_actions:
        raise ConfigError(
            f"There are {len(action_weights)} action_weights for {world.num_actions} action(s)."
        )
    return world, teacher


def teacher_share(generation: int, teacher_generations: int) -> float:
    """The teacher's in what is done: all in the first generation, nothing after so many."""
    return max(1 - generation / teacher_generations, 0.0) if teacher_generations else 0.0


def apart(action: Action, wanted: Action, weights: Float[np.ndarray, " A"]) -> Scalar:
    """How far an action is from what the teacher would do.

    The logarithm: what a teacher does in a body that is lost is no guide, and must not count most.
    """
    return jnp.log1p(jnp.mean(weights * (action - wanted) ** 2))
