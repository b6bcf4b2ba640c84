"""A recipe is data: world, senses, agent, trainer and budget of one experiment, in one frozen value."""

import dataclasses
import enum
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from sensorium.envs import WORLDS, World
from sensorium.errors import (
    ConfigError,
    SensoriumError,
    UnknownNameError,
    check_counts,
    did_you_mean,
)
from sensorium.perturbations import Identity, Perturbation
from sensorium.policies import Policy, PolicyConfig
from sensorium.registry import Parts, home_of, name_of, register
from sensorium.rollout import Engine, check_world_name, make_world
from sensorium.seeding import check_seed
from sensorium.training import Trainer, TrainerConfig, TrainingContext
from sensorium.types import Key

_PARTS = Parts()
_NEEDS = "needs"  # the modules to import for parts that are not Sensorium's own


@register
@dataclasses.dataclass(frozen=True)
class Recipe:
    """One experiment."""

    name: str
    """Also the name of the agent in the zoo."""
    summary: str
    """One sentence."""
    policy: PolicyConfig
    """The agent."""
    trainer: TrainerConfig
    """How it is trained."""
    env: str = "CartPoleSwingUpHarder"
    """The world."""
    perturbation: Perturbation = Identity()
    """What happens to the senses in training; in the tests during training too."""
    start: str = ""
    """An agent of the zoo, a run or a file whose weights training starts from; drawn at random if empty."""
    training_reward: bool = False
    """Train with the reward that the world has for that, where it has one; tests pay the real one."""
    generations: int = 100
    """How long."""
    seed: int = 0
    """Decides everything; any whole number from 0 on."""
    checkpoint_every: int = 10
    """Generations between checkpoints."""
    test_every: int = 5
    """Generations between tests of the candidates; the best test is kept."""
    test_episodes: int = 200
    """Episodes of a test; their starts are neither those of training nor those of evaluation."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", check_seed(self.seed))  # as JSON can write it
        check_counts(
            generations=self.generations,
            checkpoint_every=self.checkpoint_every,
            test_every=self.test_every,
            test_episodes=self.test_episodes,
        )

    def make_world(self) -> World:
        """The world with its perturbation, where agents are tested."""
        return make_world(self.env, self.perturbation)

    def make_training_world(self) -> World:
        """The world that agents are trained in; ConfigError if it has no reward for that."""
        return make_world(self.env, self.perturbation, training_reward=self.training_reward)

    def draw_policy(self, key: Key) -> Policy:
        """An agent with random weights; trainers and `evaluate` scale its code as their perturbation asks."""
        world = self.make_world()
        return self.policy.build(world.senses, world.num_actions, key)

    def outline(self) -> Policy:
        """An agent with `jax.ShapeDtypeStruct` for each array, to be filled: nothing is drawn or compiled."""
        return eqx.filter_eval_shape(lambda: self.draw_policy(jax.random.key(0)))

    def make_trainer(
        self,
        engine: Engine,
        directory: Path,
        expert: Any = None,
        start: Policy | None = None,
    ) -> Trainer:
        """The trainer, ready to start.

        Args:
            engine: Runs `make_training_world()`.
            directory: Where a trainer may keep data of its own.
            expert: What the policy is to learn from; for a coach its student.
            start: Has the weights to start from, and this recipe's architecture.

        Raises:
            ConfigError: Settings do not fit.
        """
        if not engine.here and not self.trainer.distributed:
            raise ConfigError(
                f"{self.name} is trained on one machine; --engine ray and jax are for evolution."
            )
        scale = self.perturbation.code_scale

        def fresh(key: Key) -> Policy:
            return self.draw_policy(key).with_code_scale(scale)

        start = start and start.with_code_scale(scale)
        return self.trainer.build(TrainingContext(fresh, engine, directory, start, expert))

    def override(self, **changes: Any) -> "Recipe":
        """A copy with other numbers, of its own or of its trainer; None keeps the recipe's.

        Raises:
            ConfigError: Neither the recipe nor its trainer has such a number.
        """
        changes = {name: value for name, value in changes.items() if value is not None}
        mine = {field.name for field in dataclasses.fields(self)}
        trainers = {field.name for field in dataclasses.fields(self.trainer)}
        unknown = sorted(set(changes) - mine - trainers)
        if unknown:
            raise ConfigError(
                f"{self.name} is trained by {type(self.trainer).__name__}, which has no "
                f"{unknown[0]!r}."
            )
        own = {name: value for name, value in changes.items() if name in mine}
        others = {name: value for name, value in changes.items() if name not in mine}
        trainer = dataclasses.replace(self.trainer, **others)
        return dataclasses.replace(self, trainer=trainer, **own)

    def to_json(self) -> dict[str, Any]:
        """As JSON values; every part says its kind, and `needs` names the modules of foreign ones."""
        parts = {type(part) for part in _parts_of(self)}
        if self.env in WORLDS:
            parts.add(WORLDS[self.env])
        needs = sorted({home for part in parts if (home := home_of(part))})
        return _encode(self) | ({_NEEDS: needs} if needs else {})

    @staticmethod
    def from_json(value: dict[str, Any]) -> "Recipe":
        """Back from JSON values.

        Raises:
            ConfigError: It is not a recipe of this version.
            UnknownNameError: A part of it is not registered; the modules to import are named.
        """
        try:
            return Recipe._from_json(value)
        except SensoriumError:
            raise
        except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
            raise ConfigError(f"It is no recipe of this version: {error}") from error

    @staticmethod
    def _from_json(value: dict[str, Any]) -> "Recipe":
        value = dict(value)
        needs = value.pop(_NEEDS, [])
        try:
            recipe = _decode(value, Recipe)
            if not isinstance(recipe, Recipe):
                raise ConfigError(f"Expected a recipe, got {type(recipe).__name__}.")
            check_world_name(recipe.env)
        except UnknownNameError as error:
            if not needs:
                raise
            raise UnknownNameError(
                f"The recipe needs parts of {' and '.join(map(repr, needs))}, which is not imported: "
                f"import it first, or say `--plugin {needs[0]}`."
            ) from error
        return recipe


def _parts_of(value: Any) -> Iterator[Any]:
    """A value and all dataclasses within it."""
    if dataclasses.is_dataclass(value):
        yield value
        for field in dataclasses.fields(value):
            yield from _parts_of(getattr(value, field.name))
    elif isinstance(value, tuple):
        for item in value:
            yield from _parts_of(item)


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        encoded = {name: _encode(field) for name, field in fields.items()}
        return {"kind": name_of(type(value)), **encoded}
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.value
    return value


def _decode(value: Any, annotation: Any) -> Any:
    if isinstance(value, dict):
        fields = dict(value)
        kind = fields.pop("kind", None)
        if kind not in _PARTS:
            raise did_you_mean("registered part", str(kind), _PARTS)
        part = _PARTS[kind]
        hints = typing.get_type_hints(part)
        foreign = sorted(set(fields) - set(hints))
        if foreign:
            raise ConfigError(
                f"A stored recipe has a setting {foreign[0]!r} that {kind} does not know; "
                "it was written by another version of Sensorium."
            )
        decoded = {name: _decode(item, hints[name]) for name, item in fields.items()}
        for name, item in decoded.items():
            if not _fits(item, hints[name]):
                wanted = getattr(hints[name], "__name__", hints[name])
                raise ConfigError(f"{name!r} of {kind} must be {wanted}, got {fields[name]!r:.60}.")
        return part(**decoded)
    if isinstance(value, list):
        return tuple(_decode(item, Any) for item in value)
    for choice in _choices(annotation):
        if isinstance(choice, type) and issubclass(choice, enum.Enum):
            return choice(value)
    return value


def _fits(value: Any, annotation: Any) -> bool:
    if typing.get_origin(annotation) is tuple:
        inner = typing.get_args(annotation)[0]
        return isinstance(value, tuple) and all(_fits(item, inner) for item in value)
    if annotation is float:
        return type(value) in (int, float) and abs(value) < float("inf")
    if annotation in (bool, int, str):
        return type(value) is annotation
    return not isinstance(annotation, type) or isinstance(value, annotation)


def _choices(annotation: Any) -> tuple[Any, ...]:
    if isinstance(annotation, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)
