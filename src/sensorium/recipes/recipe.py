"""A recipe is data: a world, a policy, and the stages in which it is trained, in one frozen value."""

import dataclasses
import math
import sys
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax

from sensorium.envs import World, is_world, make
from sensorium.errors import (
    ConfigError,
    SensoriumError,
    UnknownNameError,
    check_counts,
    did_you_mean,
)
from sensorium.perturbations import Identity, Perturbation
from sensorium.policies import Policy, PolicyConfig
from sensorium.recipes.encoding import change, decode, encode, parts_of
from sensorium.registry import home_of, register
from sensorium.rollout import check_world_name, make_world
from sensorium.seeding import check_seed
from sensorium.training import TrainerConfig
from sensorium.types import Key

STAGE = "stage:"
"""How the policy of an earlier stage is named, as an expert or to start from: `"stage:coach"`."""
WORLD = "world"
"""How the world's own controller is named as an expert."""

SCRATCH = "scratch"
"""The start of a stage that draws its policy at random."""

_NEEDS = "needs"  # the modules to import for parts that are not Sensorium's own


@register
@dataclasses.dataclass(frozen=True)
class Stage:
    """One way of training, for some generations; it starts from what an earlier stage kept."""

    name: str
    """Names the stage within its recipe: `"clone"`."""
    trainer: TrainerConfig
    """How the policy is trained."""
    generations: int = 100
    """Length of the stage."""
    perturbation: Perturbation = Identity()
    """Perturbation of the observations in training, and in its tests."""
    test_perturbation: Perturbation | None = None
    """Perturbation in its tests, where that is another one."""
    expert: str = ""
    """What the policy learns from, where the trainer needs an expert: an agent of the zoo, a run, a file (of
    Stable-Baselines3 too), `module:function`, `stage:NAME`, or `world` for the world's own controller that
    knows what is hidden from agents."""
    vecnormalize: str = ""
    """Statistics of VecNormalize that an expert of Stable-Baselines3 was trained behind, a file; those beside
    the model if empty, none if `none`."""
    start: str = ""
    """What to start from: an agent of the zoo, a run, a file, `stage:NAME`, or `scratch` for a random policy.
    By default the first stage begins from scratch, and each other with the policy of the stage before."""
    policy: PolicyConfig | None = None
    """The policy of this stage, where it is not yet that of the recipe."""
    env: str = ""
    """The world of training, where that is not the recipe's; tests are in the recipe's."""
    training_reward: bool = False
    """Train with the reward that the world has for that; tests use the real one."""
    test_every: int = 5
    """Generations between tests of the candidates. The policy with the best test is kept, that of the start
    among them."""
    test_episodes: int = 200
    """Episodes of a test; their starts are neither those of training nor those of evaluation."""
    stop_at: float | None = None
    """End the stage with the first test whose mean return is at least this; None to train all generations."""
    max_seconds: float | None = None
    """End it after so many seconds of training: how far it got then depends on the machine."""
    checkpoint_every: int = 10
    """Generations between checkpoints; there is one after ten minutes, too."""

    def __post_init__(self) -> None:
        odd = not self.name.replace("-", "").replace("_", "").isalnum() or self.name.isdigit()
        if odd or self.name == SCRATCH:
            raise ConfigError(
                f"A stage needs a name of letters, digits and dashes, got {self.name!r}."
            )
        check_counts(
            generations=self.generations,
            checkpoint_every=self.checkpoint_every,
            test_every=self.test_every,
            test_episodes=self.test_episodes,
        )
        if self.max_seconds is not None and not 0 < self.max_seconds < math.inf:
            raise ConfigError(f"max_seconds must be a number above 0, got {self.max_seconds:g}.")

    def changed(self, **settings: Any) -> "Stage":
        """Return a copy with other settings, of its own or of its trainer."""
        mine = {field.name for field in dataclasses.fields(self)}
        own = {name: value for name, value in settings.items() if name in mine}
        others = {name: value for name, value in settings.items() if name not in mine}
        if others:
            own["trainer"] = dataclasses.replace(own.get("trainer", self.trainer), **others)
        return dataclasses.replace(self, **own)


