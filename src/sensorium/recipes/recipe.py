"""A recipe is data: world, senses, agent, trainer and budget of one experiment, in one frozen value."""

import dataclasses
import enum
import types
import typing
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from sensorium.envs import World
from sensorium.errors import ConfigError
from sensorium.perturbations import (
    Background,
    Bars,
    Blob,
    Colour,
    Compose,
    Drop,
    Duplicate,
    FakeLane,
    HideRows,
    Identity,
    NoiseBackground,
    NoiseChannels,
    Occlude,
    OneOf,
    Perturbation,
    RandomBackground,
    RandomConvolution,
    Reshuffle,
    Shuffle,
    ShufflePatches,
)
from sensorium.policies import (
    AttentionAgentConfig,
    AttentionNeuronConfig,
    ConvolutionalConfig,
    DeepSetsConfig,
    FeedForwardConfig,
    Policy,
    PolicyConfig,
    SetTransformerConfig,
    VisionAttentionNeuronConfig,
)
from sensorium.rollout import Engine, make_world
from sensorium.training import (
    CloningConfig,
    CoachingConfig,
    ControllerImitationConfig,
    ControllerPpoConfig,
    EvolutionConfig,
    ImitationConfig,
    PpoConfig,
    RecurrentPpoConfig,
    ShortHorizonConfig,
    StrategyConfig,
    Trainer,
)
from sensorium.training.teachers import Teacher
from sensorium.types import Key


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One experiment."""

    name: str
    """Also the name of the agent in the zoo."""
    summary: str
    """One sentence."""
    policy: PolicyConfig
    """The agent."""
    trainer: (
        CloningConfig
        | CoachingConfig
        | ControllerImitationConfig
        | ControllerPpoConfig
        | EvolutionConfig
        | ImitationConfig
        | PpoConfig
        | RecurrentPpoConfig
        | ShortHorizonConfig
    )
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
    """Decides everything."""
    checkpoint_every: int = 10
    """Generations between checkpoints."""
    test_every: int = 5
    """Generations between tests of the candidates; the best test is kept."""
    test_episodes: int = 200
    """Episodes of a test; their starts are neither those of training nor those of evaluation."""

    def __post_init__(self) -> None:
        for name in ("generations", "checkpoint_every", "test_every", "test_episodes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}.")

    def make_world(self) -> World:
        """The world with its perturbation, where agents are tested."""
        return make_world(self.env, self.perturbation)

    def make_training_world(self) -> World:
        """The world that agents are trained in; ConfigError if it has no reward for that."""
        return make_world(self.env, self.perturbation, training_reward=self.training_reward)

    def draw_policy(self, key: Key) -> Policy:
        """An agent with random weights, its code scaled as the perturbation asks."""
        world = self.make_world()
        return self.policy.build(world.senses, world.num_actions, key)

    def outline(self) -> Policy:
        """An agent with `jax.ShapeDtypeStruct` for each array, to be filled: nothing is drawn or compiled."""
        return eqx.filter_eval_shape(lambda: self.draw_policy(jax.random.key(0)))

    def make_trainer(
        self,
        engine: Engine,
        directory: Path,
        teacher: Teacher | Policy | None = None,
        start: Policy | None = None,
    ) -> Trainer:
        """The trainer, ready to start.

        Args:
            engine: Runs `make_training_world()`.
            directory: Where a trainer may keep data of its own.
            teacher: Whom to learn from; for a coach its student.
            start: Has the weights to start from, and this recipe's architecture.

        Raises:
            ConfigError: Settings do not fit, or the recipe is of a teacher.
        """
        if isinstance(self.trainer, PpoConfig):
            raise ConfigError(f"{self.name} is a teacher: train it with `sensorium teach`.")
        if not isinstance(self.trainer, EvolutionConfig) and not engine.here:
            raise ConfigError(
                f"{self.name} is trained on one machine; --engine ray and jax are for evolution."
            )
        scale = self.perturbation.code_scale

        def draw(key: Key) -> Policy:
            return (start or self.draw_policy(key)).with_code_scale(scale)

        if isinstance(self.trainer, CoachingConfig | ControllerImitationConfig | ImitationConfig):
            assert not isinstance(teacher, Teacher)
            return self.trainer.build(draw, engine, teacher)
        if isinstance(self.trainer, CloningConfig):
            assert not isinstance(teacher, Policy)
            return self.trainer.build(draw, engine, teacher, directory)
        if isinstance(self.trainer, EvolutionConfig) and start is not None:
            return dataclasses.replace(self.trainer, start_at_zero=False).build(draw, engine)
        return self.trainer.build(draw, engine)

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
        """As JSON values; every part says its kind."""
        return _encode(self)

    @staticmethod
    def from_json(value: dict[str, Any]) -> "Recipe":
        """Back from JSON values.

        Raises:
            ConfigError: It is not a recipe of this version.
        """
        recipe = _decode(value, Recipe)
        if not isinstance(recipe, Recipe):
            raise ConfigError(f"Expected a recipe, got {type(recipe).__name__}.")
        return recipe


_PARTS: dict[str, type] = {
    part.__name__: part
    for part in (
        Recipe,
        AttentionAgentConfig,
        AttentionNeuronConfig,
        VisionAttentionNeuronConfig,
        DeepSetsConfig,
        SetTransformerConfig,
        FeedForwardConfig,
        ConvolutionalConfig,
        CloningConfig,
        CoachingConfig,
        ControllerImitationConfig,
        ControllerPpoConfig,
        EvolutionConfig,
        ImitationConfig,
        PpoConfig,
        RecurrentPpoConfig,
        ShortHorizonConfig,
        StrategyConfig,
        Compose,
        Background,
        Bars,
        Blob,
        Colour,
        Drop,
        Duplicate,
        FakeLane,
        HideRows,
        Identity,
        NoiseBackground,
        NoiseChannels,
        Occlude,
        OneOf,
        RandomBackground,
        RandomConvolution,
        Reshuffle,
        Shuffle,
        ShufflePatches,
    )
}


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        encoded = {name: _encode(field) for name, field in fields.items()}
        return {"kind": type(value).__name__, **encoded}
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
            raise ConfigError(f"A stored recipe has a part of unknown kind {kind!r}.")
        part = _PARTS[kind]
        hints = typing.get_type_hints(part)
        foreign = sorted(set(fields) - set(hints))
        if foreign:
            raise ConfigError(
                f"A stored recipe has a setting {foreign[0]!r} that {kind} does not know; "
                "it was written by another version of Sensorium."
            )
        return part(**{name: _decode(item, hints[name]) for name, item in fields.items()})
    if isinstance(value, list):
        return tuple(_decode(item, Any) for item in value)
    for choice in _choices(annotation):
        if isinstance(choice, type) and issubclass(choice, enum.Enum):
            return choice(value)
    return value


def _choices(annotation: Any) -> tuple[Any, ...]:
    if isinstance(annotation, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)
