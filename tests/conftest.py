"""Shapes are checked at run time in every test; keys and sizes are fixed."""

import gc
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

# Two devices on every machine, so that sharding is tested everywhere (`every_device`)
_flags = "--xla_force_host_platform_device_count=2"
if version("jaxlib").startswith("0.10."):
    # These emitters take half of the time that compiling takes; later ones know no such flag
    _flags += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ.setdefault("XLA_FLAGS", _flags)
# Nearly all programs here take longer to compile than to run: XLA optimises little, but for
# `compiled_as_for_users`
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# What one test compiled, another and the commands that tests start need not compile again
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "sensorium-tests-compiled")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

from jaxtyping import install_import_hook

install_import_hook("sensorium", "beartype.beartype")

import equinox as eqx
import hypothesis
import jax
import numpy as np
import pytest

# The same examples on every run: whether a test passes is not left to chance
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None)
hypothesis.settings.load_profile("fixed")


# Tracing makes many objects and few cycles: collecting as often as Python does takes a seventh of the time
gc.freeze()
gc.set_threshold(200_000, 20, 100)


@pytest.fixture(autouse=True, scope="module")
def _forget_compiled_code():
    """Free what was compiled, where it fills a quarter of the memory: the suite would need 6 GB a worker."""
    yield
    pages = Path("/proc/self/statm")
    if not pages.exists() or int(pages.read_text().split()[1]) > os.sysconf("SC_PHYS_PAGES") // 4:
        jax.clear_caches()


@pytest.fixture(autouse=True, scope="session")
def _environments_in_this_process():
    """Engines on the host start workers where tests ask for them: four processes take seconds to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sensorium.rollout.host.usable_cores", lambda: 0)
        yield


@pytest.fixture(autouse=True, scope="session")
def _rows_on_one_device():
    """Rows are shared out where tests ask for it: programs for two devices take longer to compile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sensorium.rollout.sharding.usable_devices", lambda: jax.local_devices()[:1])
        yield


@pytest.fixture
def every_device(monkeypatch):
    """Rows are shared out to all devices, as for users, which this returns.

    For worlds that no other test has: what is compiled for a world is used again.
    """
    monkeypatch.setattr("sensorium.rollout.sharding.usable_devices", jax.local_devices)
    return jax.local_devices()


@pytest.fixture
def worker_for_each_core(monkeypatch):
    """Engines on the host have their default number of workers, which this returns."""
    from sensorium.rollout import usable_cores

    monkeypatch.setattr("sensorium.rollout.host.usable_cores", usable_cores)
    return usable_cores()


@pytest.fixture(scope="module")
def compiled_as_for_users():
    """XLA optimises all it can: for modules that hold numbers to published ones or to a formula."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="module")
def short_episodes():
    """Episodes of CartPole have 50 steps: for modules whose results do not depend on their length."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sensorium.envs.CartPoleSwingUpHarder.max_steps", 50)
        yield


REFERENCE = Path(__file__).parents[2] / "shared" / "reference"


@pytest.fixture
def key():
    """A random key."""
    return jax.random.key(0)


@pytest.fixture
def strict():
    """JAX promotes neither dtypes nor ranks by itself: what it would hide becomes an error."""
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(scope="session")
def reference():
    """The authors' weights and golden outputs, where they are."""
    if not REFERENCE.is_dir():
        pytest.skip(f"the authors' reference data are not at {REFERENCE}")

    def read(kind, name):
        with np.load(REFERENCE / kind / f"{name}.npz") as file:
            return {array: file[array] for array in file.files}

    read.path = lambda kind, name: REFERENCE / kind / f"{name}.npz"
    return read


@pytest.fixture
def paper_agent(key):
    """The 913-parameter agent with random weights."""
    from sensorium.policies import AttentionNeuronConfig

    return AttentionNeuronConfig(reading_scale=0.2).build(5, 1, key)


@pytest.fixture
def readings(key):
    """Twenty steps of readings of any number of sensors."""

    def draw(num_sensors, steps=20):
        return jax.random.normal(jax.random.fold_in(key, num_sensors), (steps, num_sensors)) * 2.0

    return draw


@eqx.filter_jit
@eqx.filter_jit
def policy_step(policy, observation, carry):
    """A step of a policy, compiled once for each kind of policy and number of sensors."""
    return policy.step(observation, carry)


def run_codes(policy, observations, carry=None):
    """Codes and actions of a policy along a sequence of observations, and the last carry."""
    carry = policy.initial_carry(observations.shape[1]) if carry is None else carry
    codes, actions = [], []
    for observation in np.asarray(observations):
        action, carry, trace = policy_step(policy, observation, carry)
        codes.append(trace.code)
        actions.append(action)
    return np.stack(codes), np.stack(actions), carry
