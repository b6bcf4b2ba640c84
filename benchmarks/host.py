"""How much of the simulator's own speed is left when a population acts in it.

    python benchmarks/host.py                     # the ant, a population of 256 agents, one episode each

In turns: the host engine runs the population, and bare processes, one a core, step the simulator through
the very same actions with nothing else to do:

- as written: one environment as Gymnasium makes it, through all episodes, one after the other;
- one by one: the same as we open it, with few calls into PyBullet (`sensorium.bridges.fast_bullet`);
- side by side: as many of these as episodes. One alone stays in the caches of its core, which it does for
  nobody who acts for many at a time; this is what an engine could reach.

Starting processes and compiling are not counted.
"""

import functools
import multiprocessing
import platform
import statistics
import time
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console


def _as_written(opener):
    """Open an environment as Gymnasium makes it, without our way to step it."""
    env = opener()
    del env.unwrapped.step  # the class has its own
    return env


def _one_by_one(opener, seeds, actions, lengths, ready, begin, seconds) -> None:
    """Step one environment through the recorded actions of all episodes."""
    env = opener()
    env.reset(seed=0)
    ready.release()
    begin.wait()
    started = time.perf_counter()
    for seed, episode, length in zip(seeds, actions, lengths, strict=True):
        env.reset(seed=int(seed))
        for action in episode[:length]:
            env.step(action)
    seconds.put(time.perf_counter() - started)


def _side_by_side(opener, seeds, actions, lengths, ready, begin, seconds) -> None:
    """Step an environment for each episode, in turns."""
    envs = [opener() for _ in seeds]
    ready.release()
    begin.wait()
    started = time.perf_counter()
    for env, seed in zip(envs, seeds, strict=True):
        env.reset(seed=int(seed))
    for step in range(max(lengths)):
        for env, episode, length in zip(envs, actions, lengths, strict=True):
            if step < length:
                env.step(episode[step])
    seconds.put(time.perf_counter() - started)


def _bare(work, opener, seeds, actions, lengths, cores) -> float:
    """Measure steps a second of `cores` bare processes."""
    context = multiprocessing.get_context("spawn")
    ready, begin, seconds = context.Semaphore(0), context.Event(), context.Queue()
    shares = np.array_split(np.arange(len(seeds)), cores)
    processes = [
        context.Process(
            target=work,
            args=(opener, seeds[s], actions[s], lengths[s], ready, begin, seconds),
        )
        for s in shares
    ]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    begin.set()
    slowest = max(seconds.get() for _ in processes)
    for process in processes:
        process.join()
    return float(lengths.sum()) / slowest


def main(
    env: str = "gym:AntBulletEnv-v0",
    student: str = "ant-pi-clone",
    population: int = 256,
    lanes: int = 128,
    rounds: int = 3,
    json_file: Path | None = None,
) -> None:
    """Measure.

    Args:
        env: The world.
        student: The recipe whose architecture the population has, with random weights.
        population: Individuals; one episode each.
        lanes: Episodes that run at a time.
        rounds: How often both are measured, in turns.
        json_file: Write figures here as well.
    """
    import equinox as eqx
    import jax

    from sensorium import recipes
    from sensorium.perturbations import Shuffle
    from sensorium.rollout import HostEngine, make_world, usable_cores
    from sensorium.rollout.acting import PolicyActor
    from sensorium.rollout.host import seeds_of
    from sensorium.serialisation import write_json

    cores = usable_cores()
    world = make_world(env, Shuffle())
    config = recipes.find(student).policy

    @eqx.filter_vmap
    def draw(key):
        return config.build(world.num_sensors, world.num_actions, key)

    policies = draw(jax.random.split(jax.random.key(1), population))
    keys = jax.random.split(jax.random.key(0), 1)
    seeds = np.repeat(seeds_of(keys), population)
    figures = []
    rivals = (
        ("as_written", _one_by_one, functools.partial(_as_written, world.opener())),
        ("one_by_one", _one_by_one, world.opener()),
        ("side_by_side", _side_by_side, world.opener()),
    )
    with HostEngine(world, lanes=lanes) as engine:
        seen = engine.transcribe(lambda: PolicyActor(policies, world, keys), seeds)  # and compile
        actions = world.to_env_actions(seen.actions.reshape(-1, world.num_actions))
        actions = actions.reshape(population, world.max_steps, -1)
        for _ in range(rounds):
            started = time.perf_counter()
            lengths = np.asarray(engine.run_population(policies, keys).length)
            ours = float(lengths.sum()) / (time.perf_counter() - started)
            row = {"engine": ours}
            for name, work, opener in rivals:
                row[name] = _bare(work, opener, seeds, actions, seen.lengths, cores)
                row[f"share_of_{name}"] = ours / row[name]
            figures.append(row)
    result = {
        "env": env,
        "machine": f"{platform.machine()}, {cores} cores",
        "population": population,
        "lanes": lanes,
        "steps": int(seen.lengths.sum()),
        "rounds": figures,
    }
    shares = [f"share_of_{name}" for name, _, _ in rivals]
    result |= {share: statistics.median(row[share] for row in figures) for share in shares}
    if json_file:
        write_json(json_file, result)
    console = Console(highlight=False)
    for row in figures:
        alone = ", ".join(f"{name.replace('_', ' ')} {row[name]:,.0f}" for name, _, _ in rivals)
        console.print(f"steps/s: engine {row['engine']:,.0f}; alone: {alone}")
    medians = ", ".join(f"{result[share]:.0%}" for share in shares)
    console.print(f"median share of each: {medians}")


if __name__ == "__main__":
    tyro.cli(main)
