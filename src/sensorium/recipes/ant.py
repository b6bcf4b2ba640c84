"""The PyBullet ant: a teacher, its clones, what they learn from the reward, and evolution."""

import dataclasses

from sensorium.perturbations import Identity, OneOf, Reshuffle, Shuffle
from sensorium.policies import AttentionNeuronConfig, FeedForwardConfig, KeyMap
from sensorium.recipes.recipe import Recipe
from sensorium.training import (
    CloningConfig,
    CoachingConfig,
    EvolutionConfig,
    PpoConfig,
    RecurrentPpoConfig,
    StrategyConfig,
)

_WORLD = "gym:AntBulletEnv-v0"

_PAPER = AttentionNeuronConfig(num_queries=32, bias=True, scale=True, controller_sizes=(32,))
_LARGE = dataclasses.replace(_PAPER, controller_sizes=(128, 128))
_WIDE = dataclasses.replace(_LARGE, num_queries=64, hidden_size=24, position_size=16)
_NLA = dataclasses.replace(_PAPER, key_map=KeyMap.NLA_INVARIANT)
_NLA_PUBLISHED = dataclasses.replace(_PAPER, key_map=KeyMap.NLA_PUBLISHED)

_CLONING = CloningConfig(teacher="ant-fnn", learning_rate=3e-3, total_batches=640)
FEED_FORWARD = Recipe(
    name="ant-fnn",
    summary="Feed-forward teacher, trained by PPO of Stable-Baselines3: good, until its inputs move.",
    policy=FeedForwardConfig(hidden_sizes=(128, 128), clipped=True),
    trainer=PpoConfig(),
    env=_WORLD,
    test_every=48,
    test_episodes=16,
)

CLONE = Recipe(
    name="ant-pi-clone",
    summary="The paper's small student (2,504 parameters), cloned from the feed-forward teacher.",
    policy=_PAPER,
    trainer=_CLONING,
    env=_WORLD,
    perturbation=Shuffle(),
    generations=40,
    test_every=10,
    test_episodes=16,
)

CLONE_LARGE = dataclasses.replace(
    CLONE,
    name="ant-pi-clone-large",
    summary="The paper's larger student: one more layer, 128 units wide.",
    policy=_LARGE,
    trainer=dataclasses.replace(_CLONING, total_batches=480),
    generations=30,
)

WALKER = dataclasses.replace(
    CLONE,
    name="ant-pi",
    summary="The small student, which went on to learn from the reward by PPO.",
    trainer=RecurrentPpoConfig(total_rounds=1280),
    start="ant-pi-clone",
    generations=40,
    test_every=2,
    checkpoint_every=1,
)

WALKER_LARGE = dataclasses.replace(
    WALKER,
    name="ant-pi-large",
    summary="The larger student, which went on to learn from the reward by PPO.",
    policy=_LARGE,
    start="ant-pi-clone-large",
)

CLONE_WIDE = dataclasses.replace(
    CLONE_LARGE,
    name="ant-pi-clone-wide",
    summary="As the larger student, with more to say for each sensor: an LSTM of 24 units, 64 queries.",
    policy=_WIDE,
)

# At the others' learning rate this one moves twice as far in a round, and the lesson of which sensor is
# which is worth more the more an LSTM can hold: see docs/experiments.md
WALKER_WIDE = dataclasses.replace(
    WALKER,
    name="ant-pi-wide",
    summary="The wider student, which went on to learn from the reward by PPO, and which sensor is which.",
    policy=_WIDE,
    trainer=RecurrentPpoConfig(total_rounds=1280, learning_rate=1.5e-4, identity_weight=0.1),
    start="ant-pi-clone-wide",
)

# Who walks with shuffled senses has been in every stumble that comes of them, and as a teacher knows the way
# back; the feed-forward one does not: see docs/experiments.md
DAGGER_WIDE = dataclasses.replace(
    WALKER_WIDE,
    name="ant-pi-dagger-wide",
    summary="The wider student, its own teacher while its sensors change places in mid-episode (DAgger).",
    trainer=CloningConfig(
        teacher="ant-pi-wide",
        episodes=64,
        learning_rate=5e-4,
        batches=8,
        total_batches=192,
        dagger_every=1,
        dagger_rounds=24,
    ),
    perturbation=OneOf((Shuffle(), Reshuffle(25), Reshuffle(100), Reshuffle(500))),
    start="ant-pi-wide",
    generations=24,
    test_episodes=32,
)

