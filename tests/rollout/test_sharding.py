"""Shares of lanes on several devices, which never wait for one another."""

import os
import subprocess
import sys

import pytest

from sensorium.rollout import usable_cores

CODE = """
import jax, jax.numpy as jnp, numpy as np
from sensorium.rollout import each_share, use_all_cores

use_all_cores({devices})
rows = (jnp.arange(24.0).reshape(2, 12), jnp.arange(12.0))
weights = jnp.array([0.3, -0.7])

def loss(weights, rows):
    return jnp.mean(jnp.tanh(weights @ rows[0] / 10) * rows[1])

def gradient(rows, weights):
    return jax.grad(loss)(weights, rows)

compiled = jax.jit(lambda rows, weights: each_share(gradient, rows, weights)).lower(rows, weights).compile()
shares = compiled(rows, weights)
np.testing.assert_allclose(np.asarray(shares).mean(0), gradient(rows, weights), rtol=1e-5)
assert "all-" not in compiled.as_text()
print(len(jax.local_devices()), len(shares))
"""


@pytest.mark.parametrize(("devices", "shares"), [(1, 1), (2, 2), (4, 4), (5, 4)])
def test_the_mean_of_shares_is_that_of_all_lanes(devices, shares):
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    code = CODE.format(devices=devices)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(devices), str(shares)]


@pytest.mark.parametrize(
    ("there", "cores"),
    [
        ({"process_cpu_count": lambda: 3, "sched_getaffinity": lambda _: {0}}, 3),
        ({"sched_getaffinity": lambda _: {0, 5}}, 2),
        ({"cpu_count": lambda: 7}, 7),  # as on macOS
        ({"cpu_count": lambda: None}, 1),
    ],
)
def test_cores_are_counted_on_every_system(there, cores, monkeypatch):
    for name in ("process_cpu_count", "sched_getaffinity", "cpu_count"):
        monkeypatch.delattr(os, name, raising=False)
        if name in there:
            monkeypatch.setattr(os, name, there[name], raising=False)
    assert usable_cores() == cores
