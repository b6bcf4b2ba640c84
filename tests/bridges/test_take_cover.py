"""DoomTakeCover: its maps, what agents see of it, and players that read where balls are."""

import contextlib
import itertools
import os
from pathlib import Path

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given

from sensorium.bridges.open_env import open_env
from sensorium.bridges.wad import read_wad, with_settings, write_wad
from sensorium.errors import ConfigError, SensoriumError
from sensorium.gymnasium_ids import TAKE_COVER, TAKE_COVER_STEPS
from sensorium.policies import AttentionAgentConfig
from sensorium.rollout import HostEngine, make_world
from sensorium.training import DaggerConfig
from tests.probes import trainer_of

vizdoom = pytest.importorskip("vizdoom", reason="the extra `doom` is not installed")
game = pytest.importorskip("sensorium.bridges.take_cover")
players = pytest.importorskip("sensorium.bridges.take_cover_player")

QUICK = f"{TAKE_COVER}?width=160"
NAMES = st.text("ABCDEFGH0123_", min_size=1, max_size=8)


@given(st.lists(st.tuples(NAMES, st.binary(max_size=20))))
def test_a_wad_is_read_as_it_was_written(lumps):
    assert read_wad(write_wad(b"PWAD", lumps)) == lumps


@given(st.binary(max_size=40))
def test_what_is_no_wad_is_refused_or_harmless(content):
    lumps = []
    with contextlib.suppress(ConfigError):
        lumps = read_wad(content)
    assert read_wad(write_wad(b"PWAD", lumps)) == lumps


def test_settings_that_are_not_there_are_refused():
    wad = write_wad(b"PWAD", [("MAP01", b""), ("TEXTMAP", b"heightceiling = 104;")])
    changed = with_settings(wad, {"heightceiling": (104, 404)}, {})
    assert read_wad(changed) == [
        ("MAP01", b""),
        ("TEXTMAP", b"heightceiling = 404;"),
        ("MAP02", b""),
        ("TEXTMAP", b"heightceiling = 104;"),
    ]
    with pytest.raises(ConfigError, match="heightceiling of 100"):
        with_settings(wad, {"heightceiling": (100, 404)})


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("take_cover", {}),
        ("take_cover_wall", {"heightceiling": (104, 404)}),
        ("take_cover_floor", {"texturefloor": ('"CRATOP1"', '"CRATOP2"')}),
    ],
)
def test_maps_are_those_of_the_authors(reference, name, changes):
    authors = reference.path("scenarios", name).with_suffix(".wad").read_bytes()
    assert read_wad(with_settings(game.packaged_map().read_bytes(), changes)) == read_wad(authors)


def episode(env, seed, act):
    shown, info = env.reset(seed=seed)
    pictures, total, over = [shown], 0.0, False
    while not over:
        shown, reward, terminated, truncated, info = env.step(act(env, info))
        pictures.append(shown)
        total, over = total + reward, terminated or truncated
    return np.stack(pictures), total, terminated, truncated


def stand(env, info):
    return np.zeros(1, np.float32)


def test_an_episode_is_decided_by_its_seed_and_lasts_until_death():
    env = open_env(QUICK)
    one, other, again = (episode(env, seed, stand) for seed in (3, 4, 3))
    assert one[2:] == (True, False)
    assert one[1] == len(one[0]) - 1 < TAKE_COVER_STEPS
    np.testing.assert_array_equal(one[0], again[0])
    assert len(one[0]) != len(other[0])
    env.close()


