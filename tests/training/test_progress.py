"""What a run shows of itself while it goes on."""

import io

import jax
import numpy as np
import pytest
from rich.console import Console

from sensorium.envs import CartPoleSwingUpHarder
from sensorium.policies import AttentionNeuronConfig, as_population
from sensorium.rollout import DeviceEngine, HostEngine, make_world
from sensorium.terminal import with_unit
from sensorium.training import Budget
from sensorium.training.progress import Display, headline

ROW = dict(
    generation=3,
    test=1234.4,
    best_test=1500.2,
    seconds=10.0,
    seconds_left=3600.0,
    env_steps=1,
    env_steps_per_second=9.13e6,
)


@pytest.mark.parametrize(
    ("figures", "line"),
    [
        (
            dict(mean=1200.3, best=1400.0),
            "train 1200 (best 1400)  test 1234 (best 1500)  9.1 M steps/s",
        ),
        (
            dict(mean=-0.0001, best=-0.0),
            "train -0.0001 (best 0)  test 1234 (best 1500)  9.1 M steps/s",
        ),
        (dict(mean=None, best=None), "train - (best -)  test 1234 (best 1500)  9.1 M steps/s"),
        (
            dict(loss=0.01234, mean=3.0, best=4.0),
            "loss 0.012  test 1234 (best 1500)  9.1 M steps/s",
        ),
        (
            dict(loss=0.5, env_steps=0, env_steps_per_second=0.0, test=None, best_test=None),
            "loss 0.5  test - (best -)",
        ),
        (dict(env_steps_per_second=812.0), "test 1234 (best 1500)  812 steps/s"),
    ],
)
def test_figures_fit_what_a_trainer_reports(figures, line):
    assert headline(ROW | figures) == line


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (3.24, "3.2"),
        (812.0, "812"),
        (999.6, "1 k"),
        (23_456.0, "23 k"),
        (2.5e9, "2500 M"),
    ],
)
def test_units_fit_the_size(value, text):
    assert with_unit(value) == text


@pytest.mark.parametrize("live", [True, False])
def test_a_line_fits_a_terminal_of_80_columns(live, monkeypatch):
    """Returns of thousands included; a line that wraps would leave a trail on the screen."""
    out = io.StringIO()
    budget = Budget("evolution", 1, 6, 1000, 1, 1, 1, 0)
    display = Display(budget, 0)
    console = Console(file=out, width=80, force_terminal=live, color_system=None)
    display._console = display._bar.live.console = console
    display._live, display._bar.disable = live, not live
    with display:
        display.update(ROW | dict(generation=1000, mean=-1200.3, best=-1100.0))
    lines = [line for line in out.getvalue().splitlines() if "train" in line]
    assert any("train -1200 (best -1100)" in line and "9.1 M steps/s" in line for line in lines)


def test_steps_are_counted_up_to_the_end_of_each_episode(key, monkeypatch):
    """Of a device, fused or not, and of the host."""
    monkeypatch.setattr(CartPoleSwingUpHarder, "max_steps", 120)
    keys = jax.random.split(key, 6)
    world = CartPoleSwingUpHarder()
    policies = as_population(AttentionNeuronConfig().build(5, 1, key))
    episodes = DeviceEngine(world).run_population(policies, keys)
    totals = DeviceEngine(world).totals(policies, keys)
    np.testing.assert_array_equal(totals.steps, episodes.length)
    walk = make_world("gym:tests.host_worlds:Walk-v0")
    with HostEngine(walk, workers=0) as engine:
        policies = as_population(AttentionNeuronConfig(num_queries=4).build(2, 2, key))
        steps = engine.totals(policies, keys).steps
    assert len(np.unique(steps)) > 1
    assert (steps < 15).all()  # Walk ends after 5 to 14
