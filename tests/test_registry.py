"""Parts of somebody else's: registered, stored in recipes and found again, or named where they are not."""

import abc
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sensorium
from sensorium import recipes, zoo
from sensorium.demo.actors import AgentCatalog
from sensorium.demo.messages import Controls
from sensorium.demo.session import Session
from sensorium.envs import WORLDS
from sensorium.errors import ConfigError, MissingExtraError, UnknownNameError
from sensorium.policies import to_vector
from sensorium.recipes import Recipe, Stage
from sensorium.registry import Parts, import_parts, register_all
from tests.foreign import foreign_parts as foreign
from tests.probes import Stopped, stop_after

RECIPE = Recipe(
    name="rooms",
    summary="The mean of three thermometers, by hill climbing.",
    policy=foreign.MeanConfig(size=0.1),
    stages=(
        Stage(
            "climb",
            foreign.ClimbConfig(),
            generations=6,
            perturbation=sensorium.compose(foreign.Offset(0.05), sensorium.Shuffle()),
            test_every=2,
            test_episodes=16,
            checkpoint_every=1,
        ),
    ),
    env="Rooms",
)


ENVS = {"device": "Rooms", "host": "gym:tests.foreign.foreign_parts:foreign/Valve-v0"}
PLUGIN = ("--plugin", "tests.foreign.foreign_parts")


@pytest.fixture(scope="module", params=ENVS)
def run(request, tmp_path_factory):
    """A run of a recipe that consists of foreign parts alone; it was stopped, and resumed."""
    recipe = dataclasses.replace(RECIPE, env=ENVS[request.param])
    folder = tmp_path_factory.mktemp("runs")
    with pytest.raises(Stopped):
        recipes.train(recipe, folder / "run", quiet=True, on_generation=stop_after(3))
    resumed = recipes.resume(folder / "run", quiet=True)
    whole = recipes.train(recipe, folder / "whole", quiet=True)
    assert np.array_equal(to_vector(resumed), to_vector(whole))
    return folder / "run"


