"""The recipe of a twin: an agent that imitates an expert, with its sensors in any order.

Sizes and lengths are derived from the world; docs/experiments.md lists what was tried.
"""

import dataclasses
import math
import re

import equinox as eqx
import jax
import jax.numpy as jnp

from sensorium.bridges.open_env import EnvName
from sensorium.envs import World
from sensorium.errors import ConfigError
from sensorium.perturbations import (
    Drop,
    Duplicate,
    DuplicateSome,
    Identity,
    NoiseChannels,
    Occlude,
    OneOf,
    Perturbation,
    Reshuffle,
    Shuffle,
    ShufflePatches,
    compose,
)
from sensorium.policies import (
    AttentionNeuronConfig,
    PolicyConfig,
)
from sensorium.recipes.recipe import Recipe, Stage
from sensorium.recipes.twin_of_images import (
    Size,
    Training,
    patch_size,
    student_of_images,
    training_on_images,
)
from sensorium.training import DaggerConfig, PpoConfig
from sensorium.types import Actions, ObservationSpec, in_words, num_sensors_of, shape_of

_STANDARD = AttentionNeuronConfig(
    num_queries=32,
    hidden_size=32,
    bias=True,
    scale=True,
    controller_sizes=(128, 128),
    code_feedback=True,
    with_change=True,
)
STUDENTS: dict[Size, AttentionNeuronConfig] = {
    "standard": _STANDARD,
    "wide": dataclasses.replace(
        _STANDARD, num_queries=64, hidden_size=64, position_size=16, controller_sizes=(256, 256)
    ),
}

_WINDOW = 50
_SEQUENCE = 100  # steps of a sequence
_RESHUFFLE = 66  # at most so many steps of an order: all sequences have another after that
_BEGINNING = 200  # steps of a rollout where only the first steps of an episode are special
_HARMLESS: tuple[Perturbation, ...] = (Shuffle(), compose(NoiseChannels(5), Shuffle()))
_UPDATES = 640  # of a generation
_GENERATIONS = 100
_COLLECTING = 0.5  # about which part of PPO's time that takes, where a simulation is quick
_MOST_ITERATIONS = 32
# Of a generation, where episodes are short and quick
_NEW_STEPS = 6_400
_NEW_SECONDS = 10
_FEWEST_ENVS, _MOST_ENVS = 16, 128


@dataclasses.dataclass(frozen=True)
class Measured:
    """Measurements of an expert, made before the training of its twin."""

    source: str
    """As `Stage.expert`."""
    vecnormalize: str = ""
    """As `Stage.vecnormalize`."""
    unit: float = 0.0
    """About how large its sensors' readings are; 0 to leave them as they are."""
    stop_at: float | None = None
    """Mean return in tests at which a student is as good."""
    mean_length: int = 0
    """Steps of its episodes."""
    longest: int = 0
    """Steps of its longest episode; where an environment sets no limit, students have twice as many."""
    steps_per_second: float = math.inf
    """That it took, in all episodes together."""
    distinct_patches: int | None = None
    """How many patches of an image differ at most, where most are alike; None where they are not."""
    few_episodes: bool = False
    """Whether its episodes are a few, over and over."""


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
    """Make the recipe of a twin.

    Args:
        env: The world's name.
        world: The world.
        expert: The expert to imitate.
        student: The policy, or its size.
        then_ppo: Continue by PPO on the reward.
        max_seconds: Of all training, shared out equally to its stages; None for as long as it needs.
        seed: Of all random numbers.

    Raises:
        ConfigError: The world shows something that the student cannot take.
    """
    spec = world.raw_observation_spec
    if num_sensors_of(spec) is None and len(shape_of(spec)) != 3:
        raise ConfigError(
            f"{env} shows {in_words(spec)}; twins take scalar sensors, entities or images."
        )
    policy = student if isinstance(student, PolicyConfig) else _student(student, spec, expert)
    max_steps = world.max_steps
    if expert.longest and not world.has_time_limit:
        max_steps = min(max_steps, 2 * expert.longest)
    if is_image(spec):
        about = expert.distinct_patches, expert.few_episodes
        training = training_on_images(*about, expert.longest or max_steps)
    else:
        training = Training(_of_sensors(spec, max_steps, expert), _GENERATIONS, test_every=4)
    if then_ppo and max_seconds is not None:
        max_seconds /= 2
    padded = not isinstance(spec, int) or _ignores_zeros(policy, spec, world.actions)
    trained, tested = _rewirings(spec, expert.mean_length or max_steps, padded)
    clone = Stage(
        "clone",
        training.trainer,
        generations=training.generations,
        perturbation=trained,
        test_perturbation=tested,
        expert=expert.source,
        vecnormalize=expert.vecnormalize,
        test_every=training.test_every,
        test_episodes=num_tests(spec),
        checkpoint_every=4,
        stop_at=expert.stop_at,
        max_seconds=max_seconds,
    )
    stages: tuple[Stage, ...] = (clone,)
    if then_ppo:
        ppo = dict(name="ppo", trainer=_from_reward(expert, max_seconds), test_every=2)
        ppo |= dict(generations=_GENERATIONS, expert="", vecnormalize="")
        stages += (clone.changed(**ppo),)
    return Recipe(
        name=name_of_twin(env),
        summary=f"Does in {env} what its expert does, with its sensors in any order.",
        policy=policy,
        env=env,
        stages=stages,
        seed=seed,
    )


def is_image(spec: ObservationSpec) -> bool:
    """Check whether observations are images."""
    return num_sensors_of(spec) is None


def num_tests(spec: ObservationSpec) -> int:
    """Return how many episodes a test has; images are slow."""
    return 16 if is_image(spec) else 64


