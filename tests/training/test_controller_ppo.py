"""PPO of controllers: what an agent does with what it sees is learned, how it sees is not."""

import dataclasses

import jax
import numpy as np
import pytest

from sensorium.envs import CarRacing, make
from sensorium.errors import ConfigError
from sensorium.policies import (
    AttentionAgentConfig,
    FeedForwardConfig,
    Reading,
    VisionAttentionNeuronConfig,
)
from sensorium.rollout import DeviceEngine
from sensorium.training import ControllerPpoConfig
from tests.probes import context
from tests.training.spot_world import EYES, WORLD, flat

CONFIG = ControllerPpoConfig(
    rollouts=16,
    window=5,
    windows=8,
    total_windows=400,
    epochs=6,
    groups=8,
    critic_windows=2,
    learning_rate=1e-2,
    exploration=0.5,
    last_exploration=0.2,
    hold_exploration=1,
    reward_scale=0.3,
)


def learn(config=CONFIG, agent=EYES, generations=1, world=WORLD):
    def draw(key):
        return agent.build(world.senses, world.num_actions, key)

    trainer = config.build(context(draw, DeviceEngine(world)))
    states, metrics = [trainer.init(jax.random.key(0))], []
    for _ in range(generations):
        state, figures = trainer.step(states[-1])
        states.append(state)
        metrics.append(figures)
    return trainer, states, metrics


def test_the_controller_learns_where_to_point():
    _, _, metrics = learn(generations=12)
    before, after = (
        np.mean([float(each.figures["mean"]) for each in part])
        for part in (metrics[:2], metrics[-2:])
    )
    assert after > before + 5, (before, after)  # 22 is the most


@pytest.mark.parametrize(
    "agent",
    [
        EYES,
        VisionAttentionNeuronConfig(num_queries=7, patch_size=4, reading=Reading.WHOLE),
    ],
)
def test_the_eyes_stay_as_they_are(agent):
    _, (start, *_, end), _ = learn(agent=agent, generations=3)
    eyes, lstm = ("look" if agent is EYES else "layer"), "lstm"
    for old, new in ((start.policy, end.policy), (start.mean, end.mean)):
        np.testing.assert_array_equal(flat(getattr(new, eyes)), flat(getattr(old, eyes)))
        assert not np.allclose(flat(getattr(new, lstm)), flat(getattr(old, lstm)))


def test_only_the_critic_learns_at_first():
    _, (start, end), _ = learn(dataclasses.replace(CONFIG, critic_windows=8))
    np.testing.assert_array_equal(flat(end.policy), flat(start.policy))
    np.testing.assert_array_equal(flat(end.mean), flat(start.mean))
    assert not np.allclose(flat(end.critic), flat(start.critic))


def test_a_generation_is_the_same_each_time():
    (_, first, _), (_, second, _) = learn(generations=2), learn(generations=2)
    np.testing.assert_array_equal(flat(first[-1].policy), flat(second[-1].policy))


def test_it_drives():
    config = ControllerPpoConfig(rollouts=2, window=500, windows=3, groups=1, epochs=1)
    _, (_, end), (metrics,) = learn(config, AttentionAgentConfig(), 1, CarRacing().for_training())
    assert int(end.windows) == 3
    assert np.isfinite(float(metrics.figures["mean"]))
    assert np.isfinite(flat(end.policy)).all()


def test_settings_that_do_not_fit():
    with pytest.raises(ConfigError, match="windows of 7"):
        learn(dataclasses.replace(CONFIG, window=7))
    with pytest.raises(ConfigError, match="18 episodes do not divide into 4 cohorts"):
        learn(dataclasses.replace(CONFIG, rollouts=18))
    with pytest.raises(ConfigError, match="16 episodes do not divide into 3 groups"):
        learn(dataclasses.replace(CONFIG, groups=3))
    with pytest.raises(ConfigError, match="eyes and a controller"):
        learn(agent=FeedForwardConfig(()), world=make("CarRacingRoad"))
