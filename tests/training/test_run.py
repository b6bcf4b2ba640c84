"""Runs: what they keep, what they refuse, and that resuming changes nothing."""

import json
import shutil
import signal
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium import recipes, zoo
from sensorium.errors import AgentFileError, RunError, UnknownNameError
from sensorium.perturbations import NoiseChannels, Reshuffle, compose
from sensorium.policies import FeedForwardConfig, to_vector
from sensorium.recipes import Recipe
from sensorium.rollout import DeviceEngine
from sensorium.training import Budget, RunDirectory, ShortHorizonConfig, Trainer, run
from sensorium.training.trainer import Metrics
from tests.probes import FollowWorld

pytestmark = pytest.mark.usefixtures("compiled_in_a_hurry")


def tiny(name="cartpole-pi-evolution", **changes):
    numbers = dict(generations=4, population=6, rollouts=2, checkpoint_every=2) | changes
    recipe = recipes.find(name)
    if isinstance(recipe.trainer, ShortHorizonConfig):
        numbers |= dict(horizon=8, updates_per_generation=4)
    recipe = recipe.override(**numbers)
    return Recipe.from_json(recipe.to_json() | {"test_every": 2, "test_episodes": 4})


@pytest.fixture(autouse=True, scope="module")
def short_episodes():
    """Episodes of 50 steps: what is tested here does not depend on their length."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sensorium.envs.CartPoleSwingUpHarder.max_steps", 50)
        yield


@pytest.fixture(scope="module")
def whole(short_episodes, tmp_path_factory):
    """A run that nothing has disturbed, and the agent that came of it."""
    directory = tmp_path_factory.mktemp("whole")
    return directory, recipes.train(tiny(), directory, quiet=True)


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_recipes_survive_json(name):
    recipe = recipes.find(name)
    assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe


def test_recipe_with_nested_perturbations_survives_json():
    recipe = Recipe(
        "x", "y", recipes.find("cartpole-pi").policy, recipes.find("cartpole-pi").trainer,
        perturbation=compose(NoiseChannels(2, 0.5), Reshuffle(7)),
    )  # fmt: skip
    assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe


def test_a_run_keeps_everything(whole):
    directory, best = whole
    kept = {path.name for path in directory.iterdir()}
    assert kept >= {
        "recipe.json", "versions.json", "metrics.jsonl", "tensorboard", "last.safetensors",
        "best.safetensors",
    }  # fmt: skip
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    assert [row["generation"] for row in rows] == [1, 2, 3, 4]
    assert rows[-1]["best_test"] == max(row["test"] for row in rows if row["test"] is not None)
    assert all(row["env_steps_per_second"] > 0 for row in rows)
    loaded = zoo.load(directory)
    np.testing.assert_array_equal(to_vector(loaded.policy), to_vector(best))


@pytest.mark.parametrize("name", ["cartpole-pi-evolution", "cartpole-pi"])
def test_same_seed_same_agent_other_seed_another(name, tmp_path):
    changes = dict(generations=2, population=4)
    first, second, other = (
        to_vector(recipes.train(tiny(name, seed=seed, **changes), tmp_path / label, quiet=True))
        for label, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    np.testing.assert_array_equal(first, second)
    assert np.abs(np.asarray(first - other)).max() > 0


class _Stop(Exception):
    pass


def _stop_after(generation):
    def stop(row):
        if row["generation"] == generation:
            raise _Stop

    return stop


@pytest.mark.parametrize("name", ["cartpole-pi-evolution", "cartpole-pi"])
def test_resuming_changes_nothing(name, tmp_path):
    recipe = tiny(name, population=4)
    recipes.train(recipe, tmp_path / "whole", quiet=True)
    whole = _arrays(tmp_path / "whole" / "last.safetensors")
    for stop in (1, 3):  # before the first checkpoint, and after one with a generation lost
        run = tmp_path / f"stopped after {stop}"
        with pytest.raises(_Stop):
            recipes.train(recipe, run, quiet=True, on_generation=_stop_after(stop))
        recipes.resume(run, quiet=True)
        assert _arrays(run / "last.safetensors") == whole
        rows = (run / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(row)["generation"] for row in rows] == [1, 2, 3, 4]


def _arrays(path):
    from safetensors.numpy import load_file

    return {name: array.tobytes() for name, array in load_file(path).items()}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_checkpoint_first(number, whole, tmp_path):
    assert threading.current_thread() is threading.main_thread()

    def interrupt(row):
        if row["generation"] == 1:
            signal.raise_signal(number)

    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt, match="continue with `sensorium train --resume"):
        recipes.train(tiny(), tmp_path / "run", quiet=True, on_generation=interrupt)
    assert signal.getsignal(number) is before
    recipes.resume(tmp_path / "run", quiet=True)
    last = "last.safetensors"
    assert _arrays(tmp_path / "run" / last) == _arrays(whole[0] / last)


def test_a_directory_with_a_run_is_not_overwritten(whole):
    with pytest.raises(RunError, match="already holds a run of 'cartpole-pi-evolution'"):
        recipes.train(tiny("cartpole-pi"), whole[0], quiet=True)


def test_a_checkpoint_of_another_recipe_is_refused(whole, tmp_path):
    recipes.train(tiny("cartpole-fnn", generations=1), tmp_path / "b", quiet=True)
    shutil.copy(whole[0] / "last.safetensors", tmp_path / "b/last.safetensors")
    with pytest.raises(RunError, match=r"cannot be resumed: .* belongs to another architecture"):
        recipes.resume(tmp_path / "b", quiet=True)


def test_what_is_not_a_run_is_not_resumed(tmp_path):
    with pytest.raises(RunError, match=r"has no recipe\.json"):
        recipes.resume(tmp_path, quiet=True)
    (tmp_path / "recipe.json").write_text('{"kind": "Recipe", "colour": 3}')
    with pytest.raises(RunError, match="'colour' that Recipe does not know"):
        recipes.resume(tmp_path, quiet=True)
    (tmp_path / "recipe.json").write_text('{"kind": "Rec')
    with pytest.raises(RunError, match="Could not read"):
        recipes.resume(tmp_path, quiet=True)


def test_a_run_that_has_no_test_yet_is_no_agent(tmp_path):
    with pytest.raises(_Stop):
        recipes.train(tiny(), tmp_path, quiet=True, on_generation=_stop_after(1))
    with pytest.raises(AgentFileError, match="no test has been made"):
        zoo.load(tmp_path)


def test_unknown_recipe_names_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'cartpole-pi"):
        recipes.find("cartpole-pie")


def test_two_processes_do_not_train_in_one_directory(tmp_path):
    from sensorium.training import RunDirectory

    directory = RunDirectory(tmp_path, {})
    with directory.locked(), pytest.raises(RunError, match="Another process"), directory.locked():
        pass


def test_training_on_perturbed_senses(tmp_path):
    recipe = Recipe.from_json(tiny("cartpole-pi-reshuffle", generations=2, population=2).to_json())
    assert recipe.make_world().num_sensors == 5
    policy = recipes.train(recipe, tmp_path, quiet=True)
    assert bool(jax.numpy.isfinite(to_vector(policy)).all())


class Standing(Trainer):
    """Always has the same candidates: one agent of one weight each."""

    steps_per_generation = 1

    def __init__(self, *weights):
        self._weights = jnp.float32(weights)

    def init(self, key):
        return self._weights

    def step(self, state):
        return state, Metrics(jnp.zeros(()), jnp.zeros(()), {})

    def candidates(self, state):
        agent = FeedForwardConfig(()).build(1, 1, jax.random.key(0))
        return jax.vmap(lambda weight: jax.tree.map(lambda leaf: leaf * 0 + weight, agent))(state)


def test_a_candidate_of_nan_does_not_hide_the_best(tmp_path):
    rows = []
    engine, directory = DeviceEngine(FollowWorld()), RunDirectory(tmp_path, {"name": "follow"})
    budget = Budget(1, checkpoint_every=1, test_every=1, test_episodes=3, seed=0)
    trainer = Standing(5.0, jnp.nan, 0.0)
    best = run(trainer, engine, directory, budget, quiet=True, on_generation=rows.append)
    assert jax.tree.leaves(best)[0].item() == 0.0
    assert rows[-1]["best_test"] == rows[-1]["test"] > -20


def test_weights_that_are_no_numbers_stop_a_run(tmp_path):
    engine, directory = DeviceEngine(FollowWorld()), RunDirectory(tmp_path, {"name": "follow"})
    budget = Budget(1, checkpoint_every=1, test_every=1, test_episodes=3, seed=0)
    with pytest.raises(RunError, match="Generation 1 made weights NaN or infinite"):
        run(Standing(jnp.nan, jnp.inf), engine, directory, budget, quiet=True)
    assert not (tmp_path / "last.safetensors").exists()


def test_a_run_without_a_finite_test_keeps_no_agent(tmp_path, monkeypatch):
    monkeypatch.setattr(FollowWorld, "step_env", _paying_nan(FollowWorld.step_env))
    engine, directory = DeviceEngine(FollowWorld()), RunDirectory(tmp_path, {"name": "follow"})
    budget = Budget(1, checkpoint_every=1, test_every=1, test_episodes=4, seed=0)
    with pytest.raises(RunError, match="gave a finite return: no agent is kept"):
        run(Standing(0.0), engine, directory, budget, quiet=True)
    row = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert row["test"] is row["best_test"] is None


def _paying_nan(step):
    def paying_nan(*arguments):
        observation, state, reward, *others = step(*arguments)
        return observation, state, reward * jnp.nan, *others

    return paying_nan
