"""A training run of a second on a world on the host, for what must not change its result."""

from sensorium.policies import FeedForwardConfig
from sensorium.recipes import Recipe, Stage
from sensorium.training import EvolutionConfig, StrategyConfig

WALK = "gym:tests.host_worlds:Walk-v0"
RECIPE = Recipe(
    name="walk",
    summary="Follow a walk.",
    policy=FeedForwardConfig(()),
    stages=(
        Stage(
            "evolution",
            EvolutionConfig(StrategyConfig("cma-es", sigma=0.3), population=8, num_episodes=4),
            generations=6,
            test_every=2,
            test_episodes=6,
            checkpoint_every=1,
        ),
    ),
    env=WALK,
)
