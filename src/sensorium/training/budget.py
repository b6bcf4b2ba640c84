"""How long a stage trains."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Budget:
    """How long a stage trains, and how often it is tested and checkpointed."""

    stage: str
    number: int
    """Of the stage, from 0."""
    stages: int
    """How many the recipe has."""
    generations: int
    checkpoint_every: int
    test_every: int
    test_episodes: int
    seed: int
    stop_at: float | None = None
    """End the stage with the first test whose mean return is at least this."""
    max_seconds: float | None = None
    """End it after so many seconds of training."""
    goes_on: bool = False
    """It starts from a policy, which is tested first, may be kept, and may be good enough already."""

    def is_spent(self, generation: int, best_score: float, seconds: float = 0.0) -> bool:
        """Return whether the stage is over after so many generations with such a best test."""
        return (
            generation >= self.generations
            or (self.stop_at is not None and best_score >= self.stop_at)
            or (self.max_seconds is not None and seconds >= self.max_seconds)
        )

    def seconds_left(self, generation: int, seconds: float, pace: float) -> float:
        """Estimate the seconds that are left, unless a test is good enough before.

        Args:
            generation: How many are done.
            seconds: How long the stage has trained.
            pace: Seconds that a generation takes.
        """
        left = pace * (self.generations - generation)
        return left if self.max_seconds is None else max(min(left, self.max_seconds - seconds), 0.0)