@register
@dataclasses.dataclass(frozen=True)
class Recipe:
    """One agent: its policy, its world, and how it is trained from nothing."""

    name: str
    """Also the name of the agent in the zoo."""
    summary: str
    """One sentence."""
    policy: PolicyConfig
    """The policy, as the last stage leaves it."""
    stages: tuple[Stage, ...]
    """How it is trained, one after the other."""
    env: str = "CartPoleSwingUpHarder"
    """The world: one of `sensorium.envs.WORLDS`, or `gym:` and the id of a Gymnasium environment; either may
    have options."""
    seed: int = 0
    """Of all random numbers; any whole number from 0 on."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", check_seed(self.seed))  # as JSON can write it
        if not self.stages:
            raise ConfigError(f"The recipe {self.name!r} needs at least one stage.")
        seen: list[str] = []
        for stage in self.stages:
            if stage.name in seen:
                raise ConfigError(f"The recipe {self.name!r} has two stages {stage.name!r}.")
            for source in (stage.start, stage.expert):
                earlier = source.removeprefix(STAGE)
                if earlier != source and earlier not in seen:
                    raise did_you_mean(f"stage before {stage.name!r}", earlier, seen)
            seen.append(stage.name)

    def start_of(self, stage: Stage) -> str:
        """Return what a stage starts from: a source as of `Stage.start`, never empty."""
        place = self.stages.index(stage)
        return stage.start or (STAGE + self.stages[place - 1].name if place else SCRATCH)

    @property
    def last(self) -> Stage:
        """The stage whose policy is the agent."""
        return self.stages[-1]

    def stage(self, name: str) -> Stage:
        """Return a stage by its name; UnknownNameError names the nearest ones."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise did_you_mean(f"stage of {self.name}", name, [stage.name for stage in self.stages])

    def make_world(self, stage: Stage | None = None) -> World:
        """Build the world where the policies of a stage (the last by default) are tested."""
        stage = stage or self.last
        return make_world(self.env, stage.test_perturbation or stage.perturbation)

    def make_training_world(self, stage: Stage | None = None) -> World:
        """Build the world that a stage trains in.

        Raises:
            ConfigError: It has no reward for that, or other observations or actions than the recipe's.
        """
        stage = stage or self.last
        name = stage.env or self.env
        world = make_world(name, stage.perturbation, training_reward=stage.training_reward)
        if name != self.env:
            tests = make_world(self.env, stage.perturbation)
            if (world.observation_spec, world.actions) != (tests.observation_spec, tests.actions):
                raise ConfigError(
                    f"The stage {stage.name!r} would train in {name}, whose observations or actions are "
                    f"not those of {self.env}."
                )
        return world

    def draw_policy(self, key: Key, stage: Stage | None = None) -> Policy:
        """Draw a policy of a stage (the last by default) with random weights, its code not scaled."""
        world = self.make_world(stage)
        config = (stage or self.last).policy or self.policy
        return config.build(world.observation_spec, world.actions, key)

    def outline(self, stage: Stage | None = None) -> Policy:
        """Build a policy with a `jax.ShapeDtypeStruct` for each array: nothing is drawn or compiled."""
        return eqx.filter_eval_shape(lambda: self.draw_policy(jax.random.key(0), stage))

    def override(self, changes: Mapping[str, Any]) -> "Recipe":
        """Return a copy with other settings.

        Args:
            changes: JSON values by the path of the setting: `"seed"`, `"policy.num_queries"`,
                `"clone.generations"` of the stage of that name, `"clone.trainer.batch"`. The name of the
                stage may be left out where there is but one, and `trainer` always.

        Raises:
            ConfigError: A setting is of another type, or settings do not fit each other.
            UnknownNameError: There is no such setting.
        """
        recipe = self
        for path, setting in changes.items():
            recipe = change(recipe, recipe._full_path(path.split(".")), setting)
        return recipe

    def _full_path(self, path: list[str]) -> list[str]:
        """Return the path from the recipe down, with all that may be left out."""
        if path[0] in {field.name for field in dataclasses.fields(self)}:
            return path
        places = {stage.name: place for place, stage in enumerate(self.stages)}
        name, *rest = path
        if name not in places:
            if len(places) > 1:
                known = [*(field.name for field in dataclasses.fields(self)), *places]
                raise did_you_mean(f"setting or stage of {self.name}", name, known)
            name, rest = self.stages[0].name, path
        stage = self.stage(name)
        prefix = ["stages", str(places[name])]
        own, of_trainer = (
            [field.name for field in dataclasses.fields(part)] for part in (stage, stage.trainer)
        )
        if not rest or rest[0] in own:
            return [*prefix, *rest]
        if rest[0] not in of_trainer:
            kind = f"setting of the stage {name!r} or its {type(stage.trainer).__name__}"
            raise did_you_mean(kind, rest[0], {*own, *of_trainer})
        return [*prefix, "trainer", *rest]

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON values; every part has its kind, and `needs` names the modules of foreign ones."""
        parts = {type(part) for part in parts_of(self)}
        if is_world(self.env):
            parts.add(type(make(self.env)))
        needs = sorted({home for part in parts if (home := home_of(part))})
        return encode(self) | ({_NEEDS: needs} if needs else {})

    @staticmethod
    def from_json(value: Any) -> "Recipe":
        """Make a recipe from JSON values.

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
    def _from_json(value: Any) -> "Recipe":
        needs: list[Any] = []
        if isinstance(value, dict):
            if "trainer" in value and "stages" not in value:
                raise ConfigError("It is a recipe of Sensorium 0.1, without stages: train it anew.")
            needs = value.get(_NEEDS, [])
            value = {name: item for name, item in value.items() if name != _NEEDS}
        try:
            recipe = decode(value, Recipe, "the recipe")
            for name in (recipe.env, *(stage.env for stage in recipe.stages if stage.env)):
                check_world_name(name)
        except UnknownNameError as error:
            missing = [module for module in needs if module not in sys.modules]
            if not missing:
                raise
            raise UnknownNameError(
                f"{error} The recipe needs parts of {' and '.join(map(repr, missing))}, not imported so far: "
                f"import first, or add `{' '.join(f'--plugin {module}' for module in missing)}`."
            ) from error
        return recipe
