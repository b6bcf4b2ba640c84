"""Walker: bodies with any number of legs, of which that with four is Gymnasium's Ant."""

import subprocess
import sys
from importlib.util import find_spec

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from sensorium.bridges.open_env import open_env
from sensorium.errors import ConfigError, MissingExtraError
from sensorium.gymnasium_ids import WALKER, WALKER_STEPS
from sensorium.perturbations import RewireMotors
from sensorium.policies import MotorNeuronsConfig
from sensorium.rollout import HostEngine, make_world

KINDS = (2, 3, 4, 5, 6, 7, 8)


def test_without_mujoco_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'sensorium\[mujoco\]'"):
        open_env(f"{WALKER}?legs=7")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("legs=0", "legs is a number from 2 to 12, or several such as 3,4,6, not 0"),
        ("legs=13", "not 13"),
        ("legs=4.5", r"not 4\.5"),
        ("legs=true", "not True"),
        ("legs=many", "not 'many'"),
        ("legs=3,,4", "not '3,,4'"),
        ("legs=[]", r"not \[\]"),
        ("legs=3,5&max_legs=4", "max_legs is a number from 5, the most of its legs, to 12, not 4"),
        ("max_legs=13", "not 13"),
    ],
)
def test_what_no_body_has_is_refused_in_a_sentence(options, sentence):
    with pytest.raises(ConfigError, match=sentence) as caught:
        make_world(f"gym:{WALKER}?{options}")
    assert "\n" not in str(caught.value)


def test_the_command_line_says_so_too():
    command = ["eval", "cartpole-pi", "--env", f"gym:{WALKER}?legs=0", "--episodes", "1"]
    result = subprocess.run(
        [sys.executable, "-m", "sensorium", *command], capture_output=True, text=True, timeout=280
    )
    assert result.returncode != 0
    assert "legs is a number from 2 to 12" in result.stderr
    assert "Traceback" not in result.stderr


