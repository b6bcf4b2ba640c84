"""Time of one call of a layer: AttentionNeuron, its NLA forms, and the pooling layers of the baselines.

    python benchmarks/layer.py --json-file benchmarks/results/layer.json

All are measured in turns; ratios are to the plain AttentionNeuron of the same round.
"""

import statistics
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import tyro
from rich.console import Console
from rich.table import Table

from sensorium.policies import (
    AttentionNeuronConfig,
    DeepSetsConfig,
    FeedForwardConfig,
    KeyMap,
    SetTransformerConfig,
)
from sensorium.rollout import this_machine
from sensorium.serialisation import write_json

AGENTS = {
    "AttentionNeuron": AttentionNeuronConfig(),
    "NLA invariant": AttentionNeuronConfig(key_map=KeyMap.NLA_INVARIANT),
    "NLA as published": AttentionNeuronConfig(key_map=KeyMap.NLA_PUBLISHED),
    "code fed back": AttentionNeuronConfig(code_feedback=True),
    "Deep Sets": DeepSetsConfig(),
    "Set Transformer": SetTransformerConfig(),
    "feed-forward": FeedForwardConfig(),
}


def prepare(config, batch: int, steps: int):
    """Compile a function that runs `steps` steps of `batch` agents with 5 sensors."""
    policy = config.build(5, 1, jax.random.key(0))
    carry = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf[..., None], (*leaf.shape, batch)),
        policy.initial_carry(5),
    )
    readings = jax.random.normal(jax.random.key(1), (steps, 5, batch))
    step = jax.vmap(lambda seen, carry: policy.step(seen, carry)[:2], in_axes=-1, out_axes=-1)

    def body(carry, seen):
        action, carry = step(seen, carry)
        return carry, action

    run = jax.jit(lambda carry, readings: jax.lax.scan(body, carry, readings)[1])
    jax.block_until_ready(run(carry, readings))
    return lambda: jax.block_until_ready(run(carry, readings))


def main(
    batch: int = 1024, steps: int = 200, rounds: int = 7, json_file: Path | None = None
) -> None:
    """Measure every layer inside its agent.

    Args:
        batch: Agents side by side.
        steps: Steps of one measurement.
        rounds: Measurements of each.
        json_file: Write figures here as well.
    """
    work = {name: prepare(config, batch, steps) for name, config in AGENTS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, run in work.items():
            began = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - began)
    table = Table(title=f"One step of an agent with 5 sensors, in a batch of {batch}")
    for column in ("layer", "ns a step", "ratio"):
        table.add_column(column, justify="left" if column == "layer" else "right")
    rows = []
    for name, times in seconds.items():
        ratio = statistics.median(
            mine / plain for mine, plain in zip(times, seconds["AttentionNeuron"], strict=True)
        )
        nanoseconds = 1e9 * statistics.median(times) / (batch * steps)
        rows.append({"layer": name, "nanoseconds": nanoseconds, "ratio": ratio})
        table.add_row(name, f"{nanoseconds:.0f}", f"{ratio:.2f}")
    Console().print(table)
    if json_file is not None:
        machine = this_machine()
        write_json(json_file, {"machine": machine, "batch": batch, "steps": steps, "layers": rows})


if __name__ == "__main__":
    tyro.cli(main)
