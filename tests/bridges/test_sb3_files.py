"""Models of Stable-Baselines3 act as they were trained to, or are refused in one sentence."""

import base64
import json
import pickle
import sys
import zipfile

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from sensorium import recipes, zoo
from sensorium.bridges import sb3, sb3_files
from sensorium.errors import AgentFileError, ConfigError, MissingExtraError, UnknownNameError
from sensorium.rollout import make_world
from sensorium.training.expert_actors import FrameStack, Sb3Actor
from sensorium.training.experts import ask

pytest.importorskip("stable_baselines3", reason="the extra `experts` is not installed")
sb3_contrib = pytest.importorskip("sb3_contrib", reason="the extra `experts` is not installed")

import stable_baselines3
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

PENDULUM = "Pendulum-v1"
FLOAT32_MAX = float(np.finfo(np.float32).max)
STUDENT = recipes.find("ant-pi-clone").override({"env": f"gym:{PENDULUM}"})


def small():
    """Settings of a tiny model."""
    return dict(policy_kwargs=dict(net_arch=[4]), device="cpu", seed=0)


def observations(env_id, episodes=3, steps=4):
    shape = (episodes, steps, *make_world(f"gym:{env_id}").raw_observation_shape)
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def rolled(model, seen, world):
    """What the model itself does along episodes."""
    actions, state = [], None
    for step in range(seen.shape[1]):
        action, state = model.predict(
            seen[:, step], state, np.full(len(seen), step == 0), deterministic=True
        )
        actions.append(world.from_env_actions(action))
    return np.stack(actions, axis=1)


def label(expert, seen):
    """What an expert does along episodes."""
    count, steps = seen.shape[:2]
    actions = [
        expert.act(np.full(count, step == 0), np.arange(count), seen[:, step])
        for step in range(steps)
    ]
    return np.stack(actions, axis=1)


def one_sentence(error):
    text = str(error.value)
    assert text.endswith((".", "?", "`."))
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("package", "name", "env_id"),
    [
        (stable_baselines3, "A2C", "CartPole-v1"),
        (stable_baselines3, "DQN", "CartPole-v1"),
        (stable_baselines3, "PPO", "CartPole-v1"),
        (stable_baselines3, "PPO", PENDULUM),
        (stable_baselines3, "SAC", PENDULUM),
        (stable_baselines3, "TD3", PENDULUM),
        (stable_baselines3, "DDPG", PENDULUM),
        (sb3_contrib, "ARS", PENDULUM),
        (sb3_contrib, "CrossQ", PENDULUM),
        (sb3_contrib, "QRDQN", "CartPole-v1"),
        (sb3_contrib, "RecurrentPPO", PENDULUM),
        (sb3_contrib, "TQC", PENDULUM),
        (sb3_contrib, "TRPO", PENDULUM),
    ],
)
def test_every_algorithm_is_known_and_acts_as_it_does(package, name, env_id, tmp_path):
    network = "MlpLstmPolicy" if name == "RecurrentPPO" else "MlpPolicy"
    model = getattr(package, name)(network, env_id, **small())
    model.save(tmp_path / "model.zip")
    loaded = sb3.load_model(tmp_path / "model.zip")
    assert type(loaded).__name__ == {"DDPG": "TD3"}.get(name, name)
    world, seen = make_world(f"gym:{env_id}"), observations(env_id)
    labels, wanted = label(Sb3Actor(loaded, world), seen), rolled(model, seen, world)
    if env_id != PENDULUM:  # how likely each option is says more than which one it took
        assert (np.abs(labels) <= 1).all()
        labels, wanted = (world.to_env_actions(each.reshape(-1, 2)) for each in (labels, wanted))
    np.testing.assert_allclose(labels, wanted, atol=1e-6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def model(folder):
    """PPO of Pendulum-v1, as `ppo.zip`."""
    trained = stable_baselines3.PPO("MlpPolicy", PENDULUM, **small())
    trained.save(folder / "ppo.zip")
    return trained


def test_a_recurrent_expert_forgets_only_where_an_episode_starts(folder):
    model = sb3_contrib.RecurrentPPO("MlpLstmPolicy", PENDULUM, **small())
    world, seen = make_world(f"gym:{PENDULUM}"), observations(PENDULUM, 2, 6)
    actor = Sb3Actor(model, world)
    labels = label(actor, seen)
    assert np.abs(labels[:, 1] - label(actor, seen[:, 1:])[:, 0]).max() > 1e-6
    order = [0, 1]
    for step in range(6):  # the second lane begins a new episode at the third step
        started = np.array([step == 0, step in (0, 3)])
        now = np.stack([seen[0, step], seen[1, step % 3]])
        expected = np.stack([labels[0, step], labels[1, step % 3]])
        acted = actor.act(started[order], np.arange(2)[order], now[order])
        np.testing.assert_allclose(acted, expected[order], atol=1e-6)
        if step == 3:
            actor.keep(np.array(order := [1, 0]))


def test_a_stack_of_frames_keeps_those_of_the_lanes_that_go_on():
    whole, kept, lanes = FrameStack(3), FrameStack(3), [2, 0]
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 5, 5, 1), np.uint8)
    for step, now in enumerate(images):
        started = np.full(3, step == 0)
        expected = whole(started, now)
        if step < 2:
            kept(started, now)
            continue
        if step == 2:
            kept.keep(np.array(lanes))
        np.testing.assert_array_equal(kept(started[lanes], now[lanes]), expected[lanes])


