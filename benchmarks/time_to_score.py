"""How long a recipe takes, from an empty run directory, until its test reaches a score.

    python benchmarks/time_to_score.py cartpole-pi --score 472

Compiling, testing and checkpoints included. A test is 200 episodes; once it is passed, the agent is
scored on 1,000 others, which is the figure that counts.
"""

import tempfile
import time
from pathlib import Path

import tyro
from rich.console import Console

from sensorium.rollout import this_machine, use_all_cores


class _Reached(Exception):
    pass


def main(
    recipe: tyro.conf.Positional[str],
    score: float = 472.0,
    seed: int = 0,
    json_file: Path | None = None,
) -> None:
    """Train until the score is reached.

    Args:
        recipe: Its name.
        score: The return to reach.
        seed: Of the training.
        json_file: Write figures here as well.
    """
    use_all_cores()
    from sensorium import recipes, zoo
    from sensorium.evaluation import evaluate
    from sensorium.serialisation import write_json

    chosen = recipes.find(recipe).override({"seed": seed})
    began = time.perf_counter()
    result: dict = {
        "recipe": recipe,
        "seed": seed,
        "wanted": score,
        "machine": this_machine(),
        "tries": [],
    }

    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"

        def look(row: dict) -> None:
            tried = [attempt["test"] for attempt in result["tries"]]
            if row["test"] is None or row["test"] < max([score, *tried]) or row["test"] in tried:
                return
            seconds = time.perf_counter() - began - sum(t["scoring"] for t in result["tries"])
            before = time.perf_counter()
            agent = zoo.load(directory)
            scores = evaluate(agent.policy, agent.recipe.env, episodes=1000, seed=seed)
            s = scores.summary
            result["tries"].append(
                {
                    "seconds": seconds,
                    "generation": row["generation"],
                    "test": row["test"],
                    "mean": s.mean,
                    "std": s.std,
                    "ci95": s.ci95,
                    "scoring": time.perf_counter() - before,
                }
            )
            Console().print(
                f"{seconds:.0f} s, generation {row['generation']}: test {row['test']:.0f}, "
                f"{s.mean:.0f} ± {s.std:.0f} on 1,000 other episodes",
                highlight=False,
            )
            if s.mean >= score:
                raise _Reached

        try:
            recipes.train(chosen, directory, quiet=True, on_generation=look)
        except _Reached:
            result["reached"] = True
        else:
            result["reached"] = False
            Console().print(f"{recipe} did not reach {score:g}.", highlight=False)
    if json_file is not None:
        write_json(json_file, result)


if __name__ == "__main__":
    tyro.cli(main)
