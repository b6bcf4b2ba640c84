"""Shares of a population on several XLA devices and in several processes: the same parameters as on one."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from sensorium import recipes
from sensorium.errors import ClusterError, ConfigError
from sensorium.rollout import DeviceEngine, EngineConfig, make_world, open_engine
from sensorium.rollout.distributed import DistributedEngine, join
from sensorium.serialisation import load_arrays
from sensorium.training.checkpoints import BEST, LAST

RUN = (
    "train",
    "cartpole-pi-evolution",
    *("--set", "population=12", "--set", "num_episodes=4", "--set", "checkpoint_every=1"),
    *("--set", "test_episodes=8"),
)


@pytest.fixture(scope="module")
def start():
    """A function that starts `sensorium ...` in a process; none of them outlives the tests."""
    started = []

    def start(*arguments, devices=1):
        flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
        environment = os.environ | {"XLA_FLAGS": flags}  # the last one counts
        process = subprocess.Popen(
            [sys.executable, "-m", "sensorium", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process:  # closes its pipe, waits for it
            process.kill()


def finish(*processes):
    said = [process.communicate(timeout=600)[0] for process in processes]
    return [process.returncode for process in processes], "\n".join(said)


def together(start, *arguments, count=2):
    """The same command in several processes that know of one another."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    machinery = ("--engine", "jax", "--address", address, "--processes", str(count))
    return [start(*arguments, *machinery, "--process", str(index)) for index in range(count)]


def weights(directory, name=BEST):
    return load_arrays(directory / name)


def same(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_allclose(array, other[name], atol=1e-6, err_msg=name)


@pytest.fixture(scope="module")
def alone(tmp_path_factory, start):
    """Two generations on one device."""
    directory = tmp_path_factory.mktemp("alone") / "run"
    codes, said = finish(start(*RUN, "--set", "generations=2", "--run-dir", str(directory)))
    assert codes == [0], said
    return directory


def test_several_devices_find_the_same_parameters(alone, tmp_path, start):
    """Four of five share the twelve individuals."""
    command = (*RUN, "--set", "generations=2", "--run-dir", str(tmp_path / "run"))
    codes, said = finish(start(*command, devices=5))
    assert codes == [0], said
    same(weights(tmp_path / "run"), weights(alone))


def test_several_processes_find_the_same_parameters(alone, tmp_path, start):
    processes = together(start, *RUN, "--set", "generations=2", "--run-dir", str(tmp_path / "run"))
    codes, said = finish(*processes)
    assert codes == [0, 0], said
    same(weights(tmp_path / "run"), weights(alone))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def under_way(start, directory):
    """Two processes that have trained for a while."""
    processes = together(start, *RUN, "--set", "generations=2000", "--run-dir", str(directory))
    deadline = time.monotonic() + 600
    while not (directory / LAST).exists():
        assert time.monotonic() < deadline
        assert processes[0].poll() is None, finish(*processes)
        time.sleep(0.2)
    return processes


def test_a_process_that_is_gone_ends_the_other_and_stopping_one_stops_all(tmp_path, start):
    directory = tmp_path / "run"
    processes = under_way(start, directory)
    processes[1].kill()
    (code, _), said = finish(*processes)
    assert code == 2, said
    assert "Another process of this run does not answer; start all again with --resume." in said
    assert "stack trace" not in said
    metrics = directory / "metrics.jsonl"
    generations = len(metrics.read_text().splitlines())
    processes = together(start, "train", "--resume", str(directory))
    deadline = time.monotonic() + 600
    while len(metrics.read_text().splitlines()) <= generations:
        assert time.monotonic() < deadline
        assert processes[0].poll() is None, finish(*processes)
        time.sleep(0.2)
    processes[1].send_signal(signal.SIGTERM)  # the one that does not write the run
    codes, said = finish(*processes)
    assert codes == [130, 130], said
    rows = [json.loads(line)["generation"] for line in metrics.read_text().splitlines()]
    assert rows == list(range(1, len(rows) + 1))


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (EngineConfig("jax", "127.0.0.1:1"), "--address, --processes and --process"),
        (EngineConfig("jax", "127.0.0.1:1", processes=2, process=2), "from 0 to 1, got 2"),
        (EngineConfig("jax", "127.0.0.1:1", processes=2, process=0), "before anything uses JAX"),
        (EngineConfig(processes=2), "--engine jax"),
    ],
)
def test_settings_that_do_not_fit(config, sentence):
    jax.devices()
    with pytest.raises(ConfigError, match=sentence):
        open_engine(make_world("CartPoleSwingUpHarder"), config)


def test_only_evolution_is_shared_out(tmp_path):
    with DeviceEngine(make_world("CartPoleSwingUpHarder")) as local:
        engine = DistributedEngine(local)  # of one process
        with pytest.raises(ConfigError, match="ShacConfig trains on one machine"):
            recipes.find("cartpole-pi").last.trainer.check_engine(engine)
        recipes.find("cartpole-pi-evolution").last.trainer.check_engine(engine)


def test_the_first_process_does_not_come(monkeypatch):
    monkeypatch.setattr("sensorium.rollout.distributed._PATIENCE", 0.1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ClusterError, match=f"no first process at {address}"):
        join(address, 2, 1)
    with pytest.raises(ConfigError, match="a host and a port, got 'somewhere'"):
        join("somewhere", 2, 1)
