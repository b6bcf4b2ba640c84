"""PPO of Stable-Baselines3 on our worlds on the device: many at once, and its convolutional agent as ours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium import recipes, zoo
from sensorium.bridges import sb3
from sensorium.bridges.sb3_envs import to_vec_env
from sensorium.bridges.to_gymnasium import WorldVectorEnv
from sensorium.envs import CarRacing, CartPoleSwingUpHarder, Perturbed
from sensorium.errors import ConfigError, ObservationError
from sensorium.perturbations import RandomConvolution
from sensorium.policies import ConvolutionalPolicy


def drive(env, steps=5, seed=3):
    seen, _ = env.reset(seed=seed)
    frames, rewards = [seen], []
    for step in range(steps):
        actions = np.full((env.num_envs, env.single_action_space.shape[0]), 0.1 * step, np.float32)
        seen, reward, terminated, truncated, _ = env.step(actions)
        assert terminated.dtype == truncated.dtype == bool
        frames.append(seen)
        rewards.append(reward)
    return np.stack(frames), np.stack(rewards)


def test_worlds_that_are_stepped_together_are_those_that_are_stepped_alone():
    world = CartPoleSwingUpHarder()
    env = WorldVectorEnv(world, 3)
    frames, rewards = drive(env)
    assert env.observation_space.contains(frames[0])
    again, _ = drive(WorldVectorEnv(world.id, 3))
    np.testing.assert_array_equal(frames, again)
    assert (drive(env, seed=4)[0] != frames).any()
    assert len(np.unique(frames[0, :, 0])) == 3  # starts of their own
    # The second, from where it was started, by the world itself
    env.reset(seed=3)
    state = jax.tree.map(lambda leaf: leaf[1], env._now[1])
    for step in range(5):
        action = jnp.full(1, 0.1 * step)
        seen, state, reward, *_ = world.advance(jax.random.key(0), state, action)
        np.testing.assert_allclose(frames[step + 1, 1], seen, atol=1e-5)
        assert rewards[step, 1] == pytest.approx(float(reward), abs=1e-5)


def test_only_what_is_masked_starts_anew():
    env = WorldVectorEnv(CartPoleSwingUpHarder(), 4)
    drive(env, 3)
    before = np.array(env._now[0])
    mask = np.array([False, True, False, True])
    seen, _ = env.reset(options={"reset_mask": mask})
    np.testing.assert_array_equal(seen[~mask], before[~mask])
    assert (seen[mask] != before[mask]).any(1).all()
    np.testing.assert_array_equal(env._now[1].time, np.where(mask, 0, 3))


def test_wrong_actions_are_one_sentence():
    env = WorldVectorEnv("CartPoleSwingUpHarder", 2)
    with pytest.raises(ConfigError, match="Call reset before step"):
        env.step(np.zeros((2, 1)))
    env.reset(seed=0)
    for wrong in (np.zeros((3, 1)), np.full((2, 1), np.nan)):
        with pytest.raises(ObservationError, match=r"finite numbers of shape \(2, 1\)"):
            env.step(wrong)


def test_an_end_is_told_as_stable_baselines_wants_it(monkeypatch):
    pytest.importorskip("stable_baselines3", reason="the extra `experts` is not installed")
    monkeypatch.setattr("sensorium.envs.CartPoleSwingUpHarder.max_steps", 4)
    env = to_vec_env(WorldVectorEnv(CartPoleSwingUpHarder(), 2))
    env.seed(0)
    env.reset()
    for _ in range(3):
        seen, _, ended, infos = env.step(np.zeros((2, 1)))
        assert not ended.any()
        assert infos == [{}, {}]
    last = seen
    seen, rewards, ended, infos = env.step(np.zeros((2, 1)))
    assert ended.all()
    assert rewards.shape == (2,)
    for index, info in enumerate(infos):
        assert info["TimeLimit.truncated"]
        final = info["terminal_observation"]
        assert abs(final[0] - last[index, 0]) < 0.5  # of the old episode, a step later
        assert not np.allclose(final, seen[index])


def test_a_held_action_earns_what_its_steps_do_up_to_the_end(monkeypatch):
    pytest.importorskip("stable_baselines3", reason="the extra `experts` is not installed")
    monkeypatch.setattr("sensorium.envs.CartPoleSwingUpHarder.max_steps", 7)
    world, actions = CartPoleSwingUpHarder(), np.full((2, 1), 0.3, np.float32)
    alone = WorldVectorEnv(world, 2)
    env = to_vec_env(WorldVectorEnv(world, 2), action_repeat=4)
    env.seed(0)
    alone.reset(seed=0)
    env.reset()
    steps = [alone.step(actions) for _ in range(7)]
    seen, rewards, ended, _ = env.step(actions)
    np.testing.assert_allclose(seen, steps[3][0], rtol=1e-5)
    np.testing.assert_allclose(rewards, sum(step[1] for step in steps[:4]), rtol=1e-5)
    assert not ended.any()
    _, rewards, ended, infos = env.step(actions)  # the eighth step is past the end
    np.testing.assert_allclose(rewards, sum(step[1] for step in steps[4:]), rtol=1e-5)
    assert ended.all()
    assert all(info["TimeLimit.truncated"] for info in infos)
    with pytest.raises(ConfigError, match="action_repeat must be at least 1, got 0"):
        to_vec_env(WorldVectorEnv(world, 2), action_repeat=0)


SMALL = recipes.find("carracing-ppo").override(
    {
        "policy.hidden_sizes": [24, 12],
        "num_envs": 2,
        "num_steps": 8,
        "num_iterations": 1,
        "num_minibatches": 2,
        "num_epochs": 1,
        "first_action": [],
        "generations": 1,
        "test_episodes": 1,
        "perturbation": {"kind": "RandomConvolution"},
    }
)
RESTING = {"first_action": [0.0, 0.5, -1.0], "learning_rate": 0.0, "action_std": 0.0025}


@pytest.fixture(scope="module")
def short_races():
    """Races of ten steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sensorium.envs.CarRacing.max_steps", 10)
        yield