def test_a_model_of_stacked_images_gets_the_last_ones_of_each_lane():
    """As behind VecFrameStack itself, across the end of an episode."""
    env_id = "tests.host_worlds:Drive-v0"  # of 20 steps
    env = VecFrameStack(DummyVecEnv([lambda: gymnasium.make(env_id)]), 3)
    settings = dict(policy_kwargs=dict(features_extractor_kwargs=dict(features_dim=4)), seed=0)
    model = stable_baselines3.PPO("CnnPolicy", env, device="cpu", **settings)
    world = make_world(f"gym:{env_id}")
    actor, started = Sb3Actor(model, world), np.ones(1, bool)
    stacked = env.reset()
    for _ in range(25):
        action, _ = model.predict(stacked, deterministic=True)
        label = actor.act(started, np.zeros(1, int), stacked[..., -3:])
        np.testing.assert_allclose(label, world.from_env_actions(action), atol=1e-5)
        stacked, _, started, _ = env.step(action)


@pytest.mark.parametrize(
    ("wrap", "sentence"),
    [
        (
            lambda env: gymnasium.wrappers.RescaleAction(env, np.float32(-1), np.float32(1)),
            "bounds of -1 to 1, not -2 to 2",
        ),
        (
            lambda env: gymnasium.wrappers.RescaleObservation(env, np.float32([-1, -1, -8]), np.float32(1)),
            r"observations .* bounds of number 2 of -8 to 1, not -8 to 8",
        ),
        (lambda env: gymnasium.wrappers.FrameStackObservation(env, 2), r"shape \(2, 3\), not \(3,\)"),
        (lambda env: VecFrameStack(DummyVecEnv([lambda: env]), 4), "4 observations stacked"),
        (
            lambda env: gymnasium.wrappers.TransformAction(
                env, lambda action: np.float32([action]), spaces.Discrete(3)
            ),
            "actions .* a Discrete, not a Box",
        ),
    ],
)  # fmt: skip
def test_a_model_of_other_spaces_is_refused(wrap, sentence):
    model = stable_baselines3.PPO("MlpPolicy", wrap(gymnasium.make(PENDULUM)), **small())
    with pytest.raises(ConfigError, match=sentence) as caught:
        Sb3Actor(model, make_world(f"gym:{PENDULUM}"))
    assert "The expert (PPO) was trained with other" in one_sentence(caught)


def box(*bounds, shape=(2,), dtype=np.float32):
    return spaces.Box(*bounds, shape, dtype)


