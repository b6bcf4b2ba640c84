"""Rounds of DAgger: what acts in them, what is recorded and kept, and the batches drawn from them."""

import operator
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from sensorium.envs import World
from sensorium.perturbations import Perturbation
from sensorium.policies import Policy
from sensorium.rollout import Behaviour, StepContext
from sensorium.serialisation import from_data, load_arrays, named_leaves, save_arrays
from sensorium.training.experts import Asked, Demonstrated
from sensorium.training.learner import where
from sensorium.types import Action, PyTree, Scalar


class Labelled(NamedTuple):
    """What is recorded of T steps of B lanes."""

    received: PyTree
    """The observation without perturbation, or the features of the student if its encoder is frozen."""
    action: Float[Any, "..."]
    """The action that was taken."""
    expert_action: Float[Any, "..."]
    privileged: Float[Any, "..."]
    """What the expert says beside its action: numbers, then boxes."""
    weight: Float[Any, "..."]
    """How much the step matters."""


class Round(NamedTuple):
    """A round of rollouts."""

    labelled: Labelled
    started: Bool[Any, "T B"]
    alive: Bool[Any, "T B"]
    memory: PyTree = None
    """Before the first step: of the student and of the perturbation, with a leading axis B."""

    @classmethod
    def of_dataset(cls, steps: Demonstrated) -> "Round":
        """Make a round of the steps of a dataset, without memories of a student."""
        labelled = Labelled(
            steps.observations,
            steps.actions,
            steps.actions,
            steps.actions[..., :0],
            np.ones(steps.alive.shape, np.float32),
        )
        return cls(labelled, steps.started, steps.alive)


class Following(Behaviour):
    """A student, and an expert that labels its steps."""

    student: Policy
    expert: Asked
    perturbation: Perturbation = eqx.field(static=True)
    """Of the student's world."""
    beta: Scalar
    """The expert's share in the actions."""
    noise: Float[Array, " lanes"]
    freeze_encoder: bool = eqx.field(static=True)
    weighs: bool = eqx.field(static=True)
    """Whether the expert says last how much its advice matters."""

    def initial_carry(self, world: World) -> PyTree:
        """Make the carries of both at the start of an episode."""
        return self.student.initial_carry(world.observation_spec), self.expert.initial_carry(world)

    def act(self, context: StepContext, carry: PyTree) -> tuple[Action, PyTree, Labelled]:
        """Take a mixture of the actions of both, with noise."""
        student, expert = self.student, self.expert
        carry, of_expert = carry
        expert_action, of_expert = expert.act(context, of_expert)
        expert_action = expert_action[: student.num_actions]  # an EnvExpert's advice has more
        expert_action = self.perturbation.wanted_action(context.perturbation, expert_action)
        features, carry, _ = student.encode(context.observation, carry)
        outputs, carry = student.decide(features, carry)
        distribution = student.distribution
        action = distribution.mixed(
            context.held_key(1),
            self.beta,
            student.explored(expert_action, carry),
            distribution.action(outputs),
            self.noise[context.lane],
        )
        command, _ = self.perturbation.perturb_action(context.key, context.perturbation, action)
        known, weight = context.advice[student.num_actions :], jnp.ones(())
        if self.weighs:
            known, weight = known[:-1], known[-1]
        record = Labelled(
            features if self.freeze_encoder else context.unperturbed,
            action,
            expert_action,
            known,
            weight,
        )
        return (
            action,
            (student.after_action(carry, action), expert.after_action(context, of_expert, command)),
            record,
        )


class Buffer:
    """The last rounds, in memory and in the files of a run."""

    def __init__(self, size: int, directory: Path | None, structure: Callable[[], Round]):
        """Set up, without a round.

        Args:
            size: How many are kept; 0 for all.
            directory: Where their files go; None if no later generation needs them.
            structure: Gives the tree structure of a round.
        """
        self._size, self._directory, self._structure = size, directory, structure
        self._rounds: dict[int, Round] = {}

    @property
    def rounds(self) -> list[Round]:
        """The rounds that batches are drawn from."""
        return list(self._rounds.values())

    def add(self, number: int, collected: Round) -> None:
        """Add a round; the oldest is dropped if there are too many."""
        self._rounds[number] = collected
        if self._size:
            self._rounds.pop(number - self._size, None)
        if self._directory is not None:
            save_arrays(self._file(self._directory, number), dict(named_leaves(collected)))

    def recall(self, end: int) -> None:
        """Read the rounds before number `end` that are not in memory."""
        if self._directory is None:
            return
        for number in range(max(end - self._size, 0) if self._size else 0, end):
            if number not in self._rounds:
                arrays, like = load_arrays(self._file(self._directory, number)), self._structure()
                leaves = [arrays[name] for name, _ in named_leaves(like)]
                self._rounds[number] = jax.tree.unflatten(jax.tree.structure(like), leaves)

    def forget(self, end: int) -> None:
        """Delete the files of rounds that are not in use once all before number `end` are there."""
        if self._directory is not None and self._size:
            for number in range(end - self._size - 1, -1, -1):
                try:
                    self._file(self._directory, number).unlink()
                except FileNotFoundError:
                    return  # earlier ones are gone as well

    @staticmethod
    def _file(directory: Path, number: int) -> Path:
        return directory / f"round-{number:03d}.safetensors"


