"""What commands print: numbers, and a standard output that is whole or JSON alone."""

import json
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorium.terminal import BROKEN_PIPE, reserved_output, shown, significant, write_output

CHATTY = """
import atexit, ctypes, os
import gymnasium
import numpy as np

def say(place):
    print(f"print {place}\\n", end="")  # in one write: workers share standard error
    os.write(1, b"write\\n")
    ctypes.CDLL(None).puts(b"puts")

say("import")
atexit.register(say, "exit")

class Chatty(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, render_mode=None):
        say("open")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        say("reset")
        return np.zeros(3, np.float32), {}

    def step(self, action):
        say("step")
        return np.zeros(3, np.float32), 0.00001, False, False, {}

    def close(self):
        say("close")

gymnasium.register("Chatty-v0", Chatty, max_episode_steps=5)
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_an_environment_that_prints_is_not_in_the_json(workers, tmp_path):
    (tmp_path / "chatty.py").write_text(CHATTY)
    result = sensorium(
        "eval", "cartpole-pi", "--env", "gym:chatty:Chatty-v0", "--episodes", "2",
        "--workers", str(workers), "--json", "-" if workers else "/dev/stdout", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    assert figures["mean"] == pytest.approx(5e-5)
    assert figures["solved"] is None  # the environment names no return that would solve it
    said = result.stderr
    for place in ("import", "open", "reset", "step", "close", "exit"):
        assert f"print {place}" in said
    assert "write\n" in said
    assert "puts" in said
    assert "5e-05 ± 0" in said


def test_output_that_cannot_be_written_is_a_sentence(tmp_path):
    sentence = "sensorium: Could not write standard output: No space left on device.\n"
    for arguments in (["zoo"], ["zoo", "--json", "-"], ["--help"]):
        with open("/dev/full", "w") as full:
            result = sensorium(*arguments, stdout=full)
        assert (result.returncode, result.stderr) == (2, sentence)
    with open("/dev/full", "w") as full:
        assert sensorium("zoo", "nobody", stderr=full).returncode == 2
    with open("/dev/null", "w") as nowhere:
        result = sensorium("zoo", "--json", "/dev/null", stdout=nowhere)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_reader_that_leaves_ends_a_command_quietly():
    for arguments in (["zoo"], ["zoo", "--json", "-"]):
        process = subprocess.Popen(
            [sys.executable, "-m", "sensorium", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        process.stdout.close()
        said = process.stderr.read()
        process.stderr.close()
        assert process.wait(120) == BROKEN_PIPE
        assert "rror" not in said
        assert "xception" not in said


def sensorium(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options):
    return subprocess.run(
        [sys.executable, "-m", "sensorium", *arguments],
        stdout=stdout, stderr=stderr, text=True, timeout=280, **options,
    )  # fmt: skip


def test_reserved_output_is_for_a_while(capfd):
    with reserved_output():
        print("aside")
        write_output("kept")
    print("again")
    out, err = capfd.readouterr()
    assert (out, err) == ("keptagain\n", "aside\n")


def test_a_json_file_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    result = sensorium(
        "eval", "nobody-knows-this-agent", "--json", str(tmp_path / "out/"), cwd=tmp_path
    )
    assert "no agent" in result.stderr
    for path in (str(tmp_path), "new/"):
        result = sensorium("eval", "nobody-knows-this-agent", "--json", path, cwd=tmp_path)
        assert result.returncode == 2
        assert "Could not write" in result.stderr
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (475.3, "475"), (12.4, "12"), (9.96, "10"), (7.06, "7.1"), (0.5, "0.5"), (0.0, "0"),
        (-3.14, "-3.1"), (-475.3, "-475"), (0.00012345, "0.00012"), (1.2e-5, "1.2e-05"),
        (123456.7, "123457"), (1e12, "1e+12"), (-1.23456e12, "-1.235e+12"), (math.nan, "nan"),
        (math.inf, "inf"), (-0.0, "0"),
    ],
)  # fmt: skip
def test_numbers_in_tables(value, text):
    assert shown(value) == text


def test_numbers_in_tables_with_decimals():
    assert [shown(value, 1) for value in (475.34, 1.23, 0.97, 0.02)] == [
        "475.3",
        "1.2",
        "0.97",
        "0.02",
    ]


@given(st.floats(-1e300, 1e300), st.integers(0, 3))
def test_two_digits_of_any_number_are_right(value, decimals):
    assert float(shown(value, decimals)) == pytest.approx(value, rel=0.05, abs=1e-320)
    assert significant(value) == pytest.approx(value, rel=1e-6)
    assert len(shown(value, decimals)) <= 15
