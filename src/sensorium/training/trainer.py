"""The interface of every way to train: a state of arrays, and a step that advances it by a generation.

Everything a run needs to continue bit for bit is in the state; `run.py` checkpoints it, tests the
candidates and keeps the best.
"""

import abc
import dataclasses
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp

from sensorium.errors import ConfigError, check_whole_settings
from sensorium.policies import Policy, PolicyConfig
from sensorium.rollout import Collector, Engine
from sensorium.types import Key, PyTree, Scalar

DrawPolicy = Callable[[Key], Policy]
"""Draws an agent with random weights; the same architecture for every key."""


class Metrics(NamedTuple):
    """What a trainer reports of a generation."""

    env_steps: int
    """Steps of training episodes that it simulated, up to the end of each; 0 if it simulated none."""
    figures: dict[str, Scalar]
    """Numbers by their names, for the run's metrics. A display shows `loss` where there is one,
    or else `mean` and `best`, returns of training episodes."""

    @classmethod
    def of(cls, collectors: Sequence[Collector], figures: dict[str, Scalar]) -> "Metrics":
        """Sum up collectors: steps, and returns of the episodes that ended; add other figures."""
        returns = jnp.asarray([each for collector in collectors for each in collector.returns])
        reached = {"best": jnp.max(returns), "mean": jnp.mean(returns)} if returns.size else {}
        return cls(sum(collector.env_steps for collector in collectors), reached | figures)


class Trainer(abc.ABC):
    """A way to train.

    A trainer is a static argument of the functions that it compiles. Trainers of a class whose `compiled_for`
    are equal share them, so that what goes on in the same process with a run compiles nothing again.
    """

    compiled_for: Hashable = None
    """All that its compiled functions read of it; None if they are for this trainer alone."""

    def __eq__(self, other: object) -> bool:
        if self is other or type(self) is not type(other) or self.compiled_for is None:
            return self is other
        return self.compiled_for == other.compiled_for

    def __hash__(self) -> int:
        return id(self) if self.compiled_for is None else hash(self.compiled_for)

    @abc.abstractmethod
    def init(self, key: Key) -> PyTree:
        """Make the state before the first generation: arrays and random keys only."""

    @abc.abstractmethod
    def step(self, state: PyTree) -> tuple[PyTree, Metrics]:
        """Train for one generation. The same state always gives the same result, bit for bit."""

    @abc.abstractmethod
    def candidates(self, state: PyTree) -> Policy:
        """Return the agents to test now, stacked on a leading axis."""

    def saved(self, state: PyTree) -> None:  # noqa: B027  # most trainers keep nothing beside their state
        """Delete what only earlier states need; called once `state` is in a checkpoint."""


@dataclasses.dataclass(frozen=True)
class TrainingContext:
    """What a trainer is built from, beside its config."""

    config: PolicyConfig
    """Of the policy."""
    fresh: DrawPolicy
    """Draws a policy with random weights."""
    engine: Engine
    """Runs the world that is trained in."""
    directory: Path
    """A trainer may keep data of its own there; they are deleted when the stage is finished."""
    generations: int = 1
    """How many the stage lasts: schedules fall over them."""
    start: Policy | None = None
    """The policy to start from; None to begin with random weights."""
    expert: Any = None
    """What the policy learns from, where the trainer needs an expert."""

    def draw(self, key: Key) -> Policy:
        """Return the policy to begin with: the start if there is one, or else a random one."""
        return self.fresh(key) if self.start is None else self.start


@dataclasses.dataclass(frozen=True)
class TrainerConfig(abc.ABC):
    """The settings of a way to train: a frozen dataclass, which `register` makes known to recipes."""

    distributed: ClassVar[bool] = False
    """Whether the trainer works with engines on several machines (`Engine.here` is false)."""

    may_be_zero: ClassVar[tuple[str, ...]] = ()
    """Whole numbers among the settings that count from 0 on; all others count from 1 on."""

    def __post_init__(self) -> None:
        """Raise ConfigError if a setting that is a whole number does not fit."""
        check_whole_settings(self, self.may_be_zero)

    def check_engine(self, engine: Engine) -> None:
        """Raise ConfigError if the engine is on several machines and the trainer works on one only."""
        if not engine.here and not self.distributed:
            raise ConfigError(
                f"{type(self).__name__} trains on one machine; --engine ray and jax are for evolution."
            )

    @abc.abstractmethod
    def build(self, context: TrainingContext) -> Trainer:
        """Set up the trainer.

        Raises:
            ConfigError: The settings, the policy, the expert or the world do not fit each other.
        """
