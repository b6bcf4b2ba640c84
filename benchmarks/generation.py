"""What a generation of evolution costs and sends, at populations of 10^3 to 10^5.

    python benchmarks/generation.py

Three parts are measured here, one after the other: asking for a population and telling what it was worth,
which one process does; cutting it into tasks and handing these to Ray; and living, on one core. Living is
shared by all cores, the others are not. So it pays to have as many cores as living takes longer than the
rest, and no more than there are tasks to hand out.
"""

import os
import pickle
import platform
import time
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

SIZES = (1_000, 10_000, 100_000)


def _seconds(action, repeats=3):
    """Take the fastest of a few."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times)


def _asking(strategy, population, parameters):
    """Seconds of ask and tell."""
    import jax
    import jax.numpy as jnp

    from sensorium.training import Strategy, StrategyConfig

    searched = Strategy(StrategyConfig(strategy), population, parameters)
    state = searched.init(jax.random.key(0), jnp.zeros(parameters))

    @jax.jit
    def generation(state, key):
        asked, state = searched.ask(key, state)
        return searched.tell(key, asked, jnp.sum(asked**2, axis=1), state)

    def once():
        jax.block_until_ready(generation(state, jax.random.key(1)))

    once()  # compiles
    return _seconds(once)


def _handing(world, policy, population, rollouts):
    """Seconds to cut a population into tasks and pickle them, how many, and their bytes."""
    import equinox as eqx
    import jax
    import numpy as np

    from sensorium.rollout.cluster import Portion, episodes_of_a_task
    from sensorium.rollout.select import task_engine

    parameters, static = eqx.partition(policy, eqx.is_array)
    parameters = jax.tree.map(
        lambda leaf: np.zeros((population, *leaf.shape), np.float32), parameters
    )
    height = max(1, episodes_of_a_task(world) // rollouts)
    keys = np.zeros((rollouts, 2), np.uint32)

    def cut(top):
        share = jax.tree.map(lambda leaf: leaf[top : top + height], parameters)
        return pickle.dumps(Portion(world, task_engine, static, share, keys, False))

    seconds = _seconds(lambda: [cut(top) for top in range(0, population, height)], 1)
    return seconds, -(-population // height), len(cut(0)) * -(-population // height)


def _living(world, policy, rollouts, episodes):
    """Seconds of one core for an episode."""
    import jax
    import jax.numpy as jnp

    from sensorium.rollout.select import task_engine

    policies = jax.tree.map(
        lambda leaf: jnp.repeat(leaf[None], episodes // rollouts, axis=0), policy
    )
    keys = jax.random.split(jax.random.key(0), rollouts)
    with task_engine(world) as engine:
        engine.returns(policies, keys)  # compiles
        rounds = 1 if world.on_host else 3
        return _seconds(lambda: engine.returns(policies, keys), rounds) / episodes


def main(json_file: Path = Path("generation.json")) -> None:
    """Measure, print a table and write JSON."""
    if hasattr(os, "sched_setaffinity"):  # on Linux: one core, before JAX starts its threads
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import jax

    from sensorium import recipes
    from sensorium.policies import num_parameters
    from sensorium.serialisation import write_json

    cases = (("cartpole-pi", 16, 4096), ("ant-pi", 1, 32))
    rows = []
    for name, rollouts, episodes in cases:
        recipe = recipes.find(name)
        world, policy = recipe.make_world(), recipe.draw_policy(jax.random.key(0))
        parameters = num_parameters(policy)
        episode = _living(world, policy, rollouts, episodes)
        for population in SIZES:
            living = episode * population * rollouts
            handing, tasks, size = _handing(world, policy, population, rollouts)
            for strategy in ("pgpe", "cma-es"):
                asking = _asking(strategy, population, parameters)
                rows.append(
                    {
                        "agent": name,
                        "parameters": parameters,
                        "population": population,
                        "rollouts": rollouts,
                        "strategy": strategy,
                        "ask_and_tell_seconds": asking,
                        "living_core_seconds": living,
                        "ray_tasks": tasks,
                        "ray_seconds": handing,
                        "ray_bytes": size + 4 * population * rollouts,
                        "jax_bytes": 4 * population * rollouts,
                        "cores_ray": min(tasks, living / (asking + handing)),
                        "cores_jax": min(population, living / asking),
                    }
                )
    machine = f"{platform.machine()}, one core"
    write_json(json_file, {"machine": machine, "generations": rows})
    table = Table(title=f"A generation, {machine}")
    columns = (
        "agent", "strategy", "population", "living, core s", "ask + tell, s",
        "Ray: tasks", "Ray: s", "Ray: MB", "jax: MB", "cores, Ray", "cores, jax",
    )  # fmt: skip
    for column in columns:
        table.add_column(column, justify="right" if column != "agent" else "left")
    for row in rows:
        table.add_row(
            row["agent"],
            row["strategy"],
            f"{row['population']:,}",
            f"{row['living_core_seconds']:,.0f}",
            f"{row['ask_and_tell_seconds']:.2f}",
            f"{row['ray_tasks']:,}",
            f"{row['ray_seconds']:.2f}",
            f"{row['ray_bytes'] / 1e6:,.1f}",
            f"{row['jax_bytes'] / 1e6:,.2f}",
            f"{row['cores_ray']:,.0f}",
            f"{row['cores_jax']:,.0f}",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    tyro.cli(main)
