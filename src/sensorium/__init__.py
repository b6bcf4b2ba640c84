"""Sensorium: agents whose sensors can be shuffled, dropped, doubled or flooded with noise while they act."""

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from sensorium.gymnasium_ids import register as _register

_HOME = {
    # agents and files
    "Agent": "zoo",
    "convert": "zoo",
    "load": "zoo",
    # layers
    "AttentionNeuron": "layers",
    "DeepSets": "layers",
    "SetTransformer": "layers",
    # policies
    "AttentionNeuronConfig": "policies",
    "DeepSetsConfig": "policies",
    "FeedForwardConfig": "policies",
    "KeyMap": "policies",
    "Policy": "policies",
    "PolicyConfig": "policies",
    "SetTransformerConfig": "policies",
    "check_policy": "policies",
    # worlds and perturbations of their observations
    "CartPoleSwingUpHarder": "envs",
    "Environment": "envs",
    "make": "envs",
    "Drop": "perturbations",
    "Duplicate": "perturbations",
    "NoiseChannels": "perturbations",
    "Perturbation": "perturbations",
    "Reshuffle": "perturbations",
    "Shuffle": "perturbations",
    "check_perturbation": "perturbations",
    "compose": "perturbations",
    # training and scores
    "EvolutionConfig": "training",
    "ShacConfig": "training",
    "Trainer": "training",
    "TrainerConfig": "training",
    "TrainingContext": "training",
    "Recipe": "recipes",
    "Scores": "evaluation",
    "evaluate": "evaluation",
    # parts of one's own
    "register": "registry",
    # errors
    "SensoriumError": "errors",
}
_MODULES = (
    "envs",
    "errors",
    "evaluation",
    "layers",
    "perturbations",
    "policies",
    "recipes",
    "rollout",
    "training",
    "zoo",
)

__all__ = sorted([*_HOME, *_MODULES, "__version__"])

try:
    __version__ = version("sensorium")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"


_register()  # with Gymnasium


def __getattr__(name: str) -> Any:
    """Import public names when they are first used, so that `import sensorium` costs little."""
    if name in _HOME:
        return getattr(importlib.import_module(f"sensorium.{_HOME[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"sensorium.{name}")
    raise AttributeError(f"module 'sensorium' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
