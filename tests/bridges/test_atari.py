"""Atari games: what agents see of them, how they start, and the player of Pong that reads memory."""

import itertools

import gymnasium
import numpy as np
import pytest

from sensorium.bridges.open_env import open_env
from sensorium.errors import ConfigError, UnknownNameError
from sensorium.rollout import make_world

ale_py = pytest.importorskip("ale_py", reason="the extra `atari` is not installed")
pong = pytest.importorskip("sensorium.bridges.pong")

PONG = "ALE/Pong-v5"
STICKY = "repeat_action_probability"
NO_EXPERTS = "the extra `experts` is not installed"


@pytest.mark.parametrize("name", ["ALE/Breakout-v5", "PongNoFrameskip-v4"])
@pytest.mark.parametrize("sticky", [0.25, 0])
def test_games_look_as_those_of_gymnasiums_wrapper(name, sticky):
    ours = open_env(f"{name}?{STICKY}={sticky}")
    theirs = gymnasium.make(name, frameskip=1, **{STICKY: sticky})
    theirs = gymnasium.wrappers.AtariPreprocessing(theirs, grayscale_newaxis=True)
    random = np.random.default_rng(0)
    for seed in range(2):
        shown, expected = ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0]
        np.testing.assert_array_equal(shown, expected)
        for _ in range(250):
            action = int(random.integers(ours.action_space.n))
            (shown, *ours_then, info), (expected, *theirs_then, _) = (
                env.step(action) for env in (ours, theirs)
            )
            np.testing.assert_array_equal(shown, expected)
            assert ours_then == theirs_then
            assert info["action"] == action
            if any(ours_then[1:]):
                break
    assert ours.observation_space == theirs.observation_space


def test_random_starts_are_somewhere_in_a_game():
    env = open_env(f"{PONG}?random_starts=200")
    frames = set()
    for seed in range(8):
        shown, _ = env.reset(seed=seed)
        assert env.observation_space.contains(shown)
        frames.add(env.unwrapped.ale.getEpisodeFrameNumber())
    assert len(frames) > 5
    assert max(frames) > 100
    first, second = (env.reset(seed=3)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("options", "steps"), [("", 27_000), ("?max_num_frames_per_episode=1001", 251)]
)
def test_episodes_are_as_long_as_those_of_ale(options, steps):
    """Ours were cut after 10,000 steps, in the middle of games between two good players."""
    assert make_world(f"gym:{PONG}{options}").max_steps == steps


def test_the_limit_of_ale_ends_an_episode_by_time():
    env = open_env(f"{PONG}?max_num_frames_per_episode=1001")
    env.reset(seed=0)
    ends = [env.step(0)[2:4] for _ in range(251)]
    assert (False, True) in ends
    assert (True, False) not in ends


def test_a_world_knows_what_options_do():
    names = make_world(f"gym:{PONG}").option_names
    assert names == ("nothing", "fire", "up", "down", "up fire", "down fire")


@pytest.mark.parametrize("wrong", ["frameskip=4", "obs_type=rgb", "continuous=true"])
def test_what_agents_see_is_fixed(wrong):
    with pytest.raises(ConfigError, match=wrong.partition("=")[0]):
        open_env(f"{PONG}?{wrong}")


@pytest.mark.parametrize("starts", ["-1", "some", "1.5"])
def test_random_starts_are_counted(starts):
    with pytest.raises(ConfigError, match="random_starts counts actions"):
        open_env(f"{PONG}?random_starts={starts}")


@pytest.mark.parametrize(
    "wrong", [f"{STICKY}=1", f"{STICKY}=-0.1", f"{STICKY}=often", f"{STICKY}=[]"]
)
def test_sticky_actions_are_a_probability(wrong):
    with pytest.raises(ConfigError, match=f"{STICKY} is a probability"):
        open_env(f"{PONG}?{wrong}")


@pytest.mark.parametrize("wrong", ["mode=99", "difficulty=-1", "no_such_thing=1"])
def test_what_ale_does_not_know_is_one_sentence(wrong):
    with pytest.raises(ConfigError, match="Gymnasium cannot open ALE/Pong-v5") as caught:
        open_env(f"{PONG}?{wrong}")
    assert "\n" not in str(caught.value)


