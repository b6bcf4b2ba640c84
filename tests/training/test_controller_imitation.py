"""Imitation of controllers: a teacher says what to do with what is seen, and the eyes stay as they are."""

import dataclasses

import jax
import jax.numpy as jnp
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
from sensorium.recipes import find
from sensorium.recipes.training import fit_start
from sensorium.rollout import DeviceEngine, HostEngine, make_world
from sensorium.training import ControllerImitationConfig, RunDirectory
from sensorium.training.run import Budget, run
from sensorium.zoo import load
from tests.probes import context
from tests.training.spot_world import EYES, WORLD, bold_teacher, flat

CONFIG = ControllerImitationConfig(
    rollouts=16, remembered=2, updates=60, batch=8, steps=12, warm_up=4, learning_rate=1e-2
)
TEACHER = bold_teacher(features=2, actions=2)


def trainer(config=CONFIG, agent=EYES, world=WORLD, teacher=TEACHER):
    def draw(key):
        return agent.build(world.senses, world.num_actions, key)

    return config.build(context(draw, DeviceEngine(world), teacher))


def generations(learning, count):
    states, metrics = [learning.init(jax.random.key(0))], []
    for _ in range(count):
        state, figures = learning.step(states[-1])
        states.append(state)
        metrics.append(figures)
    return states, metrics


def test_the_student_comes_to_do_what_the_teacher_does():
    _, metrics = generations(trainer(), 5)
    losses = [float(each.figures["loss"]) for each in metrics]
    assert losses[-1] < 0.3 * losses[0], losses


@pytest.mark.parametrize(
    "agent",
    [
        EYES,
        VisionAttentionNeuronConfig(num_queries=7, patch_size=4, reading=Reading.WHOLE),
    ],
)
def test_the_eyes_stay_as_they_are(agent):
    (start, *_, end), _ = generations(trainer(agent=agent), 2)
    eyes = "look" if agent is EYES else "layer"
    for old, new in ((start.student, end.student), (start.mean, end.mean)):
        np.testing.assert_array_equal(flat(getattr(new, eyes)), flat(getattr(old, eyes)))
        assert not np.allclose(flat(new.lstm), flat(old.lstm))


def test_what_is_remembered_is_what_the_eyes_saw_and_the_teacher_said():
    learning = trainer()
    (start, end), _ = generations(learning, 1)
    samples = jax.tree.map(lambda leaf: np.asarray(leaf[: CONFIG.rollouts]), end.remembered)
    assert samples.alive.all()  # nothing ends an episode here before its time
    # The world says the side by what the teacher is told of it; the eyes see one of two pictures
    firsts = {
        tuple(seen[0].ravel()): tuple(wanted[0]) for seen, wanted in zip(*samples[:2], strict=True)
    }
    expected = {}
    for left in (False, True):
        state = WORLD.reset(jax.random.key(0))[1]._replace(left=jnp.asarray(left))
        policy = start.student
        seen = policy.encode(WORLD.observe(state), policy.initial_carry(WORLD.senses))[0]
        wanted = learning.teacher.step(WORLD.critic_features(state), ())[0]
        expected[tuple(np.ravel(seen))] = tuple(np.asarray(wanted))
    assert firsts.keys() == expected.keys()
    for seen, wanted in firsts.items():
        np.testing.assert_allclose(wanted, expected[seen], atol=1e-6)


def test_the_oldest_generation_is_forgotten():
    (_, first, second, third), _ = generations(trainer(), 3)
    count = CONFIG.rollouts
    assert not np.any(first.remembered.alive[count:])  # still blank
    np.testing.assert_array_equal(second.remembered.wanted[:count], first.remembered.wanted[:count])
    np.testing.assert_array_equal(third.remembered.wanted[count:], second.remembered.wanted[count:])
    assert np.any(third.remembered.wanted[:count] != first.remembered.wanted[:count])