# A teacher that was trained alone knows no way back from where a student gets: see docs/experiments.md
COACH = Recipe(
    name="ant-coach",
    summary="A feed-forward teacher that was trained where its student gets, in turns with it.",
    policy=FeedForwardConfig(hidden_sizes=(128, 128)),
    trainer=CoachingConfig(student="ant-pi-dagger-wide", senses=DAGGER_WIDE.perturbation),
    env=_WORLD,
    generations=20,
    test_every=2,
    test_episodes=16,
    checkpoint_every=1,
)

# An LSTM of 24 units and a table of 16 columns leave some of the 28 sensors hard to tell apart
COACHED = dataclasses.replace(
    DAGGER_WIDE,
    name="ant-pi-coached",
    summary="The wider student with more units in each sensor, taught by a coach that was trained for it.",
    policy=dataclasses.replace(_WIDE, hidden_size=40, position_size=32),
    trainer=CloningConfig(
        teacher="ant-coach",
        episodes=0,
        steps=1000,
        batch=16,
        batches=24,
        total_batches=720,
        dagger_every=1,
        dagger_episodes=48,
        dagger_rounds=30,
        identity_weight=0.1,
        averaging=0.99,
    ),
    start="ant-pi-dagger-wide",
    generations=30,
    test_every=3,
)

# The same lessons for the paper's small student, by one of its own size
DAGGER = dataclasses.replace(
    COACHED,
    name="ant-pi-dagger",
    summary="The small student, cloned from one that walks with shuffled senses (DAgger).",
    policy=_PAPER,
    perturbation=Shuffle(),
    start="ant-pi-clone",
    generations=16,
    test_every=2,
).override(teacher="ant-pi", total_batches=384, dagger_rounds=16)

NLA_CLONE = dataclasses.replace(
    CLONE,
    name="ant-nla-clone",
    summary="The small student with nonlinear attention in the invariant form, cloned.",
    policy=_NLA,
)

NLA = dataclasses.replace(
    DAGGER,
    name="ant-nla",
    summary="Nonlinear attention in the invariant form, cloned from one that walks with shuffled senses.",
    policy=_NLA,
    start="ant-nla-clone",
)

NLA_PUBLISHED_CLONE = dataclasses.replace(
    NLA_CLONE,
    name="ant-nla-published-clone",
    summary="The small student with nonlinear attention as published (not invariant), cloned.",
    policy=_NLA_PUBLISHED,
    perturbation=Identity(),
)

NLA_PUBLISHED = dataclasses.replace(
    NLA,
    name="ant-nla-published",
    summary="Nonlinear attention as published (not invariant), cloned from the same teacher.",
    policy=_NLA_PUBLISHED,
    perturbation=Identity(),
    start="ant-nla-published-clone",
)

EVOLUTION = dataclasses.replace(
    WALKER,
    name="ant-pi-evolution",
    summary="The paper's agent by evolution from zeros, with the paper's reward for training.",
    trainer=EvolutionConfig(strategy=StrategyConfig("cma-es"), population=64, rollouts=1),
    start="",
    training_reward=True,
    generations=500,
    test_every=20,
    checkpoint_every=5,
)

# Of 36,000 parameters each moves little, or the search loses in a generation what it began with
EVOLVED_CLONE = dataclasses.replace(
    EVOLUTION,
    name="ant-pi-evolved",
    summary="The coached student, which went on by evolution with the paper's reward for training.",
    policy=COACHED.policy,
    trainer=EvolutionConfig(
        strategy=StrategyConfig("pgpe", sigma=0.01, learning_rate=0.001),
        population=64,
        rollouts=1,
    ),
    start="ant-pi-coached",
    generations=40,
    test_every=5,
    test_episodes=32,
)

RECIPES = (
    FEED_FORWARD,
    CLONE,
    CLONE_LARGE,
    WALKER,
    WALKER_LARGE,
    CLONE_WIDE,
    WALKER_WIDE,
    DAGGER_WIDE,
    COACH,
    COACHED,
    DAGGER,
    NLA_CLONE,
    NLA,
    NLA_PUBLISHED_CLONE,
    NLA_PUBLISHED,
    EVOLUTION,
    EVOLVED_CLONE,
)
