"""What a twin earns beside its expert: scores, a table and a sentence."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from sensorium.evaluation import Scores
from sensorium.evaluation.statistics import Summary
from sensorium.perturbations import Identity, Shuffle
from sensorium.terminal import shown

GOOD = 0.9
"""The share of its expert's return from which on a twin counts as good."""

SHUFFLED = str(Shuffle())
PLAIN = str(Identity())


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Scores of a twin and its expert, over the same starts."""

    env: str
    directory: Path
    """Of the run."""
    random: float
    """Mean return of random actions."""
    expert: dict[str, Summary]
    """By the name of the perturbation."""
    different: int
    """Of its plain episodes, how many differ in more than when they begin; see `conversion.num_different`."""
    twin: dict[str, Scores]
    """Likewise; "reshuffled in mid-episode" is once, after half of the expert's mean length."""
    seconds: float
    """That the training of the twin took."""

    def share(self, mean: float) -> float:
        """Return how far a mean return is on the way from random actions to the expert."""
        reach = self.expert[PLAIN].mean - self.random
        return (mean - self.random) / reach if reach else float("nan")

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "env": self.env,
            "random": self.random,
            "expert": {name: dataclasses.asdict(each) for name, each in self.expert.items()},
            "different": self.different,
            "twin": {
                name: {**each.to_json(), "share": self.share(each.summary.mean)}
                for name, each in self.twin.items()
            },
            "seconds": self.seconds,
        }

    def table(self) -> Table:
        """Make a table of what both earn."""
        episodes = self.twin[PLAIN].episodes
        many = f"{episodes} episodes"
        if self.different < episodes:
            many += f" ({self.different} different)"
        table = Table(
            title=f"{self.env}, {many}, twin trained in {self.seconds / 60:.1f} min",
            caption=f"share: 0% is random actions ({shown(self.random)}), 100% the expert, plain",
        )
        table.add_column("perturbation")
        for column in ("expert", "twin", "95% interval", "share"):
            table.add_column(column, justify="right")
        for name, scores in self.twin.items():
            of_expert, its = self.expert.get(name), scores.summary
            table.add_row(
                name,
                "-" if of_expert is None else f"{shown(of_expert.mean)} ± {shown(of_expert.std)}",
                f"{shown(its.mean)} ± {shown(its.std)}",
                f"{shown(its.ci95[0])} to {shown(its.ci95[1])}",
                f"{self.share(its.mean):.0%}",
            )
        return table

    def verdict(self) -> str:
        """Say in a sentence how good the twin is, and what to do about it."""
        share = self.share(self.twin[SHUFFLED].summary.mean)
        says = f"Shuffled, the twin earns {share:.0%} of what its expert does."
        if not np.isfinite(share) or self.expert[PLAIN].mean <= self.random:
            says = (
                "The expert earns no more than random actions, so there is little to learn from it."
            )
        elif share < GOOD:
            says += (
                " --then ppo, a longer --budget or --to wide may do better, in another --run-dir."
            )
        return f"{says} See `sensorium show {self.directory}`."