def test_an_unknown_game_names_the_nearest():
    with pytest.raises(UnknownNameError, match="ALE/Pong-v5"):
        open_env("ALE/Pomg-v5")


def play(env, shown, info):
    """Play an episode as the player does; the return, and what it knew in each step beside the picture."""
    score, known = 0.0, []
    for _ in itertools.count():
        likely, (*places, weight) = pong.player(env.unwrapped, shown, info)
        assert 0 < weight < 2
        assert likely.shape == (6,)
        assert likely.sum() == pytest.approx(1)
        known.append((shown[..., 0], places))
        shown, reward, terminated, truncated, info = env.step(likely.argmax())
        score += reward
        if terminated or truncated:
            return score, known


def test_the_player_wins_each_game_that_there_is_without_sticky_actions():
    env, scores = open_env(f"{PONG}?{STICKY}=0"), {}
    for seed in itertools.count():
        shown, info = env.reset(seed=seed)
        phase = env.unwrapped.ale.getEpisodeFrameNumber() % 4
        if phase not in scores:
            scores[phase], _ = play(env, shown, info)
        if len(scores) == 4:
            break
    assert scores == dict.fromkeys(range(4), 21)


def test_the_player_wins_with_sticky_actions_and_knows_where_things_are():
    env = open_env(PONG)
    score, known = play(env, *env.reset(seed=1))
    assert score >= 17
    # Nothing but the paddle is ever in this column, on grey 87
    rows = {}
    for picture, places in known:
        bright = np.flatnonzero(np.abs(picture[16:75, 74] - 87.0) > 20)
        if bright.size:
            rows.setdefault(bright[0], []).append(places[2])
    heights = {row: np.mean(each) for row, each in rows.items() if len(each) > 3}
    assert np.corrcoef(list(heights), list(heights.values()))[0, 1] > 0.99
    ball = [places[:2] for _, places in known]
    assert np.isfinite(ball).all(1).mean() > 0.5  # between points there is none
    assert np.nanmax(np.abs(ball)) < 3


def test_the_teacher_of_students_that_err_wants_other_moves_and_knows_the_same():
    games = {expert: open_env(PONG) for expert in (pong.player, pong.teacher)}
    states, differ = {expert: env.reset(seed=1) for expert, env in games.items()}, 0
    for _ in range(300):
        (likely, (*places, _)), (likely_here, (*places_here, _)) = (
            expert(env.unwrapped, *states[expert]) for expert, env in games.items()
        )
        np.testing.assert_array_equal(places, places_here)
        assert likely_here.sum() == pytest.approx(1)
        differ += likely.argmax() != likely_here.argmax()
        for expert, env in games.items():
            shown, _, _, _, info = env.step(likely.argmax())
            states[expert] = shown, info
    assert 10 < differ < 150


@pytest.mark.parametrize("game", ["Pong", "Breakout", "MsPacman"])  # no lives, lives, and no button
def test_games_look_as_those_of_stable_baselines_wrapper(game):
    wrappers = pytest.importorskip("stable_baselines3.common.atari_wrappers", reason=NO_EXPERTS)
    ours = open_env(f"{game}NoFrameskip-v4?wrapper=AtariWrapper")
    theirs = wrappers.AtariWrapper(gymnasium.make(f"{game}NoFrameskip-v4"), clip_reward=False)
    random, lost = np.random.default_rng(0), 0
    shown, expected = ours.reset(seed=0)[0], theirs.reset(seed=0)[0]
    np.testing.assert_array_equal(shown, expected)
    for _ in range(400):
        action = int(random.integers(ours.action_space.n))
        (shown, reward, *ends, _), (expected, theirs_earned, *theirs_ends, _) = (
            env.step(action) for env in (ours, theirs)
        )
        if ends[0]:
            assert theirs_ends[0]
            break
        if theirs_ends[0]:  # a life was lost, and here the game goes on
            expected, lost = theirs.reset()[0], lost + 1
        else:
            assert reward == theirs_earned
        np.testing.assert_array_equal(shown, expected)
    assert lost >= (game != "Pong")


def test_an_unknown_wrapper_names_the_nearest():
    with pytest.raises(UnknownNameError, match="AtariWrapper"):
        open_env(f"{PONG}?wrapper=AtariWraper")


