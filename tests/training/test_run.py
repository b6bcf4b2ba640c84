"""Runs: what they keep, what they refuse, and that resuming changes nothing."""

import contextlib
import importlib
import json
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorium import recipes, zoo
from sensorium.errors import AgentFileError, RunError, SensoriumError, UnknownNameError, WriteError
from sensorium.perturbations import NoiseChannels, Reshuffle, compose
from sensorium.policies import FeedForwardConfig, to_vector
from sensorium.recipes import Recipe
from sensorium.rollout import DeviceEngine
from sensorium.serialisation import read_header
from sensorium.training import Budget, RunDirectory, ShacConfig, Trainer, run
from sensorium.training.progress import MetricsFile, read_metrics
from sensorium.training.trainer import Metrics
from tests.probes import FollowWorld, Stopped, stop_after

pytestmark = pytest.mark.usefixtures("short_episodes")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("generation"), inner),
)


def tiny(name="cartpole-pi-evolution", **changes):
    settings = dict(generations=4, population=4, num_episodes=2, checkpoint_every=2) | changes
    recipe = recipes.find(name)
    if isinstance(recipe.last.trainer, ShacConfig):
        settings |= dict(num_steps=8, num_iterations=4, num_envs=settings.pop("num_episodes"))
    return recipe.override(settings | {"test_every": 2, "test_episodes": 4})


@pytest.fixture(scope="module")
def whole(short_episodes, tmp_path_factory):
    """A run that nothing has disturbed, and the agent that came of it."""
    directory = tmp_path_factory.mktemp("whole")
    return directory, recipes.train(tiny(), directory, quiet=True)


def test_a_run_goes_on_though_recipes_have_new_settings_since(whole, tmp_path, monkeypatch):
    to_json = Recipe.to_json

    def older(recipe):
        written = to_json(recipe)
        for stage in written["stages"]:
            del stage["stop_at"], stage["max_seconds"]
        return written

    with monkeypatch.context() as patch:
        patch.setattr(Recipe, "to_json", older)
        with pytest.raises(Stopped):
            recipes.train(tiny(), tmp_path / "run", quiet=True, on_generation=stop_after(3))
    again = recipes.resume(tmp_path / "run", quiet=True)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, again, whole[1]))


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_recipes_survive_json(name):
    recipe = recipes.find(name)
    assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe


