"""What environments return is what they declared, or one sentence that names environment, step and value."""

import pickle
import re
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from sensorium.bridges.checked import CheckedEnv, checked
from sensorium.bridges.open_env import open_env
from sensorium.bridges.wrappers import PerturbObservation
from sensorium.errors import ConfigError, UnknownNameError, WorldError
from sensorium.perturbations import Identity

SEEN = np.zeros(3, np.float32)
GOOD = (SEEN, 1.0, False, False, {})


class Returning(gymnasium.Env):
    """Returns whatever it is given: from `reset`, and from its second step."""

    def __init__(self, reset=(SEEN, {}), step=GOOD, dtype=np.float32, close=None):
        self.observation_space = spaces.Box(0, 1, (3,), dtype)
        self.action_space = spaces.Discrete(2)
        self._reset, self._step, self._close = reset, step, close
        self._time = 0

    def reset(self, *, seed=None, options=None):
        return self._reset

    def step(self, action):
        self._time += 1
        if isinstance(self._step, BaseException) and self._time == 2:
            raise self._step
        return self._step if self._time == 2 else (self._reset[0], 0.0, False, False, {})

    def close(self):
        if self._close:
            raise self._close


def second_step(step, **more):
    env = CheckedEnv(Returning(step=step, **more))
    env.reset(seed=0)
    env.step(0)
    return env.step(0)


def but(**changes):
    names = ("observation", "reward", "terminated", "truncated", "info")
    return tuple({**dict(zip(names, GOOD, strict=True)), **changes}[name] for name in names)


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (
            but(observation=np.zeros(1)),
            r"observation is of shape \(1,\); its space declares float32",
        ),
        (but(observation=np.zeros((3, 1))), r"observation is of shape \(3, 1\)"),
        (but(observation=None), "observation is None; its space"),
        (but(observation=[[1, 2], [3]]), r"observation is \[\[1, 2\], \[3\]\]; its space"),
        (but(observation={"a": SEEN}), "observation is {'a': array"),
        (but(observation=["0", "1", "2"]), r"observation is \['0', '1', '2'\]"),
        (but(observation=SEEN + 1j), "observation is array"),
        (but(observation=[0, np.nan, 0]), "observation holds nan; numbers must be finite"),
        (but(observation=np.float32([0, -np.inf, 0])), "observation holds -inf"),
        (but(observation=[0, 1e300, 0]), r"observation holds 1e\+300"),
        (but(reward=np.nan), "reward is nan; it must be finite as float32"),
        (but(reward=np.float32(-np.inf)), r"reward is -inf"),
        (but(reward=1e300), r"reward is 1e\+300; it must be finite as float32"),
        (but(reward=10**400), "reward is a int; it must be finite"),
        (but(reward=None), "reward is None; it must be a finite number"),
        (but(reward="1"), "reward is '1'"),
        (but(reward=1j), "reward is 1j"),
        (but(reward=np.zeros(2)), r"reward is array\(\[0., 0.\]\)"),
        (but(terminated=None), "terminated is None; it must be True or False"),
        (but(truncated="no"), "truncated is 'no'"),
        (but(truncated={}), "truncated is {}"),
        (but(terminated=0.5), "terminated is 0.5"),
        (but(info=[]), r"info is \[\]; it must be a dictionary"),
        ((SEEN, 1.0, False, {}), "step returned 4 values; it must return an observation, a reward"),
        (None, "step returned one value"),
        (ValueError("the left knee\nis missing"), "it raised ValueError: the left knee is missing"),
        (SystemExit(0), "it raised SystemExit: 0"),
    ],
)
def test_a_step_that_breaks_a_promise(step, sentence):
    with pytest.raises(WorldError, match=f"^Returning step 2: .*{sentence}") as caught:
        second_step(step)
    assert "\n" not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # from a worker


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        (SEEN, "reset returned one value; it must return an observation and a dictionary"),
        ((SEEN, SEEN), "info is array"),
        ((None, {}), "observation is None"),
        ((np.float32([np.inf, 0, 0]), {}), "observation holds inf"),
    ],
)
def test_a_reset_that_breaks_a_promise(returned, sentence):
    with pytest.raises(WorldError, match=f"^Returning reset: .*{sentence}"):
        CheckedEnv(Returning(reset=returned)).reset(seed=0)


@pytest.mark.parametrize(
    ("dtype", "value", "sentence"),
    [(np.uint8, 300, "holds 300"), (np.uint8, -1, "holds -1"), (np.int64, 0.5, "holds 0.5")],
)
def test_values_that_the_dtype_does_not_hold(dtype, value, sentence):
    start = (np.zeros(3, dtype), {})
    with pytest.raises(WorldError, match=f"{sentence}; its space declares {dtype.__name__}"):
        second_step(but(observation=[value, 0, 0]), dtype=dtype, reset=start)


@pytest.mark.parametrize("reward", [2, True, np.float32(2), np.ones(1), [1.0], np.ones((1, 1))])
@pytest.mark.parametrize("end", [True, np.True_, 1, np.array([True])])
def test_what_is_meant_is_understood(reward, end):
    seen, earned, terminated, truncated, _ = second_step(
        [[0, 1, 0.5], reward, end, np.False_, {"any": "thing"}]
    )
    assert seen.dtype == np.float32
    assert seen.tolist() == [0, 1, 0.5]
    assert type(earned) is float
    assert (terminated, truncated) == (True, False)


