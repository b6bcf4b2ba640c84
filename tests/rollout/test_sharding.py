"""Shares of lanes on several devices: the mean is that of all of them."""

import os
import subprocess
import sys

import pytest

CODE = """
import jax, jax.numpy as jnp, numpy as np
from sensorium.rollout import mean_over_devices, use_all_cores

use_all_cores({devices})
rows = (jnp.arange(24.0).reshape(2, 12), jnp.arange(12.0))
weights = jnp.array([0.3, -0.7])

def loss(weights, rows):
    return jnp.mean(jnp.tanh(weights @ rows[0] / 10) * rows[1])

def gradient(rows, weights):
    return jax.grad(loss)(weights, rows)

shared = jax.jit(lambda rows, weights: mean_over_devices(gradient, rows, weights))(rows, weights)
np.testing.assert_allclose(shared, gradient(rows, weights), rtol=1e-5)
print(len(jax.local_devices()), len(shared.devices()))
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