def test_recipe_with_nested_perturbations_survives_json():
    stage = recipes.find("cartpole-pi").last.changed(
        perturbation=compose(NoiseChannels(2, 0.5), Reshuffle(7))
    )
    recipe = Recipe("x", "y", recipes.find("cartpole-pi").policy, (stage,))
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
    first, second, other = (
        to_vector(recipes.train(tiny(name, seed=seed), tmp_path / label, quiet=True))
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
    recipe = tiny(name)
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


def test_long_generations_are_not_lost(tmp_path, monkeypatch):
    loop = importlib.import_module("sensorium.training.run")
    monkeypatch.setattr(loop, "_LONGEST", 0.0)  # as if each took ten minutes
    with pytest.raises(_Stop):
        recipes.train(
            tiny(checkpoint_every=100), tmp_path, quiet=True, on_generation=_stop_after(3)
        )
    trained = []
    recipes.resume(tmp_path, quiet=True, on_generation=trained.append)
    assert [row["generation"] for row in trained] == [3, 4]


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
    shutil.rmtree(tmp_path / "b/stages")
    with pytest.raises(RunError, match=r"trained with 'name' \"cartpole-pi-evolution\", but"):
        recipes.resume(tmp_path / "b", quiet=True)


def test_what_is_not_a_run_is_not_resumed(tmp_path):
    with pytest.raises(RunError, match=r"has no recipe\.json"):
        recipes.resume(tmp_path, quiet=True)
    (tmp_path / "recipe.json").write_text('{"kind": "Recipe", "colour": 3}')
    with pytest.raises(RunError, match="no setting of Recipe 'colour'"):
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
    directory = RunDirectory(tmp_path, {})
    with directory.locked(), pytest.raises(RunError, match="Another process"), directory.locked():
        pass


def test_of_many_that_create_a_run_one_does(tmp_path):
    """None looks before it has the lock, and it keeps that: the others find it taken, or a run."""
    together, entered, refused = threading.Barrier(8), [], []

    def create(number):
        directory = RunDirectory(tmp_path / "run", {"name": str(number)})
        together.wait()
        try:
            with directory.locked(new=True):
                directory.describe()
                entered.append(number)
        except RunError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(entered) == 1
    assert RunDirectory.open(tmp_path / "run").recipe == {"name": str(entered[0])}
    assert all("Another process" in said or "already holds" in said for said in refused)


def test_the_lock_is_held_from_before_the_first_look(tmp_path, monkeypatch):
    def look(*_):
        with pytest.raises(RunError, match="Another process"), RunDirectory(tmp_path, {}).locked():
            pass
        raise _Stop

    monkeypatch.setattr(sys.modules["sensorium.training.run"], "first_progress", look)
    for _ in range(2):  # what failed before it began is no run, and the folder can be used
        with pytest.raises(_Stop):
            recipes.train(tiny(), tmp_path, quiet=True)


def test_locks_that_cannot_be_had_get_a_sentence(tmp_path, monkeypatch):
    import errno
    import fcntl

    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.raises(RunError, match="cannot lock files"),
        RunDirectory(tmp_path, {}).locked(),
    ):
        pass
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(RunError, match="Linux or macOS"), RunDirectory(tmp_path, {}).locked():
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError), RunDirectory(tmp_path / "file/run", {}).locked(new=True):
        pass


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        ("seed", 7, "with 'seed' 0, but recipe.json says 7; put that back"),
        (
            "stages.0.trainer.num_episodes",
            3,
            "with 'stages[0].trainer.num_episodes' 2, but recipe.json says 3",
        ),
        ("policy.num_queries", 4, "with 'policy.num_queries' 16, but recipe.json says 4"),
    ],
)
def test_an_edited_recipe_is_not_resumed(setting, value, sentence, whole, tmp_path):
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    recipe = json.loads((tmp_path / "recipe.json").read_text())
    *path, name = setting.split(".")
    part = recipe
    for step in path:
        part = part[int(step) if step.isdigit() else step]
    part[name] = value
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    with pytest.raises(RunError, match="cannot be resumed") as caught:
        recipes.resume(tmp_path, quiet=True)
    assert sentence in str(caught.value)


def test_a_run_whose_recipe_got_another_stage_says_so_in_a_sentence(whole, tmp_path):
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    recipe = json.loads((tmp_path / "recipe.json").read_text())
    recipe["stages"].append(recipe["stages"][0] | {"name": "more"})
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    with pytest.raises(RunError) as caught:
        recipes.resume(tmp_path, quiet=True)
    said = str(caught.value).replace(str(tmp_path), "")
    assert """with 'stages[1]' nothing, but recipe.json says {"kind": "Stage",""" in said
    assert len(said) < 400


def test_a_run_of_another_version_says_which(whole, tmp_path):
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    recipe = json.loads((tmp_path / "recipe.json").read_text())
    recipe["stages"][0]["trainer"] = {"kind": "CloningConfig", "episodes": 3}
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    versions = json.loads((tmp_path / "versions.json").read_text()) | {"sensorium": "0.1.0"}
    (tmp_path / "versions.json").write_text(json.dumps(versions))
    sentence = (
        r"cannot be resumed \(Sensorium 0.1.0 wrote it\): There is no registered part 'CloningC"
    )
    for text in (json.dumps(versions), None):
        with pytest.raises(RunError, match=sentence if text else "resumed: There is no registered"):
            recipes.resume(tmp_path, quiet=True)
        (tmp_path / "versions.json").unlink(missing_ok=True)


def test_damaged_checkpoints_are_not_resumed(whole, tmp_path):
    from sensorium.serialisation import save_pytree

    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "stages")  # as if it had been stopped before its end
    last = tmp_path / "last.safetensors"
    header = read_header(last)
    for wrong in (
        {},
        {"recipe": header["recipe"]},
        header | {"seconds": "long"},
        header | {"recipe": 3},
    ):
        save_pytree(last, {}, wrong)
        with pytest.raises(RunError, match="cannot be resumed"):
            recipes.resume(tmp_path, quiet=True)
    last.write_bytes((whole[0] / "last.safetensors").read_bytes()[:5000])
    with pytest.raises(RunError, match="truncated"):
        recipes.resume(tmp_path, quiet=True)


