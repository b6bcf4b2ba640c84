"""The authors' trained weights: flat vectors in an npz file, read into our policies."""

import os
import zipfile
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sensorium.errors import AgentFileError, ConfigError, did_you_mean
from sensorium.policies import (
    AttentionAgentConfig,
    AttentionNeuronConfig,
    FeedForwardConfig,
    Policy,
    PolicyConfig,
    Reading,
    VisionAttentionNeuronConfig,
    from_vector,
)
from sensorium.types import Actions, ObservationSpec

_IMAGES = (96, 96, 3)
_AGENT_OF_2020 = AttentionAgentConfig(scale=147**0.5)
_PUZZLE_PONG = VisionAttentionNeuronConfig(
    num_queries=400,
    message_size=32,
    reading=Reading.CONVOLUTIONS,
    reader_size=512,
    hidden_size=None,
    hidden_rows=0,
    learned_norms=True,
)
_ARCHITECTURES: dict[str, tuple[PolicyConfig, ObservationSpec, Actions]] = {
    "cartpole_pi": (AttentionNeuronConfig(), 5, 1),
    "ant_pi": (
        AttentionNeuronConfig(num_queries=32, bias=True, scale=True, controller_sizes=(32,)),
        28,
        8,
    ),
    "ant_mlp": (FeedForwardConfig((32, 32)), 28, 8),
    "carracing_attention_agent": (AttentionAgentConfig(), _IMAGES, 3),
    "carracing_attention_agent_2020": (_AGENT_OF_2020, _IMAGES, 3),
    "carracing_pi": (VisionAttentionNeuronConfig(), _IMAGES, 3),
    "takecover_attention_agent": (_AGENT_OF_2020, _IMAGES, 1),
    "puzzle_pong": (_PUZZLE_PONG, (84, 84, 1), (6,)),
}
"""Architecture, sensors and actions of each published agent."""


def read_published(name: str, path: Path | str | None = None) -> Policy:
    """Read one of the published agents.

    Args:
        name: `"cartpole_pi"` (913 parameters), `"ant_pi"` (2,504), `"ant_mlp"` (2,248),
            `"carracing_attention_agent"` (of 2021) or `"carracing_attention_agent_2020"` (3,667 both),
            `"takecover_attention_agent"` (3,633), `"carracing_pi"` (7,212) or `"puzzle_pong"` (1,687,726).
        path: An npz file with the flat vector under the key `params`; by default the one of that name in
            `published_directory()`.

    Returns:
        The agent.

    Raises:
        UnknownNameError: There is no such published agent.
        AgentFileError: The file cannot be read, or its vector is of another length.
        ConfigError: There is no such directory.
    """
    if name not in _ARCHITECTURES:
        raise did_you_mean("published agent", name, _ARCHITECTURES)
    path = published_directory() / f"{name}.npz" if path is None else path
    config, spec, actions = _ARCHITECTURES[name]
    try:
        # Opened here and not by NumPy, which leaves a damaged file open
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            vector = np.asarray(file["params"], np.float32)
    except KeyError as error:
        raise AgentFileError(f"{path} has no array named 'params'.") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise AgentFileError(f"{path} is missing, truncated or not an npz file.") from error
    like = config.build(spec, actions, jax.random.key(0))
    flat = jnp.asarray(vector).reshape(-1)
    if config is _AGENT_OF_2020:
        return from_vector(_sorted_back(flat, like), like)
    policy = from_vector(flat, like)
    return _pixels_first(policy) if config is _PUZZLE_PONG else policy


def _sorted_back(vector: Float[Array, " n"], like: Policy) -> Float[Array, " n"]:
    """Files of 2020 have the arrays of each layer in the order of their names; we have weights first."""
    leaves = jax.tree.leaves_with_path(eqx.filter(like, eqx.is_inexact_array))
    layers = list(dict.fromkeys(path[:-1] for path, _ in leaves))
    by_name = sorted(
        range(len(leaves)), key=lambda i: (layers.index(leaves[i][0][:-1]), str(leaves[i][0][-1]))
    )
    ends = np.cumsum([leaves[i][1].size for i in by_name])
    parts = dict(zip(by_name, jnp.split(vector, ends[:-1]), strict=True))
    return jnp.concatenate([parts[i] for i in range(len(leaves))])


def _pixels_first(policy: Any) -> Policy:
    """Keys of Pong list frames before pixels; ours list pixels first."""
    weight, pixels = policy.layer.key.weight, policy.layer.patch_size**2
    moved = (policy.layer.num_frames - 1) * pixels
    order = np.arange(moved).reshape(-1, pixels).T.reshape(-1)
    ours = jnp.concatenate([weight[:, order], weight[:, moved:]], 1)
    return eqx.tree_at(lambda policy: policy.layer.key.weight, policy, ours)


def published_directory() -> Path:
    """Where the authors' files are, which are not ours to ship: the folder that `SENSORIUM_PUBLISHED` names.

    Raises:
        ConfigError: The variable is not set, or names no folder.
    """
    folder = os.environ.get("SENSORIUM_PUBLISHED", "")
    if not Path(folder).is_dir() or not folder:
        raise ConfigError(
            "The authors' weights are not shipped with Sensorium: let SENSORIUM_PUBLISHED name a folder "
            f"with {', '.join(f'{name}.npz' for name in _ARCHITECTURES)}."
        )
    return Path(folder)
