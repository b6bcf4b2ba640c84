"""CarRacing: an expert that reads the true state, and agents of images that imitate it."""

import dataclasses
from typing import Any

from sensorium.layers import KeyMap
from sensorium.perturbations import (
    Colour,
    HideRows,
    Identity,
    NoiseBackground,
    OneOf,
    RandomBackground,
    RandomConvolution,
    compose,
)
from sensorium.policies import (
    AttentionAgentConfig,
    ConvolutionalConfig,
    FeedForwardConfig,
    Reading,
    VisionAttentionNeuronConfig,
)
from sensorium.recipes.recipe import Recipe, Stage
from sensorium.training import (
    DaggerConfig,
    EvolutionConfig,
    Sb3PpoConfig,
    StrategyConfig,
)

_EXPERT_EVOLUTION = Stage(
    "evolution",
    EvolutionConfig(
        strategy=StrategyConfig("cma-es", sigma=0.3),
        population=128,
        num_episodes=4,
        start_at_zero=False,
    ),
    generations=150,
    training_reward=True,
    test_every=10,
    test_episodes=32,
)
# After the first stage it swerves, and images do not show when, so that no agent can imitate it
# (docs/experiments.md)
EXPERT = Recipe(
    name="carracing-expert",
    summary="An expert that reads where the road goes, by evolution; agents of images learn from it.",
    policy=FeedForwardConfig((16,)),
    env="CarRacingRoad",
    stages=(
        _EXPERT_EVOLUTION,
        _EXPERT_EVOLUTION.changed(
            name="smooth", strategy=StrategyConfig("cma-es", sigma=0.05), generations=60
        ),
    ),
)

_WEIGHTS = (20.0, 1.0, 1.0)  # a tenth of a turn of the wheel is much, a tenth of the gas is not
_IMITATION = Stage(
    "imitation",
    DaggerConfig(
        num_envs=16,
        # Updates after each 20 steps of an episode: with whole episodes, the agent fails once the expert has
        # no share in the actions (docs/experiments.md)
        rollout_steps=20,
        num_rounds=50,
        buffer_rounds=1,
        num_batches=1,
        batch_size=16,
        num_steps=20,
        window=20,
        beta_generations=45,
        action_noise=(0.1,),
        action_weights=_WEIGHTS,
        learning_rate=3e-3,
        ema_decay=0.99,
    ),
    generations=90,
    perturbation=Colour(0.02),  # so that it does not depend on exact shades
    expert="carracing-expert",
    training_reward=True,
    checkpoint_every=1,
    test_every=10,
    test_episodes=16,
)
# Each image is in three batches, perturbed anew: a third of the generations suffice
_THREE_TIMES: dict[str, Any] = {
    "buffer_rounds": 100,
    "num_batches": 3,
    "generations": 30,
    "beta_generations": 10,
    "test_every": 5,
}

# The features of its patches allow a better controller than imitation trains (docs/experiments.md)
_DAGGER = _IMITATION.changed(
    name="dagger",
    trainer=DaggerConfig(
        num_envs=128,
        buffer_rounds=10,
        num_batches=4000,
        num_steps=200,
        window=200,
        warm_up_steps=50,
        freeze_encoder=True,
        action_noise=(0.15, 0.03, 0.03, 0.03),
        action_weights=_WEIGHTS,
        learning_rate=3e-3,
        ema_decay=0.998,
    ),
    generations=16,
    test_every=2,
    test_episodes=256,
)
ATTENTION_AGENT = Recipe(
    name="carracing-attention-agent",
    summary="AttentionAgent (3,667 parameters): imitates an expert that reads the road.",
    policy=AttentionAgentConfig(),
    env="CarRacing",
    stages=(_IMITATION.changed(**_THREE_TIMES), _DAGGER),
)

# Its encoder stays as it is: with another it drove better in other colours and worse among bars
# (docs/experiments.md)
COLOURS = dataclasses.replace(
    ATTENTION_AGENT,
    name="carracing-attention-agent-colours",
    summary="AttentionAgent that goes on learning where road and grass have other colours, too.",
    stages=(
        _DAGGER.changed(
            name="colours",
            start=ATTENTION_AGENT.name,
            # From a little more than the range of the evaluation, whose ends are the hardest
            perturbation=OneOf((Colour(0.02), Colour(0.25), Colour(0.25))),
            test_every=4,
        ),
    ),
)