@pytest.fixture(scope="module")
def run(short_races, tmp_path_factory):
    """A convolutional agent of a few steps of PPO behind NetRand's layer, in which it learns nothing."""
    pytest.importorskip("stable_baselines3", reason="the extra `experts` is not installed")
    directory = tmp_path_factory.mktemp("runs") / "ppo"
    zoo.train(SMALL.override(RESTING), directory, quiet=True)
    return directory


def test_the_agent_of_ours_is_the_model_of_theirs():
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    name, arguments = sb3.network_of(SMALL.policy)
    env = to_vec_env(WorldVectorEnv(CarRacing(), 1))
    model = stable_baselines3.PPO(
        name, env, policy_kwargs=arguments, n_steps=8, batch_size=8, seed=1, device="cpu"
    )
    policy = sb3.to_policy(model, SMALL.policy, (96, 96, 3), 3)
    assert isinstance(policy, ConvolutionalPolicy)
    world = Perturbed(CarRacing(), RandomConvolution(every=1))
    images, _ = drive(WorldVectorEnv(world, 4), 3)
    images = images.reshape(-1, 96, 96, 3)
    theirs, _ = model.predict(images, deterministic=True)
    ours = np.stack([policy(image, ())[0] for image in images])
    assert ours.std(0).min() > 1e-4  # images matter
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    with pytest.raises(ConfigError, match="other observations or actions than the world"):
        sb3.to_policy(model, SMALL.policy, (84, 84, 3), 3)


def test_an_untrained_agent_rests_as_it_is_told(run):
    resting = zoo.load(run).policy.layers[-1].bias
    np.testing.assert_allclose(resting, [0.0, 0.5, -1.0], atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"jerk_penalty": 1.0}, "jerk_penalty is for worlds on the host"),
        ({"first_action": [0.0]}, "first_action needs 3 numbers, got 1"),
        ({"policy.clipped": False}, "trains agents that are clipped"),
        ({"policy.channels": [8, 8, 8]}, "other settings but hidden_sizes are the defaults"),
        ({"policy.hidden_sizes": []}, "has a layer after its"),
        ({"env": "gym:Pendulum-v1"}, "."),
    ],
)
def test_settings_that_do_not_fit_get_one_sentence(changes, sentence, run, tmp_path):
    with pytest.raises(ConfigError, match=sentence):
        zoo.train(SMALL.override(changes), tmp_path / "run", quiet=True)
    assert not any(tmp_path.iterdir())