@pytest.mark.parametrize(
    ("theirs", "ours", "alike"),
    [
        (box(-1, 1), box(-1, 1, dtype=np.float64), True),
        (box(-0.418879, 0.418879), box(-0.418879, 0.418879, dtype=np.float64), True),
        (box(-FLOAT32_MAX, FLOAT32_MAX), box(-np.inf, np.inf), True),  # of older environments
        (box(-np.inf, np.inf), box(-1, 1), False),
        (box(0, 255, dtype=np.uint8), box(0, 255), False),
        (spaces.Discrete(3), spaces.Discrete(3), True),
        (spaces.Discrete(3), spaces.Discrete(3, start=1), False),
        (spaces.Discrete(4), spaces.Discrete(3), False),
        (spaces.MultiDiscrete([3]), spaces.Discrete(3), False),
        (
            box(0, 255, shape=(3, 8, 6), dtype=np.uint8),
            box(0, 255, shape=(8, 6, 3), dtype=np.uint8),
            True,  # VecTransposeImage
        ),
        (
            box(0, 255, shape=(9, 8, 6), dtype=np.uint8),
            box(0, 255, shape=(8, 6, 3), dtype=np.uint8),
            False,
        ),
    ],
)
def test_which_spaces_are_alike(theirs, ours, alike):
    difference = sb3.difference(theirs, ours)
    assert (difference is None) == alike, difference


