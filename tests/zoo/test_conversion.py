"""Any policy becomes an agent that takes its sensors in any order, by one command."""

import io
import json

import jax
import numpy as np
import pytest
from rich.console import Console

import sensorium
from sensorium import recipes, zoo
from sensorium.errors import ConfigError, RunError, UnknownNameError
from sensorium.flags import seconds_of
from sensorium.perturbations import Reshuffle
from sensorium.policies import AttentionNeuronConfig, DeepSetsConfig, SetTransformerConfig
from sensorium.recipes.twin import Measured, name_of_twin, twin
from sensorium.rollout import Episode, make_world
from sensorium.rollout.host import Transcript
from sensorium.training.expert_actors import PythonActor
from sensorium.zoo import conversion
from tests.host_worlds import follow

SCALES = "gym:tests.host_worlds:Scales-v0"
FOLLOW = "tests.host_worlds:follow"
SHORT = (
    *("generations=12", "num_batches=30", "batch_size=16", "learning_rate=1e-2"),
    *("test_episodes=8", "num_envs=8", "policy.num_queries=8", "policy.hidden_size=16"),
)


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """A twin of a function, and what both earn."""
    directory = tmp_path_factory.mktemp("runs") / "twin"
    options = dict(settings=SHORT, episodes=10, quiet=True)
    return conversion.run(FOLLOW, SCALES, run_dir=directory, **options)


def test_a_twin_is_as_good_as_its_expert_shuffled(converted):
    assert converted.expert["plain"].mean == pytest.approx(20)
    assert converted.expert["shuffled"].mean < 0.8 * 20
    assert converted.share(converted.twin["shuffled"].summary.mean) > 0.9
    # It stopped when it was good enough, not after all generations
    stage = sensorium.training.RunDirectory.open(converted.directory).history()[0]
    recipe = recipes.read(converted.directory)
    assert stage["best_test"] >= recipe.stages[0].stop_at or stage["generations"] == 12


def test_all_is_told(converted):
    assert list(converted.twin) == [
        *("plain", "shuffled", "doubled + shuffled", "+5 noise channels + shuffled"),
        *("1 dropped + shuffled", "reshuffled in mid-episode"),
    ]
    assert "of what its expert does" in converted.verdict()
    written = json.loads((converted.directory / "comparison.json").read_text())
    assert written == json.loads(json.dumps(converted.to_json()))
    assert written["twin"]["shuffled"]["share"] > 0.9
    assert converted.table().row_count == 6


def test_a_twin_is_an_agent_like_any_other(converted):
    agent = sensorium.load(converted.directory)
    carry = agent.initial_carry(3)
    action, _ = agent(np.float32([5.0, 0.5, 4.5]), carry)
    assert action.shape == (1,)
    assert recipes.find(str(converted.directory)) == agent.recipe


def test_an_expert_of_images_has_a_twin_whose_patches_may_move(tmp_path):
    comparison = conversion.run(
        "tests.host_worlds:name_stripes",
        "gym:tests.host_worlds:Stripes-v0",
        run_dir=tmp_path / "twin",
        settings=(
            *("generations=4", "num_rounds=4", "num_batches=8", "learning_rate=3e-3"),
            *("num_envs=8", "batch_size=8", "ema_decay=0.0", "test_episodes=2"),
        ),
        episodes=2,
        quiet=True,
    )
    assert list(comparison.twin) == [
        *("plain", "shuffled", "a tenth of the patches black, shuffled"),
        "reshuffled in mid-episode",
    ]
    assert comparison.expert["plain"].mean == 20
    for name in ("plain", "shuffled", "reshuffled in mid-episode"):
        assert comparison.share(comparison.twin[name].summary.mean) > 0.9