def test_noise_is_dealt_out_to_the_episodes_in_turn():
    config = dataclasses.replace(CONFIG, action_noise=(0.0, 1.0), updates=1)
    learning = trainer(config)
    state = learning.init(jax.random.key(0))
    keys = jnp.repeat(jax.random.split(jax.random.key(1), 2), 2)
    _, earned = learning._run_episodes(state.mean, keys, learning._noise[:4], jnp.zeros(()))
    _, quiet = learning._run_episodes(state.mean, keys, jnp.zeros(4), jnp.zeros(()))
    np.testing.assert_allclose(earned[::2], quiet[::2], atol=1e-5)
    assert (np.abs(earned - quiet)[1::2] > 1e-3).all()


def test_the_teacher_takes_its_hand_off_the_wheel():
    config = dataclasses.replace(CONFIG, teacher_generations=2, updates=1, learning_rate=0.0)
    _, metrics = generations(trainer(config), 3)
    assert [float(each.figures["teacher"]) for each in metrics] == [1.0, 0.5, 0.0]
    learning = trainer()
    keys = jax.random.split(jax.random.key(1), 2)
    students = [learning.init(jax.random.key(seed)).mean for seed in (2, 3)]
    for share, same in ((1.0, True), (0.0, False)):
        one, two = (
            learning._run_episodes(student, keys, jnp.zeros(2), jnp.asarray(share))[1]
            for student in students
        )
        assert np.allclose(one, two) == same


def test_a_run_that_was_stopped_goes_on_to_the_same_agent(tmp_path):
    budget = Budget("dagger", 0, 1, 3, checkpoint_every=1, test_every=1, test_episodes=4, seed=0)
    config = dataclasses.replace(CONFIG, updates=10)
    engine = DeviceEngine(WORLD)
    whole = run(trainer(config), engine, RunDirectory(tmp_path / "whole", {}), budget, quiet=True)
    parts = RunDirectory(tmp_path / "parts", {})
    run(trainer(config), engine, parts, dataclasses.replace(budget, generations=1), quiet=True)
    resumed = run(trainer(config), engine, parts, budget, quiet=True)
    np.testing.assert_array_equal(flat(resumed), flat(whole))


def test_it_drives():
    config = ControllerImitationConfig(rollouts=2, remembered=1, updates=2, batch=2)
    world = CarRacing().for_training()
    learning = trainer(config, AttentionAgentConfig(), world, load("carracing-teacher").policy)
    (_, end), (metrics,) = generations(learning, 1)
    assert end.remembered.seen.shape == (2, world.max_steps, 20)
    assert np.isfinite(float(metrics.figures["mean"]))
    assert np.isfinite(flat(end.student)).all()


def test_settings_that_do_not_fit():
    for changes, words in (
        ({"steps": 21}, "Sequences of 21 steps, 4 of them to warm up"),
        ({"warm_up": 12}, "Sequences of 12 steps, 12 of them to warm up"),
        ({"action_weights": (1.0,)}, "1 action_weights for 2"),
        ({"action_noise": ()}, "at least one standard deviation"),
        ({"updates": 0}, "updates must be at least 1, got 0"),
    ):
        with pytest.raises(ConfigError, match=words):
            trainer(dataclasses.replace(CONFIG, **changes))
    with pytest.raises(ConfigError, match="eyes and a controller"):
        trainer(agent=FeedForwardConfig(()), world=make("CarRacingRoad"))
    with pytest.raises(ConfigError, match="needs an agent of ours as its expert"):
        trainer(teacher=None)
    with pytest.raises(ConfigError, match="worlds on the device"):
        CONFIG.build(
            context(
                lambda key: EYES.build(WORLD.senses, WORLD.num_actions, key),
                HostEngine(make_world("gym:CartPole-v1")),
                TEACHER,
            )
        )


def test_a_recipe_starts_from_an_agent_whose_eyes_it_keeps():
    recipe = find("carracing-noise-5")
    shipped = load("carracing-noise-20").policy
    start, eyes = fit_start(shipped, recipe, recipe.last), shipped.look
    assert start.top == recipe.policy.top
    np.testing.assert_array_equal(flat(start.look), flat(eyes))
    assert type(recipe).from_json(recipe.to_json()) == recipe