@partial(jax.jit, static_argnames="axis")
def remembered(memory: PyTree, known: Bool[Any, " B"], blank: PyTree, axis: int) -> PyTree:
    """Return the memories that are known, and blank ones for the others, lanes on an axis."""

    def one(saved: PyTree, known: Array, blank: PyTree) -> PyTree:
        return where(known, jax.tree.map(from_data, saved, blank), blank)

    return jax.vmap(one, in_axes=(0, 0, axis), out_axes=axis)(memory, known, blank)


def after_time(axis: int) -> int:
    """Return where an axis of one step is in arrays of several, whose first axis is time."""
    return axis + 1 if axis >= 0 else axis


def sequences(
    rounds: list[Round],
    random: np.random.Generator,
    *,
    num_batches: int,
    batch_size: int,
    num_steps: int,
    warm_up_steps: int,
    axis: int = -1,
) -> Iterator[tuple[Round, Float[np.ndarray, "T B"], Bool[np.ndarray, " B"]]]:
    """Draw the batches of a generation from all steps of some rounds.

    Each lane is divided into stretches, whose steps after the warm-up follow one another; where the first one
    ends is drawn anew for each generation. A warm-up may begin before the round: steps that are not there are
    not alive. All stretches in which a step counts are drawn equally often, so that sequences as long as a
    round, and as many as there are lanes, take each lane once.

    Args:
        rounds: The rounds to draw from.
        random: Generator of the draws.
        num_batches: How many.
        batch_size: Sequences in each.
        num_steps: Of a sequence.
        warm_up_steps: At its start, which do not count.
        axis: Of the lanes in arrays of one step.

    Yields:
        A batch, how much its steps count, nothing in a warm-up or after an end, and of which sequences the
        memory is known: those that begin at the start of a round or before it. Lanes are the first axis of
        memories.
    """
    total, steps = num_batches * batch_size, len(rounds[0].alive)
    stride = num_steps - warm_up_steps
    begins = np.arange(-random.integers(stride), steps, stride) - warm_up_steps
    begins = np.unique(begins.clip(-warm_up_steps, steps - num_steps))
    stretches = [
        (number, int(begin), lane)
        for number, each in enumerate(rounds)
        for begin in begins
        for lane in np.flatnonzero(
            each.alive[begin + warm_up_steps : begin + num_steps].any(axis=0)
        )
    ]
    order = random.permutation(len(stretches))
    spread = (np.arange(total) + random.random()) * (len(order) / total)
    chosen = random.permutation(order[spread.astype(int).clip(max=len(order) - 1)])
    for start in range(0, total, batch_size):
        places = [stretches[place] for place in chosen[start : start + batch_size]]
        parts, memories = [], []
        for number, begin, lane in places:
            at = operator.itemgetter((slice(max(begin, 0), begin + num_steps), lane))
            part = jax.tree.map(at, rounds[number]._replace(memory=None))
            parts.append(_after_nothing(part, max(-begin, 0)))
            memories.append(jax.tree.map(operator.itemgetter(lane), rounds[number].memory))
        of_steps = after_time(axis)
        batch = jax.tree.map(lambda *leaves: np.stack(leaves, axis=of_steps), *parts)
        memory = jax.tree.map(lambda *leaves: np.stack(leaves), *memories)
        known = np.array([begin <= 0 and memory is not None for _, begin, _ in places])
        counts = np.where(batch.alive, batch.labelled.weight, np.float32(0.0))
        counts[:warm_up_steps] = 0.0
        yield batch._replace(memory=memory), counts, known


def _after_nothing(part: Round, number: int) -> Round:
    """Put steps that are not alive in front of those of a lane."""
    if not number:
        return part
    part = jax.tree.map(lambda leaf: np.concatenate([leaf[:1].repeat(number, 0), leaf]), part)
    part.alive[:number] = part.started[:number] = False
    return part