def test_an_atari_model_has_a_twin(tmp_path):
    """The whole chain on real frames, but for a model and a student that know nothing."""
    pytest.importorskip("ale_py", reason="the extra `atari` is not installed")
    sb3 = pytest.importorskip("stable_baselines3", reason="the extra `experts` is not installed")
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    small = dict(features_extractor_kwargs=dict(features_dim=8))
    env = VecFrameStack(make_atari_env("PongNoFrameskip-v4"), 4)
    sb3.PPO("CnnPolicy", env, n_steps=64, policy_kwargs=small, seed=0).save(tmp_path / "model.zip")
    comparison = conversion.run(
        str(tmp_path / "model.zip"),
        "gym:PongNoFrameskip-v4?wrapper=AtariWrapper&max_num_frames_per_episode=120",
        run_dir=tmp_path / "twin",
        settings=(
            *("generations=1", "demonstration_rounds=1", "num_rounds=1", "num_batches=1"),
            *("num_envs=2", "rollout_steps=20", "num_steps=20", "window=20", "warm_up_steps=5"),
            *("batch_size=2", "test_episodes=2", "policy.num_queries=4", "policy.hidden_size=8"),
        ),
        episodes=2,
        quiet=True,
    )
    assert list(comparison.twin)[:2] == ["plain", "shuffled"]
    plain, shuffled = (comparison.twin[name].returns for name in ("plain", "shuffled"))
    np.testing.assert_array_equal(plain, shuffled)
    agent = sensorium.load(comparison.directory)
    assert agent.policy.distinct_patches in (24, 32, 40)  # of 196, as many as differ


def test_how_an_expert_of_images_is_imitated_follows_from_what_it_was_shown():
    env = "gym:tests.host_worlds:Stripes-v0"
    world = make_world(env)

    def recipe(**measured):
        return twin(env, world, Measured("model.zip", longest=70, **measured))

    textures, flat = recipe(), recipe(distinct_patches=24)
    repeated = recipe(distinct_patches=24, few_episodes=True)
    assert [each.policy.distinct_patches for each in (textures, flat, repeated)] == [None, 24, 24]
    memories = [each.policy.hidden_size for each in (textures, flat, repeated)]
    assert memories == [16, 128, None]
    clone = repeated.stages[0].trainer
    assert (clone.num_rounds, clone.rollout_steps) == (0, 70)
    for each in (textures, flat, repeated):
        assert each.from_json(each.to_json()) == each


def test_episodes_that_differ_in_their_beginning_alone_are_the_same():
    random = np.random.default_rng(0)
    first, second = random.integers(-1, 2, (2, 40)).astype(float)
    rewards = np.zeros((4, 60))
    for row, (each, start) in enumerate(((first, 0), (first, 7), (second, 3), (second, 12))):
        rewards[row, start : start + 40] = each
    episodes = Episode(rewards.sum(1), np.full(4, 60), rewards)
    assert conversion.num_different(episodes) == 2
    alive = np.ones((4, 60))  # as where each step earns 1
    assert conversion.num_different(Episode(alive.sum(1), np.full(4, 60), alive)) == 4


def test_the_same_call_goes_on_with_what_is_there(converted):
    before = (converted.directory / "best.safetensors").read_bytes()
    again = conversion.run(FOLLOW, SCALES, run_dir=converted.directory, episodes=10, quiet=True)
    assert (converted.directory / "best.safetensors").read_bytes() == before
    assert again.twin["shuffled"].summary == converted.twin["shuffled"].summary
    for expert, asked, sentence in (
        (follow, {}, "learns from tests.host_worlds:follow; choose another --run-dir"),
        (FOLLOW, {"then_ppo": True}, "begun without --then ppo; choose another --run-dir"),
        (FOLLOW, {"budget": 60.0}, "begun with another --budget; choose another --run-dir"),
    ):
        with pytest.raises(RunError, match=sentence):
            conversion.run(expert, SCALES, run_dir=converted.directory, **asked)


def test_an_object_is_an_expert_too_and_its_run_says_how_to_go_on(tmp_path):
    directory = tmp_path / "twin"
    # A setting may shorten what the budget says, and the same call goes on all the same
    short = (*SHORT, "generations=1", "max_seconds=1000.0")
    options = dict(run_dir=directory, settings=short, budget=2000.0, episodes=2, quiet=True)
    agent = sensorium.convert(follow, SCALES, **options)
    assert agent.recipe.stages[0].expert == "passed:follow"
    (directory / "stages" / "clone.safetensors").unlink()
    with pytest.raises(ConfigError, match="follow is an object of the program that began the run"):
        zoo.resume(directory, quiet=True)
    sensorium.convert(follow, SCALES, **options)