def shuffled(spec: ObservationSpec, every: int = 0) -> Perturbation:
    """Return a shuffle of sensors or patches; with `every`, another each so many steps."""
    if is_image(spec):
        return ShufflePatches(patch_size(spec), every)
    return Reshuffle(every) if every else Shuffle()


def scored(spec: ObservationSpec) -> dict[str, Perturbation]:
    """Return the perturbations that a twin is scored under, by name, beside a reshuffle in mid-episode."""
    plain: dict[str, Perturbation] = {"plain": Identity(), "shuffled": shuffled(spec)}
    if is_image(spec):
        hidden = compose(Occlude(0.1, patch_size(spec)), shuffled(spec))
        return plain | {"a tenth of the patches black, shuffled": hidden}
    more: tuple[Perturbation, ...] = (Duplicate(2), NoiseChannels(5))
    if num_sensors_of(spec) != 1:
        more = (*more, Drop(1))
    return plain | {str(each): each for each in (compose(part, Shuffle()) for part in more)}


def _student(size: Size, spec: ObservationSpec, expert: Measured) -> PolicyConfig:
    if is_image(spec):
        return student_of_images(size, spec, expert.distinct_patches, expert.few_episodes)
    return dataclasses.replace(STUDENTS[size], squash=expert.unit)


def _of_sensors(spec: ObservationSpec, max_steps: int, expert: Measured) -> DaggerConfig:
    """Set up DAgger in episodes of at most so many steps; entities have no identity to predict."""
    steps = _rollout_steps(max_steps, expert)
    window = min(_WINDOW, steps)
    wanted = max(_NEW_STEPS, _FEWEST_ENVS * max_steps)
    new_steps = min(wanted, _NEW_SECONDS * expert.steps_per_second)
    num_steps = min(steps, _SEQUENCE) // window * window
    return DaggerConfig(
        num_envs=min(max(int(new_steps / steps), _FEWEST_ENVS), _MOST_ENVS),
        rollout_steps=steps,
        demonstration_rounds=4,
        num_batches=max(_UPDATES * window // num_steps, 1),
        batch_size=16,
        num_steps=num_steps,
        window=window,
        learning_rate=5e-3,
        sensor_id_coef=0.3 * isinstance(spec, int),
        ema_decay=0.99,
    )


def _from_reward(expert: Measured, max_seconds: float | None) -> PpoConfig:
    """Set up PPO that starts from a twin: with little noise, which a narrow skill survives.

    Its schedules are over generations; these are as long as fills the time.
    """
    lanes, steps = 32, 64
    seconds = _NEW_SECONDS if max_seconds is None else _COLLECTING * max_seconds / _GENERATIONS
    iterations = seconds * expert.steps_per_second / (lanes * steps)
    return PpoConfig(
        num_envs=lanes,
        num_steps=steps,
        num_iterations=int(min(max(iterations, 1), _MOST_ITERATIONS)),
        num_epochs=6,
        num_minibatches=4,
        critic_iterations=2,
        action_std=0.1,
        last_action_std=0.05,
        hold_noise=1,
    )


def _rollout_steps(max_steps: int, expert: Measured) -> int:
    """Return the steps of a rollout.

    A student does not know its sensors at the start of an episode. Where its expert always acts up to the
    time limit, later steps are much alike, and many short rollouts teach more than few long ones.
    """
    return min(max_steps, _BEGINNING) if expert.mean_length >= max_steps else max_steps


def _rewirings(
    spec: ObservationSpec, length: int, padded: bool
) -> tuple[Perturbation, Perturbation | None]:
    """Return what a twin is trained and tested under in episodes of about so many steps.

    Of one or two sensors, none is dropped. Where an episode may have more or fewer sensors than another,
    `OneOf` pads with zeros; students who mind them always have as many as there are.

    Agents of images have no memory of single patches: one order stands for all.
    """
    if is_image(spec):
        return Identity(), None
    often = Reshuffle(max(min(length // 3, _RESHUFFLE), 1))
    midway = Reshuffle(max(length // 2, 1))
    if not padded:
        return OneOf((Shuffle(), often)), OneOf((Shuffle(), midway))
    count = shape_of(spec)[0]
    missing = (compose(Drop(1), Shuffle()),) if count > 2 else ()
    # Three times as many entities as here may come later; scalar sensors are what they are
    more = () if isinstance(spec, int) else (compose(DuplicateSome(2 * count), Shuffle()),)
    return OneOf((*_HARMLESS, *missing, *more, often)), OneOf((*_HARMLESS, *more, midway))


def _ignores_zeros(policy: PolicyConfig, count: int, actions: Actions) -> bool:
    """Check whether a policy of N scalar sensors acts the same beside one more, which reads zero."""
    drawn = policy.build(count, actions, jax.random.key(0))
    if not drawn.takes(count + 1):
        return False
    # Biases that are drawn as zero would hide what they do
    weights, rest = eqx.partition(drawn, eqx.is_inexact_array)
    drawn = eqx.combine(jax.tree.map(lambda leaf: leaf + 0.1, weights), rest)
    read = jnp.linspace(-1.0, 1.0, count)
    outputs = []
    for readings in (read, jnp.append(read, 0.0)):
        features, carry, _ = drawn.encode(readings, drawn.initial_carry(len(readings)))
        outputs.append(drawn.decide(features, carry)[0])
    few, more = outputs
    return bool(jnp.allclose(few, more, rtol=1e-4, atol=1e-5))


def name_of_twin(env: str) -> str:
    """Return the name of the recipe for an environment; of its options it has how to observe."""
    name = EnvName.parse(env.removeprefix("gym:"))
    parts = re.sub(r"[^A-Za-z0-9]+", "-", f"{name.id}-{name.layout.observe}")
    return parts.strip("-") + "-twin"