def rewritten(source, target, change):
    """A copy of a model whose data are changed."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "data":
                data = json.loads(content)
                change(data)
                content = json.dumps(data).encode()
            new.writestr(name, content)
    return target


def pickled(value):
    return {":type:": "", ":serialized:": base64.b64encode(value).decode()}


def test_what_cannot_be_unpickled_is_named(model, folder, tmp_path):
    def refused(policy, kind=AgentFileError):
        path = rewritten(
            folder / "ppo.zip", tmp_path / "odd.zip", lambda data: data.update(policy_class=policy)
        )
        with pytest.raises(kind) as caught:
            sb3.load_model(path)
        return one_sentence(caught)

    assert "needs the module 'my_policies'" in refused(pickled(b"cmy_policies\nMyPolicy\n."))
    assert "PYTHONPATH" in refused(pickled(b"cmy_policies\nMyPolicy\n."))
    of_main = refused(pickled(b"c__main__\nMyPolicy\n."))
    assert "the class 'MyPolicy' of the program that saved it (__main__)" in of_main
    assert "needs 'MyPolicy', which the module 'json' has not" in refused(
        pickled(b"cjson\nMyPolicy\n.")
    )
    for rubbish in (b"", b"nothing", pickle.dumps(model.policy_class)[:-3]):
        assert "The policy_class in" in refused(pickled(rubbish))
    unknown = refused(pickled(pickle.dumps(BasePolicy)))
    assert (
        "'stable_baselines3.common.policies.BasePolicy', which cannot be an expert here" in unknown
    )
    assert "RecurrentPPO" in unknown
    masked = sb3_contrib.common.maskable.policies.MaskableActorCriticPolicy
    assert "MaskableActorCriticPolicy', which cannot be an expert" in refused(
        pickled(pickle.dumps(masked))
    )
    assert "sensorium[experts]" in refused(
        pickled(b"csb3_contrib.absent\nMyPolicy\n."), MissingExtraError
    )
    assert "cannot be an expert" in refused("PPO")


def test_a_policy_of_the_program_that_saved_it_acts(model, folder, tmp_path):
    class MyPolicy(ActorCriticPolicy):
        pass

    MyPolicy.__module__ = "__main__"  # pickled by value
    path = rewritten(
        folder / "ppo.zip",
        tmp_path / "mine.zip",
        lambda data: data.update(policy_class=pickled(cloudpickle.dumps(MyPolicy))),
    )
    seen = observations(PENDULUM)[:, 0]
    np.testing.assert_allclose(
        sb3.load_model(path).predict(seen, deterministic=True)[0],
        model.predict(seen, deterministic=True)[0],
    )


def test_what_only_training_needs_may_be_broken(model, folder, tmp_path):
    def change(data):
        for name in ("lr_schedule", "clip_range", "ep_info_buffer", "rollout_buffer_class"):
            data[name] = pickled(b"cgone\nAway\n.")

    path = rewritten(folder / "ppo.zip", tmp_path / "old.zip", change)
    seen = observations(PENDULUM)[:, 0]
    np.testing.assert_allclose(
        sb3.load_model(path).predict(seen, deterministic=True)[0],
        model.predict(seen, deterministic=True)[0],
    )


def test_files_that_are_no_models(model, folder, tmp_path):
    whole = (folder / "ppo.zip").read_bytes()
    (tmp_path / "half.zip").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.zip").write_text("hello")
    (tmp_path / "empty.zip").touch()
    np.savez(tmp_path / "arrays.zip.npz", a=np.zeros(2))
    (tmp_path / "arrays.zip.npz").rename(tmp_path / "arrays.zip")
    (tmp_path / "folder.zip").mkdir()
    with zipfile.ZipFile(tmp_path / "list.zip", "w") as archive:
        archive.writestr("data", "[1, 2]")
    rewritten(folder / "ppo.zip", tmp_path / "bare.zip", lambda data: data.pop("action_space"))
    with (
        zipfile.ZipFile(folder / "ppo.zip") as old,
        zipfile.ZipFile(tmp_path / "weightless.zip", "w") as new,
    ):
        new.writestr("data", old.read("data"))
    for name, sentence in {
        "half.zip": "is truncated or no model",
        "text.zip": "is truncated or no model",
        "empty.zip": "is truncated or no model",
        "arrays.zip": "it holds no 'data'",
        "folder.zip": "is a folder",
        "list.zip": "no model of Stable-Baselines3",
        "bare.zip": "it has no action_space",
        "weightless.zip": "is damaged, or its version",
        "absent.zip": "There is no file",
        "x" * 300 + ".zip": "There is no file",
    }.items():  # fmt: skip
        with pytest.raises(AgentFileError, match=sentence) as caught:
            sb3.load_model(tmp_path / name)
        one_sentence(caught)


def test_without_sb3_contrib_its_extra_is_named(folder, monkeypatch):
    sb3_contrib.TRPO("MlpPolicy", PENDULUM, **small()).save(folder / "trpo.zip")
    monkeypatch.setitem(sys.modules, "sb3_contrib", None)
    with pytest.raises(MissingExtraError, match=r"TRPO, needs sb3_contrib: pip install"):
        sb3.load_model(folder / "trpo.zip")


@pytest.fixture(scope="module")
def normalised(folder):
    """PPO that learned a little behind VecNormalize, as `norm.zip`, and the statistics of it."""
    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make(PENDULUM)]))
    model = stable_baselines3.PPO("MlpPolicy", env, n_steps=8, batch_size=8, n_epochs=1, **small())
    model.learn(8)
    model.save(folder / "norm.zip")
    env.save(folder / "statistics.pkl")
    return model, env


def as_student_of(expert, **changes):
    return STUDENT.override({"expert": str(expert)} | changes)


def find_expert(recipe):
    """What the stage of a recipe learns from, in its world."""
    expert, _ = zoo.find_expert(recipe.last.expert, recipe.last.vecnormalize, recipe.env)
    return ask(expert, recipe.make_world(), "DAgger")[1]


def test_an_expert_receives_what_it_did_behind_vecnormalize(normalised, folder, tmp_path):
    model, env = normalised
    world, seen = make_world(f"gym:{PENDULUM}"), observations(PENDULUM)
    expected = rolled(model, env.normalize_obs(seen), world)
    recipe = as_student_of(folder / "norm.zip", vecnormalize=str(folder / "statistics.pkl"))
    labels = label(find_expert(recipe), seen)
    np.testing.assert_allclose(labels, expected, atol=1e-6)
    assert np.abs(rolled(model, seen, world) - expected).max() > 1e-3
    with pytest.raises(AgentFileError, match="was trained behind VecNormalize, and no") as caught:
        find_expert(as_student_of(folder / "norm.zip"))
    assert "--vecnormalize FILE" in one_sentence(caught)
    plain = find_expert(as_student_of(folder / "norm.zip", vecnormalize="none"))
    np.testing.assert_allclose(label(plain, seen), rolled(model, seen, world), atol=1e-6)


@pytest.mark.parametrize(
    ("model", "statistics"),
    [
        ("a.zip", "vecnormalize.pkl"),
        ("a.zip", "vec_normalize.pkl"),
        ("a.zip", "a_vecnormalize.pkl"),
        (f"{PENDULUM}.zip", f"{PENDULUM}/vecnormalize.pkl"),
        ("best_model.zip", f"{PENDULUM}/vecnormalize.pkl"),
        ("rl_model_800_steps.zip", "rl_model_vecnormalize_800_steps.pkl"),
    ],
)
def test_statistics_are_found_where_they_usually_lie(
    normalised, folder, tmp_path, model, statistics
):
    (tmp_path / model).write_bytes((folder / "norm.zip").read_bytes())
    (tmp_path / statistics).parent.mkdir(exist_ok=True)
    (tmp_path / statistics).touch()
    (tmp_path / "other_vecnormalize.pkl").touch()
    assert sb3_files.find_statistics(tmp_path / model, PENDULUM) == tmp_path / statistics


def test_who_was_trained_without_statistics_takes_none(folder, tmp_path):
    def model(algorithm, **more):
        return algorithm("MlpPolicy", PENDULUM, **small(), **more)

    ppo = model(stable_baselines3.PPO, n_steps=8, batch_size=8, n_epochs=1)
    ppo.learn(8)
    ppo.save(tmp_path / "raw.zip")
    (tmp_path / "vecnormalize.pkl").touch()
    assert sb3_files.find_statistics(tmp_path / "raw.zip", PENDULUM) is None
    sac = model(stable_baselines3.SAC, buffer_size=10, learning_starts=10)
    sac.learn(2)
    sac.save(tmp_path / "sac.zip")
    found = sb3_files.find_statistics(tmp_path / "sac.zip", PENDULUM)
    assert found == tmp_path / "vecnormalize.pkl"
    found.unlink()
    assert sb3_files.find_statistics(tmp_path / "sac.zip", PENDULUM) is None
    (tmp_path / PENDULUM).mkdir()
    config = tmp_path / PENDULUM / "config.yml"  # as rl-zoo3 writes it
    listed = "!!python/object/apply:collections.OrderedDict\n- - - normalize\n    - {}\n"
    for text, needed in {
        listed.format("true"): True,
        listed.format("\"{'norm_obs': True, 'norm_reward': False}\""): True,
        listed.format("dict(norm_obs=False, norm_reward=True)"): False,
        listed.format("false"): False,
        "normalize: true\n": True,
        "normalize_kwargs: true\n": False,
    }.items():
        config.write_text(text)
        if needed:
            with pytest.raises(AgentFileError, match="was trained behind VecNormalize"):
                sb3_files.find_statistics(tmp_path / "sac.zip", PENDULUM)
        else:
            assert sb3_files.find_statistics(tmp_path / "sac.zip", PENDULUM) is None


def test_statistics_that_do_not_fit(model, folder, tmp_path):
    def statistics(env_id, **more):
        return VecNormalize(DummyVecEnv([lambda: gymnasium.make(env_id)]), **more)

    statistics("CartPole-v1").save(tmp_path / "other.pkl")
    odd = statistics(PENDULUM)
    odd.obs_rms.mean[1] = np.nan
    odd.save(tmp_path / "nan.pkl")
    whole = (tmp_path / "nan.pkl").read_bytes()
    (tmp_path / "half.pkl").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.pkl").write_text("hello")
    (tmp_path / "list.pkl").write_bytes(pickle.dumps([1]))
    (tmp_path / "module.pkl").write_bytes(b"cabsent\nThing\n.")
    for name, sentence in {
        "other.pkl": r"of shape \(4,\), and Pendulum-v1 shows \(3,\)",
        "nan.pkl": "hold NaN or infinity",
        "half.pkl": "is damaged, or was written by another version",
        "text.pkl": "is damaged, or was written by another version",
        "list.pkl": "holds a list, not what VecNormalize.save writes",
        "module.pkl": "needs the module 'absent'",
        "absent.pkl": "There is no file",
        ".": "Could not read .*: Is a directory",
    }.items():
        recipe = as_student_of(folder / "ppo.zip", vecnormalize=str(tmp_path / name))
        with pytest.raises((AgentFileError, ConfigError), match=sentence) as caught:
            find_expert(recipe)
        one_sentence(caught)
    statistics(PENDULUM, norm_obs=False).save(tmp_path / "rewards.pkl")
    recipe = as_student_of(folder / "ppo.zip", vecnormalize=str(tmp_path / "rewards.pkl"))
    seen = observations(PENDULUM)
    np.testing.assert_allclose(
        label(find_expert(recipe), seen),
        rolled(model, seen, make_world(f"gym:{PENDULUM}")),
        atol=1e-6,
    )
    with pytest.raises(ConfigError, match="VecNormalize go with a model of Stable-Baselines3"):
        find_expert(as_student_of("cartpole-pi", vecnormalize=str(tmp_path / "rewards.pkl")))


def test_a_run_remembers_the_statistics(normalised, folder, tmp_path, monkeypatch):
    asked = []

    def train(recipe, directory, **more):
        asked.append(recipe)
        return zoo.load("cartpole-pi").policy

    monkeypatch.setattr(recipes, "train", train)
    for name in ("norm.zip", "statistics.pkl"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    zoo.train(as_student_of("norm.zip", vecnormalize="statistics.pkl"), tmp_path / "run")
    stage = recipes.Recipe.from_json(asked[-1].to_json()).last
    assert stage.expert == str(tmp_path / "norm.zip")
    assert stage.vecnormalize == str(tmp_path / "statistics.pkl")
    (tmp_path / "statistics.pkl").rename(tmp_path / "norm_vecnormalize.pkl")
    zoo.train(as_student_of("norm.zip"), tmp_path / "run")
    assert asked[-1].last.vecnormalize == str(tmp_path / "norm_vecnormalize.pkl")


def test_a_model_is_no_agent_of_ours_and_the_sentence_says_what_to_do(model, folder, tmp_path):
    with pytest.raises(
        AgentFileError, match=r"is a model of Stable-Baselines3.*sensorium convert .* --env gym:ID"
    ):
        zoo.load(folder / "ppo.zip")
    (tmp_path / "ppo_1.5").write_bytes((folder / "ppo.zip").read_bytes())  # as SB3 names "ppo_1.5"
    with pytest.raises(AgentFileError, match="is a model of Stable-Baselines3"):
        zoo.load(tmp_path / "ppo_1.5")
    assert isinstance(find_expert(as_student_of(tmp_path / "ppo_1.5")), Sb3Actor)
    imitator = recipes.find("carracing-pi").override({"expert": str(folder / "ppo.zip")})
    with pytest.raises(ConfigError, match="are experts in worlds on the host"):
        zoo.train(imitator, tmp_path / "run")
    with pytest.raises(UnknownNameError, match="No agent was named"):
        zoo.train(STUDENT.override({"start": " "}), tmp_path / "run")
    with pytest.raises(ConfigError, match="needs an expert"):
        zoo.train(as_student_of(""), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["weights.pt", "arrays.npz", "agent.onnx", "recipe.json", "text"])
def test_other_files_are_no_agents(name, tmp_path):
    path = tmp_path / name
    if name == "weights.pt":
        __import__("torch").save({"a": 1}, path)
    elif name == "arrays.npz":
        np.savez(path, a=np.zeros(2))
    else:
        path.write_text('{"kind": "Recipe"}')
    with pytest.raises(AgentFileError, match="is no agent: agents are names of the zoo"):
        zoo.load(path)


def test_folders_and_empty_names_are_no_agents(tmp_path):
    with pytest.raises(AgentFileError, match="is a folder, but no run directory"):
        zoo.load(tmp_path)
    (tmp_path / "recipe.json").write_text("{}")
    with pytest.raises(AgentFileError, match="no test has been made in that run"):
        zoo.load(tmp_path)
    for name in ("", "  "):
        with pytest.raises(UnknownNameError, match="No agent was named"):
            zoo.load(name)
    with pytest.raises(AgentFileError, match="There is no file"):
        zoo.load(tmp_path / "absent.zip")
    with pytest.raises(UnknownNameError, match="There is no agent"):
        zoo.load("x" * 300)
