"""Train policies of Stable-Baselines3 with the hyperparameters of rl-zoo3, for `sensorium convert`.

python -m pip install rl_zoo3 pyyaml --no-deps
python benchmarks/experts.py --out experts CartPole-v1 LunarLander-v3 Hopper-v5

Of rl-zoo3 its tuned hyperparameters are read, nothing else. Writes `experts/ENV-SEED/model.zip`, and
`vecnormalize.pkl` where they ask for VecNormalize; what is there already is not trained again.
"""

import argparse
import contextlib
import importlib.metadata
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import torch
import yaml
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize
from torch import nn

ALGORITHMS = {"ppo": PPO, "sac": SAC}
# PPO is the fastest where simulation is cheap; these it does not solve, or not with rl-zoo3's settings
BY_SAC = ("MountainCarContinuous-v0",)


def main() -> None:
    """Train those that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("envs", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, default=Path("experts"))
    parser.add_argument("--minutes", type=float, default=60.0, help="stop a training after these")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for env in arguments.envs:
        for seed in arguments.seeds:
            train(env, seed, arguments.out, 60 * arguments.minutes)


def train(env: str, seed: int, out: Path, max_seconds: float) -> Path:
    """Train one expert.

    Args:
        env: A Gymnasium id.
        seed: Of the training.
        out: Folder of all experts.
        max_seconds: When to stop, if the steps are not done by then.

    Returns:
        Its zip.
    """
    model_file = out / f"{env}-{seed}" / "model.zip"
    if model_file.exists():
        return model_file
    name = "sac" if env in BY_SAC else "ppo"
    settings = hyperparameters(name, env)
    steps, normalise = int(settings.pop("n_timesteps")), settings.pop("normalize", False)
    count = settings.pop("n_envs", 1)
    lanes = make_vec_env(env, count, seed=seed)
    if normalise:
        lanes = VecNormalize(lanes, gamma=settings.get("gamma", 0.99))
    model = ALGORITHMS[name](settings.pop("policy"), lanes, seed=seed, device="cpu", **settings)
    started = time.perf_counter()
    model.learn(steps, lambda *_: time.perf_counter() - started < max_seconds)
    seconds = time.perf_counter() - started
    model_file.parent.mkdir(parents=True, exist_ok=True)
    if normalise:
        lanes.save(str(model_file.with_name("vecnormalize.pkl")))
    facts = {"algorithm": name, "steps": model.num_timesteps, "seconds": round(seconds)}
    model_file.with_name("facts.json").write_text(json.dumps(facts))
    model.save(model_file)
    print(env, seed, facts, flush=True)
    return model_file


def hyperparameters(algorithm: str, env: str) -> dict[str, Any]:
    """Return those of rl-zoo3, of the nearest version of the environment."""
    try:
        files = importlib.metadata.files("rl_zoo3") or []
    except importlib.metadata.PackageNotFoundError:
        sys.exit("The hyperparameters come with rl-zoo3: python -m pip install --no-deps rl_zoo3")
    file = next(each for each in files if each.name == f"{algorithm}.yml")
    known = yaml.safe_load(Path(str(file.locate())).read_text())
    name, version = re.fullmatch(r"(.*)-v(\d+)", gymnasium.spec(env).id).groups()
    names = [f"{name}-v{older}" for older in range(int(version), -1, -1)]
    settings = dict(known[next((each for each in names if each in known), "default")])
    for setting, value in settings.items():
        if isinstance(value, str) and value.startswith("lin_"):
            settings[setting] = _falling(float(value.removeprefix("lin_")))
        elif setting == "policy_kwargs":
            settings[setting] = eval(value, {"dict": dict, "nn": nn})  # as rl-zoo3 does
        elif isinstance(value, str):
            with contextlib.suppress(ValueError):  # YAML 1.1 reads 1e-4 as text
                settings[setting] = float(value)
    return settings


def _falling(start: float) -> Any:
    return lambda left: left * start


if __name__ == "__main__":
    main()