def test_whole_numbers_become_integers_and_large_ones_pass():
    start = (np.zeros(3, np.uint8), {})
    seen, *_ = second_step(but(observation=[0, 255.0, 7]), dtype=np.uint8, reset=start)
    assert seen.dtype == np.uint8
    largest = float(np.finfo(np.float32).max)
    seen, *_ = second_step(but(observation=[largest, -largest, 0]))
    assert seen.tolist() == [largest, -largest, 0]


def test_what_close_raises_comes_too_late_to_matter(caplog):
    for _ in range(2):
        CheckedEnv(Returning(close=RuntimeError("no window"))).close()
    assert caplog.messages == ["Returning close: it raised RuntimeError: no window"]


def test_the_interface_is_named_also_where_a_wrapper_fails_first():
    env = CheckedEnv(gymnasium.wrappers.TimeLimit(Returning(step=(SEEN, 1.0, False, {})), 5))
    env.reset()
    env.step(0)
    with pytest.raises(WorldError, match=r"step 2: .*unpack .*; step must return an observation"):
        env.step(0)


def test_checked_once():
    env = open_env("tests.host_worlds:Walk-v0")
    assert isinstance(env, CheckedEnv)
    assert checked(env) is env
    assert env.spec == env.env.spec
    env.close()


def test_around_any_environment_observations_are_checked_too():
    env = PerturbObservation(Returning(step=but(observation=np.zeros(1))), Identity())
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(WorldError, match=r"Returning: the observation is of shape \(1,\)"):
        env.step(0)


@pytest.mark.parametrize(
    ("kind", "arguments", "error", "sentence"),
    [
        ("NoSeed", {}, WorldError, "NoSeed-v0 reset: it raised TypeError: .*'seed'"),
        ("Broken", {}, ConfigError, "Gymnasium cannot open Broken-v0: RuntimeError: no display"),
        ("Leaving", {}, ConfigError, "Gymnasium cannot open Leaving-v0: SystemExit: 3"),
        ("Needy", {}, ConfigError, "Gymnasium cannot open Needy-v0: TypeError: .*'size'"),
        ("Plain", {"max_episode_steps": 0}, ConfigError, "cannot open Plain-v0: .*positive"),
        ("Scalar", {}, ConfigError, r"Scalar-v0 observes a Box of shape \(\); agents need at"),
        ("Empty", {}, ConfigError, r"Empty-v0 observes a Box of shape \(0,\); agents need at"),
        ("Idle", {}, ConfigError, r"Idle-v0 takes actions of shape \(0,\); agents need at"),
        ("Counting", {}, WorldError, "Counting-v0 reset: it raised IndexError"),
        ("Typing", {}, ConfigError, "Typing-v0 takes actions of a Text; agents act in a Box"),
    ],
)
def test_misdeclared_environments(kind, arguments, error, sentence):
    spaces_of = {
        "Scalar": {"observation_space": spaces.Box(0, 1, ())},
        "Empty": {"observation_space": spaces.Box(0, 1, (0,))},
        "Idle": {"action_space": spaces.Box(0, 1, (0,))},
        "Counting": {"observation_space": spaces.Discrete(3)},
        "Typing": {"action_space": spaces.Text(3)},
    }

    def broken():
        raise RuntimeError("no\ndisplay")

    def leaving():
        raise SystemExit(3)

    def needy(size):
        return Returning()

    def other():
        env = Returning()
        if kind == "NoSeed":
            env.reset = lambda: (SEEN, {})
        for name, space in spaces_of.get(kind, {}).items():
            setattr(env, name, space)
        return env

    maker = {"Broken": broken, "Leaving": leaving, "Needy": needy}.get(kind, other)
    gymnasium.register(f"{kind}-v0", maker, **arguments)
    try:
        with pytest.raises(error, match=sentence) as caught:
            open_env(f"{kind}-v0").reset(seed=0)
        assert "\n" not in str(caught.value)
    finally:
        del gymnasium.registry[f"{kind}-v0"]


def test_an_environment_that_draws_nothing_need_not_take_a_render_mode():
    gymnasium.register("Undrawn-v0", Returning)
    try:
        env = open_env("Undrawn-v0")
        assert env.reset(seed=0)[0].tolist() == [0, 0, 0]
    finally:
        del gymnasium.registry["Undrawn-v0"]


def test_unknown_ids_say_how_to_name_ones_own():
    with pytest.raises(UnknownNameError, match=r"register one .* name it module:Mine-v0\);"):
        open_env("Mine-v0")
    with pytest.raises(UnknownNameError, match=r"the module json does not register it"):
        open_env("json:Mine-v0")


SCRIPT = """
import gymnasium, numpy as np
from sensorium.bridges.vector_env import PoolVectorEnv
from sensorium.bridges.open_env import open_env
from sensorium.errors import SensoriumError
import functools

class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {{}}

def main():
    {inside}
    try:
        PoolVectorEnv(functools.partial(open_env, "Mine-v0"), 2, 2).close()
    except SensoriumError as error:
        print(error)
    else:
        print("opened")

{outside}
"""
REGISTER = 'gymnasium.register("Mine-v0", Mine)'
GUARD = 'if __name__ == "__main__":'


@pytest.mark.parametrize(
    ("inside", "outside", "printed"),
    [
        ("pass", f"{REGISTER}\n{GUARD} main()", "opened"),
        (REGISTER, f"{GUARD} main()", "cannot be opened in a worker: .*name it module:Mine-v0"),
        ("pass", f"{REGISTER}\nmain()", f"Mine-v0 cannot .* runs the script anew.*`{GUARD}`"),
    ],
)
def test_scripts_are_told_what_workers_need(tmp_path, inside, outside, printed):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(inside=inside, outside=outside))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert len(done.stdout.splitlines()) == 1
    assert re.search(printed, done.stdout)
    assert done.stderr == ""
