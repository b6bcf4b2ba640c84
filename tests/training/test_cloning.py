"""Students do what teachers do; collection and cloning go on where they were cut off."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sensorium import recipes, zoo
from sensorium.errors import AgentFileError, ConfigError, RunError, UnknownNameError
from sensorium.perturbations import Identity, NoiseChannels, Shuffle
from sensorium.policies import AttentionNeuronConfig, FeedForwardConfig
from sensorium.recipes import Recipe, Stage
from sensorium.rollout import HostEngine, make_world
from sensorium.training import CloningConfig, demonstrations
from sensorium.training.demonstrations import collect, cut, previous, read
from sensorium.training.teachers import AgentTeacher
from sensorium.zoo import Agent
from tests.probes import UNTRAINED, Stopped, stop_after

WALK = "gym:tests.host_worlds:Walk-v0"
EXPERT = FeedForwardConfig((), clipped=True)


@pytest.fixture
def expert(key):
    """Follows the first reading, and takes the bonus."""
    blank = EXPERT.build(2, 2, key)
    leaves = [jnp.array([[1 / 3, 0.0], [0.0, 0.0]]), jnp.array([0.0, 1.0])]
    return jax.tree.unflatten(jax.tree.structure(blank), leaves)


@pytest.fixture
def expert_file(expert, tmp_path):
    recipe = Recipe("expert", "Follows.", EXPERT, UNTRAINED, env=WALK)
    Agent(expert, recipe, {}).save(tmp_path / "expert.safetensors")
    return str(tmp_path / "expert.safetensors")


@pytest.fixture
def engine():
    with HostEngine(make_world(WALK), workers=0, lanes=8) as engine:
        yield engine


@pytest.fixture
def _minari():
    pytest.importorskip("minari", reason="the extra `teachers` is not installed")


STUDENT = Recipe(
    name="student",
    summary="Follows who follows.",
    policy=FeedForwardConfig((8,)),
    stages=(
        Stage(
            "clone",
            CloningConfig(
                episodes=40,
                steps=20,
                window=10,
                batch=16,
                batches=20,
                learning_rate=1e-2,
                total_batches=120,
            ),
            generations=6,
            expert="somebody",
            test_every=3,
            test_episodes=8,
            checkpoint_every=1,
        ),
    ),
    env=WALK,
)
DAGGER = dataclasses.replace(
    STUDENT,
    policy=AttentionNeuronConfig(num_queries=4, message_size=4),
    stages=(
        STUDENT.last.changed(perturbation=Shuffle(), dagger_every=2, dagger_episodes=6, batches=4),
    ),
)


def clone(recipe, directory, expert, **options):
    """Train with another expert."""
    recipe = recipe.override({"expert": expert})
    return zoo.train(recipe, directory, quiet=True, **options)


@pytest.mark.usefixtures("_minari")
def test_a_student_does_what_its_teacher_does(expert, expert_file, engine, tmp_path):
    rows = []
    student = clone(STUDENT, tmp_path / "run", expert_file, on_generation=rows.append)
    assert rows[-1]["loss"] < 0.02 < rows[0]["loss"]
    keys = jax.random.split(jax.random.key(3), 16)
    taught = engine.run_episodes(student, keys).total
    best = engine.run_episodes(expert, keys).total
    nothing = engine.run_episodes(jax.tree.map(jnp.zeros_like, expert), keys).total
    assert float(best.mean()) > float(nothing.mean()) + 3
    assert float(taught.mean()) > float(best.mean()) - 2.5


@pytest.mark.usefixtures("_minari")
def test_a_clone_with_dagger_resumes_bit_for_bit(expert_file, tmp_path):
    whole = clone(DAGGER, tmp_path / "whole", expert_file)
    assert len(list((tmp_path / "whole/data/clone/dagger").glob("*.safetensors"))) == 2

    with pytest.raises(Stopped):
        clone(DAGGER, tmp_path / "cut", expert_file, on_generation=stop_after(3))
    resumed = zoo.resume(tmp_path / "cut", quiet=True)
    for ours, theirs in zip(jax.tree.leaves(whole), jax.tree.leaves(resumed), strict=True):
        assert np.array_equal(ours, theirs)


def test_without_demonstrations_the_student_begins(expert_file, tmp_path):
    recipe = DAGGER.override(
        {
            "episodes": 0,
            "identity_weight": 0.1,
            "averaging": 0.5,
            "dagger_every": 1,
            "generations": 12,
            "test_every": 1,
        }
    )
    rows = []
    clone(recipe, tmp_path / "run", expert_file, on_generation=rows.append)
    assert not (tmp_path / "run/data/clone/demonstrations").exists()
    assert rows[0]["sequences"] == 6
    assert rows[-1]["loss"] < 0.5 * rows[0]["loss"]
    assert rows[-1]["identity"] < rows[0]["identity"]
    assert rows[-1]["best_test"] > rows[0]["test"]


def test_dagger_asks_the_teacher_about_what_the_student_saw(expert, key):
    world = make_world(WALK, NoiseChannels(2))
    teacher = AgentTeacher(expert, dataclasses.replace(world, perturbation=Identity()))
    with HostEngine(world, workers=0, lanes=4) as engine:
        from sensorium.rollout.acting import PolicyActor
        from sensorium.rollout.host import seeds_of

        keys = jax.random.split(key, 5)
        student = AttentionNeuronConfig(num_queries=4).build(4, 2, key)
        stacked = jax.tree.map(lambda leaf: leaf[None], student)
        seen = engine.transcribe(lambda: PolicyActor(stacked, world, keys), seeds_of(keys))
    assert seen.observations.shape == (5, 21, 2)  # what the world shows, without the noise
    wanted = teacher.label(seen.observations[:, :-1], previous(seen))
    first = np.clip(seen.observations[:, :-1, 0] / 3, -1, 1)
    np.testing.assert_allclose(wanted[..., 0], first, atol=1e-6)
    assert not np.allclose(seen.actions[..., 0], wanted[..., 0], atol=0.1)


def test_a_teacher_with_a_memory_is_told_what_was_really_done(engine, key):
    policy = AttentionNeuronConfig(num_queries=4).build(2, 2, key)
    teacher = AgentTeacher(policy, engine.world)
    seen = engine.transcribe(teacher.make_actor, np.arange(3))
    shown = seen.observations[:, :-1]
    own = teacher.label(shown, previous(seen))
    for episode, length in enumerate(seen.lengths):
        np.testing.assert_allclose(own[episode, :length], seen.actions[episode, :length], atol=1e-5)
    others = previous(seen)
    others[:, 3] += 0.5
    changed = teacher.label(shown, others)
    np.testing.assert_array_equal(changed[:, :3], own[:, :3])
    assert not np.allclose(changed[:, 3], own[:, 3], atol=1e-3)


def test_episodes_are_cut_into_sequences_that_know_what_was_done_before(expert, engine):
    teacher = AgentTeacher(expert, engine.world)
    seen = engine.transcribe(teacher.make_actor, np.arange(5))
    wanted = teacher.label(seen.observations[:, :-1], previous(seen))
    sequences = cut(seen, wanted, 8)
    assert sequences.lengths.sum() == seen.lengths.sum()
    assert sequences.observations.shape[1:] == (8, 2)
    assert (sequences.lengths > 0).all()
    # The first five are the beginnings, in order; before the first step nothing was done
    assert not sequences.previous[:5, 0].any()
    np.testing.assert_array_equal(sequences.previous[:5, 1:], seen.actions[:, :7])
    second = sequences.previous[5, 0]  # of the first episode that is longer than 8
    episode = int(np.argmax(seen.lengths > 8))
    np.testing.assert_array_equal(second, seen.actions[episode, 7])


@pytest.mark.usefixtures("_minari")
def test_an_interrupted_collection_goes_on(expert, engine, tmp_path, monkeypatch):
    monkeypatch.setattr(demonstrations, "PART", 4)
    teacher = AgentTeacher(expert, engine.world)
    whole = collect(tmp_path / "whole", teacher, engine, 10)

    def stop(episodes):
        if episodes == 8:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        collect(tmp_path / "cut", teacher, engine, 10, stop)
    assert not (tmp_path / "cut").exists()
    parts = {file: file.stat().st_mtime_ns for file in (tmp_path / ".cut.parts").iterdir()}
    assert len(parts) == 2
    done = []
    again = collect(tmp_path / "cut", teacher, engine, 10, done.append)
    assert done == [4, 8, 10]
    for ours, theirs in zip(again, whole, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut", "whole"]


@pytest.mark.usefixtures("_minari")
def test_demonstrations_are_a_dataset_of_minari(expert, engine, tmp_path):
    from minari import MinariDataset

    shown = collect(tmp_path / "shown", AgentTeacher(expert, engine.world), engine, 6)
    dataset = MinariDataset(tmp_path / "shown")
    assert len(dataset) == 6
    assert dataset.env_spec.id == "Walk-v0"
    for index, episode in enumerate(dataset):
        length = int(shown.lengths[index])
        assert episode.observations.shape == (length + 1, 2)
        assert episode.terminations.tolist() == [False] * (length - 1) + [True]
        action = episode.actions[:, 0]  # as the world takes them: -3 to 3
        np.testing.assert_allclose(action, np.clip(episode.observations[:-1, 0], -3, 3), atol=1e-5)
        assert dataset.action_space.contains(episode.actions[0])


@pytest.mark.usefixtures("_minari")
def test_a_dataset_must_be_of_the_world_and_long_enough(expert, engine, tmp_path):
    folder = tmp_path / "shown"
    collect(folder, AgentTeacher(expert, engine.world), engine, 6)
    with pytest.raises(ConfigError, match="has 6 episodes; 7 were asked for"):
        read(folder, engine, 7)
    with (
        HostEngine(make_world("gym:Pendulum-v1"), workers=0) as other,
        pytest.raises(ConfigError, match=r"senses \(2,\) and has 2 action\(s\); Pendulum-v1 shows"),
    ):
        read(folder, other, 6)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="is not a dataset of Minari"):
        read(tmp_path / "empty", engine, 6)


def test_what_does_not_fit_is_one_sentence(expert_file, tmp_path):
    elsewhere = dataclasses.replace(STUDENT, env="gym:Pendulum-v1")
    cases = [
        (STUDENT, "", ConfigError, "Cloning needs an expert; name one with --expert"),
        (STUDENT, "ant-fn", UnknownNameError, "There is no agent 'ant-fn'"),
        (STUDENT, "cartpole-pi", ConfigError, r"The teacher senses .* and has 1 action"),
        (elsewhere, expert_file, ConfigError, "fits 2 sensors|has 2 sensors|2 sensors"),
        (STUDENT, str(tmp_path / "no.zip"), AgentFileError, "There is no file"),
        (
            recipes.find("carracing-pi"),
            "carracing-techer",
            UnknownNameError,
            "did you mean 'carracing-teacher'",
        ),
    ]
    for recipe, expert, error, sentence in cases:
        with pytest.raises(error, match=sentence):
            clone(recipe, tmp_path / "run", expert)
    odd = STUDENT.override({"window": 7})
    with pytest.raises(ConfigError, match="20 steps do not divide into windows of 7"):
        clone(odd, tmp_path / "run", expert_file)
    assert not (tmp_path / "run").exists()
    with pytest.raises(RunError, match="not a run directory"):
        zoo.resume(tmp_path / "nothing")
