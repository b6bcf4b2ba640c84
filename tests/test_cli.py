"""The command line, as one types it."""

import io
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from sensorium import zoo
from sensorium.cli import main
from sensorium.errors import ConfigError
from sensorium.flags import check_arguments
from sensorium.recipes import find
from sensorium.serialisation import save_pytree
from sensorium.terminal import spell_out
from tests.probes import save_untrained


@pytest.fixture(scope="module")
def agent_file(tmp_path_factory):
    """An untrained agent in a file."""
    recipe = find("cartpole-pi")
    path = tmp_path_factory.mktemp("agents") / "agent.safetensors"
    save_untrained(path, recipe)
    return path


def sensorium(*arguments, code=0, **options):
    result = subprocess.run(
        [sys.executable, "-m", "sensorium", *map(str, arguments)],
        capture_output=True, text=True, timeout=280, **options,
    )  # fmt: skip
    assert result.returncode == code, result.stderr
    return result


@pytest.fixture
def refused(tmp_path, monkeypatch, capfd):
    """What a command says in this process, which takes seconds less; it must fail and write nothing."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["sensorium", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        assert exit_.value.code == 2
        assert not list(tmp_path.iterdir())
        return " ".join(capfd.readouterr().err.split())

    return run


def test_eval_prints_the_promised_json_and_nothing_else(agent_file):
    result = sensorium(
        "eval", agent_file, "--episodes", 5, "--seed", 3, "--shuffle", "--noise-channels", 2,
        "--json", "-",
    )  # fmt: skip
    figures = json.loads(result.stdout)
    assert figures.keys() >= {
        "agent", "env", "perturbation", "episodes", "seed", "mean", "std", "iqm", "ci95",
        "solved", "returns", "seconds", "env_steps_per_second",
    }  # fmt: skip
    assert figures["episodes"] == len(figures["returns"]) == 5
    assert figures["mean"] == pytest.approx(np.mean(figures["returns"]), abs=1e-2)
    assert figures["perturbation"] == "+2 noise channels + shuffled"
    assert "cartpole-pi" in result.stderr


def test_bench_prints_json(tmp_path):
    figures = json.loads(
        sensorium("bench", "cartpole", "--population", 4, "--rollouts", 2, "--rounds", 1,
                  "--json", "-").stdout
    )  # fmt: skip
    assert figures["env_steps_per_second"] > 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("train", "cartpole-pie"), "There is no recipe 'cartpole-pie'; did you mean 'cartpole-pi"),
        (("train",), "Name a recipe to train"),
        (("train", "--resume", "nowhere"), "nowhere is not a run directory"),
        (("eval", "nobody-knows"), "There is no agent 'nobody-knows'"),
        (("eval", "missing.safetensors"), "There is no file missing.safetensors"),
        (("eval", "missing.zip"), "There is no file missing.zip"),
        (("eval", ""), "There is an empty argument after 'eval'"),
        (("eval", "cartpole-pi", "--env", ""), "There is an empty argument after '--env'"),
        (("eval", "cartpole-pi", "--env", "CartPole-v1"), "did you mean 'gym:CartPole-v1'"),
        (("train", "ant-pi", "--expert", "absent.zip"), "There is no file"),
        (("reproduce", "table-22"), "did you mean 'table-2'"),
        (("eval", "cartpole-pi", "--env", "gym:Pendulm-v1"), "did you mean 'Pendulum-v1'"),
        (
            ("eval", "cartpole-pi", "--env", "gym:CartPole-v1"),
            "has 1 action(s), but gym:CartPole-v1",
        ),
        (("eval", "cartpole-pi", "--address", "here:1"), "goes with --engine ray"),
        (("eval", "cartpole-pi", "--workers", "2"), "this one runs on the device"),
        (("train", "cartpole-pi", "--episodes", "3"), "Unrecognized"),
        (("train", "cartpole-fnn", "--set", "population=0"), "at least"),
        (("train", "ant-pi", "--set", "clone.num_batchs=4"), "did you mean 'num_batches'"),
        (("train", "cartpole-pi", "--set", "genrations=4"), "did you mean 'generations'"),
        (("train", "ant-pi", "--set", "clone.pertubation=4"), "did you mean 'perturbation'"),
        (("train", "json:MINE"), "no recipe in json 'MINE'; there is none at all"),
        (("train", "ant-pi", "--set", "batches=4"), "no setting or stage of ant-pi 'batches'"),
        (("train", "cartpole-pi", "--set", "generations"), "form name=value, got 'generations'"),
        (("train", "cartpole-pi", "--set", "generations=many"), "must be a whole number"),
        (("train", "cartpole-pi", "--expert", "cartpole-fnn"), "learns from no expert"),
        (("train", "mine.json"), "Could not read mine.json: No such file"),
        (("train", "no_module:MINE"), "'no_module' cannot be imported"),
        (("recipe", "cartpole-pie"), "did you mean 'cartpole-pi"),
        (("bench", "cartpol"), "did you mean 'cartpole'"),
    ],
)
def test_mistakes_get_one_sentence_and_a_nonzero_exit(arguments, sentence, refused):
    assert sentence in refused(*arguments)


def test_mistakes_end_the_process(tmp_path):
    result = sensorium("eval", "nobody-knows", code=2, cwd=tmp_path)
    assert result.stderr.startswith("sensorium: There is no agent 'nobody-knows'")
    assert "Traceback" not in result.stderr


def test_numbers_out_of_range(agent_file, refused):
    for arguments, sentence in (
        (("eval", agent_file, "--episodes", 0), "episodes must be at least 1, got 0"),
        (("eval", agent_file, "--drop", 5), "would leave none"),
        (("eval", agent_file, "--env", "CartPole"), "There is no world 'CartPole'"),
        (
            ("train", "cartpole-pi", "--set", "generations=0"),
            "generations must be at least 1, got 0",
        ),
        (("train", "cartpole-pi", "--set", "population=0"), "population must be at least 1, got 0"),
    ):
        assert sentence in refused(*arguments)


@pytest.mark.parametrize(
    ("arguments", "after"),
    [
        (["eval", ""], "eval"),
        (["train", "cartpole-pi", "--env="], "--env"),
        (["show", "x", "--background", "", "--steps", "3"], "--background"),
    ],
)
def test_an_empty_argument_is_refused_whatever_takes_it(arguments, after):
    with pytest.raises(ConfigError, match=f"empty argument after '{after}'"):
        check_arguments(arguments)


def test_full_arguments_are_taken():
    check_arguments(["eval", "agent", "--env=gym:A-v0", "--json", "-", "--seed", "0"])


def test_a_terminal_of_ascii_gets_ascii(tmp_path):
    """Tables keep their lines, and the work that was done is not lost to an encoding."""
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    shown = sensorium("zoo", "cartpole-pi", cwd=tmp_path, env=env).stdout
    assert re.search(r" \+- \d", shown)
    assert "| plain" in shown


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_what_an_encoding_lacks_is_spelled_out(encoding, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    spell_out()
    print("│ 3 → 4 ─ é 車 \udcff")
    stream.flush()
    assert stream.buffer.getvalue().decode(encoding).replace("é", "e").strip() == "| 3 -> 4 - e ? ?"


def test_devices_that_are_not_there_are_named(agent_file, tmp_path):
    env = {**os.environ, "JAX_PLATFORMS": "tpu9"}
    said = sensorium("eval", agent_file, "--episodes", 2, code=2, cwd=tmp_path, env=env).stderr
    assert "JAX was asked for 'tpu9' (JAX_PLATFORMS) and finds no such device here" in said
    assert "Traceback" not in said


def test_too_little_memory_is_one_sentence(tmp_path):
    result = sensorium("bench", "--population", 2 * 10**9, code=2, cwd=tmp_path)
    assert result.stderr.startswith("sensorium: There is not enough memory")


def test_unknown_flags_are_refused(agent_file, refused):
    assert "--shufle" in refused("eval", agent_file, "--shufle")


def test_json_to_a_file_that_cannot_be_written(agent_file, refused):
    path = agent_file / "x.json"  # no folder
    assert "Could not write" in refused("eval", agent_file, "--episodes", 2, "--json", path)


def test_show_writes_a_video_and_a_figure(agent_file, tmp_path):
    import imageio.v3 as imageio
    from imageio_ffmpeg import get_ffmpeg_exe

    sensorium(
        "show", agent_file, "--video", tmp_path / "out.mp4", "--figure", tmp_path / "out.png",
        "--steps", 40, "--reshuffle-every", 15, "--noise-channels", 2,
    )  # fmt: skip
    decode = [
        "-i",
        tmp_path / "out.mp4",
        "-vf",
        "scale=64:64",
        "-f",
        "rawvideo",
        "-pix_fmt",
        "gray",
        "-",
    ]
    decoded = subprocess.run([get_ffmpeg_exe(), *decode], capture_output=True, check=True)
    frames = np.frombuffer(decoded.stdout, np.uint8).reshape(-1, 64, 64)
    assert 1 <= len(frames) <= 20
    assert frames[0].std() > 10  # an image, not a blank
    assert imageio.imread(tmp_path / "out.png").std() > 10
    assert {path.name for path in tmp_path.iterdir()} == {"out.mp4", "out.png"}


def test_agent_files_of_other_kinds(agent_file, tmp_path_factory, refused):
    folder = tmp_path_factory.mktemp("others")
    whole = agent_file.read_bytes()
    truncated = folder / "t.safetensors"
    truncated.write_bytes(whole[: len(whole) - 100])
    assert "truncated" in refused("eval", truncated)
    other = folder / "o.safetensors"
    save_pytree(other, {"x": np.zeros(3)}, {"recipe": find("cartpole-pi").to_json()})
    assert "another architecture" in refused("eval", other)
    save_pytree(other, {"x": np.zeros(3)}, {})
    assert "holds no agent" in refused("eval", other)


def test_zoo_lists_recipes():
    env = {**os.environ, "COLUMNS": "200"}
    assert "cartpole-pi-reshuffle" in sensorium("zoo", env=env).stdout


@pytest.mark.parametrize("name", zoo.names())
def test_shipped_agents_load_and_have_a_card(name):
    agent = zoo.load(name)
    assert agent.name == name
    scores = agent.card["scores"]
    assert scores["plain"]["mean"] == pytest.approx(np.mean(scores["plain"]["returns"]), abs=0.01)
    assert agent.card["parameters"] > 0
