"""Agents with motor neurons: bodies that are drawn anew for each episode, and rewired in the middle of it."""

import dataclasses

from sensorium.perturbations import (
    Identity,
    NoiseChannels,
    OneOf,
    Reshuffle,
    RewireMotors,
    Shuffle,
    compose,
)
from sensorium.policies import (
    AnonymousMotorNeuronsConfig,
    FeedForwardConfig,
    MotorGraphConfig,
    MotorNeuronsConfig,
    RecurrentConfig,
)
from sensorium.recipes.recipe import Recipe, Stage
from sensorium.training import DaggerConfig, ShacConfig

_REWIRED = OneOf((Identity(), RewireMotors(every=100, signed=True)))
_GRADIENTS = ShacConfig(
    num_envs=64, num_steps=100, num_iterations=50, sensor_id_coef=0.0, max_world_grad_norm=1.0
)
THRUSTERS = Recipe(
    name="thrusters-motors",
    summary="Thrusters that nobody names, on any body; sensors in their places.",
    policy=MotorNeuronsConfig(),
    env="Thrusters",
    stages=(Stage("gradients", _GRADIENTS, 40, _REWIRED, training_reward=True),),
)
FNN = dataclasses.replace(
    THRUSTERS,
    name="thrusters-fnn",
    summary="A rival without memory: motors in fixed places, though each body has others.",
    policy=FeedForwardConfig((64, 64)),
)
LSTM = dataclasses.replace(
    THRUSTERS,
    name="thrusters-lstm",
    summary="A baseline with an LSTM, whose inputs are the readings and the previous action.",
    policy=RecurrentConfig(),
)
ONE_SIDED = dataclasses.replace(
    THRUSTERS,
    name="thrusters-motors-one-sided",
    summary="Thrusters that only push, and go on pushing for a while; sensors in their places.",
    env="Thrusters?motors=12&least=6&one_sided=true&lag=0.5",
    stages=(THRUSTERS.last.changed(generations=60),),
)
_IMITATION = DaggerConfig(
    num_envs=128,
    num_batches=60,
    batch_size=64,
    num_steps=100,
    window=100,
    warm_up_steps=0,
    buffer_rounds=20,
    beta_generations=16,
    action_noise=(0.0, 0.1, 0.3),
    sensor_id_coef=1.0,
    learning_rate=3e-3,
    ema_decay=0.99,
)
"""Of an expert that knows the body; noise, since other states than the expert's are to be met."""
CARTPOLE = Recipe(
    name="cartpole-motors",
    summary="A cart with four motors, of which one drives it: which, and how, is not known; nor are sensors.",
    policy=AnonymousMotorNeuronsConfig(
        hidden_size=24, wish_size=32, num_queries=8, learns_noise=False
    ),
    env="CartPoleMotors",
    stages=(
        Stage(
            "dagger",
            _IMITATION,
            90,
            OneOf((Shuffle(), compose(Shuffle(), RewireMotors(every=100, signed=True)))),
            expert="cartpole-fnn",
        ),
    ),
)
_UNNAMED = OneOf(
    (
        compose(NoiseChannels(3, 0.3), Shuffle()),
        compose(NoiseChannels(3, 0.3), Reshuffle(100), RewireMotors(every=100, signed=True)),
    )
)
UNNAMED = Recipe(
    name="thrusters-motors-unnamed",
    summary="Thrusters on any body, whose sensors have no names either.",
    policy=AnonymousMotorNeuronsConfig(hidden_size=32, wish_size=48),
    env="Thrusters",
    stages=(Stage("gradients", _GRADIENTS, 60, _UNNAMED, training_reward=True),),
)
ARM = Recipe(
    name="arm-motors",
    summary="An arm of any number of joints, seen by a camera that is turned and mirrored.",
    policy=AnonymousMotorNeuronsConfig(),
    env="Arm",
    stages=(
        Stage(
            "gradients",
            dataclasses.replace(_GRADIENTS, num_steps=60),
            40,
            OneOf((Identity(), RewireMotors(every=60, signed=True))),
            training_reward=True,
        ),
    ),
)
# Motors are found in the first ten steps of an episode; most of a long round would be what follows a fall
_CLONE = Stage(
    "clone",
    DaggerConfig(
        num_envs=128,
        rollout_steps=64,
        demonstration_rounds=10,
        num_rounds=0,
        num_batches=64,
        batch_size=32,
        num_steps=64,
        window=64,
        sensor_id_coef=0.3,
        surprise_coef=0.1,
        learning_rate=3e-3,
        action_noise=(0.0,),
        ema_decay=0.99,
    ),
    generations=12,
    perturbation=compose(Shuffle(), RewireMotors(signed=True)),
    expert="ant-fnn-robust",
    test_every=12,
    test_episodes=16,
    checkpoint_every=1,
)
ANT = Recipe(
    name="ant-motors",
    summary="The PyBullet ant with sensors and motors that nobody names.",
    policy=MotorGraphConfig(),
    env="gym:AntBulletEnv-v0",
    stages=(
        _CLONE,
        _CLONE.changed(
            name="dagger",
            demonstration_rounds=0,
            num_envs=64,
            rollout_steps=100,
            num_rounds=2,
            num_batches=24,
            num_steps=100,
            window=50,
            buffer_rounds=30,
            beta_generations=10,
            learning_rate=2e-3,
            generations=22,
            test_every=5,
            test_episodes=32,
        ),
    ),
)
RECIPES = (THRUSTERS, ONE_SIDED, FNN, LSTM, UNNAMED, ARM, CARTPOLE, ANT)
