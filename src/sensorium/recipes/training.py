"""From a recipe to a run: its stages one after another, each from what an earlier one kept."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax

from sensorium.errors import ConfigError, RunError, SensoriumError
from sensorium.policies import Policy
from sensorium.recipes.recipe import SCRATCH, STAGE, WORLD, Recipe, Stage
from sensorium.rollout import Engine, EngineConfig, by_kind, open_engine
from sensorium.seeding import key_of, stream
from sensorium.training import Budget, RunDirectory, Trainer, TrainingContext, run
from sensorium.training.checkpoints import LAST
from sensorium.training.experts import Expert
from sensorium.training.run_directory import written_by
from sensorium.types import Key

FindExpert = Callable[[str, str, str], tuple[Expert, dict[str, Any]]]
"""Loads an agent or a model of Stable-Baselines3: from a source as of `Stage.expert`, the statistics of
VecNormalize as of `Stage.vecnormalize`, and the world. Returns it, and what is known of its training."""


def train(recipe: Recipe, directory: Path | str, **options: Any) -> Policy:
    """Train all stages in a new run directory.

    Args:
        recipe: What to train.
        directory: Where; must not hold a run yet.
        options: `quiet` and `on_generation` of `sensorium.training.run`; `engine`, an EngineConfig; and
            `find_expert`, for recipes that name agents: `sensorium.zoo.train` loads them.

    Returns:
        The policy of the last stage with the best test.

    Raises:
        ConfigError: Settings do not fit each other; nothing was written.
        RunError: There is a run in the directory.
        KeyboardInterrupt: Stopped by a signal; `resume` continues.
    """
    return _Chain(recipe, RunDirectory(directory, recipe.to_json()), **options).run(resume=False)


def check(recipe: Recipe, directory: Path | str, **options: Any) -> None:
    """Raise what `train` would before it writes anything; options as there."""
    _Chain(recipe, RunDirectory(directory, recipe.to_json()), **options).check(recipe.stages)


def resume(directory: Path | str, **options: Any) -> Policy:
    """Continue a run, to the same end as if it had never stopped; options as of `train`.

    Raises:
        RunError: There is no run, or one that this version cannot read.
    """
    # The recipe as it is stored: what an older version wrote may lack settings that were added since
    return _Chain(read(directory), RunDirectory.open(directory), **options).run(resume=True)


def read(directory: Path | str) -> Recipe:
    """Read the recipe of a run; RunError if there is none, or none that this version can read."""
    stored = RunDirectory.open(directory)
    try:
        return Recipe.from_json(stored.recipe)
    except (SensoriumError, TypeError) as error:
        version = written_by(stored.versions)
        raise RunError(f"{directory} cannot be resumed{version}: {error}") from error


def _no_experts(source: str, vecnormalize: str, env: str) -> tuple[Expert, dict[str, Any]]:
    raise ConfigError(f"Use sensorium.zoo.train, which finds {source!r}.")


class _Chain:
    """The stages of one run."""

    def __init__(
        self,
        recipe: Recipe,
        directory: RunDirectory,
        engine: EngineConfig | None = None,
        find_expert: FindExpert = _no_experts,
        **options: Any,
    ):
        self.recipe, self.engine, self.options = recipe, engine, options
        self.directory = directory
        self._find = find_expert
        self._leads = True  # unless this is one of several processes, and another writes the run

    def run(self, resume: bool) -> Policy:
        """Train all stages that are not finished yet."""
        todo = [
            (number, stage)
            for number, stage in enumerate(self.recipe.stages)
            if not (resume and self.directory.finished(stage.name))
        ]
        self.check(stage for _, stage in todo)
        with self.directory.locked(new=not resume) if self._leads else contextlib.nullcontext():
            policy = None
            for number, stage in todo:
                policy = self._run_stage(number, stage)
            return self._kept(self.recipe.last) if policy is None else policy

    def check(self, stages: Iterable[Stage]) -> None:
        """Build all that stages need; random policies stand in for what has yet to be trained."""
        for stage in stages:
            self.recipe.outline(stage)
            start, _ = self._find_policy(self.recipe.start_of(stage), stage, planned=True)
            expert, _ = self._find_expert(stage, planned=True)
            with self._engines(stage) as (tests, trains):
                self._leads = tests.leads
                self._build(stage, trains, start, expert)

    def _run_stage(self, number: int, stage: Stage) -> Policy:
        start, of_start = self._find_policy(self.recipe.start_of(stage), stage)
        expert, of_expert = self._find_expert(stage)
        budget = Budget(
            stage=stage.name,
            number=number,
            stages=len(self.recipe.stages),
            generations=stage.generations,
            checkpoint_every=stage.checkpoint_every,
            test_every=stage.test_every,
            test_episodes=stage.test_episodes,
            seed=self.recipe.seed,
            stop_at=stage.stop_at,
            max_seconds=stage.max_seconds,
            goes_on=start is not None,
        )
        facts = {name: fact for name, fact in (("start", of_start), ("expert", of_expert)) if fact}
        with contextlib.ExitStack() as stack:
            tests, trains = stack.enter_context(self._engines(stage))
            directory, options = self.directory, self.options
            if not tests.leads:
                directory = stack.enter_context(_copy(directory))
                options = {**options, "quiet": True}
            trainer = self._build(stage, trains, start, expert)
            return run(trainer, tests, directory, budget, facts=facts, **options)

    @contextlib.contextmanager
    def _engines(self, stage: Stage) -> Iterator[tuple[Engine, Engine]]:
        """Open the engines for tests and for training."""
        world = self.recipe.make_world(stage)
        training_world = self.recipe.make_training_world(stage)
        with contextlib.ExitStack() as stack:
            tests = trains = stack.enter_context(open_engine(world, self.engine))
            if training_world != world:
                trains = stack.enter_context(open_engine(training_world, self.engine))
            yield tests, trains

    def _build(
        self, stage: Stage, engine: Engine, start: Policy | None, expert: Expert | None
    ) -> Trainer:
        stage.trainer.check_engine(engine)
        scale = stage.perturbation.code_scale

        def fresh(key: Key) -> Policy:
            return self.recipe.draw_policy(key, stage).with_code_scale(scale)

        if start is not None:
            start = fit_start(start, self.recipe, stage).with_code_scale(scale)
        return stage.trainer.build(
            TrainingContext(
                config=stage.policy or self.recipe.policy,
                fresh=fresh,
                engine=engine,
                directory=self.directory.data(stage.name),
                generations=stage.generations,
                start=start,
                expert=expert,
            )
        )

    def _find_expert(self, stage: Stage, planned: bool = False) -> tuple[Any, dict[str, Any]]:
        """Load the expert of a stage, or take the world's own controller; what is known of its training."""
        if stage.expert != WORLD:
            return self._find_policy(stage.expert, stage, planned)
        function = by_kind(
            self.recipe.make_world(stage),
            lambda device: getattr(device.unperturbed, "best_action", None),
            lambda _: None,
        )
        if function is None:
            raise ConfigError(
                f"{self.recipe.env} has no controller of its own; name another expert than {WORLD!r}."
            )
        return function, {}

    def _find_policy(
        self, source: str, stage: Stage, planned: bool = False
    ) -> tuple[Any, dict[str, Any]]:
        """Load the agent of a source, and what is known of its training, where it is not of this run."""
        if source in ("", SCRATCH):
            return None, {}
        if not source.startswith(STAGE):
            return self._find(source, stage.vecnormalize, self.recipe.env)
        earlier = self.recipe.stage(source.removeprefix(STAGE))
        if planned and not self.directory.finished(earlier.name):
            return self.recipe.draw_policy(jax.random.key(0), earlier), {}
        return self._kept(earlier), {}

    def _kept(self, stage: Stage) -> Policy:
        """Load what a finished stage kept."""
        return self.directory.load(stage.name, self.recipe.outline(stage))


