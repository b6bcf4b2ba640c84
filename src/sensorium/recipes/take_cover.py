"""Recipes for DoomTakeCover: agents of pictures that imitate a player which knows where balls are.

A ball has to be remembered once it has left the picture. First an agent learns where to
look, from where balls are to be seen; then, on what it sees so, what to do. Floors and
walls of training differ in each episode; tests are in the world as it is.
"""

from sensorium.gymnasium_ids import TAKE_COVER
from sensorium.policies import AttentionAgentConfig, ConvolutionalConfig
from sensorium.recipes.recipe import Recipe, Stage
from sensorium.training import DaggerConfig

_PLAYERS = "sensorium.bridges.take_cover_player"
_WORLD = f"gym:{TAKE_COVER}?width=160"
_BOXES = f"{_WORLD}&boxes=true"
_DISCRETE, _DRAWN, _HELD = "&discrete=true", "&variant=drawn", "&frame_skip=4"
_ATTENTION = Stage(
    "attention",
    DaggerConfig(
        num_envs=48,  # as many floors, walls and texts
        rollout_steps=250,
        demonstration_rounds=1,
        num_rounds=0,
        num_batches=100,
        batch_size=16,
        num_steps=1,
        window=1,
        learning_rate=0.02,
        action_noise=(0.0, 0.3),
        attention_coef=10.0,
    ),
    generations=12,
    expert=f"{_PLAYERS}:spotter",
    test_every=12,
    test_episodes=8,
)
_DAGGER = Stage(
    "dagger",
    DaggerConfig(
        num_envs=16,
        rollout_steps=500,
        num_rounds=4,
        num_batches=40,
        batch_size=48,
        num_steps=128,
        window=128,
        warm_up_steps=32,
        freeze_encoder=True,
        privileged_coef=0.5,
        learning_rate=2e-3,
        action_noise=(0.0, 0.0, 0.1),
        beta_generations=1,
        ema_decay=0.998,
    ),
    generations=16,
    expert=f"{_PLAYERS}:teacher",
    test_every=8,
    test_episodes=40,
)
ATTENTION_AGENT = Recipe(
    name="takecover-attention-agent",
    summary="AttentionAgent of DoomTakeCover, as published but for three outputs (3,667 parameters).",
    policy=AttentionAgentConfig(),
    env=_BOXES + _DISCRETE + _HELD,
    stages=(
        _ATTENTION.changed(env=_BOXES + _DISCRETE + _DRAWN),
        _DAGGER.changed(
            env=_WORLD + _DISCRETE + _DRAWN + _HELD,
            expert=f"{_PLAYERS}:watcher",  # the network remembers little
            generations=24,
        ),
    ),
)
RECURRENT = Recipe(
    name="takecover-attention-agent-recurrent",
    summary="Ours, which reads the importance of all patches and remembers more.",
    policy=AttentionAgentConfig(
        reader_size=128, hidden_size=128, head_size=128, action_feedback=True
    ),
    env=_BOXES + _DISCRETE,
    stages=tuple(stage.changed(env=_BOXES + _DISCRETE + _DRAWN) for stage in (_ATTENTION, _DAGGER)),
)
CNN = Recipe(
    name="takecover-cnn",
    summary="Convolutional agent of four pictures (half as wide as that of Mnih et al. 2015): a baseline.",
    policy=ConvolutionalConfig(channels=(16, 32, 32), hidden_sizes=(256,), num_frames=4),
    env=_WORLD + _DISCRETE,
    stages=(
        _DAGGER.changed(
            freeze_encoder=False,
            privileged_coef=0.0,  # it has no memory
            buffer_rounds=32,
            num_batches=50,
            num_steps=8,
            window=8,
            warm_up_steps=4,  # fill the stack of frames
            learning_rate=1e-3,
        ),
    ),
)
RECIPES = (ATTENTION_AGENT, RECURRENT, CNN)
