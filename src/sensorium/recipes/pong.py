"""Recipes for Atari Pong, seen as a bag of patches (AN section 4.3, NLA section 4.4).

The papers' agents are cloned from a player, in the papers' world: four games, over and over. Patches do not
tell where they are, so that elsewhere an agent has to remember where ball and paddle went.
"""

import dataclasses

from sensorium.perturbations import Identity, Occlude, OneOf, ShufflePatches
from sensorium.policies import (
    ConvolutionalConfig,
    KeyMap,
    Reading,
    VisionAttentionNeuronConfig,
)
from sensorium.recipes.recipe import Recipe, Stage
from sensorium.training import DaggerConfig

_PAPER = VisionAttentionNeuronConfig(
    num_queries=400,
    message_size=32,
    motion_scale=3.0,
    reading=Reading.CONVOLUTIONS,
    reader_size=512,
    hidden_size=None,
    hidden_rows=0,
    learned_norms=True,
    distinct_patches=32,
)
SMALL_POLICY = dataclasses.replace(_PAPER, num_queries=64, reader_size=256)
BY_HEART = DaggerConfig(
    num_envs=24,
    rollout_steps=3000,  # a game
    demonstration_rounds=1,
    num_rounds=0,
    num_batches=100,
    batch_size=64,
    num_steps=8,
    window=8,
    warm_up_steps=4,  # fill the stack of frames
    action_noise=(0.0,),
    ema_decay=0.99,
)
"""Behaviour cloning of a few games, from single steps behind those that fill a stack of frames."""
_CLONE = Stage(
    "clone",
    BY_HEART,
    generations=40,
    expert="sensorium.bridges.pong:player",
    test_every=8,
    test_episodes=16,
    stop_at=21.0,
)
PI = Recipe(
    name="pong-pi",
    summary="AttentionNeuron agent of Pong, as published (1.7 million parameters); cloned from a player.",
    policy=_PAPER,
    env="gym:ALE/Pong-v5?repeat_action_probability=0",
    stages=(_CLONE,),
)
SMALL = dataclasses.replace(
    PI,
    name="pong-pi-small",
    summary="The published agent of Pong with 64 of its 400 queries: minutes of training.",
    policy=SMALL_POLICY,
)
NLA = dataclasses.replace(
    PI,
    name="pong-nla",
    summary="The published agent with nonlinear attention in its invariant form.",
    policy=dataclasses.replace(_PAPER, key_map=KeyMap.NLA_INVARIANT),
)
NLA_PUBLISHED = dataclasses.replace(
    PI,
    name="pong-nla-published",
    summary="The published agent with nonlinear attention as published, which knows patches by their places.",
    policy=dataclasses.replace(_PAPER, key_map=KeyMap.NLA_PUBLISHED),
)
CNN = dataclasses.replace(
    PI,
    name="pong-cnn",
    summary="The network of Mnih et al. 2015, likewise cloned: it needs the whole screen in order.",
    policy=ConvolutionalConfig(num_frames=4),
)
LONG_ROUNDS = DaggerConfig(
    num_envs=16,
    rollout_steps=500,
    demonstration_rounds=4,
    num_rounds=4,
    buffer_rounds=60,
    beta_generations=2,
    num_batches=48,
    batch_size=16,
    num_steps=100,
    window=50,
    warm_up_steps=25,
    action_noise=(0.0, 0.1),
    privileged_coef=3.0,
    ema_decay=0.99,
)
"""DAgger on a buffer of long rounds, for an agent that remembers where things went."""
_DAGGER = Stage(
    "dagger",
    LONG_ROUNDS,
    generations=50,
    expert="sensorium.bridges.pong:player",
    test_every=6,
    test_episodes=12,
    checkpoint_every=2,
)
REMEMBERING = VisionAttentionNeuronConfig(
    num_queries=32,
    num_frames=2,
    message_size=32,
    motion_scale=3.0,
    reading=Reading.WHOLE,
    reader_size=256,
    hidden_size=128,
    head_size=128,
    blends=False,
    hidden_rows=0,
    learned_norms=True,
    distinct_patches=32,
)
"""Memory instead of a long stack of frames."""
ROBUST = Recipe(
    name="pong-pi-robust",
    summary="Ours, with a memory that learns where ball and paddle are: starts anywhere, sticky actions.",
    policy=REMEMBERING,
    env="gym:ALE/Pong-v5?random_starts=200",
    stages=(
        _DAGGER,
        _DAGGER.changed(
            name="perturbed",
            perturbation=OneOf((Identity(), ShufflePatches(every=25), Occlude(0.05))),
            generations=36,
            test_episodes=18,
            beta_generations=0,
            learning_rate=5e-4,
        ),
    ),
)
RECIPES = (CNN, PI, SMALL, ROBUST, NLA, NLA_PUBLISHED)
