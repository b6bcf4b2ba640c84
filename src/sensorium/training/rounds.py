"""Rounds of DAgger: what acts in them, what is recorded, and the batches that are drawn from them."""

import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from sensorium.envs import World
from sensorium.policies import Policy
from sensorium.rollout import Behaviour, Moment
from sensorium.training.experts import Asked
from sensorium.types import Action, PyTree, Scalar

_RECEIVED = "received."  # how the names of its arrays begin in files


class Labelled(NamedTuple):
    """What is recorded of T steps of B lanes."""

    received: PyTree
    """The observation without perturbation, or the features of the student if its encoder is frozen."""
    action: Float[Any, "..."]
    """What was done."""
    expert_action: Float[Any, "..."]


class Round(NamedTuple):
    """A round of rollouts."""

    labelled: Labelled
    started: Bool[Any, "T B"]
    alive: Bool[Any, "T B"]


class Following(Behaviour):
    """A student, and an expert that says what it would do."""

    student: Policy
    expert: Asked
    beta: Scalar
    """The expert's share in what is done."""
    noise: Float[Array, " lanes"]
    freeze_encoder: bool = eqx.field(static=True)

    def initial_carry(self, world: World) -> PyTree:
        """Of both."""
        return self.student.initial_carry(world.observation_spec), self.expert.initial_carry(world)

    def act(self, moment: Moment, carry: PyTree) -> tuple[Action, PyTree, Labelled]:
        """Do a mixture of what both would do, with noise."""
        student, expert = self.student, self.expert
        carry, of_expert = carry
        expert_action, of_expert = expert.act(moment, of_expert)
        features, carry, _ = student.encode(moment.observation, carry)
        outputs, carry = student.decide(features, carry)
        distribution = student.distribution
        action = distribution.mixed(
            moment.held_key(1),
            self.beta,
            expert_action,
            distribution.action(outputs),
            self.noise[moment.lane],
        )
        record = Labelled(
            features if self.freeze_encoder else moment.unperturbed, action, expert_action
        )
        return action, (student.told(carry, action), expert.told(of_expert, action)), record


def to_arrays(collected: Round) -> dict[str, np.ndarray]:
    """A round as named arrays."""
    leaves = jax.tree.leaves(collected.labelled.received)
    return {
        **{f"{_RECEIVED}{number:03d}": leaf for number, leaf in enumerate(leaves)},
        "action": collected.labelled.action,
        "expert_action": collected.labelled.expert_action,
        "started": collected.started,
        "alive": collected.alive,
    }


def from_arrays(arrays: dict[str, np.ndarray], received: Any) -> Round:
    """Back from `to_arrays`; `received` is the tree structure of `Labelled.received`."""
    leaves = [arrays[name] for name in sorted(arrays) if name.startswith(_RECEIVED)]
    labelled = Labelled(
        jax.tree.unflatten(received, leaves), arrays["action"], arrays["expert_action"]
    )
    return Round(labelled, arrays["started"], arrays["alive"])


def sequences(
    rounds: list[Round],
    random: np.random.Generator,
    *,
    num_batches: int,
    batch_size: int,
    num_steps: int,
    warm_up_steps: int,
) -> Iterator[tuple[Round, Float[np.ndarray, "T B"]]]:
    """The batches of a generation, drawn from all steps of some rounds.

    Each lane is divided into stretches, whose steps after the warm-up follow one another; where the first one
    ends is drawn anew for each generation. All stretches in which something counts come equally often, so
    that sequences as long as a round, and as many as there are lanes, are each lane once.

    Args:
        rounds: What to learn from.
        random: Draws.
        num_batches: How many.
        batch_size: Sequences in each.
        num_steps: Of a sequence.
        warm_up_steps: At its start, which do not count unless an episode begins in them.

    Yields:
        A batch, and which of its steps count: none of a warm-up or after an end. Lanes are the last axis.
    """
    total, steps = num_batches * batch_size, len(rounds[0].alive)
    stride = num_steps - warm_up_steps
    begins = np.arange(-random.integers(stride), steps - warm_up_steps, stride)
    begins = np.unique(begins.clip(0, steps - num_steps))
    stretches = [
        (number, int(begin), lane)
        for number, each in enumerate(rounds)
        for begin in begins
        for lane in np.flatnonzero(
            each.alive[begin + (warm_up_steps if begin else 0) : begin + num_steps].any(axis=0)
        )
    ]
    order = random.permutation(len(stretches))
    spread = (np.arange(total) + random.random()) * (len(order) / total)
    chosen = random.permutation(order[spread.astype(int).clip(max=len(order) - 1)])
    for start in range(0, total, batch_size):
        parts = []
        for place in chosen[start : start + batch_size]:
            number, begin, lane = stretches[place]
            at = slice(begin, begin + num_steps), lane
            parts.append(jax.tree.map(operator.itemgetter(at), rounds[number]))
        batch = jax.tree.map(lambda *leaves: np.stack(leaves, axis=-1), *parts)
        known = np.logical_or.accumulate(batch.started, axis=0)
        warm = known | (np.arange(num_steps)[:, None] >= warm_up_steps)
        yield batch, (batch.alive & warm).astype(np.float32)