def command(*arguments, cwd, code=0):
    """Run the command line where foreign parts are a module that can be imported, and no more than that."""
    path = os.pathsep.join([str(Path(foreign.__file__).parents[2]), *sys.path])
    result = subprocess.run(
        [sys.executable, "-m", "sensorium", *map(str, arguments)],
        capture_output=True, text=True, timeout=200, cwd=cwd, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert result.returncode == code, result.stderr
    return result


def test_a_recipe_of_foreign_parts_survives_json():
    written = json.loads(json.dumps(RECIPE.to_json()))
    assert Recipe.from_json(written) == RECIPE
    assert written["needs"] == ["tests.foreign.foreign_parts"]
    assert "needs" not in recipes.find("cartpole-pi").to_json()


def test_foreign_parts_are_trained_and_loaded(run):
    agent = zoo.load(run)
    assert agent.recipe == dataclasses.replace(RECIPE, env=agent.recipe.env)
    action, _ = agent([0.1, 0.2, 0.3, 0.4], agent.initial_carry(4))
    assert action.shape == (1,)
    assert WORLDS["Rooms"] is foreign.Rooms


def test_another_process_needs_the_module(run, tmp_path):
    refused = command("eval", run, "--episodes", 4, cwd=tmp_path, code=2)
    assert "`--plugin tests.foreign.foreign_parts`" in refused.stderr
    assert "Traceback" not in refused.stderr
    scores = command("eval", run, "--episodes", 4, "--json", "-", *PLUGIN, cwd=tmp_path)
    assert len(json.loads(scores.stdout)["returns"]) == 4


def test_foreign_parts_are_drawn(run, tmp_path):
    pytest.importorskip("matplotlib", reason="the extra that draws is not installed")
    command("show", run, "--steps", 9, "--figure", tmp_path / "run.png", *PLUGIN, cwd=tmp_path)
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_foreign_parts_are_exported(run, tmp_path):
    pytest.importorskip("jax2onnx", reason="the extra `export` is not installed")
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
    command("export", run, "--onnx", tmp_path / "run.onnx", *PLUGIN, cwd=tmp_path)
    session = onnxruntime.InferenceSession(tmp_path / "run.onnx")
    readings = np.float32([0.3, -0.2, 0.5])
    action = session.run(["action"], {"observation": readings})[0]
    agent = zoo.load(run)
    np.testing.assert_allclose(action, agent(readings, agent.initial_carry(3))[0], atol=1e-5)


def test_foreign_parts_are_shown_in_the_demo(run):
    session = Session(AgentCatalog({"mine": str(run)}), Controls(agent="mine"))
    try:
        about = session.about()
        session.advance(8)
        assert len(about["sensors"]) == 3
        # Rooms draws itself, the valve does not
        assert about["drawing"] == ("rendered" if "Rooms" in zoo.load(run).recipe.env else "none")
    finally:
        session.close()


def test_an_unknown_part_names_the_nearest():
    written = RECIPE.to_json()
    del written["needs"]
    written["stages"][0]["perturbation"] = {"kind": "Suffle"}
    with pytest.raises(UnknownNameError, match="did you mean 'Shuffle'"):
        Recipe.from_json(written)


def test_a_mistake_in_a_recipe_of_foreign_parts_is_no_missing_module():
    written = json.loads(json.dumps(RECIPE.to_json()))
    with pytest.raises(UnknownNameError, match="did you mean") as caught:
        Recipe.from_json(written | {"env": "CartPoleSwingUpHardr"})
    assert "--plugin" not in str(caught.value)
    both = {"needs": ["tests.foreign.foreign_parts", "one.more", "and_another"]}
    with pytest.raises(UnknownNameError, match=r"`--plugin one\.more --plugin and_another`"):
        Recipe.from_json(written | {"env": "Nowhere"} | both)


def test_installed_packages_offer_parts(tmp_path):
    """As `pip` lays them out; one that fails is named and left out."""
    (tmp_path / "offered.py").write_text(
        "import dataclasses, sensorium\n"
        "from sensorium.perturbations import Identity\n"
        "@sensorium.register\n"
        "@dataclasses.dataclass(frozen=True)\n"
        "class Offered(Identity):\n"
        "    pass\n"
    )
    about = tmp_path / "offered-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[sensorium.parts]\nabsent = absent_module\nmine = offered\n"
    )
    setting = 'perturbation={"kind": "Offered"}'
    find = "import sensorium.recipes as r; print(r.adapt(r.find('cartpole-pi'), ["
    done = subprocess.run(
        [sys.executable, "-c", f"{find}{setting!r}]))"], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), *filter(None, sys.path)))},
    )  # fmt: skip
    assert "perturbation=Offered()" in done.stdout
    assert "The parts of absent_module are missing" in done.stderr


def test_what_cannot_be_registered():
    class Plain:
        pass

    @dataclasses.dataclass
    class Mutable:
        pass

    @dataclasses.dataclass(frozen=True)
    class Shuffle:
        pass

    for part, words in (
        (Plain, "must be a dataclass"),
        (Mutable, "Mutable must be a frozen dataclass"),
        (Shuffle, "There is a part 'Shuffle' of sensorium.perturbations.order already"),
    ):
        with pytest.raises(ConfigError, match=words):
            sensorium.register(part)
    assert sensorium.register(foreign.Offset) is foreign.Offset  # twice does no harm


def test_a_module_that_cannot_be_imported(tmp_path, monkeypatch):
    with pytest.raises(MissingExtraError, match="'no_such_module' cannot be imported"):
        import_parts("no_such_module")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_parts.py").write_text("1 / 0")
    with pytest.raises(MissingExtraError, match="ZeroDivisionError"):
        import_parts("broken_parts")


def test_a_folder_registers_the_parts_that_it_imports_and_nothing_else():
    class Base(abc.ABC):
        @abc.abstractmethod
        def name(self): ...

    @dataclasses.dataclass(frozen=True)
    class One(Base):
        def name(self):
            return "one"

    @dataclasses.dataclass(frozen=True)
    class Wrapper(One):
        """A part's wrapper."""

    names = {"Base": Base, "One": One, "Wrapper": Wrapper, "number": 1, "Other": sensorium.Shuffle}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sensorium.registry._parts", {})
        register_all(names, Base, but=(Wrapper,))
        assert list(Parts(Base)) == ["One"]
    assert "Perturbed" not in WORLDS
