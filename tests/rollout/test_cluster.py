"""A real Ray cluster of two nodes on one machine: nothing that happens to it changes a return."""

import gc
import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

from sensorium.errors import ClusterError, ConfigError, MissingExtraError, WorldError
from sensorium.perturbations import Shuffle
from sensorium.policies import AttentionNeuronConfig
from sensorium.recipes import resume, train
from sensorium.rollout import DeviceEngine, EngineConfig, make_world, open_engine
from sensorium.rollout.host import HostEngine
from tests.rollout.walking import RECIPE, WALK

# Ray starts its own processes by a fork, which JAX warns of; they never use JAX
pytestmark = pytest.mark.filterwarnings("ignore:os.fork")

ROOT = Path(__file__).parents[2]
CONFIG = AttentionNeuronConfig(num_queries=4, message_size=4)


def population(world, size):
    keys = jax.random.split(jax.random.key(1), size)
    return eqx.filter_vmap(lambda key: CONFIG.build(world.num_sensors, world.num_actions, key))(
        keys
    )


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one core each."""
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    # Ray's workers step back for others; beside another test they would hardly run
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    from ray.cluster_utils import Cluster

    node = dict(num_cpus=1, object_store_memory=80_000_000)
    cluster = Cluster(initialize_head=True, head_node_args=node | {"num_cpus": 0})
    cluster.nodes = [cluster.add_node(**node), cluster.add_node(**node)]
    yield cluster
    cluster.shutdown()
    with warnings.catch_warnings():  # of processes and sockets that Ray leaves to the collector
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture
def engine(cluster):
    engine = open_engine(make_world(WALK, Shuffle()), EngineConfig("ray", cluster.address))
    yield engine
    engine.close()


def test_the_same_returns_as_on_this_machine(engine):
    world, keys = engine.world, jax.random.split(jax.random.key(0), 20)
    policies = population(world, 5)
    with HostEngine(world, workers=0) as here:
        expected = here.run_population(policies, keys)
    np.testing.assert_allclose(engine.returns(policies, keys), expected.total, atol=1e-4)
    episodes = engine.run_population(policies, keys)
    assert np.array_equal(episodes.length, expected.length)
    np.testing.assert_allclose(episodes.rewards, expected.rewards, atol=1e-4)
    one = jax.tree.map(lambda leaf: leaf[2], policies)
    more = jax.random.split(jax.random.key(0), 70)  # more episodes than a task takes
    with HostEngine(world, workers=0) as here:
        expected = here.run_episodes(one, more).total
    np.testing.assert_allclose(engine.run_episodes(one, more).total, expected, atol=1e-4)


def test_worlds_on_the_device_too(cluster):
    world = make_world("CartPoleSwingUpHarder")
    policies, keys = population(world, 3), jax.random.split(jax.random.key(0), 4)
    engine = open_engine(world, EngineConfig("ray", cluster.address))
    try:
        expected = DeviceEngine(world).returns(policies, keys)
        np.testing.assert_allclose(engine.returns(policies, keys), expected, rtol=1e-3)
    finally:
        engine.close()


def test_what_a_task_raises_is_the_same_sentence_as_here(cluster):
    world = make_world("gym:tests.host_worlds:Raising-v0")
    engine = open_engine(world, EngineConfig("ray", cluster.address))
    try:
        with pytest.raises(
            WorldError, match="Raising-v0 step 3: it raised ValueError: the left knee"
        ):
            engine.returns(population(world, 2), jax.random.split(jax.random.key(0), 2))
    finally:
        engine.close()


def test_a_node_that_is_killed_in_mid_generation_changes_nothing(cluster, tmp_path, monkeypatch):
    doomed = cluster.nodes.pop()
    world, keys = make_world(WALK, Shuffle()), jax.random.split(jax.random.key(0), 32)
    policies = population(world, 24)
    engine = open_engine(world, EngineConfig("ray", cluster.address))
    try:
        undisturbed = engine.returns(policies, keys)
        real_wait, killed = engine._ray.wait, []

        def wait_and_kill(tasks, **options):
            if not killed:  # some tasks are done, others are running or waiting
                real_wait(tasks, num_returns=4, timeout=None)
                cluster.remove_node(doomed, allow_graceful=False)
                killed.append(doomed)
            return real_wait(tasks, **options)

        monkeypatch.setattr(engine._ray, "wait", wait_and_kill)
        disturbed = engine.returns(policies, keys)
        assert killed
        assert np.array_equal(undisturbed, disturbed)
    finally:
        engine.close()


def test_settings_that_do_not_fit(monkeypatch):
    world = make_world(WALK)
    with pytest.raises(ConfigError, match="takes no number of them"):
        open_engine(world, EngineConfig(kind="ray", workers=2))
    with pytest.raises(ConfigError, match="goes with --engine ray"):
        open_engine(world, EngineConfig(address="auto"))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'sensorium\[cluster\]'"):
        open_engine(world, EngineConfig(kind="ray"))


def test_no_cluster_at_the_address_is_one_sentence():
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    with pytest.raises(ClusterError, match=r"There is no Ray cluster at 127.0.0.1:1: start one"):
        open_engine(make_world(WALK), EngineConfig("ray", "127.0.0.1:1"))


def test_training_goes_on_elsewhere_from_where_a_head_was_lost(tmp_path):
    """In a process of its own: Ray ends those that outlive their head by a minute."""
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    script = tmp_path / "lose.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, sys
            from pathlib import Path
            from ray.cluster_utils import Cluster
            from sensorium.errors import ClusterError
            from sensorium.recipes import train
            from sensorium.rollout import EngineConfig
            from tests.rollout.walking import RECIPE

            node = dict(num_cpus=1, object_store_memory=80_000_000)
            cluster = Cluster(initialize_head=True, head_node_args=node)

            def lose(row):
                print("generation", row["generation"], flush=True)
                if row["generation"] == 2:
                    cluster.head_node.kill_gcs_server(check_alive=False)
                    cluster.head_node.kill_raylet(check_alive=False)

            engine = EngineConfig("ray", cluster.address)
            try:
                train(RECIPE, Path(sys.argv[1]), quiet=True, engine=engine, on_generation=lose)
            except ClusterError as error:
                print("ClusterError:", error, flush=True)
            os._exit(0)
            """
        )
    )
    done = subprocess.run(
        [sys.executable, script, tmp_path / "run"],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"PYTHONPATH": str(ROOT), "RAY_worker_niceness": "0"},
    )
    assert "does not answer; once it is back, go on with `sensorium train --resume`" in done.stdout
    assert "generation 2" in done.stdout
    assert "generation 3" not in done.stdout
    resumed = resume(tmp_path / "run", quiet=True)
    undisturbed = train(RECIPE, tmp_path / "undisturbed", quiet=True)
    for ours, theirs in zip(jax.tree.leaves(undisturbed), jax.tree.leaves(resumed), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
