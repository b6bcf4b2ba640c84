"""One population over all devices of this machine: CPU cores as devices of XLA, or GPUs."""

import contextlib
import os
import platform
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from sensorium.envs import Environment
from sensorium.policies import Policy
from sensorium.rollout.device import Episode, Totals, run_episodes
from sensorium.rollout.fused import fused_totals
from sensorium.types import Keys, PyTree

_SHARE = "share"


def use_all_cores(num_devices: int | None = None) -> None:
    """Make each core of a CPU a device of XLA, and use its widest vectors.

    Call before anything uses JAX; once JAX is running it keeps what it has. Settings that are already
    in `XLA_FLAGS` stay. Machines with other accelerators are not affected.

    Args:
        num_devices: How many; None for one a core.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_cpu_prefer_vector_width" not in flags and _has_avx512():
        # XLA's default of 256 bits leaves a third of the speed of rollouts unused
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_prefer_vector_width=512".strip()
    with contextlib.suppress(RuntimeError):  # JAX is already running
        jax.config.update("jax_num_cpu_devices", num_devices or usable_cores())


def usable_cores() -> int:
    """Count the cores that this process may use; on systems that do not tell, those that there are."""
    if hasattr(os, "process_cpu_count"):  # from Python 3.13 on
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def this_machine() -> str:
    """Describe the machine in words, beside figures that depend on it: `"x86_64, 2 cores"`."""
    return f"{platform.machine()}, {usable_cores()} cores"


def why_jax_failed(error: Exception) -> str | None:
    """Explain an error that the machine, and not the program, is to blame for; None for any other."""
    # XLA calls it RESOURCE_EXHAUSTED, but on machines of one core INTERNAL: Out of memory
    said = str(error)
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in said or "Out of memory" in said:
        return "There is not enough memory for that: ask for fewer at a time."
    try:
        jax.local_devices()
    except (
        RuntimeError,
        AssertionError,
    ):  # the latter of `cuda` where its plug-in is not installed
        asked = jax.config.jax_platforms  # type: ignore[attr-defined]
        return (
            f"JAX was asked for {asked!r} (JAX_PLATFORMS) and finds no such device here: unset JAX_PLATFORMS "
            "for the best there is, or set it to cpu."
        )
    return None


def _has_avx512() -> bool:
    try:
        return "avx512f" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def over_devices(
    function: Callable[..., PyTree], individuals: PyTree, population: int, *shared: PyTree
) -> PyTree:
    """Apply `function` to shares of a population, one share on each device.

    Args:
        function: From arrays with a leading axis of any length to results with the same leading axis.
        individuals: Arrays with a leading axis P.
        population: P.
        shared: Arrays that go to every device as they are: further arguments of `function`.

    Returns:
        What `function(individuals, *shared)` would give.
    """
    mesh = _mesh(population)
    if mesh.size == 1:
        return function(individuals, *shared)
    sharded = PartitionSpec(_SHARE)
    specs = (sharded, *(PartitionSpec() for _ in shared))
    return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=sharded, check_vma=False)(
        individuals, *shared
    )


def spread(individuals: PyTree, population: int) -> PyTree:
    """Place arrays with a leading axis P as the results of `over_devices` are.

    JAX compiles for where arrays are: what goes in again and again would be compiled for the first time, and
    for all that follow.
    """
    mesh = _mesh(population)
    if mesh.size == 1:
        return individuals
    return jax.device_put(individuals, NamedSharding(mesh, PartitionSpec(_SHARE)))


def each_share(
    function: Callable[..., PyTree], lanes: PyTree, *shared: PyTree, axes: PyTree = -1
) -> PyTree:
    """Apply `function` to equal shares of some lanes, one share on each device.

    Reductions over the shares, such as the mean of gradients, are left to NumPy: devices of a CPU that wait
    for one another hold the threads that they wait for, and can deadlock.

    Args:
        function: From arrays with an axis of any length to anything, such as means over it.
        lanes: Arrays with an axis R.
        shared: Arrays that go to every device as they are: further arguments of `function`.
        axes: That axis, for all or for each part of `lanes`.

    Returns:
        The results, with a leading axis of as many as there are shares.
    """
    of_leaves = jax.tree.broadcast(axes, lanes)
    mesh = _mesh(jax.tree.leaves(lanes)[0].shape[jax.tree.leaves(of_leaves)[0]])

    def share(lanes: PyTree, *shared: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[None], function(lanes, *shared))

    if mesh.size == 1:
        return share(lanes, *shared)
    sharded = jax.tree.map(
        lambda leaf, axis: PartitionSpec(*(None,) * (axis % leaf.ndim), _SHARE), lanes, of_leaves
    )
    specs = (sharded, *(PartitionSpec() for _ in shared))
    return jax.shard_map(
        share, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(_SHARE), check_vma=False
    )(lanes, *shared)


def usable_devices() -> list[jax.Device]:
    """Return the devices of this process, which share rows."""
    return jax.local_devices()


def num_shares(rows: int) -> int:
    """Return over how many devices `over_devices` and `each_share` divide so many rows."""
    return max(count for count in range(1, len(usable_devices()) + 1) if rows % count == 0)


def _mesh(rows: int) -> Mesh:
    """Make a mesh of as many devices as can share so many rows equally."""
    return Mesh(usable_devices()[: num_shares(rows)], (_SHARE,))


@eqx.filter_jit
def returns_of_population(policies: Policy, world: Environment, keys: Keys) -> Float[Array, "P R"]:
    """Compute the returns of `totals_of_population`."""
    return jnp.asarray(totals_of_population(policies, world, keys).returns)


@eqx.filter_jit
def totals_of_population(policies: Policy, world: Environment, keys: Keys) -> Totals:
    """Compute returns and steps of P policies on R episodes each, on all devices.

    The result does not depend on the number of devices.

    Args:
        policies: A policy whose parameters have a leading axis P.
        world: The world, perturbed or not.
        keys: R random keys, the same episodes for all policies (common random numbers).

    Returns:
        Both with leading axes P, R.
    """
    parameters, static = eqx.partition(policies, eqx.is_inexact_array)

    def share(parameters: PyTree) -> Totals:
        return fused_totals(eqx.combine(parameters, static), world, keys)

    return over_devices(share, parameters, jax.tree.leaves(parameters)[0].shape[0])


@eqx.filter_jit
def episodes_of_policy(policy: Policy, world: Environment, keys: Keys) -> Episode:
    """Run one policy for an episode of each of R keys, on all devices; results have a leading axis R.

    The result does not depend on the number of devices.
    """
    arrays, static = eqx.partition(policy, eqx.is_array)

    def share(keys: Keys, arrays: PyTree) -> Episode:
        return run_episodes(eqx.combine(arrays, static), world, keys)

    return over_devices(share, keys, keys.shape[0], arrays)
