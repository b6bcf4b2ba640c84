"""From a teacher's name to a student: train teachers, clone them, go on with a clone."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from sensorium import recipes
from sensorium.bridges.sb3_files import find_statistics, is_model, load_model, load_statistics
from sensorium.errors import ConfigError, RunError
from sensorium.perturbations import Identity
from sensorium.policies import (
    AttentionAgent,
    ConvolutionalConfig,
    FeedForwardConfig,
    Policy,
    SensoryPolicy,
)
from sensorium.policies.growth import grown
from sensorium.recipes import Recipe
from sensorium.rollout import open_engine, require_device, require_host
from sensorium.seeding import key_of, seed_in_32_bits, stream
from sensorium.terminal import shown, with_unit
from sensorium.training import (
    CloningConfig,
    CoachingConfig,
    ControllerImitationConfig,
    ImitationConfig,
    PpoConfig,
    RunDirectory,
)
from sensorium.training.ppo import Teaching, Tests, check_teaching, train_teacher
from sensorium.training.progress import MetricsFile
from sensorium.training.run import describe_versions, keys_of_tests
from sensorium.training.teachers import AgentTeacher, Sb3Teacher, Teacher, check_fit
from sensorium.zoo.agent import Agent, load


def teach(recipe: Recipe, directory: Path, *, quiet: bool = False) -> Policy:
    """Train a teacher with PPO.

    Args:
        recipe: One of a feed-forward or convolutional agent trained by `PpoConfig`.
        directory: A new folder; `teacher.zip` is the model of Stable-Baselines3 with the best test,
            `best.safetensors` the same as an agent of ours.
        quiet: Show no progress.

    Raises:
        ConfigError: The recipe is of another kind, or its settings do not fit.
        RunError: There is a run in the folder already.
        MissingExtraError: Stable-Baselines3 or the world is not installed.
    """
    world, policy = recipe.make_training_world(), recipe.policy
    if not isinstance(recipe.trainer, PpoConfig) or not isinstance(
        policy, FeedForwardConfig | ConvolutionalConfig
    ):
        raise ConfigError(f"{recipe.name} is no teacher: train it with `sensorium train`.")
    check_teaching(recipe.trainer, world, policy)
    if (directory / "recipe.json").exists():
        name = recipes.read(directory).name
        raise RunError(
            f"{directory} already holds a run of {name!r}, and teaching goes on with none: choose another "
            "--run-dir."
        )
    run = RunDirectory(directory, recipe.to_json())
    total = recipe.trainer.total_steps
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with (
        run.locked(new=True),
        Progress(*columns, console=Console(stderr=True), disable=quiet) as bar,
    ):
        run.describe()
        task = bar.add_task("starting", total=total)

        def show(now: Teaching) -> None:
            mean, best = (
                "-" if value is None else shown(value) for value in (now.mean_return, now.best_test)
            )
            speed = now.steps / now.seconds
            text = (
                f"{now.steps:,} steps  return {mean} (best test {best})  {with_unit(speed)} steps/s"
            )
            bar.update(task, completed=min(now.steps, total), description=text)
            metrics.append(dataclasses.asdict(now))
            last.append(now)

        last: list[Teaching] = []
        metrics = MetricsFile(directory / "metrics.jsonl", 0)
        keys = keys_of_tests(recipe.seed, recipe.test_episodes)
        with open_engine(recipe.make_world()) as engine:
            trained = train_teacher(
                recipe.trainer,
                world,
                policy,
                seed_in_32_bits(recipe.seed),
                directory / "teacher.zip",
                Tests(engine, keys, recipe.test_every),
                show,
            )
        card = {
            "training_seconds": last[-1].seconds,
            "training_steps": last[-1].steps,
            "versions": describe_versions(),
        }
        Agent(trained, recipe, card).save(directory / "best.safetensors")
    return trained


_NO_STATISTICS = "none"


def clone(
    recipe: Recipe,
    directory: Path,
    teacher: str | None = None,
    vecnormalize: str | None = None,
    **options: Any,
) -> Policy:
    """Train a student to do what a teacher does, in a new run directory.

    Args:
        recipe: Of a student, trained by `CloningConfig`, `ImitationConfig` or `ControllerImitationConfig`.
        directory: Where; must not hold a run yet.
        teacher: Instead of the recipe's: an agent of the zoo, a run, or a file of an agent or of
            Stable-Baselines3 (a zip).
        vecnormalize: The statistics of VecNormalize that a model of Stable-Baselines3 was trained behind;
            found beside it by default, "none" for none.
        options: As of `recipes.train`.

    Returns:
        The student with the best test.

    Raises:
        ConfigError: The recipe is of another kind, or the teacher does not fit its world.
        UnknownNameError: There is no such teacher.
        AgentFileError: A file is missing, damaged, or of a kind that cannot teach.
    """
    if not isinstance(recipe.trainer, CloningConfig | ControllerImitationConfig | ImitationConfig):
        raise ConfigError(
            f"{recipe.name} is not trained by cloning; train it with `sensorium train`."
        )
    if teacher is not None:
        recipe = recipe.override(teacher=_from_anywhere(teacher))
    if vecnormalize is not None:
        if vecnormalize != _NO_STATISTICS:
            vecnormalize = str(Path(vecnormalize).absolute())
        recipe = recipe.override(vecnormalize=vecnormalize)
    return train(recipe, directory, **options)


def train(recipe: Recipe, directory: Path, start: str | None = None, **options: Any) -> Policy:
    """Train in a new run directory, as `recipes.train` does; finds the agents that the recipe names.

    Args:
        recipe: What to train.
        directory: Where; must not hold a run yet.
        start: Instead of the recipe's: an agent of the zoo, a run or a file to start from.
        options: As of `recipes.train`.

    Raises:
        UnknownNameError: There is no such agent.
        ConfigError: It is of another architecture.
    """
    if start is not None:
        if not start.strip():
            raise ConfigError("--start names no agent.")
        recipe = dataclasses.replace(recipe, start=_from_anywhere(start))
    if isinstance(recipe.trainer, CloningConfig):
        recipe = recipe.override(vecnormalize=_statistics(recipe, recipe.trainer))
    return recipes.train(recipe, directory, **_named_agents(recipe), **options)


def resume(directory: Path, **options: Any) -> Policy:
    """Go on with a run of any kind, as `recipes.resume` does; finds the agents that it names again."""
    recipe = recipes.read(directory)
    if isinstance(recipe.trainer, PpoConfig):
        raise RunError(f"{directory} trains a teacher, which cannot be resumed; begin another.")
    return recipes.resume(directory, **_named_agents(recipe), **options)


def _named_agents(recipe: Recipe) -> dict[str, Any]:
    return {"teacher": find_teacher(recipe), "start": find_start(recipe)}


def find_start(recipe: Recipe) -> Policy | None:
    """The policy that a recipe starts from; None if it draws one.

    An AttentionAgent may look at another number of places there; it is told of as many as the recipe's. An
    AttentionNeuron agent may have smaller LSTMs or a narrower positional table there; it grows.

    Raises:
        UnknownNameError: There is no such agent.
        AgentFileError: The file is missing or damaged.
        ConfigError: It is of another architecture.
    """
    if not recipe.start:
        return None
    policy, wanted = load(recipe.start).policy, recipe.outline()
    if isinstance(policy, AttentionAgent) and isinstance(wanted, AttentionAgent):
        policy = policy.with_top(wanted.top)
    if isinstance(policy, SensoryPolicy) and _shapes(policy) != _shapes(wanted):
        policy = grown(policy, recipe.draw_policy(stream(key_of(recipe.seed), "growth"))) or policy
    if _shapes(policy) != _shapes(wanted):
        raise ConfigError(
            f"{recipe.start} is of another architecture than {recipe.name} in {recipe.env} and cannot be its "
            f"start: {_difference(policy, wanted)}."
        )
    return policy


def _difference(policy: Policy, wanted: Policy) -> str:
    """What a policy of another architecture is, or has, that is not wanted."""
    if type(policy) is not type(wanted):
        return f"it is a {type(policy).__name__}, not a {type(wanted).__name__}"
    if policy.num_actions != wanted.num_actions:
        return f"it gives {policy.num_actions} action(s), not {wanted.num_actions}"
    have, want = (
        {jax.tree_util.keystr(path).lstrip("."): leaf.shape for path, leaf in leaves}
        for leaves, _ in (jax.tree_util.tree_flatten_with_path(each) for each in (policy, wanted))
    )
    for name in sorted(have.keys() | want.keys()):
        if have.get(name) != want.get(name):
            return f"its {name} has the shape {have.get(name)}, not {want.get(name)}"
    return "it was built with other settings"


def _shapes(policy: Policy) -> str:
    return str(jax.tree.map(lambda leaf: leaf.shape, policy))


def _from_anywhere(source: str) -> str:
    """A path made absolute, so that a run can be resumed from any folder; names of the zoo as they are."""
    is_path = os.sep in source or os.path.exists(source)  # an empty name does not
    return str(Path(source).absolute()) if is_path else source


def find_teacher(recipe: Recipe) -> Teacher | Policy | None:
    """The teacher that a recipe names, or the student of a coach; None if it needs none.

    Raises:
        UnknownNameError: There is no such agent.
        AgentFileError: The file is missing or damaged.
        ConfigError: It does not fit the world of the recipe.
    """
    if isinstance(recipe.trainer, ControllerImitationConfig | ImitationConfig):
        return _who_knows(recipe, recipe.trainer.teacher)
    if isinstance(recipe.trainer, CoachingConfig):
        return _coached(recipe)
    if not isinstance(recipe.trainer, CloningConfig):
        return None
    source = recipe.trainer.teacher
    world = require_host(
        recipe.make_world(), "Cloning works with worlds on the host (`gym:` and an id)."
    )
    if not source:
        raise ConfigError(f"{recipe.name} needs a teacher; name one with --teacher.")
    world = dataclasses.replace(world, perturbation=Identity())
    statistics = _statistics(recipe, recipe.trainer)
    if not _is_of_sb3(source):
        if statistics not in ("", _NO_STATISTICS):
            raise ConfigError(
                f"--vecnormalize goes with a model of Stable-Baselines3, and {source} is none."
            )
        return AgentTeacher(load(source).policy, world)
    normalises = statistics != _NO_STATISTICS
    return Sb3Teacher(
        load_model(source), world, load_statistics(statistics) if normalises else None
    )


def _is_of_sb3(source: str) -> bool:
    return source.endswith(".zip") or is_model(source)


def _statistics(recipe: Recipe, trainer: CloningConfig) -> str:
    """Which statistics of VecNormalize the teacher needs: those named, those beside it, or "none"."""
    if trainer.vecnormalize or not _is_of_sb3(trainer.teacher):
        return trainer.vecnormalize
    found = find_statistics(Path(trainer.teacher).absolute(), recipe.env)
    return _NO_STATISTICS if found is None else str(found)


def _coached(recipe: Recipe) -> Policy:
    """The student of a coach."""
    assert isinstance(recipe.trainer, CoachingConfig)
    world, source = recipe.make_world(), recipe.trainer.student
    if not source:
        raise ConfigError(f"{recipe.name} needs a student; set `student` in its trainer.")
    student = load(source).policy
    world = dataclasses.replace(
        require_host(world, "Coaching works with worlds on the host (`gym:` and an id)."),
        perturbation=recipe.trainer.senses,
    )
    student.initial_carry(world.num_sensors)
    check_fit("The student", world, world.raw_observation_shape, student.num_actions)
    return student


def _who_knows(recipe: Recipe, source: str) -> Policy:
    """A teacher who is told the true state of a world on the device."""
    world = recipe.make_world()
    if not source:
        raise ConfigError(f"{recipe.name} needs a teacher; name one with --teacher.")
    if _is_of_sb3(source):
        raise ConfigError(
            f"{recipe.name} imitates agents of ours only; a model of Stable-Baselines3 can teach a student "
            "in a world on the host, such as ant-pi-clone."
        )
    teacher = load(source).policy
    world = require_device(
        world, f"{recipe.name} imitates a teacher in a world on the device, not in {recipe.env}."
    )
    state = jax.eval_shape(
        lambda key: world.reset_env(key, world.default_params)[1], jax.random.key(0)
    )
    (features,) = jax.eval_shape(world.critic_features, state).shape
    teacher.initial_carry(features)
    if teacher.num_actions != world.num_actions:
        raise ConfigError(
            f"The teacher has {teacher.num_actions} action(s), but {recipe.env} takes {world.num_actions}."
        )
    return teacher
