"""Files of Stable-Baselines3 and sb3-contrib: models (`PPO.save`), and statistics (`VecNormalize.save`).

model = load_model("ppo_ant.zip")
statistics = load_statistics("vecnormalize.pkl")

Both hold pickled code, which runs when they are read: read only files that you trust. What a model needs for
training only, such as its schedules, often does not survive a change of Python, and may be missing.
"""

import base64
import importlib
import json
import os
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

from sensorium.errors import AgentFileError, MissingExtraError, needs

_ALGORITHMS = {
    "stable_baselines3.common.policies.ActorCriticPolicy": "stable_baselines3.PPO",
    "stable_baselines3.dqn.policies.DQNPolicy": "stable_baselines3.DQN",
    "stable_baselines3.sac.policies.SACPolicy": "stable_baselines3.SAC",
    "stable_baselines3.td3.policies.TD3Policy": "stable_baselines3.TD3",
    "sb3_contrib.ars.policies.ARSPolicy": "sb3_contrib.ARS",
    "sb3_contrib.common.recurrent.policies.RecurrentActorCriticPolicy": "sb3_contrib.RecurrentPPO",
    "sb3_contrib.crossq.policies.CrossQPolicy": "sb3_contrib.CrossQ",
    "sb3_contrib.qrdqn.policies.QRDQNPolicy": "sb3_contrib.QRDQN",
    "sb3_contrib.tqc.policies.TQCPolicy": "sb3_contrib.TQC",
}
"""By the policy, or the nearest class that it is derived from. DDPG is TD3 with other settings."""
_SUPPORTED = (
    "A2C, DDPG, DQN, PPO, SAC, TD3, and of sb3-contrib ARS, CrossQ, QRDQN, RecurrentPPO, TQC, TRPO"
)
_PICKLE = ":serialized:"  # where Stable-Baselines3 puts what JSON cannot hold
_NEEDED = ("policy_class", "policy_kwargs", "observation_space", "action_space")
_PLAIN: dict[str, Any] = {
    **dict(learning_rate=0.0, clip_range=0.2, train_freq=1),
    **dict(buffer_size=1, optimize_memory_usage=False, replay_buffer_class=None),
    **dict(replay_buffer_kwargs={}),
}
"""Stand for settings of training. A buffer of the stored size may not fit into memory."""


def import_sb3() -> Any:
    """Import Stable-Baselines3; MissingExtraError where it is not installed."""
    with needs("experts", "A model of Stable-Baselines3"):
        import stable_baselines3
    return stable_baselines3


def is_model(path: Path | str) -> bool:
    """Check whether a file looks like a model of Stable-Baselines3; nothing of it runs."""
    try:
        return "policy_class" in _read_data(Path(path))
    except AgentFileError:
        return False


def load_model(path: Path | str) -> Any:
    """Read any model that Stable-Baselines3 or sb3-contrib saved.

    Args:
        path: A zip file of A2C, DDPG, DQN, PPO, SAC or TD3, or of ARS, CrossQ, QRDQN, RecurrentPPO, TQC or
            TRPO.

    Raises:
        MissingExtraError: Stable-Baselines3 or sb3-contrib is not installed.
        AgentFileError: There is no such file, it is damaged, no such model, of an algorithm that is not
            known, or needs modules that are not there.
    """
    path = Path(path)
    sb3 = import_sb3()
    data = _read_data(path)
    missing = [name for name in _NEEDED if name not in data]
    if missing:
        raise AgentFileError(f"{path} is no model of Stable-Baselines3: it has no {missing[0]}.")
    instead = dict(_PLAIN)
    for name, item in data.items():
        if name not in _PLAIN and isinstance(item, dict) and _PICKLE in item:
            try:
                instead[name] = pickle.loads(base64.b64decode(item[_PICKLE]))
            except Exception as error:  # pickles run code, which can raise anything
                if name in _NEEDED:
                    raise _cannot_unpickle(f"The {name} in {path}", error) from error
                instead[name] = None
    algorithm = _algorithm(path, instead.get("policy_class"), data)
    try:
        return algorithm.load(path, device="cpu", custom_objects=instead)
    except Exception as error:  # of whatever kind the code in the file raises
        raise AgentFileError(
            f"{path} is damaged, or its version ({_version_of(path)}) does not go with "
            f"Stable-Baselines3 {sb3.__version__}: {_first_line(error)}"
        ) from error