def fit_start(policy: Policy, recipe: Recipe, stage: Stage) -> Policy:
    """Fit a policy to a stage that starts from it.

    An AttentionAgent may attend to another number of places. An AttentionNeuron agent with smaller LSTMs or a
    narrower positional table is widened, and acts as before.

    Raises:
        ConfigError: It is of another architecture.
    """
    outline = recipe.outline(stage)
    if _shapes(policy) != _shapes(outline):
        policy = policy.fitted_to(recipe.draw_policy(stream(key_of(recipe.seed), "growth"), stage))
    if _shapes(policy) != _shapes(outline):
        raise ConfigError(
            f"A policy of another architecture cannot start the stage {stage.name!r} of {recipe.name} in "
            f"{recipe.env}: {_difference(policy, outline)}."
        )
    return policy


def _difference(policy: Policy, wanted: Policy) -> str:
    """Describe how the architecture of a policy differs from the wanted one."""
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


def _shapes(policy: Policy) -> tuple[Any, list[tuple[int, ...]]]:
    """Return an architecture: the structure with its settings, and the shapes of the weights."""
    return jax.tree.structure(policy), [leaf.shape for leaf in jax.tree.leaves(policy)]


@contextlib.contextmanager
def _copy(directory: RunDirectory) -> Iterator[RunDirectory]:
    """Copy the run to a temporary folder, for processes that train along but do not write the run."""
    with tempfile.TemporaryDirectory() as temporary:
        if (directory.path / LAST).exists():
            shutil.copy(directory.path / LAST, temporary)
        yield RunDirectory(Path(temporary), directory.recipe)
