"""The authors' weights give the authors' outputs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium import zoo
from sensorium.envs import make
from sensorium.errors import AgentFileError, ConfigError, UnknownNameError
from sensorium.evaluation import evaluate
from sensorium.perturbations import Duplicate, Reshuffle, Shuffle
from sensorium.policies import num_parameters

pytestmark = pytest.mark.usefixtures("compiled_as_for_users")


def _run(policy, observations, previous_actions=None):
    step = eqx.filter_jit(policy.step)
    carry, actions, codes = policy.initial_carry(observations.shape[1]), [], []
    for time, observation in enumerate(observations):
        if previous_actions is not None and time > 0:
            carry = carry._replace(feedback=jnp.asarray(previous_actions[time - 1]))
        action, carry, trace = step(jnp.asarray(observation), carry)
        actions.append(np.asarray(action))
        codes.append(np.asarray(trace.code))
    return np.stack(actions), np.stack(codes)


def test_cartpole_to_1e_5_at_every_step(reference):
    golden = reference("golden", "cartpole_pi")
    policy = zoo.read_published("cartpole_pi", reference.path("golden", "cartpole_pi"))
    assert num_parameters(policy) == 913
    actions, codes = _run(policy, golden["observations"])
    np.testing.assert_allclose(actions, golden["actions"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(codes, golden["latents"], rtol=0, atol=5e-5)


def test_ant_median_and_worst_step(reference):
    golden = reference("golden", "ant_pi")
    policy = zoo.read_published("ant_pi", reference.path("weights", "ant_pi"))
    assert num_parameters(policy) == 2504
    actions, _ = _run(policy, golden["observations"])
    error = np.abs(actions - golden["actions"]).max(axis=1)
    assert np.median(error) < 1e-4
    assert error.max() < 2e-2


def test_ant_with_the_recorded_actions_fed_back(reference):
    golden = reference("golden", "ant_pi")
    policy = zoo.read_published("ant_pi", reference.path("weights", "ant_pi"))
    actions, _ = _run(policy, golden["observations"], golden["actions"])
    np.testing.assert_allclose(actions, golden["actions"], rtol=0, atol=1e-5)


def test_the_feed_forward_ant_to_1e_5_at_every_step(reference):
    golden = reference("golden", "ant_mlp")
    policy = zoo.read_published("ant_mlp", reference.path("weights", "ant_mlp"))
    assert num_parameters(policy) == 2248
    actions = jax.vmap(lambda observation: policy.step(observation, ())[0])(golden["observations"])
    np.testing.assert_allclose(actions, golden["actions"], rtol=0, atol=1e-5)


def test_where_the_authors_files_are_must_be_said(monkeypatch, tmp_path):
    monkeypatch.delenv("SENSORIUM_PUBLISHED", raising=False)
    with pytest.raises(
        ConfigError, match=r"let SENSORIUM_PUBLISHED name a folder with cartpole_pi\.npz"
    ):
        zoo.read_published("cartpole_pi")
    monkeypatch.setenv("SENSORIUM_PUBLISHED", str(tmp_path))
    assert zoo.published_directory() == tmp_path


def test_authors_cartpole_agent_scores_as_in_the_paper(reference):
    # AN Table 2 and 6: 472 plain and shuffled, 107 reshuffled every 25 steps; sd of the mean about 21
    policy = zoo.read_published("cartpole_pi", reference.path("weights", "cartpole_pi"))
    plain, shuffled, doubled, reshuffled = (
        evaluate(policy, "CartPoleSwingUpHarder", perturbation, episodes=400).summary.mean
        for perturbation in (None, Shuffle(), Duplicate(2), Reshuffle(25))
    )
    assert plain == pytest.approx(472, abs=65)
    assert shuffled == pytest.approx(plain, abs=15)
    assert doubled == pytest.approx(plain, abs=15)
    assert reshuffled == pytest.approx(107, abs=30)


def test_unknown_published_agent_names_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'cartpole_pi'"):
        zoo.read_published("cartpole_pii", "anything.npz")


def test_wrong_and_damaged_files(reference, tmp_path):
    with pytest.raises(AgentFileError, match="2504 parameters but the vector has shape"):
        zoo.read_published("ant_pi", reference.path("weights", "cartpole_pi"))
    whole = reference.path("weights", "ant_pi").read_bytes()
    half = tmp_path / "half.npz"
    half.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(AgentFileError, match="truncated"):
        zoo.read_published("ant_pi", half)


def test_world_reset_ranges_match_the_reference():
    world = make("CartPoleSwingUpHarder")
    observations, states = jax.vmap(world.reset)(jax.random.split(jax.random.key(1), 4000))
    low = np.array([-2.4, -10.0, -1.0, -1.0, -10.0])
    assert (np.asarray(observations).min(axis=0) >= low).all()
    np.testing.assert_allclose(np.asarray(observations).mean(axis=0)[[0, 1, 4]], 0, atol=0.4)
    angle = np.asarray(states.angle)
    assert np.pi / 2 <= angle.min() < np.pi / 2 + 0.01
    assert 3 * np.pi / 2 - 0.01 < angle.max() <= 3 * np.pi / 2


def test_attention_agent_looks_and_drives_as_the_authors(reference):
    golden = reference("golden", "carracing_attention_agent")
    path = reference.path("weights", "carracing_attention_agent")
    policy = zoo.read_published("carracing_attention_agent", path)
    step, carry, errors = eqx.filter_jit(policy.step), policy.initial_carry((96, 96, 3)), []
    for frame, expected, importances in zip(
        golden["observations"], golden["actions"], golden["importances"], strict=True
    ):
        action, carry, trace = step(jnp.asarray(frame), carry)
        importance = np.asarray(trace.attention[0])
        np.testing.assert_allclose(importance, importances, rtol=0, atol=1e-3)
        tenth, next_one = np.sort(importances)[::-1][9:11]
        if tenth - next_one > 1e-5:
            assert set(np.argsort(-importance)[:10]) == set(np.argsort(-importances)[:10])
        errors.append(np.abs(action - expected).max())
    # A near tie turns two places around, and the LSTM carries that on
    assert np.median(errors) < 1e-4
    assert max(errors) < 0.1


def test_an_agent_of_2020_whose_file_has_another_order(reference):
    golden = reference("golden", "takecover_attention_agent")
    path = reference.path("weights", "takecover_attention_agent")
    policy = zoo.read_published("takecover_attention_agent", path)
    assert num_parameters(policy) == 3633
    step, carry = eqx.filter_jit(policy.step), policy.initial_carry((96, 96, 3))
    for frame, expected in zip(golden["observations"], golden["actions"], strict=True):
        action, carry, _ = step(jnp.asarray(frame), carry)
        np.testing.assert_allclose(action, expected, rtol=0, atol=1e-5)
    with pytest.raises(AgentFileError, match="3667 parameters but the vector has shape"):
        zoo.read_published("carracing_attention_agent_2020", path)


def test_the_agent_of_pong_plays_as_the_authors_whatever_the_order_of_patches(reference, tmp_path):
    golden = reference("golden", "puzzle_pong")
    vector = np.random.RandomState(0).randn(1687726) * 0.05
    np.savez(tmp_path / "puzzle_pong.npz", params=vector.astype(np.float32))
    policy = zoo.read_published("puzzle_pong", tmp_path / "puzzle_pong.npz")
    assert num_parameters(policy) == 1687726

    @eqx.filter_jit
    def act(frames, carry):
        seen, carry, _ = policy.look_at(frames, carry)
        return policy.decide(seen, carry)

    for order in (np.arange(196), np.random.default_rng(0).permutation(196)):
        action = jax.nn.one_hot(3, 6)  # before the first, as the authors have it
        for stack, expected in zip(golden["observations"], golden["logits"], strict=True):
            patches = stack.reshape(4, 14, 6, 14, 6).transpose(0, 1, 3, 2, 4).reshape(4, 196, 6, 6)
            moved = patches[:, order].reshape(4, 14, 14, 6, 6).transpose(0, 1, 3, 2, 4)
            carry = policy.initial_carry((84, 84, 1))._replace(action=action)
            logits, _ = act(jnp.asarray(moved.reshape(4, 84, 84), jnp.float32), carry)
            np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-6)
            action = policy.distribution.feedback(logits)


def test_the_agent_of_images_drives_as_the_authors_whatever_the_order_of_patches(reference):
    golden = reference("golden", "carracing_pi")
    policy = zoo.read_published("carracing_pi", reference.path("weights", "carracing_pi"))

    @eqx.filter_jit
    def act(frames, carry):
        seen, carry, _ = policy.look_at(frames, carry)
        sums, carry = policy.decide(seen, carry)
        return jnp.tanh(sums), carry

    for order in (np.arange(256), golden["permutation"]):
        carry = policy.initial_carry((96, 96, 3))
        for stack, expected in zip(golden["observations"], golden["actions"], strict=True):
            patches = stack.reshape(4, 16, 6, 16, 6).transpose(0, 1, 3, 2, 4).reshape(4, 256, 6, 6)
            moved = patches[:, order].reshape(4, 16, 16, 6, 6).transpose(0, 1, 3, 2, 4)
            frames = jnp.asarray(moved.reshape(4, 96, 96), jnp.float32)
            action, carry = act(frames, carry)
            np.testing.assert_allclose(action, expected, rtol=0, atol=1e-5)