def _read_data(path: Path) -> dict[str, Any]:
    """Read what a model says of itself; AgentFileError where it says nothing."""
    if os.path.isdir(path):  # unlike `Path.is_dir`, never an error
        raise AgentFileError(f"{path} is a folder, not a model of Stable-Baselines3 (a zip file).")
    if not os.path.exists(path):
        raise AgentFileError(f"There is no file {path}.")
    try:
        with zipfile.ZipFile(path) as archive:
            data = json.loads(archive.read("data"))
    except KeyError as error:
        raise AgentFileError(
            f"{path} is a zip file, but no model of Stable-Baselines3: it holds no 'data'."
        ) from error
    except OSError as error:
        raise AgentFileError(f"Could not read {path}: {error.strerror or error}.") from error
    except Exception as error:  # of zipfile and zlib; NotImplementedError of an unknown compression
        raise AgentFileError(
            f"{path} is truncated or no model of Stable-Baselines3 (a zip file): {_first_line(error)}"
        ) from error
    if not isinstance(data, dict):
        raise AgentFileError(f"{path} is a zip file, but no model of Stable-Baselines3.")
    return data


def _cannot_unpickle(what: str, error: Exception) -> AgentFileError | MissingExtraError:
    if isinstance(error, ModuleNotFoundError) and error.name:
        if error.name.split(".")[0] == "sb3_contrib":
            return MissingExtraError.of("experts", what, "sb3_contrib")
        return AgentFileError(
            f"{what} needs the module {error.name!r}, which cannot be imported here: install it, or "
            "add its folder to PYTHONPATH."
        )
    lost = re.search(r"Can't get attribute '([^']+)' on <module '([^']+)'", str(error))
    if lost and lost[2].split(".")[-1] == "__main__":
        return AgentFileError(
            f"{what} needs the class {lost[1]!r} of the program that saved it (__main__): define it in a "
            "module that both import, add its folder to PYTHONPATH, and save again."
        )
    if lost:
        return AgentFileError(f"{what} needs {lost[1]!r}, which the module {lost[2]!r} has not.")
    return AgentFileError(
        f"{what} is damaged, or was written by another version of Python or of a package: "
        f"{_first_line(error)}"
    )


def _algorithm(path: Path, policy: Any, data: dict[str, Any]) -> Any:
    """Find the class of algorithms that a model is of, by its policy."""
    classes = policy.__mro__ if isinstance(policy, type) else ()
    names = [f"{each.__module__}.{each.__qualname__}" for each in classes]
    known = [_ALGORITHMS[name] for name in names if name in _ALGORITHMS]
    if not known:
        raise AgentFileError(
            f"{path} has the policy {names[0] if names else policy!r}, which cannot be an expert here; "
            f"models of {_SUPPORTED} can."
        )
    algorithm = known[0]
    if algorithm == "stable_baselines3.PPO":  # three share its policy
        if "cg_max_steps" in data:
            algorithm = "sb3_contrib.TRPO"
        elif "clip_range" not in data:
            algorithm = "stable_baselines3.A2C"
    package, name = algorithm.split(".")
    try:
        with needs("experts", f"{path}, a model of {name},"):
            return getattr(importlib.import_module(package), name)
    except AttributeError as error:
        raise AgentFileError(
            f"{path} is a model of {name}, which this {package} has not."
        ) from error


