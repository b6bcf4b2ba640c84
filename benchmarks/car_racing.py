"""How fast CarRacing is: our world and Gymnasium's, and the agents that see.

    python benchmarks/car_racing.py

In turns, on all cores: our world alone, 8 cars on each of 8 tracks, a frame for each step; the same with an
AttentionAgent at the wheel; the agents without a world; and Gymnasium's CarRacing-v3, a process on each core.
Actions are random where no agent acts. What a track costs, which a population shares, is measured by itself;
compiling is not counted.
"""

import multiprocessing
import os
import platform
import statistics
import time
import warnings
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table


def _gymnasium(steps, ready, begin, seconds) -> None:
    """Step Gymnasium's world."""
    warnings.simplefilter("ignore")
    import gymnasium

    env = gymnasium.make("CarRacing-v3").unwrapped
    env.reset(seed=os.getpid())
    rng = np.random.default_rng(os.getpid())
    actions = rng.uniform([-0.3, 0.0, 0.0], [0.3, 0.4, 0.0], (steps, 3))
    ready.release()
    begin.wait()
    started = time.perf_counter()
    for action in actions:
        env.step(action)
    seconds.put(time.perf_counter() - started)


def _theirs(steps, cores) -> float:
    """Measure steps a second of a process on each core."""
    context = multiprocessing.get_context("spawn")
    ready, begin, seconds = context.Semaphore(0), context.Event(), context.Queue()
    processes = [
        context.Process(target=_gymnasium, args=(steps, ready, begin, seconds))
        for _ in range(cores)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    begin.set()
    total = sum(steps / seconds.get() for _ in processes)
    for process in processes:
        process.join()
    return total


def _ours(tracks, cars, steps, agent):
    """Make a function that drives and returns steps a second; time what a track takes to make."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    from sensorium.envs import CarRacing
    from sensorium.policies import AttentionAgentConfig
    from sensorium.rollout.sharding import over_devices

    world = CarRacing()
    params = world.default_params
    keys = jax.random.split(jax.random.key(0), tracks)
    reset = jax.jit(jax.vmap(lambda key: world.reset_env(key, params)))
    jax.block_until_ready(reset(keys))
    started = time.perf_counter()
    frames, states = jax.block_until_ready(reset(keys))
    track_seconds = (time.perf_counter() - started) / tracks
    # A driver for each car: of one driver XLA would see that all cars of a track do the same, and drive one
    config = AttentionAgentConfig()
    drivers = eqx.filter_vmap(lambda key: config.build(world.observation_spec, 3, key))(
        jax.random.split(jax.random.key(0), cars)
    )

    def drive(each, frames, states):
        """As in the engines: a population on the same tracks."""

        def car(policy, actions, frame, state):
            def step(now, action):
                frame, state, carry = now
                if agent:
                    action, carry, _ = policy.step(frame, carry)
                frame, state, reward, *_ = world.advance(None, state, action, params)
                return (frame, state, carry), reward

            start = (frame, state, policy.initial_carry(world.observation_spec))
            last, rewards = jax.lax.scan(step, start, actions)
            return last[0], last[1].car, rewards

        on_tracks = jax.vmap(car, in_axes=(None, 0, 0, 0))
        return jax.vmap(on_tracks, in_axes=(0, 0, None, None))(*each, frames, states)

    @jax.jit
    def compiled(actions):
        return over_devices(drive, (drivers, actions), cars, frames, states)

    actions = 0.3 * jax.random.normal(jax.random.key(1), (cars, tracks, steps, 3))
    actions = jnp.clip(actions + jnp.array([0.0, -0.6, -1.0]), -1, 1)
    jax.block_until_ready(compiled(actions))

    def run() -> float:
        started = time.perf_counter()
        jax.block_until_ready(compiled(actions))
        return cars * tracks * steps / (time.perf_counter() - started)

    return run, track_seconds


def _agent(config, lanes, steps):
    """Make a function in which agents look at frames, each at its own, and that returns frames a second."""
    import jax
    import jax.numpy as jnp

    from sensorium.rollout.sharding import over_devices

    spec = (96, 96, 3)
    agents = jax.vmap(lambda key: config.build(spec, 3, key))(
        jax.random.split(jax.random.key(0), lanes)
    )
    frames = jax.random.bits(jax.random.key(1), (lanes, *spec), jnp.uint8)

    def look(agent, frame):
        def step(carry, number):
            # Another frame each time, or XLA would look once
            action, carry, _ = agent.step(frame + number, carry)
            return carry, action

        return jax.lax.scan(step, agent.initial_carry(spec), jnp.arange(steps, dtype=jnp.uint8))

    @jax.jit
    def compiled():
        return over_devices(lambda each: jax.vmap(look)(*each), (agents, frames), lanes)

    jax.block_until_ready(compiled())

    def run() -> float:
        started = time.perf_counter()
        jax.block_until_ready(compiled())
        return lanes * steps / (time.perf_counter() - started)

    return run


def main(json_file: Path = Path("car_racing.json"), rounds: int = 5) -> None:
    """Measure, print a table and write JSON."""
    from sensorium.policies import AttentionAgentConfig, VisionAttentionNeuronConfig
    from sensorium.rollout import use_all_cores
    from sensorium.serialisation import write_json

    cores = os.cpu_count() or 1
    use_all_cores()
    world, track_seconds = _ours(8, 8, 1000, agent=False)
    measured = {
        "our world alone": world,
        "with an AttentionAgent": _ours(8, 8, 200, agent=True)[0],
        "AttentionAgent alone": _agent(AttentionAgentConfig(), 16 * cores, 100),
        "AttentionNeuron agent alone": _agent(VisionAttentionNeuronConfig(), 16 * cores, 20),
        "Gymnasium's world alone": lambda: _theirs(200, cores),
    }
    speeds = {name: [] for name in measured}
    for _ in range(rounds):
        for name, run in measured.items():
            speeds[name].append(run())
    machine = f"{platform.machine()}, {cores} cores"
    write_json(json_file, {"machine": machine, "track_seconds": track_seconds, "speeds": speeds})
    table = Table(title=f"CarRacing, {machine}, {rounds} rounds")
    for column in ("", "steps/s, median", "spread", "of Gymnasium's, median"):
        table.add_column(column, justify="right" if column else "left")
    for name, values in speeds.items():
        pairs = zip(values, speeds["Gymnasium's world alone"], strict=True)
        table.add_row(
            name,
            f"{statistics.median(values):,.0f}",
            f"{min(values):,.0f} to {max(values):,.0f}",
            f"{statistics.median(own / other for own, other in pairs):.0f}",
        )
    Console(width=100).print(table)
    Console().print(f"A track takes {1000 * track_seconds:.1f} ms to make.", highlight=False)


if __name__ == "__main__":
    tyro.cli(main)
