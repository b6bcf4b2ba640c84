"""A pool of workers behaves as Gymnasium's vector environments do, and survives its workers."""

import os
import signal
import tempfile
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from sensorium.bridges.open_env import open_env
from sensorium.bridges.vector_env import PoolVectorEnv
from sensorium.errors import ConfigError, WorldError


def opener(kind="Walk"):
    return partial(open_env, f"tests.host_worlds:{kind}-v0")


@pytest.fixture
def pool(request):
    kind, envs, workers, *timeout = getattr(request, "param", ("Walk", 5, 2))
    pool = PoolVectorEnv(opener(kind), envs, workers, timeout=timeout[0] if timeout else 60.0)
    yield pool
    pool.close()


@pytest.mark.parametrize("pool", [("Walk", 5, workers) for workers in (0, 1, 2, 9)], indirect=True)
def test_steps_as_gymnasiums_own(pool):
    theirs = SyncVectorEnv([opener()] * 5, autoreset_mode=AutoresetMode.DISABLED)
    actions = np.linspace([-3, 0], [3, 1], 5, dtype=np.float32)
    seeds = [3, 1, 4, 1, 5]
    assert np.array_equal(pool.reset(seed=seeds)[0], theirs.reset(seed=seeds)[0])
    for _ in range(40):
        ours, other = pool.step(actions), theirs.step(actions)
        for mine, expected in zip(ours[:4], other[:4], strict=True):
            assert np.array_equal(mine, expected)
        ended = ours[2] | ours[3]
        if ended.any():
            options = lambda: {"reset_mask": ended}  # noqa: E731  # Gymnasium consumes it
            mine, _ = pool.reset(seed=[9] * 5, options=options())
            expected, _ = theirs.reset(seed=[9] * 5, options=options())
            assert np.array_equal(mine, expected)


def test_an_environment_that_ended_idles_until_it_is_reset(pool):
    pool.reset(seed=0)
    for _ in range(14):  # all have ended by then
        last, _, terminated, _, _ = pool.step(np.zeros((5, 2), np.float32))
    again, rewards, terminated, _, _ = pool.step(np.zeros((5, 2), np.float32))
    assert terminated.all()
    assert not rewards.any()
    assert np.array_equal(again, last)


def test_a_worker_that_dies_is_replaced_and_its_environments_are_named(pool):
    pool.reset(seed=0)
    os.kill(pool._workers[0]._process.pid, signal.SIGKILL)
    _, _, _, _, infos = pool.step(np.zeros((5, 2), np.float32))
    assert infos["lost"].tolist() == [True, False, True, False, True]
    assert infos["reason"] == "died with SIGKILL"
    observations, infos = pool.reset(seed=0, options={"reset_mask": infos["lost"]})
    assert not infos
    fresh = SyncVectorEnv([opener()] * 5).reset(seed=0)[0]
    assert np.array_equal(observations[::2], fresh[::2])


def test_workers_end_quietly_when_their_parent_is_gone(pool):
    for worker in pool._workers:
        worker.send(("reset", []))
        assert worker._connection.poll(60)
        worker._connection.close()  # with an answer that nobody reads, as of a parent that was killed
        worker._process.join(60)
        assert worker._process.exitcode == 0
        worker.start()


@pytest.mark.parametrize("pool", [("Hanging", 2, 2, 0.5)], indirect=True)
def test_a_worker_that_hangs_is_replaced(pool):
    pool.reset(seed=0)
    zeros = np.zeros((2, 2), np.float32)
    infos = {}
    while not infos:
        *_, infos = pool.step(zeros)
    assert infos["reason"] == "did not answer within 0.5 seconds"


@pytest.mark.parametrize("pool", [("Raising", 2, n) for n in (0, 1)], indirect=True)
def test_what_an_environment_raises_is_one_sentence(pool):
    pool.reset(seed=0)
    zeros = np.zeros((2, 2), np.float32)
    pool.step(zeros)
    pool.step(zeros)
    expected = "^Raising-v0 step 3: it raised ValueError: the left knee is missing"
    with pytest.raises(WorldError, match=expected) as caught:
        pool.step(zeros)
    assert "\n" not in str(caught.value)


def test_an_environment_that_opens_in_no_worker_says_why(monkeypatch):
    monkeypatch.setenv("SENSORIUM_TEST_PARENT", str(os.getpid()))
    with pytest.raises(WorldError, match=r"cannot be opened in a worker: .*no display"):
        PoolVectorEnv(opener("Unopenable"), 2, 1)


def test_sizes_that_make_no_sense_are_refused(pool):
    with pytest.raises(ConfigError, match="at least 1 environment, got 0"):
        PoolVectorEnv(opener(), 0, 1)
    with pytest.raises(ConfigError, match="of length 5"):
        pool.reset(seed=[1, 2])


def test_it_says_how_it_resets(pool):
    assert pool.metadata["autoreset_mode"] == AutoresetMode.DISABLED
    assert isinstance(pool, gymnasium.vector.VectorEnv)
    assert pool.action_space.shape == (5, 2)


class Closing(gymnasium.Wrapper):
    """Leaves a file where it is closed."""

    def __init__(self, env, folder):
        super().__init__(env)
        self.folder = folder

    def close(self):
        print("it closed")
        tempfile.mkstemp(dir=self.folder)


def open_closing(folder):
    return Closing(opener()(), folder)


@pytest.mark.parametrize("workers", [0, 2])
def test_every_environment_is_closed_and_what_it_prints_arrives(workers, tmp_path, capfd):
    pool = PoolVectorEnv(partial(open_closing, tmp_path), 5, workers)
    opened_to_ask = len(list(tmp_path.iterdir()))
    pool.reset(seed=0)
    pool.close()
    assert len(list(tmp_path.iterdir())) == opened_to_ask + 5
    assert capfd.readouterr().out.count("it closed") == opened_to_ask + 5
