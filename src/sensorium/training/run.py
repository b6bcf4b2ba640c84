"""The loop around every trainer: test, keep the best, log, checkpoint, stop on a signal."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sensorium.errors import AgentFileError, RunError
from sensorium.policies import Policy
from sensorium.rollout import Engine
from sensorium.seeding import Seed, key_of, stream
from sensorium.serialisation import save_pytree
from sensorium.training.budget import Budget
from sensorium.training.checkpoints import (
    BEST,
    Clock,
    Progress,
    first_progress,
    load_checkpoint,
    save_checkpoint,
    stage_of_checkpoint,
)
from sensorium.training.progress import Display, MetricsFile, TensorBoard
from sensorium.training.run_directory import RunDirectory, describe_versions
from sensorium.training.trainer import Metrics, Trainer
from sensorium.types import Keys

_LONGEST = 600.0  # seconds of training without a checkpoint, however few generations they are
_TESTS = 0x7E57  # folded into the seed: test episodes are never training episodes


def run(
    trainer: Trainer,
    engine: Engine,
    directory: RunDirectory,
    budget: Budget,
    *,
    quiet: bool = False,
    on_generation: Callable[[dict[str, Any]], None] | None = None,
    facts: dict[str, Any] | None = None,
) -> Policy:
    """Train a stage to the end of its budget, or until SIGTERM or Ctrl-C.

    It resumes from the checkpoint, if there is one of this stage, as if the run had never been interrupted.

    Args:
        trainer: How to train.
        engine: Runs the tests of the candidates.
        directory: Where everything is kept; locked by this process.
        budget: How long, and how often to test and checkpoint.
        quiet: Show nothing.
        on_generation: Called with every row of the metrics.
        facts: More to store with the stage once it is finished.

    Returns:
        The policy with the best test.

    Raises:
        RunError: The checkpoint is damaged or of another recipe, or no test gave a finite return.
        WriteError: A file could not be written; the checkpoint of before is intact.
        KeyboardInterrupt: Stopped by a signal; a checkpoint was written first.
    """
    key = key_of(budget.seed)
    state = trainer.init(stream(key, budget.stage) if budget.number else key)
    candidate = jax.tree.map(lambda leaf: leaf[0], trainer.candidates(state))
    progress, clock = first_progress(state, candidate), Clock()
    try:
        if stage_of_checkpoint(directory.path, directory.recipe) == budget.stage:
            progress, clock = load_checkpoint(directory.path, progress)
    except AgentFileError as error:
        raise RunError(f"{directory.path} cannot be resumed: {error}") from error
    directory.describe()
    first = int(progress.generation)
    spent = budget.is_spent(first, float(progress.best_score), clock.seconds)
    test_keys = keys_of_tests(budget.seed, budget.test_episodes)
    test_score: float | None = None  # until the first test
    versions = describe_versions()
    header = {"recipe": directory.recipe, "stage": budget.stage, "versions": versions}

    def tested(progress: Progress, generation: int) -> tuple[Progress, float | None]:
        progress, score, is_best = _test(trainer, engine, progress, test_keys)
        if is_best and score is not None:
            of_best = {"generation": generation, "test": score}
            save_pytree(directory.path / BEST, progress.best, header | of_best)
        return progress, score

    with (
        _stop_signals() as stopped,
        contextlib.closing(
            TensorBoard(directory.path / "tensorboard" / budget.stage, first)
        ) as tensorboard,
        Display(budget, first, quiet) as display,
    ):
        metrics_file = MetricsFile(directory.path / "metrics.jsonl", budget.stage, first)
        started, elapsed, env_steps = time.perf_counter(), clock, clock.env_steps
        generation = first
        if budget.goes_on and not first:
            progress, test_score = tested(progress, 0)
            spent = budget.is_spent(0, float(progress.best_score))
        while not spent:
            generation += 1
            began = time.perf_counter()
            state, metrics = trainer.step(progress.trainer)
            _check_finite(trainer.candidates(state), generation)
            progress = progress._replace(
                trainer=state, generation=jnp.asarray(generation, jnp.int32)
            )
            jax.block_until_ready(progress)
            step_seconds = time.perf_counter() - began
            session = time.perf_counter() - started
            last = engine.anywhere(
                budget.is_spent(generation, float(progress.best_score), clock.seconds + session)
            )
            if generation % budget.test_every == 0 or last:
                progress, test_score = tested(progress, generation)
            session = time.perf_counter() - started
            spent = last or budget.is_spent(generation, float(progress.best_score))
            env_steps += metrics.env_steps
            pace = session / (generation - first)
            left = budget.seconds_left(generation, clock.seconds + session, pace)
            row = {
                "stage": budget.stage,
                "generation": generation,
                **_figures(metrics),
                "test": test_score,
                "best_test": _finite(float(progress.best_score)),
                "seconds": clock.seconds + session,
                "seconds_left": 0.0 if spent else left,
                "env_steps": metrics.env_steps,
                "env_steps_per_second": metrics.env_steps / step_seconds,
            }
            metrics_file.append(row)
            tensorboard.append(row)
            display.update(row)
            if on_generation:
                on_generation(row)
            stop = engine.anywhere(stopped())
            since_saved = clock.seconds + session - elapsed.seconds
            late = engine.anywhere(since_saved >= _LONGEST)
            if generation % budget.checkpoint_every == 0 or spent or stop or late:
                elapsed = Clock(clock.seconds + session, env_steps)
                save_checkpoint(directory.path, progress, header, elapsed)
                trainer.saved(progress.trainer)
            if spent and not np.isfinite(float(progress.best_score)):
                raise RunError(
                    f"No test of {directory.path} gave a finite return: no agent is kept."
                )
            if stop and not spent:
                raise KeyboardInterrupt(
                    f"Stopped after generation {generation} of the stage {budget.stage!r}; continue with "
                    f"`sensorium train --resume {directory.path}`."
                )
    history = {
        "stage": budget.stage,
        "version": versions.get("sensorium"),
        "generations": int(progress.generation),
        "best_test": _finite(float(progress.best_score)),
        "seconds": round(elapsed.seconds, 1),
        "env_steps": elapsed.env_steps,
        **(facts or {}),
    }
    directory.finish(budget.stage, progress.best, header | {"history": history})
    return progress.best


def keys_of_tests(seed: Seed, episodes: int) -> Keys:
    """Derive a key for each episode of the tests of a run."""
    return jax.random.split(jax.random.fold_in(key_of(seed), _TESTS), episodes)


def _test(
    trainer: Trainer, engine: Engine, progress: Progress, keys: jax.Array
) -> tuple[Progress, float | None, bool]:
    """Test the candidates; return the progress, the best of their scores, and whether it is a new best."""
    candidates = trainer.candidates(progress.trainer)
    returns = np.asarray(engine.run_population(candidates, keys).total)
    with np.errstate(over="ignore", invalid="ignore"):
        scores = returns.mean(axis=1)
    scores = np.where(np.isfinite(scores), scores, -np.inf)  # it cannot be the best
    winner = int(scores.argmax())
    score = float(scores[winner])
    if not score > float(progress.best_score):
        return progress, _finite(score), False
    best = jax.tree.map(lambda leaf: leaf[winner], candidates)
    progress = progress._replace(best=best, best_score=jnp.asarray(score, jnp.float32))
    return progress, score, True


def _check_finite(candidates: Policy, generation: int) -> None:
    """Raise RunError unless all weights of at least one candidate are finite; the last checkpoint stays."""
    leaves = [
        leaf for leaf in jax.tree.leaves(candidates) if jnp.issubdtype(leaf.dtype, jnp.inexact)
    ]
    whole = [
        np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in map(np.asarray, leaves)
    ]
    if whole and not np.all(whole, axis=0).any():
        raise RunError(
            f"Generation {generation} made weights NaN or infinite; the last checkpoint is from before, "
            "and a lower learning rate may help."
        )


def _figures(metrics: Metrics) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.figures.items()}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


@contextlib.contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Note SIGTERM and Ctrl-C, to stop after the generation; a second one stops at once."""
    received: list[int] = []

    def note(number: int, _: object) -> None:
        if received:
            raise KeyboardInterrupt("Stopped at once; the last checkpoint stands.")
        received.append(number)

    previous = {}
    with contextlib.suppress(ValueError):  # not in the main thread: nothing to handle
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, note)
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
