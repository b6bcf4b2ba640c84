"""The recipe of a twin: an agent that learns to do what an expert does, with its sensors in any order.

Sizes and lengths are derived from the world; docs/convert.md tells what was tried.
"""

import dataclasses
import re
from typing import Literal

from sensorium.bridges.open_env import EnvName
from sensorium.envs import World
from sensorium.errors import ConfigError
from sensorium.perturbations import (
    Drop,
    NoiseChannels,
    OneOf,
    Perturbation,
    Reshuffle,
    Shuffle,
    compose,
)
from sensorium.policies import AttentionNeuronConfig, PolicyConfig
from sensorium.recipes.recipe import Recipe, Stage
from sensorium.training import DaggerConfig, PpoConfig
from sensorium.types import in_words, num_sensors_of

Size = Literal["standard", "wide"]
"""Of a student."""

_STANDARD = AttentionNeuronConfig(
    num_queries=32,
    hidden_size=16,
    bias=True,
    scale=True,
    controller_sizes=(64,),
    code_feedback=True,
    with_change=True,
)
STUDENTS: dict[Size, AttentionNeuronConfig] = {
    "standard": _STANDARD,
    "wide": dataclasses.replace(
        _STANDARD, num_queries=64, hidden_size=32, position_size=16, controller_sizes=(128,)
    ),
}

TESTS = 64
"""Episodes of a test."""

_WINDOW = 50
_HARMLESS: tuple[Perturbation, ...] = (Shuffle(), compose(NoiseChannels(5), Shuffle()))
_UPDATES = 640  # of a generation
_LONGEST = 1_000  # steps of a sequence


@dataclasses.dataclass(frozen=True)
class Measured:
    """What is known of an expert before it is learned from."""

    source: str
    """As `Stage.expert`."""
    vecnormalize: str = ""
    """As `Stage.vecnormalize`."""
    unit: float = 0.0
    """About how large its sensors' readings are; 0 to leave them as they are."""
    stop_at: float | None = None
    """What the student has to earn in its tests to be as good."""


def twin(
    env: str,
    world: World,
    expert: Measured,
    *,
    student: Size | PolicyConfig = "standard",
    then_ppo: bool = False,
    max_seconds: float | None = None,
    seed: int = 0,
) -> Recipe:
    """Make the recipe.

    Args:
        env: The world's name.
        world: It.
        expert: What to learn from.
        student: The policy, or its size.
        then_ppo: Go on by PPO on the reward.
        max_seconds: Of each stage; None for as long as it needs.
        seed: Decides everything.

    Raises:
        ConfigError: The world shows something that the student cannot take.
    """
    if isinstance(student, str):
        policy: PolicyConfig = dataclasses.replace(STUDENTS[student], squash=expert.unit)
    else:
        policy = student
    spec = world.raw_observation_spec
    count = num_sensors_of(spec)
    if count is None:
        raise ConfigError(
            f"{env} shows {in_words(spec)}; twins of policies that act on anything but scalar sensors and "
            "entities cannot be made yet."
        )
    clone = Stage(
        "clone",
        _imitation(world.max_steps, names_sensors=isinstance(spec, int)),
        generations=100,
        perturbation=_rewirings(count, world.max_steps),
        test_perturbation=OneOf(_HARMLESS),
        expert=expert.source,
        vecnormalize=expert.vecnormalize,
        test_every=4,
        test_episodes=TESTS,
        checkpoint_every=4,
        stop_at=expert.stop_at,
        max_seconds=max_seconds,
    )
    stages: tuple[Stage, ...] = (clone,)
    if then_ppo:
        ppo = clone.changed(name="ppo", trainer=PpoConfig(), generations=40, test_every=2)
        stages += (ppo.changed(expert="", vecnormalize=""),)
    return Recipe(
        name=name_of_twin(env),
        summary=f"Does in {env} what its expert does, with its sensors in any order.",
        policy=policy,
        env=env,
        stages=stages,
        seed=seed,
    )


def _imitation(max_steps: int, names_sensors: bool) -> DaggerConfig:
    """DAgger in episodes of at most so many steps; entities have no role by which a sensor could be named."""
    window = min(_WINDOW, max_steps)
    num_steps = min(max_steps, _LONGEST) // window * window
    return DaggerConfig(
        num_envs=16,
        demonstration_rounds=4,
        num_batches=max(_UPDATES * window // num_steps, 1),
        batch_size=16,
        num_steps=num_steps,
        window=window,
        learning_rate=3e-3,
        sensor_id_coef=0.3 * names_sensors,
    )


def _rewirings(num_sensors: int, max_steps: int) -> Perturbation:
    """What a twin is trained under; a sensor of one or two is not missed."""
    midway = Reshuffle(max(max_steps // 4, 1))
    missing = (compose(Drop(1), Shuffle()),) if num_sensors > 2 else ()
    return OneOf((*_HARMLESS, *missing, midway))


def name_of_twin(env: str) -> str:
    """Return the name of the recipe for an environment; of its options it has how to observe."""
    name = EnvName.parse(env.removeprefix("gym:"))
    parts = re.sub(r"[^A-Za-z0-9]+", "-", f"{name.id}-{name.layout.observe}")
    return parts.strip("-") + "-twin"