# The paper's agent, places of a code of 1,024, would train for days; this one reads a small code
_PI_POLICY = VisionAttentionNeuronConfig(
    num_queries=16, message_size=32, motion_scale=10.0, reading=Reading.WHOLE
)
_FINE: dict[str, Any] = {"learning_rate": 1e-3, "action_noise": (0.03,)}
PI = dataclasses.replace(
    ATTENTION_AGENT,
    name="carracing-pi",
    summary="AttentionNeuron agent of images whose patches are in any order; imitates the same expert.",
    policy=_PI_POLICY,
    stages=(_IMITATION.changed(perturbation=HideRows(), **_FINE),),
)


NLA = dataclasses.replace(
    PI,
    name="carracing-nla",
    summary="Nonlinear attention in its invariant form, otherwise as carracing-pi.",
    policy=dataclasses.replace(_PI_POLICY, key_map=KeyMap.NLA_INVARIANT),
    stages=(PI.last.changed(generations=60, beta_generations=30, test_episodes=32),),
)

_BACKGROUNDS = NLA.last.changed(
    name="backgrounds",
    start=NLA.name,
    perturbation=compose(OneOf((Identity(), RandomBackground(), RandomBackground())), HideRows()),
    test_episodes=64,
)
_SETTLE = _BACKGROUNDS.changed(
    name="settle", start="", beta_generations=1, learning_rate=5e-4, ema_decay=0.995
)
# With nonlinear keys: in the same time the loss falls further (docs/experiments.md)
PI_BACKGROUNDS = dataclasses.replace(
    NLA,
    name="carracing-pi-backgrounds",
    summary="AttentionNeuron agent with nonlinear attention, trained in front of random backgrounds.",
    stages=(
        _BACKGROUNDS,
        # Acting alone it meets what it would do wrong
        _BACKGROUNDS.changed(name="alone", start="", beta_generations=1, generations=90),
        _SETTLE,
        _SETTLE.changed(name="settle-again", test_every=15),
    ),
)


NOISE = dataclasses.replace(
    ATTENTION_AGENT,
    name="carracing-noise-10",
    summary="AttentionAgent of 10 places, trained where grass is noise.",
    stages=(
        _IMITATION.changed(
            perturbation=NoiseBackground(),
            action_noise=(0.03,),
            test_episodes=32,
            **_THREE_TIMES,
        ),
    ),
)

CONVOLUTIONAL = dataclasses.replace(
    ATTENTION_AGENT,
    name="carracing-cnn",
    summary="Convolutional agent (half as wide as that of Mnih et al. 2015); imitates the same expert.",
    policy=ConvolutionalConfig(channels=(16, 32, 32), hidden_sizes=(256,)),
    stages=(_IMITATION.changed(generations=40, beta_generations=20, test_episodes=32, **_FINE),),
)

# NetRand is its random layer and a loss that pulls features of changed and plain images together. Imitation
# has the layer alone: the loss, and averaging actions over several layers in tests, do not exist here. Each
# batch has another random layer: three batches of an image are worth more than three images
NETRAND = dataclasses.replace(
    CONVOLUTIONAL,
    name="carracing-netrand",
    summary="The convolutional agent behind NetRand's random layer, without NetRand's loss on features.",
    stages=(CONVOLUTIONAL.last.changed(perturbation=RandomConvolution(), **_THREE_TIMES),),
)

# Untrained it does not brake, and each of its actions lasts four frames: it learns in far fewer steps
PPO = Recipe(
    name="carracing-ppo",
    summary="Convolutional agent, from scratch and for the reward alone: PPO of Stable-Baselines3.",
    policy=ConvolutionalConfig(clipped=True),
    env="CarRacing",
    stages=(
        Stage(
            "ppo",
            Sb3PpoConfig(
                num_steps=128,
                num_iterations=20,
                num_epochs=4,
                gae_lambda=0.95,
                clip_epsilon=0.2,
                action_std=0.135,
                jerk_penalty=0.0,
                first_action=(0.0, 0.0, -1.0),
                action_repeat=4,
            ),
            generations=16,
            training_reward=True,
            test_every=1,
            test_episodes=32,
        ),
    ),
)

RECIPES = (
    EXPERT,
    CONVOLUTIONAL,  # the baseline
    NETRAND,
    PPO,
    ATTENTION_AGENT,
    COLOURS,
    NOISE,
    PI,
    PI_BACKGROUNDS,
    NLA,
)