@pytest.mark.parametrize(
    ("model", "env", "error", "sentence"),
    [
        ("tests.host_worlds:folow", SCALES, UnknownNameError, "did you mean 'follow'"),
        ("tests.host_worlds:Walk", SCALES, ConfigError, "Walk is a class; an expert is a function"),
        (FOLLOW, "gym:Pendulum-v1", ConfigError, "follow raised IndexError"),
        (FOLLOW, "CartPoleSwingUpHarder", ConfigError, "is simulated on the device"),
        (lambda shown: "left", SCALES, ConfigError, "returned 'left'; an action of .* is of Box"),
        (lambda shown: np.zeros(2), SCALES, ConfigError, r"returned shape \(2,\); an action"),
        (
            lambda env, shown, info: 0,
            SCALES,
            ConfigError,
            "asks its expert what it does on what it",
        ),
    ],
)
def test_what_does_not_fit_is_one_sentence(model, env, error, sentence, tmp_path):
    with pytest.raises(error, match=sentence) as caught:
        sensorium.convert(model, env, run_dir=tmp_path / "none", quiet=True)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "none").exists()


def test_a_function_of_one_or_of_many_is_asked_as_it_can_be():
    world = make_world(SCALES)
    rows = np.float32([[5, 5, 0.25], [4, 6, -0.5]])

    def alone(shown):
        assert shown["small"].shape == ()
        return follow(shown)

    def together(shown):
        assert shown["small"].shape == (len(shown["large"]),)
        return follow(shown)

    for function in (alone, together, follow):
        actor = PythonActor(function, world)
        labels = actor.act(np.ones(2, bool), np.arange(2), rows)
        np.testing.assert_allclose(labels, [[0.25], [-0.5]], atol=1e-6)


def test_a_pytorch_module_is_an_expert():
    torch = pytest.importorskip("torch")
    linear = torch.nn.Linear(4, 2)
    actor = PythonActor(linear, make_world("gym:CartPole-v1"))
    rows = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    labels = actor.act(np.ones(6, bool), np.arange(6), rows)
    with torch.no_grad():
        wanted = linear(torch.as_tensor(rows)).argmax(1)
    assert labels.argmax(1).tolist() == wanted.tolist()


def test_sensors_that_are_alike_are_named():
    random = np.random.default_rng(0)
    observations = np.repeat(random.normal(size=(30, 1, 2)), 11, axis=1)
    played = Transcript(
        observations=np.concatenate([observations, random.normal(size=(30, 11, 1))], axis=2),
        actions=np.zeros((30, 10, 1)),
        rewards=np.zeros((30, 10)),
        lengths=np.full(30, 10),
        terminated=np.zeros(30, bool),
    )
    printed = io.StringIO()
    conversion._warn_of_likeness(Console(file=printed), played, make_world(SCALES))
    names = make_world(SCALES).sensor_names
    assert printed.getvalue().startswith(f"alike        {names[0]} and {names[1]}: ")
    assert printed.getvalue().count("alike") == 1


def test_sizes_are_derived_from_the_world():
    for env in ("gym:CartPole-v1", "gym:Pendulum-v1", SCALES):
        world = make_world(env)
        recipe = twin(env, world, Measured("model.zip"))
        trainer = recipe.stages[0].trainer
        assert trainer.num_steps <= world.max_steps
        assert trainer.num_steps % trainer.window == 0
        assert recipe.from_json(recipe.to_json()) == recipe
        # Where episodes are short there are more of them
        assert trainer.num_envs == 128 or trainer.num_envs * trainer.rollout_steps >= 6_300
        measured = twin(env, world, Measured("model.zip", mean_length=18)).stages[0]
        assert Reshuffle(6) in measured.perturbation.parts
        assert measured.trainer.rollout_steps == world.max_steps
        slow = twin(env, world, Measured("model.zip", steps_per_second=30.0)).stages[0].trainer
        assert slow.num_envs == 16
    assert name_of_twin("gym:ALE/Pong-v5") == "ALE-Pong-v5-twin"
    then = twin(env, world, Measured("model.zip"), then_ppo=True, student="wide")
    assert [stage.name for stage in then.stages] == ["clone", "ppo"]
    assert then.stages[1].expert == ""
    within = twin(env, world, Measured("model.zip"), then_ppo=True, max_seconds=60.0)
    assert [stage.max_seconds for stage in within.stages] == [30, 30]
    outline = jax.tree.leaves(then.outline())
    assert sum(leaf.size for leaf in outline) > 5000