def _version_of(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read("_stable_baselines3_version").decode().strip()
    except (KeyError, zipfile.BadZipFile, OSError, UnicodeDecodeError):
        return "unknown"


def _first_line(error: Exception) -> str:
    """Return the first line of an error, as the end of a sentence."""
    lines = str(error).strip().splitlines()
    return f"{lines[0] if lines else type(error).__name__}".rstrip(".") + "."


def load_statistics(path: Path | str) -> Any:
    """Read what `VecNormalize.save` wrote; its `normalize_obs` makes observations as the model received them.

    Args:
        path: The pickle.

    Raises:
        MissingExtraError: Stable-Baselines3 is not installed.
        AgentFileError: There is no such file, it is damaged, no VecNormalize, or needs modules that are not
            there.
    """
    path = Path(path)
    sb3 = import_sb3()
    try:
        statistics = pickle.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise AgentFileError(f"There is no file {path}.") from error
    except OSError as error:
        raise AgentFileError(f"Could not read {path}: {error.strerror or error}.") from error
    except Exception as error:  # pickles run code, which can raise anything
        raise _cannot_unpickle(str(path), error) from error
    if not isinstance(statistics, sb3.common.vec_env.VecNormalize):
        raise AgentFileError(
            f"{path} holds a {type(statistics).__name__}, not what VecNormalize.save writes."
        )
    return statistics


def find_statistics(model: Path | str, env_id: str) -> Path | None:
    """Find the statistics that lie beside a model, where users and rl-zoo3 put them.

    Args:
        model: `ppo.zip`, `best_model.zip` or `rl_model_1000_steps.zip`.
        env_id: As `gymnasium.make` takes it: rl-zoo3 names a folder so.

    Returns:
        `ppo_vecnormalize.pkl`, `rl_model_vecnormalize_1000_steps.pkl`, `ENV_ID/vecnormalize.pkl` or
        `vecnormalize.pkl` in the same folder, or `vec_normalize.pkl` for any of these; None if there is none,
        or the model says that it was trained without.

    Raises:
        AgentFileError: The model was trained with some, as far as can be seen, and there are none.
    """
    model = Path(model)
    normalised = _was_normalised(model)
    if normalised is False:
        return None
    checkpoint = re.fullmatch(r"(.*_)(\d+_steps)", model.stem)
    inside = [model.parent / name for name in (model.stem, env_id.split(":")[-1].replace("/", "-"))]
    for name in ("vecnormalize", "vec_normalize"):
        beside = [model.with_name(f"{model.stem}_{name}.pkl")]
        if checkpoint:
            beside.append(model.with_name(f"{checkpoint[1]}{name}_{checkpoint[2]}.pkl"))
        beside += [folder / f"{name}.pkl" for folder in (*inside, model.parent)]
        for path in beside:
            if path.is_file():
                return path
    if normalised or any(_zoo_normalises(folder) for folder in (*inside, model.parent)):
        raise AgentFileError(
            f"{model} was trained behind VecNormalize, and no vecnormalize.pkl is beside it: name its "
            "statistics with --vecnormalize FILE, or say none if it normalised rewards only."
        )
    return None


def _was_normalised(model: Path) -> bool | None:
    """Return whether a model was trained behind VecNormalize; None if it does not say.

    Algorithms that learn on-policy keep an original observation only there; those with a buffer always.
    """
    data = _read_data(model)
    if data.get("_last_obs") is None or "buffer_size" in data:
        return None
    return data.get("_last_original_obs") is not None


def _zoo_normalises(folder: Path) -> bool:
    """Check whether `config.yml`, which rl-zoo3 writes, says `normalize`."""
    try:
        text = (folder / "config.yml").read_text()
    except (OSError, UnicodeDecodeError):
        return False
    said = re.search(r"^[\s-]*normalize\s*(?::|\n\s*-)\s*(.+)$", text, re.MULTILINE)
    return said is not None and not re.match(
        r"['\"]?(false|no|null|~|.*norm_obs\W+False)", said[1], re.I
    )
