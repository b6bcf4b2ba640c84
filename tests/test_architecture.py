"""The house: imports point one way, heavy libraries stay in their rooms, public names are explained."""

import ast
import graphlib
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sensorium
from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.envs import Environment
from sensorium.perturbations import Perturbation
from sensorium.policies import Policy, PolicyConfig
from sensorium.training import Trainer, TrainerConfig

SOURCE = Path(sensorium.__file__).parent

# Each may import what stands before it, and itself
LAYERS = [
    {"types", "errors"},
    {"serialisation", "registry", "seeding", "gymnasium_ids", "world_names"},
    {"terminal"},
    {"layers"},
    {"policies", "perturbations"},
    {"envs", "flags"},
    {"bridges"},
    {"rollout"},
    {"training", "evaluation"},
    {"recipes"},
    {"zoo"},
    {"analysis"},
    {"reproduce"},
    {"demo"},
    {"cli"},
    {"__main__"},
]
TELLING = ("isinstance", "issubclass")
HEAVY = {
    "gymnasium": {"bridges", "gymnasium_ids"},
    "matplotlib": {"analysis"},
    "imageio": {"analysis"},
    "sklearn": {"reproduce", "analysis"},
    "evosax": {"training"},
    "tensorboardX": {"training"},
    "torch": set(),
    "stable_baselines3": {"bridges"},
    "minari": {"bridges"},
    "pybullet_envs_gymnasium": {"bridges"},
    "mujoco": {"bridges"},
    "ray": {"rollout"},
    "jax2onnx": {"zoo"},
    "onnxruntime": {"zoo"},
    "gymnax": set(),
    "starlette": {"demo"},
    "uvicorn": {"demo"},
}


def _modules():
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts != ("__init__",):
            yield path, parts[0]


def _imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_imports_point_one_way():
    rank = {name: index for index, names in enumerate(LAYERS) for name in names}
    wrong = []
    for path, room in _modules():
        for name in _imports(path):
            parts = name.split(".")
            if parts[0] == "sensorium" and len(parts) > 1:
                other = parts[1]
                if other != room and rank[other] >= rank[room]:
                    wrong.append(f"{path.relative_to(SOURCE)} imports {name}")
    assert not wrong


def test_no_modules_import_each_other_in_a_circle():
    """Nor by way of others, within a folder too, and also where a function imports."""
    names = {
        ".".join(("sensorium", *path.relative_to(SOURCE).with_suffix("").parts)): path
        for path, _ in _modules()
    }
    modules = {name.removesuffix(".__init__"): path for name, path in names.items()}
    graph = {
        name: {each if each in modules else each.rpartition(".")[0] for each in _imports(path)}
        & modules.keys() - {name}
        for name, path in modules.items()
    }
    assert sum(map(len, graph.values())) > len(graph)
    graphlib.TopologicalSorter(graph).prepare()


def test_contributors_are_told_the_same_order():
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
    said = text[text.index("Imports point one way:") : text.index("`tests/test_architecture.py`")]
    rooms = [set(names.split(", ")) for names in re.findall(r"`([^`]+)`", said)]
    assert rooms == LAYERS[:-1]  # but for __main__


def test_heavy_libraries_stay_in_their_rooms():
    wrong = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path, room in _modules()
        for name in _imports(path)
        if room not in HEAVY.get(name.split(".")[0], {room})
    ]
    assert not wrong


def test_import_costs_nothing_and_needs_no_simulator():
    script = (
        "import sys; import sensorium, sensorium.cli; "
        "heavy = {'jax', 'matplotlib', 'torch'} & set(sys.modules); "
        "assert not heavy, heavy; "
        "extras = ('torch', 'stable_baselines3', 'pybullet', 'minari', 'h5py', 'ray', 'evojax'); "
        "sys.modules.update(dict.fromkeys((*extras, 'matplotlib'))); "
        "sensorium.make('CartPoleSwingUpHarder'); sensorium.EvolutionConfig(); sensorium.load"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


@pytest.mark.parametrize("name", [n for n in sensorium.__all__ if not n.startswith("__")])
def test_public_names_are_explained(name):
    thing = getattr(sensorium, name)
    assert inspect.getdoc(thing), f"sensorium.{name} has no docstring"
    if inspect.isclass(thing):
        for method, function in vars(thing).items():
            if not method.startswith("_") and inspect.isfunction(function):
                assert inspect.getdoc(function), f"sensorium.{name}.{method} has no docstring"


# What is written for kinds of parts, and why; all others ask the part itself
OWNERS = {
    "rollout/select.py": "worlds on the device and on the host",
    "rollout/fused.py": "a step of its own for two kinds of policies",
    "bridges/sb3.py": "networks of Stable-Baselines3 for two kinds of policies",
    "demo/static_export.py": "the page has an AttentionNeuron agent and a feed-forward one in JavaScript",
    "reproduce/attention_neuron.py": "a table of codes",
    "reproduce/car_racing.py": "a table of patch attention",
}


def test_parts_are_told_apart_by_their_owners_only():
    """So that a new world, policy or trainer needs no line elsewhere."""
    bases = {Policy, PolicyConfig, Perturbation, TrainerConfig, Trainer, Environment, HostWorld}
    places = set()
    for path, _ in _modules():
        place = str(path.relative_to(SOURCE))
        name = ".".join(("sensorium", *path.relative_to(SOURCE).with_suffix("").parts))
        module = importlib.import_module(name.removesuffix(".__init__"))
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in TELLING:
                continue
            for each in ast.walk(node.args[1]):
                found = getattr(module, each.id, None) if isinstance(each, ast.Name) else None
                if not isinstance(found, type) or found in bases - {Environment, HostWorld}:
                    continue
                if issubclass(found, tuple(bases)) and found.__module__ != module.__name__:
                    places.add(place)
    assert places == OWNERS.keys()


def test_files_hold_one_idea():
    long = {
        str(path.relative_to(SOURCE)): len(path.read_text().splitlines())
        for path, _ in _modules()
        if len(path.read_text().splitlines()) > 400
    }
    assert not long


def test_every_module_says_what_it_is():
    for path, _ in _modules():
        name = ".".join(("sensorium", *path.relative_to(SOURCE).with_suffix("").parts))
        if not name.endswith("__main__"):
            assert importlib.import_module(name.removesuffix(".__init__")).__doc__, name
