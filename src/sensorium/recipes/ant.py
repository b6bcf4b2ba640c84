"""The PyBullet ant: a feed-forward expert, agents that imitate it and then train by PPO, and evolution."""

import dataclasses

from sensorium.perturbations import OneOf, Reshuffle, Shuffle
from sensorium.policies import AttentionNeuronConfig, FeedForwardConfig, KeyMap
from sensorium.recipes.recipe import SCRATCH, Recipe, Stage
from sensorium.training import (
    CoachingConfig,
    DaggerConfig,
    EvolutionConfig,
    PpoConfig,
    Sb3PpoConfig,
    StrategyConfig,
)

_PAPER = AttentionNeuronConfig(num_queries=32, bias=True, scale=True, controller_sizes=(32,))
_LARGE = dataclasses.replace(_PAPER, controller_sizes=(128, 128))
_WIDE = dataclasses.replace(_LARGE, num_queries=64, hidden_size=24, position_size=16)
# An LSTM of 24 units and a table of 16 columns leave some of the 28 sensors hard to tell apart
_WIDEST = dataclasses.replace(_WIDE, hidden_size=40, position_size=32)

FEED_FORWARD = Recipe(
    name="ant-fnn",
    summary="Feed-forward expert, trained by PPO of Stable-Baselines3: good, until its inputs move.",
    policy=FeedForwardConfig(hidden_sizes=(128, 128), clipped=True),
    env="gym:AntBulletEnv-v0",
    # Long generations, since each begins with new episodes, all at once
    stages=(
        Stage(
            "ppo",
            Sb3PpoConfig(num_iterations=48),
            generations=15,
            test_every=1,
            test_episodes=16,
        ),
    ),
)

ROBUST = dataclasses.replace(
    FEED_FORWARD,
    name="ant-fnn-robust",
    summary="Feed-forward expert that goes on from where other actions led: for students that find motors.",
    stages=(FEED_FORWARD.last.changed(jostled_steps=16),),
)

_CLONE = Stage(
    "clone",
    DaggerConfig(rollout_steps=500, demonstration_rounds=16, num_rounds=0, learning_rate=3e-3),
    generations=40,
    perturbation=Shuffle(),
    expert="ant-fnn",
    test_every=10,
    test_episodes=16,
)
_CLONE_LARGE = _CLONE.changed(generations=30, test_every=30)
_PPO = Stage(
    "ppo",
    PpoConfig(),
    generations=40,
    perturbation=Shuffle(),
    test_every=2,
    test_episodes=16,
    checkpoint_every=1,
)

CLONE = dataclasses.replace(
    FEED_FORWARD,
    name="ant-pi-clone",
    summary="The paper's small student (2,504 parameters), cloned from the expert or from one of yours.",
    policy=_PAPER,
    stages=(_CLONE,),
)

PI = dataclasses.replace(
    CLONE,
    name="ant-pi",
    summary="The paper's small student, cloned and then trained by PPO.",
    stages=(_CLONE, _PPO),
)

PI_LARGE = dataclasses.replace(
    PI,
    name="ant-pi-large",
    summary="The paper's larger student (22,952 parameters), likewise.",
    policy=_LARGE,
    stages=(_CLONE_LARGE, _PPO),
)

# At the others' learning rate this policy moves further in an iteration, and the sensor identity loss gains
# more with larger LSTMs: see docs/experiments.md
_PPO_WIDE = _PPO.changed(learning_rate=1.5e-4, sensor_id_coef=0.1)

# An expert trained under shuffling has visited the states that shuffling causes, so that it can correct the
# student there; the feed-forward one has not: see docs/experiments.md
_DAGGER_WIDE = Stage(
    "dagger",
    DaggerConfig(demonstration_rounds=1, num_batches=8, learning_rate=5e-4),
    generations=24,
    perturbation=OneOf((Shuffle(), Reshuffle(25), Reshuffle(100), Reshuffle(500))),
    expert="stage:ppo",
    test_every=2,
    test_episodes=32,
    checkpoint_every=1,
)

# An expert that was trained alone has not visited the states of a student: see docs/experiments.md
_COACH = Stage(
    "coach",
    CoachingConfig(student_perturbation=_DAGGER_WIDE.perturbation),
    generations=20,
    expert="stage:dagger",
    start=SCRATCH,
    policy=FeedForwardConfig(hidden_sizes=(128, 128)),
    test_every=2,
    test_episodes=16,
    checkpoint_every=1,
)

_COACHED = _DAGGER_WIDE.changed(
    name="coached",
    trainer=DaggerConfig(
        num_envs=48,
        num_batches=24,
        batch_size=16,
        num_steps=1000,
        sensor_id_coef=0.1,
        ema_decay=0.99,
    ),
    expert="stage:coach",
    start="stage:dagger",
    generations=30,
    test_every=3,
)

_EVOLUTION = Stage(
    "evolution",
    EvolutionConfig(strategy=StrategyConfig("cma-es"), population=64, num_episodes=1),
    generations=500,
    perturbation=Shuffle(),
    training_reward=True,
    test_every=20,
    test_episodes=16,
    checkpoint_every=5,
)

# Small steps in 36,000 parameters: with larger ones, a generation loses the return of the start
_PGPE = EvolutionConfig(
    strategy=StrategyConfig("pgpe", sigma=0.01, learning_rate=0.001), population=64, num_episodes=1
)
EVOLVED = dataclasses.replace(
    PI_LARGE,
    name="ant-pi-evolved",
    summary="A wider student that imitates a coach trained for it; then evolution: the best score.",
    policy=_WIDEST,
    stages=(
        *(stage.changed(policy=_WIDE) for stage in (_CLONE_LARGE, _PPO_WIDE, _DAGGER_WIDE)),
        _COACH,
        _COACHED,
        _EVOLUTION.changed(trainer=_PGPE, generations=40, test_every=5, test_episodes=32),
    ),
)

NLA = dataclasses.replace(
    PI,
    name="ant-nla",
    summary="The small student with nonlinear attention in its invariant form; it imitates `ant-pi`.",
    policy=dataclasses.replace(_PAPER, key_map=KeyMap.NLA_INVARIANT),
    stages=(
        _CLONE,
        _COACHED.changed(
            name="dagger",
            perturbation=Shuffle(),
            expert="ant-pi",
            start="",
            generations=16,
            test_every=2,
        ),
    ),
)

EVOLUTION = dataclasses.replace(
    PI,
    name="ant-pi-evolution",
    summary="The paper's agent by evolution from zeros, with the paper's reward for training.",
    stages=(_EVOLUTION,),
)

RECIPES = (FEED_FORWARD, ROBUST, CLONE, PI, PI_LARGE, EVOLVED, EVOLUTION, NLA)
