"""Benchmark: world steps a second of a population, over whole generations."""

import statistics
import time

import equinox as eqx
import jax
from rich.console import Console

from sensorium.envs import make
from sensorium.errors import check_counts, did_you_mean
from sensorium.evaluation.report import console_for, write
from sensorium.policies import AttentionNeuronConfig, from_vector, num_parameters
from sensorium.rollout import returns_of_population, this_machine

_WORLDS = {"cartpole": "CartPoleSwingUpHarder"}


def bench(what: str, *, population: int, rollouts: int, rounds: int, json: str | None) -> float:
    """Measure and print the world steps a second of a population.

    Args:
        what: A world, by its short name.
        population: Individuals, each with parameters of its own.
        rollouts: Episodes of each.
        rounds: Measurements, after one that compiles.
        json: A file; `-` for standard output, which then gets nothing else.

    Returns:
        World steps a second, the median over the rounds.

    Raises:
        UnknownNameError: There is no such benchmark.
        ConfigError: A number is out of range.
    """
    check_counts(population=population, rollouts=rollouts, rounds=rounds)
    if what not in _WORLDS:
        raise did_you_mean("benchmark", what, _WORLDS)
    world = make(_WORLDS[what])
    policy = AttentionNeuronConfig().build(world.num_sensors, world.num_actions, jax.random.key(0))
    vectors = 0.1 * jax.random.normal(jax.random.key(1), (population, num_parameters(policy)))
    policies = eqx.filter_vmap(lambda vector: from_vector(vector, policy))(vectors)
    keys = jax.random.split(jax.random.key(2), rollouts)
    began = time.perf_counter()
    jax.block_until_ready(returns_of_population(policies, world, keys))
    compile_seconds = time.perf_counter() - began
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        jax.block_until_ready(returns_of_population(policies, world, keys))
        seconds.append(time.perf_counter() - began)
    steps = population * rollouts * world.max_steps
    median = statistics.median(seconds)
    result = {
        "world": world.id,
        "parameters": num_parameters(policy),
        "population": population,
        "rollouts": rollouts,
        "steps": world.max_steps,
        "rounds": rounds,
        "env_steps_per_second": steps / median,
        "fastest": steps / min(seconds),
        "slowest": steps / max(seconds),
        "first_call_seconds": compile_seconds,
        "devices": [str(device) for device in jax.devices()],
        "machine": this_machine(),
        "jax": jax.__version__,
    }
    write(result, json)
    _print(console_for(json), result)
    return steps / median


def _print(console: Console, result: dict) -> None:
    console.print(
        f"{result['world']}: {result['env_steps_per_second'] / 1e6:.2f} million steps/s "
        f"({result['slowest'] / 1e6:.2f} to {result['fastest'] / 1e6:.2f} in {result['rounds']} "
        f"rounds; {result['population']} x {result['rollouts']} x {result['steps']} steps on "
        f"{len(result['devices'])} devices)",
        highlight=False,
        soft_wrap=True,
    )
