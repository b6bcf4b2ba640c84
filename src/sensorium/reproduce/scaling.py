"""One layer from 5 to 1,000,000 channels: time and memory, whole and in blocks."""

import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from rich.table import Table

from sensorium.analysis import figures
from sensorium.layers import AttentionNeuron
from sensorium.seeding import key_of

_SIZES = (5, 28, 100, 1_000, 10_000, 100_000, 1_000_000)
_BLOCK = 4096


def scaling(episodes: int, seed: int, out: Path) -> tuple[Any, Table]:
    """Measure one step of the layer for each number of sensors; writes scaling.png."""
    del episodes
    rows = [
        _measure(sensors, block_size, seed) for block_size in (None, _BLOCK) for sensors in _SIZES
    ]
    path = out / "scaling.png"
    figures.scaling(path, rows)
    table = Table(title="One step of the layer (913-parameter agent)")
    for column in ("sensors", "blocks", "milliseconds", "temporary memory", "ns a sensor"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            f"{row['sensors']:,}",
            f"{row['block_size']:,}" if row["block_size"] else "-",
            f"{1e3 * row['seconds']:.3f}",
            f"{row['temporary_bytes'] / 2**20:.2f} MiB",
            f"{1e9 * row['seconds'] / row['sensors']:.0f}",
        )
    return {"figure": str(path), "rows": rows}, table


def _measure(sensors: int, block_size: int | None, seed: int) -> dict[str, Any]:
    key_layer, key_readings = jax.random.split(key_of(seed))
    layer = AttentionNeuron(1, block_size=block_size, key=key_layer)
    readings = jax.random.normal(key_readings, (sensors,)) / sensors
    action, memory = jnp.zeros(1), layer.initial_memory(sensors)
    parameters, static = eqx.partition(layer, eqx.is_array)

    def step(parameters: Any, readings: Any, action: Any, memory: Any) -> Any:
        return eqx.combine(parameters, static).code(readings, action, memory)

    compiled = jax.jit(step).lower(parameters, readings, action, memory).compile()
    jax.block_until_ready(compiled(parameters, readings, action, memory))
    times = []
    repeats = max(3, min(200, 200_000 // sensors))
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(repeats):
            code, _ = compiled(parameters, readings, action, memory)
        jax.block_until_ready(code)
        times.append((time.perf_counter() - began) / repeats)
    memory_analysis = compiled.memory_analysis()
    assert memory_analysis is not None
    return {
        "sensors": sensors,
        "block_size": block_size,
        "seconds": min(times),
        "temporary_bytes": int(memory_analysis.temp_size_in_bytes),
    }
