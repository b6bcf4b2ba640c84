"""Every seed is a seed of its own, and what is none is refused before anything is done."""

import jax
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sensorium import cli, recipes
from sensorium.errors import ConfigError
from sensorium.evaluation import evaluate, evaluation_keys
from sensorium.policies import FeedForwardConfig
from sensorium.recipes import Recipe
from sensorium.rollout.host import seeds_of
from sensorium.seeding import key_of, stream
from sensorium.serialisation import save_pytree
from sensorium.training.run import keys_of_tests

SEEDS = [0, 2**32, 2**40, 2**63, 10**30]
"""Alike in their lowest 32 bits, but for the last."""
NO_SEEDS = [-1, -(2**70), True, 1.0, "3", np.int64(-1), float("nan")]


def bits(key):
    return tuple(np.asarray(jax.random.key_data(key)).tolist())


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
@example(1, 2**32 + 1)
@example(2**63, 0)
def test_seeds_below_two_to_the_64_have_keys_of_their_own(one, other):
    assert (bits(key_of(one)) == bits(key_of(other))) == (one == other)
    assert bits(key_of(np.uint64(one))) == bits(key_of(one))


@given(st.integers(0, 2**32 - 1))
def test_ordinary_seeds_have_the_keys_of_jax(seed):
    assert bits(key_of(seed)) == bits(jax.random.key(seed))


@given(st.integers(2**64, 2**300), st.integers(0, 2**300))
def test_larger_seeds_differ_too(one, other):
    assert (bits(key_of(one)) == bits(key_of(other))) == (one == other)


@pytest.mark.parametrize("seed", NO_SEEDS)
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(ConfigError, match="A seed must be a whole number from 0 on, got"):
        key_of(seed)


def test_the_episodes_of_an_ordinary_seed_stay_what_they_are():
    """Scores on agents' cards are of these; a change here is one of every score."""
    assert bits(evaluation_keys(7, 1)[0]) == (3212645683, 1936744019)
    assert int(seeds_of(evaluation_keys(7, 1))[0]) == 1320613883
    assert bits(keys_of_tests(7, 1)[0]) == (3976602655, 4236049743)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**31 - 1))
def test_a_stream_is_no_other_child_of_its_key(seed, number):
    key = key_of(seed)
    children = [bits(child) for child in jax.random.split(key, 8)]
    children += [bits(jax.random.fold_in(key, number)), bits(key)]
    streams = [bits(stream(key, name)) for name in ("senses", "noise")]
    assert len({*children, *streams}) == len(set(children)) + 2


def test_every_seed_has_episodes_of_its_own():
    policy = FeedForwardConfig(()).build(5, 1, jax.random.key(0))
    scores = [
        evaluate(policy, "CartPoleSwingUpHarder", episodes=2, seed=seed)
        for seed in (*SEEDS, np.int64(2**40))
    ]
    returns = [tuple(each.returns.tolist()) for each in scores]
    assert len(set(returns)) == len(SEEDS)
    assert returns[-1] == returns[2]
    assert scores[-1].to_json()["seed"] == 2**40
    tests = {bits(keys_of_tests(seed, 1)[0]) for seed in SEEDS}
    assert len(tests) == len(SEEDS)


def test_a_recipe_keeps_any_seed():
    recipe = recipes.find("cartpole-pi").override({"seed": 10**30})
    assert Recipe.from_json(recipe.to_json()) == recipe


@pytest.fixture(scope="module")
def agent_file(tmp_path_factory):
    recipe = recipes.find("cartpole-pi")
    path = tmp_path_factory.mktemp("agents") / "agent.safetensors"
    save_pytree(path, recipe.draw_policy(jax.random.key(0)), {"recipe": recipe.to_json()})
    return str(path)


@pytest.mark.parametrize(
    "arguments",
    [
        ["eval", "AGENT", "--json", "scores.json"],
        ["show", "AGENT", "--video", "out.mp4"],
        ["train", "cartpole-pi"],
        ["train", "ant-pi", "--expert", "AGENT"],
        ["reproduce", "table-2", "--json", "table.json"],
        ["reproduce", "nla-curves"],
    ],
    ids=" ".join,
)
def test_commands_refuse_what_is_no_seed(arguments, agent_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = [agent_file if each == "AGENT" else each for each in arguments]
    monkeypatch.setattr("sys.argv", ["sensorium", *arguments, "--seed", "-1"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.strip() == (
        "sensorium: A seed must be a whole number from 0 on, got -1."
    )
    assert not list(tmp_path.iterdir())