def of_gymnasium(**settings):
    """Open Pong as models see it behind Gymnasium's wrappers."""
    theirs = gymnasium.make(PONG, frameskip=1)
    theirs = gymnasium.wrappers.AtariPreprocessing(theirs, **settings)
    return gymnasium.wrappers.FrameStackObservation(theirs, 4)


def small_model(kind, env):
    """Make a model of Stable-Baselines3 that has learned nothing."""
    small = dict(policy_kwargs=dict(features_extractor_kwargs=dict(features_dim=8)), seed=0)
    more = {"DQN": dict(buffer_size=10), "PPO": dict(n_steps=64)}.get(kind, {})
    sb3 = pytest.importorskip("stable_baselines3", reason=NO_EXPERTS)
    return getattr(sb3, kind)("CnnPolicy", env, device="cpu", **small, **more)


def choose_by_what_moves(model, stack):
    """Make all actions equally good on a picture: weights that are drawn choose one whatever is shown."""
    policy = model.policy
    shown, last = policy.obs_to_tensor(stack)[0], getattr(policy, "action_net", None)
    if last is None:
        last, outputs = policy.q_net.q_net[-1], policy.q_net(shown)
    else:
        outputs = policy.get_distribution(shown).distribution.logits
    last.bias.data -= outputs[0].detach()


@pytest.mark.parametrize("kind", ["PPO", "A2C", "DQN"])
@pytest.mark.parametrize("wrapper", ["AtariPreprocessing", "AtariWrapper"])
def test_models_act_here_as_in_the_pipeline_that_they_were_trained_in(kind, wrapper, tmp_path):
    pytest.importorskip("stable_baselines3", reason=NO_EXPERTS)
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

    from sensorium.bridges.sb3 import load_model
    from sensorium.training.expert_actors import Sb3Actor

    if wrapper == "AtariPreprocessing":
        env, theirs = PONG, DummyVecEnv([of_gymnasium])
    else:
        env = "PongNoFrameskip-v4?wrapper=AtariWrapper"
        theirs = VecFrameStack(make_atari_env("PongNoFrameskip-v4"), 4)
    model = small_model(kind, theirs)
    theirs.seed(5)
    stack, ours = theirs.reset(), open_env(env)
    choose_by_what_moves(model, stack)
    model.save(tmp_path / "model.zip")
    shown, world = ours.reset(seed=5)[0], make_world(f"gym:{env}")
    actor, started, acted = (
        Sb3Actor(load_model(tmp_path / "model.zip"), world),
        np.ones(1, bool),
        [],
    )
    for step in range(40):
        advice = actor.act(started, np.zeros(1, int), shown[None])
        (action,), _ = model.predict(stack, deterministic=True)
        assert world.to_env_actions(advice)[0] == action
        acted.append(int(action))
        started, taken = np.zeros(1, bool), step % 6
        stack, shown = theirs.step([taken])[0], ours.step(taken)[0]
    assert len(set(acted)) > 1


@pytest.mark.parametrize(
    ("open_theirs", "sentence"),
    [
        (lambda: of_gymnasium(screen_size=64), r"shape \(4, 64, 64\), not \(84, 84, 1\)"),
        (
            lambda: gymnasium.wrappers.AtariPreprocessing(
                gymnasium.make(PONG, frameskip=1), grayscale_obs=False
            ),
            "images of 3 channels, as those in colour, and ALE/Pong-v5 shows grey ones",
        ),
        (
            lambda: gymnasium.wrappers.FrameStackObservation(
                gymnasium.wrappers.AtariPreprocessing(
                    gymnasium.make(PONG, frameskip=1, full_action_space=True)
                ),
                4,
            ),
            "18 choices from 0 on, not 6",
        ),
    ],
)
def test_models_of_other_pictures_or_actions_are_refused(open_theirs, sentence):
    pytest.importorskip("stable_baselines3", reason=NO_EXPERTS)
    from sensorium.bridges.sb3 import check_spaces

    model = small_model("PPO", open_theirs())
    with pytest.raises(ConfigError, match=sentence) as caught:
        check_spaces(model, make_world(f"gym:{PONG}"))
    assert "\n" not in str(caught.value)