# Not imported here: how it draws is chosen before
@pytest.mark.skipif(not find_spec("mujoco"), reason="the extra `mujoco` is not installed")
class TestBody:
    """What moves, where MuJoCo is installed."""

    @pytest.mark.parametrize("legs", KINDS)
    def test_sensors_and_motors_follow_from_the_legs(self, legs):
        world = make_world(f"gym:{WALKER}?legs={legs}")
        assert (world.num_sensors, world.num_actions) == (13 + 4 * legs, 2 * legs)
        assert (world.max_steps, world.steps_per_second) == (WALKER_STEPS, 20)
        names = world.sensor_names
        assert len(set(names)) == len(names) == world.num_sensors
        assert names[-4:] == tuple(
            f"{what}"
            for what in (f"hip {legs}", f"hip {legs} speed", f"ankle {legs}", f"ankle {legs} speed")
        )

    @pytest.mark.filterwarnings("ignore:.*infinity:UserWarning")  # as of the Ant
    @pytest.mark.parametrize("legs", [3, 8])
    def test_it_keeps_to_the_interface(self, legs):
        check_env(gymnasium.make(WALKER, legs=legs).unwrapped, skip_render_check=True)

    def test_a_seed_decides_an_episode_first_or_later(self):
        env = open_env(f"{WALKER}?legs=3,5")

        def episode(seed):
            shown, info = env.reset(seed=seed)
            rows = [(*shown, info["legs"])]
            for step in range(30):
                shown, reward, *_, info = env.step(np.sin(np.arange(10) + step).astype(np.float32))
                rows.append((*shown, reward))
            return np.array(rows)

        one, other, again = (episode(seed) for seed in (0, 1, 0))
        np.testing.assert_array_equal(one, again)
        assert (one != other).any()

    def test_with_four_legs_it_moves_as_the_ant_does(self):
        ours, ants = gymnasium.make(WALKER, legs=4).unwrapped, gymnasium.make("Ant-v5").unwrapped
        ours.reset(seed=0)
        ants.reset(seed=0)
        ours.step(np.zeros(8, np.float32))
        turned = np.array(
            [1, 1, 1, -1, 1, -1, 1, 1]
        )  # ankles 2 and 3 of the Ant turn the other way
        first_leg_last = np.roll(np.arange(8), 2)
        places, speeds = ours.state.qpos.copy(), ours.state.qvel.copy()
        places[7:] *= turned
        speeds[6:] *= turned
        ants.set_state(places, speeds)
        random = np.random.default_rng(0)
        for _ in range(30):
            action = random.uniform(-1, 1, 8).astype(np.float32)
            before = ours.state.qpos[0]
            *_, info = ours.step(action)
            ants_info = ants.step((action * turned)[first_leg_last])[-1]
            places, speeds = ours.state.qpos.copy(), ours.state.qvel.copy()
            places[7:] *= turned
            speeds[6:] *= turned
            np.testing.assert_allclose(ants.data.qpos, places, atol=1e-6)
            np.testing.assert_allclose(ants.data.qvel, speeds, atol=1e-5)
            assert info["reward_ctrl"] == pytest.approx(ants_info["reward_ctrl"], rel=1e-5)
            assert info["reward_forward"] == pytest.approx((places[0] - before) / 0.05)

    @pytest.mark.parametrize("legs", [3, 4, 7])
    def test_legs_are_alike(self, legs):
        """A body turned by one leg, with the states and actions of the next leg, is the same body."""
        one, other = (gymnasium.make(WALKER, legs=legs).unwrapped for _ in range(2))
        one.reset(seed=3)
        other.reset(seed=4)
        half = np.pi / legs
        turn = np.array([np.cos(half), 0, 0, np.sin(half)])  # by 2 pi / legs
        a, b = one.state, other.state
        b.qpos[:3] = a.qpos[:3]
        b.qpos[3:7] = _times(a.qpos[3:7], turn)
        cosine, sine = np.cos(2 * half), np.sin(2 * half)
        back = np.array([[cosine, sine, 0], [-sine, cosine, 0], [0, 0, 1]])
        b.qvel[:3] = a.qvel[:3]
        b.qvel[3:6] = back @ a.qvel[3:6]
        b.qpos[7:], b.qvel[6:] = np.roll(a.qpos[7:], -2), np.roll(a.qvel[6:], -2)
        random = np.random.default_rng(0)
        for _ in range(20):
            action = random.uniform(-1, 1, 2 * legs).astype(np.float32)
            shown, reward, *ends, info = one.step(action)
            theirs, their_reward, *their_ends, their_info = other.step(np.roll(action, -2))
            assert their_reward == pytest.approx(reward, abs=1e-4)
            assert (their_info["y_position"], *their_ends[:1]) == (
                pytest.approx(info["y_position"], abs=1e-5),
                *ends[:1],
            )
            np.testing.assert_allclose(theirs[13:], np.roll(shown[13:], -4), atol=1e-4)
            for first in (1, 4, 7, 10):
                vector = back @ shown[first : first + 3]
                np.testing.assert_allclose(theirs[first : first + 3], vector, atol=1e-4)

    @pytest.mark.parametrize("legs", [3, 4, 5, 8, 12])
    def test_a_still_body_stays_on_its_legs(self, legs):
        env = gymnasium.make(WALKER, legs=legs)
        for seed in range(3):
            env.reset(seed=seed)
            for _ in range(100):
                shown, reward, terminated, *_ = env.step(np.zeros(2 * legs, np.float32))
                assert not terminated
            assert shown[3] > 0.8  # up z
            assert reward == pytest.approx(1, abs=0.1)

    def test_a_body_that_is_turned_over_has_failed(self):
        env = gymnasium.make(WALKER).unwrapped
        env.reset(seed=0)
        env.state.qpos[3:7] = 0, 1, 0, 0
        *_, terminated, truncated, info = env.step(np.zeros(8, np.float32))
        assert (terminated, truncated, info["reward_survive"]) == (True, False, 0)

    def test_a_push_forward_is_seen_and_pays(self):
        env = gymnasium.make(WALKER, legs=5).unwrapped
        env.reset(seed=0)
        env.state.qvel[0] = 2
        action = np.full(10, 0.5, np.float32)
        shown, reward, *_, info = env.step(action)
        assert shown[4:7] @ shown[7:10] == pytest.approx(2, abs=0.2)  # velocity along forward
        assert info["reward_forward"] == pytest.approx(2, abs=0.2)
        assert info["reward_ctrl"] == pytest.approx(-1)
        assert reward == pytest.approx(info["reward_forward"] + 1 - 1)

    def test_several_bodies_have_room_for_the_widest(self):
        wide, narrow = open_env(f"{WALKER}?legs=3,4,6&max_legs=8"), open_env(f"{WALKER}?legs=4")
        assert wide.observation_space.shape == (13 + 4 * 8,)
        seen = set()
        for seed in range(12):
            shown, info = wide.reset(seed=seed)
            seen.add(info["legs"])
            used = 13 + 4 * info["legs"]
            assert (shown[:used] != 0).all()
            assert (shown[used:] == 0).all()
        assert seen == {3, 4, 6}
        fixed = open_env(f"{WALKER}?legs=[4]&max_legs=6")
        shown, _ = narrow.reset(seed=1)
        padded, _ = fixed.reset(seed=1)
        np.testing.assert_array_equal(padded, np.append(shown, np.zeros(8)))
        action = np.linspace(-1, 1, 8, dtype=np.float32)
        shown, reward, *_ = narrow.step(action)
        padded, same, *_ = fixed.step(np.append(action, np.ones(4, np.float32)))
        assert same == reward  # motors of legs that are not there are free
        np.testing.assert_array_equal(padded[:29], shown)

    def test_agents_act_in_workers_and_meet_other_bodies(self):
        keys = jax.random.split(jax.random.key(0), 4)
        world = make_world(f"gym:{WALKER}?legs=3,5&max_legs=6&max_episode_steps=12", RewireMotors())
        policy = MotorNeuronsConfig().build(world.num_sensors, world.num_actions, jax.random.key(1))
        with HostEngine(world, workers=0) as here, HostEngine(world, workers=1) as elsewhere:
            ours, theirs = here.run_episodes(policy, keys), elsewhere.run_episodes(policy, keys)
        np.testing.assert_array_equal(ours.total, theirs.total)
        other = make_world(f"gym:{WALKER}?legs=6&max_episode_steps=12")
        with HostEngine(other, workers=0) as engine:
            assert np.isfinite(engine.run_episodes(policy, keys).total).all()

    def test_it_is_drawn_without_a_screen_and_moves_on_as_before(self):
        def after(steps, draw):
            env = gymnasium.make(WALKER, legs="3,5", render_mode="rgb_array")
            env.reset(seed=0)
            pictures = []
            for step in range(steps):
                pictures += [env.render()] if draw else []
                shown, *_ = env.step(np.full(10, np.sin(step), np.float32))
            env.close()
            return shown, pictures

        try:
            drawn, pictures = after(10, draw=True)
        except Exception as error:
            pytest.skip(f"MuJoCo cannot draw here: {error}")
        assert pictures[0].shape == (480, 480, 3)
        assert pictures[0].std() > 5
        assert (pictures[0] != pictures[-1]).any()
        np.testing.assert_array_equal(drawn, after(10, draw=False)[0])


def _times(one, other):
    """The product of two quaternions."""
    w, x, y, z = one
    a, b, c, d = other
    return np.array(
        [
            w * a - x * b - y * c - z * d,
            w * b + x * a + y * d - z * c,
            w * c - x * d + y * a + z * b,
            w * d + x * c - y * b + z * a,
        ]
    )
