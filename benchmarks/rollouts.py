"""Rollouts of a whole population: ours, EvoJAX's and plain PyTorch's, in one run, as ratios.

    python benchmarks/rollouts.py --json benchmarks/results/rollouts.json

Each engine lives in a process of its own with the settings that suit it best, compiles once, and waits.
They are then measured in turns, so that a machine that slows down slows all of them down.
"""

import dataclasses
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

ENGINES = ("sensorium", "evojax, one device", "evojax, two devices", "pytorch")


@dataclasses.dataclass(frozen=True)
class Size:
    """The work of one round; the defaults are a generation of the paper."""

    population: int = 256
    rollouts: int = 16
    steps: int = 1000


def prepare_sensorium(size: Size):
    """Ours, checked against PyTorch's: the same returns from the same starts."""
    from sensorium.rollout import returns_of_population, use_all_cores

    use_all_cores()
    import equinox as eqx
    import jax
    import numpy as np

    from sensorium.envs import CartPoleSwingUpHarder
    from sensorium.policies import AttentionNeuronConfig, from_vector

    world = CartPoleSwingUpHarder()
    policy = AttentionNeuronConfig().build(5, 1, jax.random.key(0))
    vectors = 0.1 * jax.random.normal(jax.random.key(1), (size.population, 913))
    policies = eqx.filter_vmap(lambda vector: from_vector(vector, policy))(vectors)
    keys = jax.random.split(jax.random.key(2), size.rollouts)
    _check_against_pytorch(world, policies, vectors, keys)
    return lambda: np.asarray(returns_of_population(policies, world, keys))


def _check_against_pytorch(world, policies, vectors, keys) -> None:
    import jax
    import numpy as np
    import torch
    from benchmarks.in_pytorch import returns

    from sensorium.rollout import returns_of_population

    class Short(type(world)):
        max_steps = 100

    starts = jax.vmap(
        lambda key: world.reset_env(jax.random.split(key)[0], world.default_params)[1]
    )(keys)
    starts = np.stack([starts.position, starts.velocity, starts.angle, starts.angular_velocity], 1)
    theirs = returns(torch.tensor(np.asarray(vectors)), torch.tensor(starts), Short.max_steps)
    ours = np.asarray(returns_of_population(policies, Short(), keys))
    error = np.abs(ours - theirs.numpy())
    if np.median(error) > 1e-4:
        raise SystemExit(f"PyTorch's returns differ from ours: median {np.median(error)}.")


def prepare_evojax(size: Size):
    """EvoJAX's own simulation manager, task and policy."""
    import logging

    import jax

    jax.tree_map = jax.tree.map  # EvoJAX 0.2.17 was written for older versions
    import jax.numpy as jnp
    import numpy as np
    from evojax.policy import PermutationInvariantPolicy
    from evojax.sim_mgr import SimManager
    from evojax.task.cartpole import CartPoleSwingUp

    logger = logging.getLogger("quiet")
    task = CartPoleSwingUp(max_steps=size.steps, harder=True)
    policy = PermutationInvariantPolicy(act_dim=1, hidden_dim=16, logger=logger)
    manager = SimManager(
        size.rollouts, 1, size.population, 2, policy, task, task, seed=0, logger=logger
    )
    params = 0.1 * jax.random.normal(
        jax.random.key(1), (size.population, policy.num_params), jnp.float32
    )
    return lambda: np.asarray(manager.eval_params(params, test=False)[0])


def prepare_pytorch(size: Size):
    """Plain PyTorch on all cores."""
    import torch
    from benchmarks.in_pytorch import returns

    from sensorium.rollout import usable_cores

    torch.set_num_threads(usable_cores())
    generator = torch.Generator().manual_seed(0)
    vectors = 0.1 * torch.randn(size.population, 913, generator=generator)
    ranges = torch.tensor([2.4, 10.0, torch.pi / 2, 10.0])
    starts = (2 * torch.rand(size.rollouts, 4, generator=generator) - 1) * ranges
    starts[:, 2] += torch.pi
    return lambda: returns(vectors, starts, size.steps)


def worker(engine: str, size: Size) -> None:
    """Compile, then time one round for each line on standard input."""
    prepare = globals()[f"prepare_{engine.split(',')[0]}"]
    round_of_work = prepare(size)
    round_of_work()
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        round_of_work()
        print(time.perf_counter() - began, flush=True)


def start(engine: str, size: Size) -> subprocess.Popen:
    """Start a worker that compiles and waits."""
    root = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    if "two devices" in engine:
        environment["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    numbers = map(str, dataclasses.astuple(size))
    process = subprocess.Popen(
        [sys.executable, __file__, "worker", engine, *numbers],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        raise SystemExit(f"{engine} did not start; see above.")
    return process


def measure(size: Size, rounds: int) -> dict[str, list[float]]:
    """Seconds of every round of every engine, taken in turns."""
    workers = {engine: start(engine, size) for engine in ENGINES}
    seconds: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for _ in range(rounds):
        for engine, process in workers.items():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            seconds[engine].append(float(process.stdout.readline()))
    for process in workers.values():
        process.communicate()
    return seconds


def main(size: Size = Size(), rounds: int = 5, json_file: Path | None = None) -> None:
    """Measure all engines and compare them.

    Args:
        size: The work of one round.
        rounds: Rounds of each engine.
        json_file: Write figures here as well.
    """
    seconds = measure(size, rounds)
    steps = size.population * size.rollouts * size.steps
    ours = seconds["sensorium"]
    table = Table(
        title=f"{size.population} x {size.rollouts} x {size.steps} steps, {rounds} rounds"
    )
    for column in ("engine", "million steps/s", "slowest to fastest", "ratio"):
        left = column == "engine"
        table.add_column(column, justify="left" if left else "right", no_wrap=left)
    rows = []
    for engine, times in seconds.items():
        # Rounds are paired: the ratio is taken within each, then its median
        ratio = statistics.median(theirs / mine for theirs, mine in zip(times, ours, strict=True))
        row = {
            "engine": engine,
            "steps_per_second": steps / statistics.median(times),
            "slowest": steps / max(times),
            "fastest": steps / min(times),
            "ratio": ratio,
        }
        rows.append(row)
        speeds = f"{row['slowest'] / 1e6:.2f} to {row['fastest'] / 1e6:.2f}"
        table.add_row(engine, f"{row['steps_per_second'] / 1e6:.2f}", speeds, f"{ratio:.1f}")
    Console().print(table)
    if json_file is not None:
        from sensorium.rollout import this_machine
        from sensorium.serialisation import write_json

        machine = this_machine()
        write_json(
            json_file,
            {"machine": machine, "rounds": rounds, **dataclasses.asdict(size), "engines": rows},
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(sys.argv[2], Size(*map(int, sys.argv[3:])))
    else:
        tyro.cli(main)
