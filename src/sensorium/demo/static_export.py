"""Export the demo as plain files: cart-pole, agents and page run in the browser, without a server.

sensorium demo --export DIR

The page opens from a web server or by a double click. `static/` is copied as it is; `weights.js` is written:
weights as decimal numbers that read back as the same float32.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array

import sensorium
from sensorium import recipes
from sensorium.errors import ConfigError
from sensorium.layers import AttentionNeuron
from sensorium.policies import FeedForwardPolicy, Policy, SetPolicy
from sensorium.serialisation import atomic_folder, format_json
from sensorium.zoo import load

WORLD = "CartPoleSwingUpHarder"
ALTERNATIVES = ("cartpole-pi", "cartpole-pi-feedback", "cartpole-pi-reshuffle")
"""Further agents to choose from on the page."""
_STATIC = Path(__file__).parent / "static"


def export(directory: Path, agent: str = "cartpole-pi") -> Path:
    """Write the demo as static files.

    Args:
        directory: The folder to create, or to replace if the demo was written there before.
        agent: An AttentionNeuron agent of CartPole: a name of the zoo, a run directory or a file.

    Returns:
        The page to open.

    Raises:
        UnknownNameError: There is no such agent.
        ConfigError: It is no AttentionNeuron agent of CartPole, or the folder holds something else.
        WriteError: The files could not be written; nothing is left behind.
    """
    directory = Path(os.path.realpath(directory))  # a link to a folder stays one
    if directory.exists() and not _is_ours(directory):
        raise ConfigError(f"{directory} holds other things than the demo; name a new folder.")
    script = (
        f"// Made by Sensorium {sensorium.__version__}\nSensorium.weights = {_weights(agent)};\n"
    )
    with atomic_folder(directory, replace=True) as made:
        shutil.copytree(_STATIC, made, dirs_exist_ok=True)
        (made / "weights.js").write_text(script)
    return directory / "index.html"


def _is_ours(directory: Path) -> bool:
    """Check whether a folder is empty, or holds nothing but what was written by `export`."""
    ours = {path.name for path in _STATIC.iterdir()} | {"weights.js"}
    return directory.is_dir() and {path.name for path in directory.iterdir()} <= ours


def _weights(agent: str) -> str:
    """Format all agents of the page as JSON."""
    first = load(agent)
    if first.recipe.env != WORLD:
        raise ConfigError(f"The page runs {WORLD}, but {first.name} is for {first.recipe.env}.")
    agents = {first.name: _sensory(first.name, first.policy)}
    for name in ALTERNATIVES:
        if name not in agents:
            agents[name] = _sensory(name, load(name).policy)
    compared = recipes.baseline(WORLD)
    assert compared is not None  # CartPole has one
    baseline = load(compared.name).policy
    assert isinstance(baseline, FeedForwardPolicy)
    fixed = {"scales": baseline.input_scales, "layers": _layers(baseline)}
    return format_json({"agents": agents, "baseline": {"name": compared.name, **fixed}})


def _sensory(name: str, policy: Policy) -> dict[str, Any]:
    """Convert an AttentionNeuron agent to what `agent.js` reads."""
    layer = policy.layer if isinstance(policy, SetPolicy) else None
    if not isinstance(layer, AttentionNeuron) or layer.nonlinear_keys is not None:
        raise ConfigError(f"The page runs AttentionNeuron agents without NLA, which {name} is not.")
    assert isinstance(policy, SetPolicy)
    if policy.squash or policy.with_change:
        raise ConfigError(f"The page feeds sensors their readings alone, and {name} needs more.")
    # Queries never change, so they and the projection of the keys are one M x H matrix
    queries = layer.queries().T
    scale = layer.key_weight.shape[0] ** -0.5 if layer.scale else 1.0
    bias = 0.0 if layer.key_bias is None else queries @ layer.key_bias
    return {
        "inputs": _numbers(layer.lstm.weight_ih),
        "recurrent": _numbers(layer.lstm.weight_hh),
        "bias": _numbers(layer.lstm.bias_ih + layer.lstm.bias_hh),
        "queries": _numbers(queries @ layer.key_weight * scale),
        "queryBias": _numbers(np.broadcast_to(np.asarray(bias * scale), layer.num_queries)),
        "layers": _layers(policy),
        "codeScale": policy.code_scale,
        "codeFeedback": policy.code_feedback,
    }


def _layers(policy: SetPolicy | FeedForwardPolicy) -> list[dict[str, Any]]:
    layers = policy.controller.layers
    return [{"weight": _numbers(layer.weight), "bias": _numbers(layer.bias)} for layer in layers]


def _numbers(array: Array | np.ndarray) -> Any:
    """Convert to nested lists of the shortest decimals that are the same float32."""
    array = np.asarray(array, np.float32)
    shortest = np.vectorize(lambda value: float(str(np.float32(value))), otypes=[float])
    return shortest(array).tolist()
