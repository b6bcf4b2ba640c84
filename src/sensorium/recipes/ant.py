"""The PyBullet ant: a feed-forward expert, agents that learn from it and go on alone, and evolution."""

import dataclasses

from sensorium.perturbations import Identity, OneOf, Reshuffle, Shuffle
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
    stages=(Stage("ppo", Sb3PpoConfig(), generations=40, test_every=4, test_episodes=16),),
)

_CLONE = Stage(
    "clone",
    DaggerConfig(rollout_steps=500, demonstration_rounds=16, rollout_every=0, learning_rate=3e-3),
    generations=40,
    perturbation=Shuffle(),
    expert="ant-fnn",
    test_every=10,
    test_episodes=16,
)
_CLONE_LARGE = _CLONE.changed(generations=30)
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
    summary="The paper's small student (2,504 parameters), cloned from the feed-forward expert.",
    policy=_PAPER,
    stages=(_CLONE,),
)

CLONE_LARGE = dataclasses.replace(
    CLONE,
    name="ant-pi-clone-large",
    summary="The paper's larger student: one more layer, 128 units wide.",
    policy=_LARGE,
    stages=(_CLONE_LARGE,),
)

PI = dataclasses.replace(
    CLONE,
    name="ant-pi",
    summary="The small student, which went on to learn from the reward by PPO.",
    stages=(_CLONE, _PPO),
)

PI_LARGE = dataclasses.replace(
    CLONE_LARGE,
    name="ant-pi-large",
    summary="The larger student, which went on to learn from the reward by PPO.",
    stages=(_CLONE_LARGE, _PPO),
)

CLONE_WIDE = dataclasses.replace(
    CLONE_LARGE,
    name="ant-pi-clone-wide",
    summary="As the larger student, with an LSTM of 24 units in each sensor and 64 queries.",
    policy=_WIDE,
)

# At the others' learning rate this one moves twice as far in a round, and learning which sensor is which pays
# more the more an LSTM can hold: see docs/experiments.md
_PPO_WIDE = _PPO.changed(learning_rate=1.5e-4, sensor_id_coef=0.1)
PI_WIDE = dataclasses.replace(
    CLONE_WIDE,
    name="ant-pi-wide",
    summary="The wider student, which went on by PPO, and learned which sensor is which.",
    stages=(_CLONE_LARGE, _PPO_WIDE),
)

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
DAGGER_WIDE = dataclasses.replace(
    PI_WIDE,
    name="ant-pi-dagger-wide",
    summary="The wider student, its own expert while its sensors change places in mid-episode (DAgger).",
    stages=(*PI_WIDE.stages, _DAGGER_WIDE),
)

# An expert that was trained alone does not know the states that a student gets into: see docs/experiments.md
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
COACH = dataclasses.replace(
    DAGGER_WIDE,
    name="ant-coach",
    summary="A feed-forward expert for one student, trained in turns with it.",
    policy=FeedForwardConfig(hidden_sizes=(128, 128)),
    stages=(
        *(stage.changed(policy=_WIDE) for stage in DAGGER_WIDE.stages),
        _COACH.changed(policy=None),
    ),
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
COACHED = dataclasses.replace(
    DAGGER_WIDE,
    name="ant-pi-coached",
    summary="The wider student with more units in each sensor, taught by a coach that was trained for it.",
    policy=_WIDEST,
    stages=(
        *(stage.changed(policy=_WIDE) for stage in DAGGER_WIDE.stages),
        _COACH,
        _COACHED,
    ),
)

# The same for the paper's small student, by an expert of its own size
_DAGGER = _COACHED.changed(
    name="dagger",
    perturbation=Shuffle(),
    expert="ant-pi",
    start="",
    generations=16,
    test_every=2,
)
DAGGER = dataclasses.replace(
    CLONE,
    name="ant-pi-dagger",
    summary="The small student, cloned from an expert trained under shuffling (DAgger).",
    stages=(_CLONE, _DAGGER),
)

NLA_CLONE = dataclasses.replace(
    CLONE,
    name="ant-nla-clone",
    summary="The small student with nonlinear attention in the invariant form, cloned.",
    policy=dataclasses.replace(_PAPER, key_map=KeyMap.NLA_INVARIANT),
)

NLA = dataclasses.replace(
    NLA_CLONE,
    name="ant-nla",
    summary="Nonlinear attention in the invariant form, cloned from an expert trained under shuffling.",
    stages=DAGGER.stages,
)

NLA_PUBLISHED_CLONE = dataclasses.replace(
    CLONE,
    name="ant-nla-published-clone",
    summary="The small student with nonlinear attention as published (not invariant), cloned.",
    policy=dataclasses.replace(_PAPER, key_map=KeyMap.NLA_PUBLISHED),
    stages=(_CLONE.changed(perturbation=Identity()),),
)

NLA_PUBLISHED = dataclasses.replace(
    NLA_PUBLISHED_CLONE,
    name="ant-nla-published",
    summary="Nonlinear attention as published (not invariant), cloned from the same expert.",
    stages=tuple(stage.changed(perturbation=Identity()) for stage in DAGGER.stages),
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
EVOLUTION = dataclasses.replace(
    CLONE,
    name="ant-pi-evolution",
    summary="The paper's agent by evolution from zeros, with the paper's reward for training.",
    stages=(_EVOLUTION,),
)

# Of 36,000 parameters each moves little, or the search loses in a generation what it began with
EVOLVED = dataclasses.replace(
    COACHED,
    name="ant-pi-evolved",
    summary="The coached student, which went on by evolution with the paper's reward for training.",
    stages=(
        *COACHED.stages,
        _EVOLUTION.changed(
            trainer=EvolutionConfig(
                strategy=StrategyConfig("pgpe", sigma=0.01, learning_rate=0.001),
                population=64,
                num_episodes=1,
            ),
            generations=40,
            test_every=5,
            test_episodes=32,
        ),
    ),
)

RECIPES = (
    FEED_FORWARD,
    CLONE,
    CLONE_LARGE,
    PI,
    PI_LARGE,
    CLONE_WIDE,
    PI_WIDE,
    DAGGER_WIDE,
    COACH,
    COACHED,
    DAGGER,
    NLA_CLONE,
    NLA,
    NLA_PUBLISHED_CLONE,
    NLA_PUBLISHED,
    EVOLUTION,
    EVOLVED,
)