def test_students_who_mind_zeros_have_as_many_sensors_as_there_are():
    world = make_world("gym:CartPole-v1")
    for student, widths in (
        (AttentionNeuronConfig(), 9),
        (DeepSetsConfig(), 4),
        (SetTransformerConfig(), 4),
    ):
        stage = twin("gym:CartPole-v1", world, Measured("model.zip"), student=student).stages[0]
        for perturbation in (stage.perturbation, stage.test_perturbation):
            assert perturbation.output_spec(4) == widths


def test_rollouts_are_short_and_many_where_every_episode_lasts():
    world = make_world("gym:CartPole-v1")  # of 500 steps
    lasting = twin("gym:CartPole-v1", world, Measured("model.zip", mean_length=500)).stages[0]
    ending = twin("gym:CartPole-v1", world, Measured("model.zip", mean_length=400)).stages[0]
    assert (lasting.trainer.rollout_steps, ending.trainer.rollout_steps) == (200, 500)
    assert lasting.trainer.num_envs == 40  # of as many steps
    for stage in (lasting, ending):  # a sequence has more than one order
        assert Reshuffle(66) in stage.perturbation.parts
        assert stage.trainer.num_steps == 100


def test_episodes_of_a_world_without_a_time_limit_are_as_long_as_twice_the_experts():
    for env, longest, steps in (("gym:tests.host_worlds:Endless-v0", 14, 28), (SCALES, 5, 20)):
        recipe = twin(env, make_world(env), Measured("model.zip", longest=longest))
        trainer = recipe.stages[0].trainer
        assert trainer.rollout_steps == trainer.num_steps == steps


def test_a_policy_of_entities_becomes_a_twin(tmp_path):
    """The expert reads the matrix by its places; the twin reads it as a set, and another number of rows."""
    rows = "gym:tests.host_worlds:Rows-v0"
    world = make_world(f"{rows}?observe=entities&presence=0")
    recipe = twin(rows + "?observe=entities&presence=0", world, Measured("model.zip"))
    assert recipe.name == "tests-host-worlds-Rows-v0-entities-twin"
    assert recipe.outline().num_features == 3
    # Up to three times as many rows in training
    assert recipe.stages[0].perturbation.output_spec(world.raw_observation_spec) == (12, 3)
    settings = ("generations=1", "num_batches=2", "demonstration_rounds=1", "test_episodes=2")
    asked = dict(settings=(*settings, "num_envs=2"), episodes=2, quiet=True)
    agent = sensorium.convert(count_rows, recipe.env, run_dir=tmp_path / "run", **asked)
    comparison = json.loads((tmp_path / "run" / "comparison.json").read_text())
    assert comparison["expert"]["plain"]["mean"] > 3
    assert agent.recipe.policy.squash > 0.2
    again = sensorium.load(tmp_path / "run")
    scores = sensorium.evaluate(again.policy, f"{recipe.env}&count=15", episodes=2)
    assert np.isfinite(scores.returns).all()


def count_rows(shown):
    """The best action in `Rows`, of one environment."""
    assert shown.shape == (4, 3)
    assert np.isfinite(shown).all()
    return int(shown[:, 0].sum()) % 3


def test_budgets_are_lengths_of_time():
    assert [seconds_of(each) for each in (None, "90", "90s", "1.5m", "2h")] == [
        None,
        90,
        90,
        90,
        7200,
    ]
    for wrong in ("", "m", "5 minutes", "-3m", "nan", "infh"):
        with pytest.raises(ConfigError, match="takes a length of time such as 90s"):
            seconds_of(wrong)
    assert conversion.student_of("DeepSetsConfig") == sensorium.DeepSetsConfig()
    with pytest.raises(UnknownNameError, match="did you mean 'DeepSetsConfig'"):
        conversion.student_of("DeepSetConfig")
