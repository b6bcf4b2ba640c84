"""How good `sensorium convert` is where nothing was set by hand, beside other students of the same experts.

python benchmarks/convert.py --out converted CartPole-v1 --seeds 0 1 2

Trains experts (`benchmarks/experts.py`), converts each, and keeps the comparisons, of which `python -m
tests.tables` makes the table in docs/convert.md. What is in `--out` or in the file of rows already is not
trained again, and a conversion that was interrupted goes on, so that the whole table can be made in parts.
"""

import argparse
import itertools
import json
from pathlib import Path

from rich.console import Console

import experts
from sensorium.recipes.twin import Size
from sensorium.serialisation import write_json
from sensorium.zoo.conversion import run
from students import FrameStackConfig, RecurrentConfig

RESULTS = Path(__file__).parent / "results/convert.json"
MINUTES = {
    "CartPole-v1": 15,
    "Acrobot-v1": 15,
    "Pendulum-v1": 15,
    "MountainCarContinuous-v0": 15,
    "LunarLander-v3": 15,
    "LunarLanderContinuous-v3": 15,
    "BipedalWalker-v3": 60,
    "Reacher-v5": 60,
    "Hopper-v5": 60,
    "HalfCheetah-v5": 60,
}
"""Environments, and how long a conversion may take."""

THEN_PPO = "then ppo"
STUDENTS: dict[str, Size | FrameStackConfig | RecurrentConfig] = {
    "twin": "standard",
    THEN_PPO: "standard",
    "wide": "wide",
    "frames": FrameStackConfig(),
    "gru": RecurrentConfig(),
}


def main() -> None:
    """Convert what is asked for, and keep a row of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("envs", nargs="*", default=list(MINUTES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--students", nargs="+", choices=list(STUDENTS), default=["twin"])
    parser.add_argument("--out", type=Path, default=Path("converted"))
    parser.add_argument("--minutes", type=float, help="of each conversion, instead of the usual")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--machine", default="", help="what the time was measured on")
    parser.add_argument(
        "--json-file",
        type=Path,
        default=RESULTS,
        help="where rows are kept, one of each conversion",
    )
    arguments = parser.parse_args()
    kept = arguments.json_file
    rows = json.loads(kept.read_text()) if kept.exists() else []
    done = {(row["env"], row["seed"], row["student"]) for row in rows}
    for env, seed, student in itertools.product(
        arguments.envs, arguments.seeds, arguments.students
    ):
        if (f"gym:{env}", seed, student) in done:
            continue
        model = experts.train(env, seed, arguments.out / "experts", 60 * 60)
        directory = arguments.out / f"{env}-{seed}-{student.replace(' ', '-')}"
        found = directory / "comparison.json"
        if not found.exists():
            minutes = arguments.minutes or MINUTES.get(env, 15)
            convert(model, env, directory, student, seed, minutes, arguments.episodes)
        facts = {"student": student, "seed": seed, "machine": arguments.machine}
        facts["expert_training"] = json.loads(model.with_name("facts.json").read_text())
        rows.append(facts | json.loads(found.read_text()))
        write_json(kept, rows)


def convert(
    model: Path, env: str, directory: Path, student: str, seed: int, minutes: float, episodes: int
) -> None:
    """Train one student."""
    config = STUDENTS[student]
    # The others have no features of single sensors
    settings = () if isinstance(config, str) else ("sensor_id_coef=0",)
    comparison = run(
        str(model),
        f"gym:{env}",
        run_dir=directory,
        student=config,
        then_ppo=student == THEN_PPO,
        budget=60 * minutes,
        settings=settings,
        seed=seed,
        episodes=episodes,
    )
    Console().print(comparison.table())


if __name__ == "__main__":
    main()