FIRST = b'{"stage": "evolution", "generation": 1, "test": NaN}'


@given(st.lists(st.binary() | json_values.map(lambda value: json.dumps(value).encode())))
def test_any_metrics_give_rows_with_a_generation(lines):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.jsonl"
        path.write_bytes(b"\n".join([FIRST, *lines, b'{"stage": "evolution", "generation": 2}']))
        rows = read_metrics(path)
        assert rows[0] == {"stage": "evolution", "generation": 1, "test": None}
        assert rows[-1] == {"stage": "evolution", "generation": 2}
        assert all(type(row["generation"]) is int for row in rows)
        MetricsFile(path, "evolution", 1)
        of_stage = [row for row in read_metrics(path) if row.get("stage") == "evolution"]
        assert all(row["generation"] <= 1 for row in of_stage)


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_recipe_file_is_a_run_or_a_run_error(content):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "recipe.json").write_bytes(content)
        with pytest.raises(RunError):
            recipes.read(folder)


def _places(value, path=()):
    """Every place in nested JSON."""
    yield path
    if isinstance(value, list):
        value = dict(enumerate(value))
    for name, each in value.items() if isinstance(value, dict) else ():
        yield from _places(each, (*path, name))


@given(st.data())
def test_a_recipe_with_any_value_in_any_place_is_a_recipe_or_refused(data):
    recipe = json.loads(json.dumps(recipes.find("cartpole-pi-reshuffle").to_json()))
    *path, name = data.draw(st.sampled_from([place for place in _places(recipe) if place]))
    part = recipe
    for step in path:
        part = part[step]
    if data.draw(st.booleans()):
        part[name] = data.draw(json_values)
    else:
        del part[name]
    with contextlib.suppress(SensoriumError):
        assert isinstance(Recipe.from_json(recipe), Recipe)


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(recipes.find("cartpole-pi").to_json()).encode("utf-16"),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        json.dumps({"kind": "Recipe", "name": "x", "summary": "y"}).encode(),
        json.dumps(recipes.find("cartpole-pi").to_json() | {"seed": "0"}).encode(),
        json.dumps(recipes.find("cartpole-pi").to_json() | {"generations": 1.5}).encode(),
        json.dumps(recipes.find("cartpole-pi").to_json() | {"policy": 3}).encode(),
        json.dumps(recipes.find("cartpole-pi").to_json() | {"policy": {"kind": "Shuffle"}}).encode(),
        json.dumps(recipes.find("cartpole-pi").to_json() | {"kind": ["Recipe"]}).encode(),
        json.dumps(recipes.find("cartpole-pi").to_json()).encode()[:-1] + b', "seed": 3}',
    ],
)  # fmt: skip
def test_a_damaged_recipe_file_is_refused(content, tmp_path):
    (tmp_path / "recipe.json").write_bytes(content)
    with pytest.raises(RunError):
        recipes.read(tmp_path)


def test_training_on_perturbed_senses(tmp_path):
    recipe = Recipe.from_json(tiny("cartpole-pi-reshuffle", generations=2, population=2).to_json())
    assert recipe.make_world().num_sensors == 5
    policy = recipes.train(recipe, tmp_path, quiet=True)
    assert bool(jax.numpy.isfinite(to_vector(policy)).all())


class Standing(Trainer):
    """Always has the same candidates: one agent of one weight each."""

    def __init__(self, *weights):
        self._weights = jnp.float32(weights)

    def init(self, key):
        return self._weights

    def step(self, state):
        return state, Metrics(0, {})

    def candidates(self, state):
        agent = FeedForwardConfig(()).build(1, 1, jax.random.key(0))
        return jax.vmap(lambda weight: jax.tree.map(lambda leaf: leaf * 0 + weight, agent))(state)


