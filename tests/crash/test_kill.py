"""A run killed at random moments, and a disk that is full."""

import random
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from sensorium.errors import AgentFileError, WriteError
from sensorium.serialisation import atomic_write, load_pytree, read_header, save_pytree

# 8 generations of a small population: some seconds each way
SETTINGS = (
    *("generations=8", "population=8", "num_episodes=2", "checkpoint_every=1"),
    *("test_every=4", "test_episodes=4"),
)
NUMBERS = [word for setting in SETTINGS for word in ("--set", setting)]


def command(*arguments):
    return [sys.executable, "-m", "sensorium", *map(str, arguments)]


def test_sigkill_at_random_moments_changes_nothing(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    recipe = "cartpole-pi-evolution"
    start = command("train", recipe, *NUMBERS, "--quiet", "--run-dir")
    subprocess.run([*start, whole], check=True, timeout=300)

    clock, kills = random.Random(0), 0
    process = subprocess.Popen([*start, cut])
    deadline = time.monotonic() + 240
    while process.poll() is None and time.monotonic() < deadline:
        # Wait until the run has got somewhere, then kill it at a random moment
        seen = _generations(cut)
        while process.poll() is None and _generations(cut) <= seen and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(clock.uniform(0.0, 0.5))
        if process.poll() is None and kills < 2:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            # As if the kill had come while the checkpoint was being written
            (cut / ".last.safetensors.half.partial").write_bytes(b"half")
            process = subprocess.Popen(command("train", "--resume", cut, "--quiet"))
        else:
            process.wait(timeout=240)
    assert process.returncode == 0
    assert kills >= 1
    ours, theirs = load_file(cut / "last.safetensors"), load_file(whole / "last.safetensors")
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        assert array.tobytes() == ours[name].tobytes(), name
    assert {path.name for path in cut.iterdir()} == {path.name for path in whole.iterdir()}


def _generations(directory):
    metrics = directory / "metrics.jsonl"
    return len(metrics.read_text().splitlines()) if metrics.exists() else 0


@pytest.fixture
def no_space():
    """Files may not grow beyond 4 KiB: writing more fails as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, no_space):
    path = tmp_path / "agent.safetensors"
    save_pytree(path, {"a": np.zeros(3, np.float32)}, {"small": True})
    before = path.read_bytes()
    with pytest.raises(WriteError, match=f"Could not write {path}"):
        save_pytree(path, {"a": np.zeros(100_000, np.float32)}, {})
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["agent.safetensors"]


def test_an_error_while_writing_leaves_nothing(tmp_path):
    def write():
        with atomic_write(tmp_path / "file") as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError), atomic_write(tmp_path / "file" / "below"):
        pass


def test_damaged_and_foreign_files_get_one_sentence(tmp_path):
    path = tmp_path / "a.safetensors"
    tree = {"a": np.zeros(3, np.float32), "b": np.zeros((2, 2), np.float32)}
    save_pytree(path, tree, {"recipe": 1})
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:5], b"", b"\x80\x04pickle"):
        path.write_bytes(damaged)
        with pytest.raises(AgentFileError, match="truncated or not a safetensors file"):
            read_header(path)
    path.write_bytes(whole)
    with pytest.raises(AgentFileError, match=r"another architecture: .*'b'.* is float32\[2, 2\]"):
        load_pytree(path, {**tree, "b": np.zeros((2, 3), np.float32)})
    with pytest.raises(AgentFileError, match=r"it lacks .*'c'"):
        load_pytree(path, {**tree, "c": np.zeros(1, np.float32)})
    with pytest.raises(AgentFileError, match=r"it holds .*'b'"):
        load_pytree(path, {"a": tree["a"]})
    with pytest.raises(AgentFileError, match="There is no file"):
        load_pytree(tmp_path / "missing.safetensors", tree)
