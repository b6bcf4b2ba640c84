"""CartPole: every agent of the papers, ours, and the baselines."""

import dataclasses

from sensorium.perturbations import Reshuffle
from sensorium.policies import (
    AttentionNeuronConfig,
    DeepSetsConfig,
    FeedForwardConfig,
    KeyMap,
    SetTransformerConfig,
)
from sensorium.recipes.recipe import Recipe, Stage
from sensorium.training import EvolutionConfig, ShacConfig, StrategyConfig

_PAPER = AttentionNeuronConfig(reading_scale=0.2)
_GRADIENTS = Stage("gradients", ShacConfig(population=2), generations=150)
"""The defaults of the trainer are the best settings of docs/experiments.md."""

FEED_FORWARD = Recipe(
    name="cartpole-fnn",
    summary="Feed-forward agent with 16 hidden units (113 parameters): good, until its inputs move.",
    policy=FeedForwardConfig(hidden_sizes=(16,), input_scales=(2.4, 10.0, 1.0, 1.0, 10.0)),
    stages=(
        Stage(
            "gradients",
            ShacConfig(
                population=2,
                num_envs=256,
                num_steps=32,
                learning_rate=5e-3,
                discount=0.99,
                critic_epochs=4,
                ema_decay=0.98,
                sensor_id_coef=0.0,
                max_world_grad_norm=1.0,
            ),
            generations=100,
        ),
    ),
)

PI = Recipe(
    name="cartpole-pi",
    summary="The paper's permutation-invariant agent of 913 parameters, trained by gradients.",
    policy=_PAPER,
    stages=(_GRADIENTS,),
)

PI_EVOLUTION = Recipe(
    name="cartpole-pi-evolution",
    summary="The paper's agent and the paper's training: CMA-ES, 256 individuals, 16 rollouts each.",
    policy=AttentionNeuronConfig(),
    stages=(
        Stage(
            "evolution",
            EvolutionConfig(StrategyConfig("cma-es", sigma=0.1), population=256, num_episodes=16),
            generations=2000,
        ),
    ),
)

PI_FEEDBACK = dataclasses.replace(
    PI,
    name="cartpole-pi-feedback",
    summary="At the paper's size (909 parameters), sensors receive the code too: best in few minutes.",
    policy=dataclasses.replace(_PAPER, num_queries=12, message_size=8, code_feedback=True),
)

# A single learner, which reaches as much for half of the computation
PI_BEST = dataclasses.replace(
    PI,
    name="cartpole-pi-best",
    summary="A larger permutation-invariant agent whose sensors receive the code too: the best score.",
    policy=AttentionNeuronConfig(
        num_queries=32,
        hidden_size=16,
        controller_sizes=(32,),
        reading_scale=0.2,
        code_feedback=True,
    ),
    stages=(_GRADIENTS.changed(population=1),),
)

PI_RESHUFFLE = dataclasses.replace(
    PI_BEST,
    name="cartpole-pi-reshuffle",
    summary="A permutation-invariant agent trained while its sensors are reshuffled every 25 steps.",
    stages=(PI_BEST.last.changed(perturbation=Reshuffle(every=25)),),
)

NLA = dataclasses.replace(
    PI,
    name="cartpole-nla",
    summary="The paper's agent with nonlinear attention in its invariant form (930 parameters).",
    policy=dataclasses.replace(_PAPER, key_map=KeyMap.NLA_INVARIANT),
)

NLA_PUBLISHED = dataclasses.replace(
    PI,
    name="cartpole-nla-published",
    summary="Nonlinear attention as published (998 parameters): fixed number and order of sensors.",
    policy=dataclasses.replace(_PAPER, key_map=KeyMap.NLA_PUBLISHED),
)

DEEP_SETS = dataclasses.replace(
    PI,
    name="cartpole-deep-sets",
    summary="Deep Sets pooling in place of attention, at about the same size (911 parameters).",
    policy=DeepSetsConfig(),
)

SET_TRANSFORMER = dataclasses.replace(
    PI,
    name="cartpole-set-transformer",
    summary="Set Transformer pooling in place of tanh attention, at about the same size (911).",
    policy=SetTransformerConfig(),
)

RECIPES = (
    FEED_FORWARD,
    PI,
    PI_FEEDBACK,
    PI_BEST,
    PI_RESHUFFLE,
    PI_EVOLUTION,
    NLA,
    NLA_PUBLISHED,
    DEEP_SETS,
    SET_TRANSFORMER,
)