def test_a_candidate_of_nan_does_not_hide_the_best(tmp_path):
    rows = []
    engine, directory = DeviceEngine(FollowWorld()), RunDirectory(tmp_path, {"name": "follow"})
    budget = Budget("probe", 0, 1, 1, checkpoint_every=1, test_every=1, test_episodes=3, seed=0)
    trainer = Standing(5.0, jnp.nan, 0.0)
    best = run(trainer, engine, directory, budget, quiet=True, on_generation=rows.append)
    assert jax.tree.leaves(best)[0].item() == 0.0
    assert rows[-1]["best_test"] == rows[-1]["test"] > -20


class Climbing(Standing):
    """An agent whose output comes nearer to 0 with each generation."""

    def init(self, key):
        return jnp.full(1, 8.0)

    def step(self, state):
        return state / 2, Metrics(0, {})


@pytest.mark.parametrize(
    ("limit", "generations"),
    [({}, 9), ({"stop_at": -1e9}, 2), ({"max_seconds": 1e-9}, 1), ({"max_seconds": 1e9}, 9)],
)
def test_a_stage_ends_where_it_is_good_enough_or_out_of_time(limit, generations, tmp_path):
    rows = []
    budget = Budget("probe", 0, 1, 9, 9, test_every=2, test_episodes=3, seed=0, **limit)
    directory = RunDirectory(tmp_path, {"name": "follow", "stages": [{"name": "probe"}]})
    engine, options = DeviceEngine(FollowWorld()), dict(quiet=True, on_generation=rows.append)
    best = run(Climbing(), engine, directory, budget, **options)
    assert len(rows) == generations
    assert rows[-1]["seconds_left"] == 0
    assert rows[-1]["test"] is not None
    assert directory.history()[0]["generations"] == generations
    # A kill between the last checkpoint and the end of the stage: nothing is trained again
    (tmp_path / "stages" / "probe.safetensors").unlink()
    again = run(Climbing(), engine, directory, budget, **options)
    assert len(rows) == generations
    assert jax.tree.leaves(again)[0].item() == jax.tree.leaves(best)[0].item()


class Falling(Climbing):
    """An agent that is worse with each generation."""

    def init(self, key):
        return jnp.full(1, 1.0)

    def step(self, state):
        return state * 2, Metrics(0, {})


@pytest.mark.parametrize(("stop_at", "generations"), [(None, 4), (-1e9, 0)])
def test_a_stage_may_keep_what_it_started_from(stop_at, generations, tmp_path):
    rows = []
    budget = Budget("probe", 1, 2, 4, 4, 2, 3, seed=0, stop_at=stop_at, goes_on=True)
    stages = [{"name": "before"}, {"name": "probe"}]
    directory = RunDirectory(tmp_path, {"name": "follow", "stages": stages})
    engine, options = DeviceEngine(FollowWorld()), dict(quiet=True, on_generation=rows.append)
    best = run(Falling(), engine, directory, budget, **options)
    assert len(rows) == generations
    for kept in (best, directory.load("probe", best)):
        assert jax.tree.leaves(kept)[0].item() == 1.0
    assert read_header(tmp_path / "best.safetensors")["generation"] == 0


def test_weights_that_are_no_numbers_stop_a_run(tmp_path):
    engine, directory = DeviceEngine(FollowWorld()), RunDirectory(tmp_path, {"name": "follow"})
    budget = Budget("probe", 0, 1, 1, checkpoint_every=1, test_every=1, test_episodes=3, seed=0)
    with pytest.raises(RunError, match="Generation 1 made weights NaN or infinite"):
        run(Standing(jnp.nan, jnp.inf), engine, directory, budget, quiet=True)
    assert not (tmp_path / "last.safetensors").exists()


class PayingNaN(FollowWorld):
    def step_env(self, key, state, action, params):
        observation, state, reward, *others = super().step_env(key, state, action, params)
        return observation, state, reward * jnp.nan, *others


def test_a_run_without_a_finite_test_keeps_no_agent(tmp_path):
    engine, directory = DeviceEngine(PayingNaN()), RunDirectory(tmp_path, {"name": "follow"})
    budget = Budget("probe", 0, 1, 1, checkpoint_every=1, test_every=1, test_episodes=4, seed=0)
    with pytest.raises(RunError, match="gave a finite return: no agent is kept"):
        run(Standing(0.0), engine, directory, budget, quiet=True)
    row = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert row["test"] is row["best_test"] is None