@pytest.mark.parametrize("frame_skip", [4, 7])
def test_an_action_may_be_held_for_several_tics(frame_skip):
    plain, held = open_env(QUICK), open_env(f"{QUICK}&frame_skip={frame_skip}")
    actions = np.random.default_rng(0).integers(-1, 2, TAKE_COVER_STEPS)
    tics = itertools.count()
    each_tic, total, *end = episode(
        plain, 3, lambda *_: np.array([actions[next(tics) // frame_skip]], np.float32)
    )
    decisions = iter(actions)
    pictures, of_held, *end_of_held = episode(
        held, 3, lambda *_: np.array([next(decisions)], np.float32)
    )
    np.testing.assert_array_equal(  # the face below the view looks about as often as it is drawn
        pictures[:-1, :80], each_tic[:-1:frame_skip][: len(pictures) - 1, :80]
    )
    assert len(pictures) == 1 + -(-(len(each_tic) - 1) // frame_skip)
    assert (of_held, end_of_held) == (total, end)
    plain.close()
    held.close()


def test_the_time_limit_counts_tics():
    name = f"{QUICK}&discrete=true&frame_skip=4"
    env = open_env(name)
    pictures, total, terminated, truncated = episode(
        env, 0, lambda env, info: int(players.player(env.unwrapped, None, info)[0].argmax())
    )
    assert (total, terminated, truncated) == (TAKE_COVER_STEPS, False, True)
    assert len(pictures) == 1 + TAKE_COVER_STEPS // 4
    assert make_world(f"gym:{name}").max_steps == TAKE_COVER_STEPS // 4
    assert env.metadata["render_fps"] == 35 / 4
    env.close()


@pytest.mark.parametrize("player", [players.player, players.teacher])
@pytest.mark.parametrize("discrete", ["", "&discrete=true"])
def test_players_live_to_the_end(player, discrete):
    env = open_env(QUICK + discrete)

    def act(env, info):
        action, known = player(env.unwrapped, None, info)
        assert known.shape == (len(player.privileged) + 1,)
        assert 0 < known[-1] < 2  # how much the advice matters
        if not discrete:
            return action
        assert action.sum() == pytest.approx(1)
        return int(action.argmax())

    _, total, terminated, truncated = episode(env, 0, act)
    assert (total, terminated, truncated) == (TAKE_COVER_STEPS, False, True)
    env.close()


def test_a_watcher_counts_balls_that_the_picture_shows():
    env = open_env(f"{QUICK}&discrete=true")
    _, info = env.reset(seed=0)
    x, y, _ = info["player"]
    ball = np.array([x + 60, y + 30, -10, 0, 1])  # in the picture
    beside = np.array([x + 20, y + 40, -10, 0, 2])  # in its way, and out of the picture

    def advice(player, *balls):
        balls = np.array(balls).reshape(-1, 5)
        return np.concatenate(player(env.unwrapped, None, info | {"balls": balls}))

    np.testing.assert_array_equal(
        advice(players.watcher, ball, beside), advice(players.teacher, ball)
    )
    np.testing.assert_array_equal(advice(players.watcher, beside), advice(players.teacher))
    assert not np.allclose(advice(players.teacher, beside)[:3], advice(players.teacher)[:3])
    env.close()


def test_a_teacher_goes_on_in_its_direction_where_both_are_as_good():
    env = open_env(f"{QUICK}&discrete=true")
    _, info = env.reset(seed=0)
    assert info["action"] == 0
    for action in (1, 2, 0):
        info = env.step(action)[-1]
        assert info["action"] == action
    x, middle = info["player"][0], (16 + 752) / 2
    ball = np.array([[x + 300, middle, -10, 0, 1]])  # comes straight at it
    info |= {"player": np.array([x, middle, 0.0]), "balls": ball}
    still, left, right = (
        players.teacher(env.unwrapped, None, info | {"action": action})[0] for action in range(3)
    )
    assert still[1] == pytest.approx(still[2])
    assert left[1] > 2 * left[2]
    assert right[2] > 2 * right[1]
    env.close()


@given(st.floats(16, 752), st.floats(-7, 7))
def test_where_a_player_will_be_is_computed_as_tic_by_tic(y, velocity):
    plans = players.Plans(8.0, (1, 12, 34))
    for thrust, places in zip(plans.thrust, plans.places(y, velocity), strict=True):
        now, speed = y, velocity
        for tic, push in enumerate(thrust):
            speed += push
            now += speed
            if not 16 <= now <= 752:
                now, speed = min(max(now, 16), 752), 0.0
            speed *= 29 / 32
            assert places[tic] == pytest.approx(now, abs=1e-6)


def test_a_player_moves_as_its_plans_say():
    env = open_env(QUICK)
    _, info = env.reset(seed=0)
    plans = players.Plans(8.0, (12,))
    _, y, velocity = info["player"]
    wanted = plans.places(y, velocity)
    for plan in (1, 4):  # nothing first, then left; left all the time
        _, info = env.reset(seed=0)
        for tic in range(20):
            push = np.sign(plans.thrust[plan, tic])
            info = env.step(np.array([-push], np.float32))[-1]
            assert info["player"][1] == pytest.approx(wanted[plan, tic], abs=0.1)
    env.close()


def shown_in(variant, steps=3, whole=False):
    """The picture after some steps, or the whole screen."""
    env = open_env(f"{TAKE_COVER}?variant={variant}", render_mode="rgb_array")
    shown, _ = env.reset(seed=2)
    for _ in range(steps):
        shown, *_ = env.step(np.zeros(1, np.float32))
    shown = env.render() if whole else shown
    env.close()
    return shown.astype(int)


def test_variants_change_what_they_are_named_after():
    plain, walls, floor, text = map(shown_in, game.OF_THE_PAPER)
    above, below = np.s_[:28], np.s_[50:80]
    assert (walls[above] != plain[above]).any(-1).mean() > 0.5
    np.testing.assert_array_equal(walls[below], plain[below])
    assert (floor[below] != plain[below]).any(-1).mean() > 0.9
    np.testing.assert_array_equal(floor[above], plain[above])
    rows, columns = np.nonzero((text != plain).any(-1))
    assert rows.max() < 20
    assert 26 < columns.min() < columns.max() < 70
    long = shown_in("text&text=A SENTENCE THAT IS LONGER THAN THE BOX")
    rows, columns = np.nonzero((long != plain).any(-1))
    assert 26 < columns.min() < columns.max() < 70


def test_backgrounds_change_and_monsters_do_not():
    plain, colour, noise = (
        shown_in(variant, whole=True) for variant in ("plain", "colour", "noise")
    )
    view, player = np.s_[:400], np.s_[405:]
    added = (colour - plain)[view]
    tint = np.median(added, (0, 1))
    assert 3 < abs(tint).max() <= 51
    assert np.mean(abs(added - tint).max(-1) < 3) > 0.9  # the darkest end at nothing
    still = [(other == plain).all(-1) for other in (colour, noise)]
    assert all(0.001 < each[view].mean() < 0.05 for each in still)
    assert (still[0] & still[1])[view].sum() > 0.9 * still[0][view].sum()  # monsters, in both
    for other in (colour, noise):
        np.testing.assert_array_equal(other[player], plain[player])


def test_noise_is_new_in_each_step_and_the_same_from_the_same_seed():
    env = open_env(f"{QUICK}&variant=noise")
    shown = []
    for _ in range(2):
        first, _ = env.reset(seed=3)
        second, *_ = env.step(np.zeros(1, np.float32))
        shown.append((first, second))
        assert (first[:80] != second[:80]).any(-1).mean() > 0.95
    env.close()
    np.testing.assert_array_equal(*shown)


def test_floors_and_walls_are_drawn_for_each_episode():
    env = open_env(f"{QUICK}&variant=drawn")
    first = [env.reset(seed=seed)[0] for seed in range(6)]
    again = [env.reset(seed=seed)[0] for seed in range(6)]
    env.close()
    np.testing.assert_array_equal(first, again)
    floors = {shown[50:80].tobytes() for shown in first}
    assert len(floors) == 6
    assert len({shown[:28].tobytes() for shown in first}) > 1


def test_what_is_drawn_is_not_what_the_paper_tests_with():
    maps = game._maps("drawn", "")
    floors = {changes["texturefloor"][1].strip('"') for changes in maps}
    assert len(floors) == len(maps) > 200
    assert floors <= set(game._flats()) - {game.OTHER_FLOOR, "F_SKY1"}
    assert {changes["heightceiling"][1] for changes in maps} == set(game.DRAWN_CEILINGS)
    assert max(game.DRAWN_CEILINGS) < game.OTHER_CEILING


def test_balls_are_where_the_boxes_say():
    env = open_env(f"{TAKE_COVER}?boxes=true")
    _, info = env.reset(seed=1)
    fire = []
    for _ in range(120):
        shown, _, terminated, _, info = env.step(np.zeros(1, np.float32))
        if terminated:
            break
        for top, left, bottom, right in info["boxes"]:
            assert 0 <= top < bottom <= 96
            assert 0 <= left < right <= 96
            ball = shown[int(top) : int(bottom) + 1, int(left) : int(right) + 1]
            fire.append(ball[..., 0].max() > 180)  # fire is brighter than all else
    assert len(fire) > 20
    assert np.mean(fire) > 0.9
    env.close()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("variant=wals", "did you mean 'walls'"),
        ("width=100", "160, 320, 640"),
        ("width=160.0", "160, 320, 640"),
        ("width=wide", "160, 320, 640"),
        ("discrete=maybe", "discrete .* true or false"),
        ("frame_skip=0", "for 1 to 2100 tics, not 0"),
        ("frame_skip=1.5", "for 1 to 2100 tics, not 1.5"),
        ("boxes=3", "boxes .* true or false"),
        ("variant=floor&flat=GRAS1", "did you mean 'GRASS1'"),
        ("variant=floor&flat=F1_START", "no flat of Freedoom 'F1_START'"),
    ],
)
def test_wrong_options_are_one_sentence(options, sentence):
    with pytest.raises(SensoriumError, match=sentence) as caught:
        open_env(f"{TAKE_COVER}?{options}")
    assert "\n" not in str(caught.value)


def test_nothing_is_left_where_it_is_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = open_env(QUICK)
    env.reset(seed=0)
    env.close()
    assert os.listdir(tmp_path) == []
    assert Path.cwd() == tmp_path


def test_agents_of_images_take_it():
    world = make_world(f"gym:{QUICK}")
    assert world.raw_observation_spec == (96, 96, 3)
    assert world.max_steps == TAKE_COVER_STEPS
    assert make_world(f"gym:{QUICK}&discrete=true").num_actions == 3


def test_attention_goes_to_where_a_spotter_sees_balls(tmp_path):
    policy = AttentionAgentConfig(hidden_size=4)
    trainer = DaggerConfig(
        num_envs=2,
        rollout_steps=200,
        demonstration_rounds=1,
        num_rounds=0,
        num_batches=6,
        batch_size=8,
        num_steps=2,
        window=2,
        learning_rate=0.03,
        attention_coef=1.0,
    )
    with HostEngine(make_world(f"gym:{QUICK}&boxes=true")) as engine:
        training = trainer_of(engine, policy, trainer, players.spotter, tmp_path, 3)
        state, losses = training.init(jax.random.key(0)), []
        for _ in range(3):
            state, metrics = training.step(state)
            losses.append(float(metrics.figures["attention_loss"]))
    assert losses[-1] < 0.9 * losses[0], losses
    env = open_env(QUICK)
    _, info = env.reset(seed=0)
    with pytest.raises(ConfigError, match="boxes=true only"):
        players.spotter(env.unwrapped, None, info)
    env.close()
