"""CarRacing: a teacher who knows the road, and agents who see it."""

import dataclasses

from sensorium.perturbations import Colour, HideRows
from sensorium.policies import (
    AttentionAgentConfig,
    FeedForwardConfig,
    Reading,
    VisionAttentionNeuronConfig,
)
from sensorium.recipes.recipe import Recipe
from sensorium.training import EvolutionConfig, ImitationConfig, StrategyConfig

TEACHER = Recipe(
    name="carracing-teacher",
    summary="A driver who is told where the road goes, by evolution: a teacher for those who see it.",
    policy=FeedForwardConfig((16,)),
    trainer=EvolutionConfig(
        strategy=StrategyConfig("cma-es", sigma=0.3),
        population=128,
        rollouts=4,
        start_at_zero=False,
    ),
    env="CarRacingRoad",
    training_reward=True,
    generations=150,
    test_every=10,
    test_episodes=32,
)

# A tenth of a turn of the wheel is much, a tenth of the gas is not
_IMITATION = ImitationConfig(
    teacher="carracing-teacher",
    rollouts=16,
    total_generations=150,
    teacher_generations=80,
    action_weights=(20.0, 1.0, 1.0),
)

STUDENT = Recipe(
    name="carracing-attention-agent",
    summary="AttentionAgent (3,667 parameters), taught by a driver who knows the road.",
    policy=AttentionAgentConfig(),
    trainer=_IMITATION,
    env="CarRacing",
    perturbation=Colour(0.02),  # so that it takes to no exact shade
    training_reward=True,
    generations=150,
    checkpoint_every=1,
    test_every=10,
    test_episodes=16,
)

# The paper's agent, places of a code of 1,024, would learn for days; this one reads a small code
PI_STUDENT = dataclasses.replace(
    STUDENT,
    name="carracing-pi",
    summary="AttentionNeuron agent of pictures whose patches are in any order, taught likewise.",
    policy=VisionAttentionNeuronConfig(
        num_queries=16, message_size=32, motion_scale=10.0, reading=Reading.WHOLE
    ),
    trainer=dataclasses.replace(_IMITATION, action_noise=0.03),
    perturbation=HideRows(),
)

RECIPES = (TEACHER, STUDENT, PI_STUDENT)
