"""Gymnasium's CarRacing-v3 and ours side by side, driven by the same careless driver.

    python -m tests.racing_twin                  # eight tracks of 600 steps: how far the two come apart

writes `benchmarks/results/car_racing_twin.json`.
"""

import math
import warnings
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from sensorium.envs import CarRacing
from sensorium.envs.car_racing import lay_track

WORLD = CarRacing()
LAY, START, STEP = jax.jit(lay_track), jax.jit(WORLD.start_on), jax.jit(WORLD.advance)


class Compared(NamedTuple):
    """One step of both worlds."""

    rewards: tuple[float, float]
    """Theirs and ours."""
    ended: tuple[bool, bool]
    apart: float
    """m between the two cars."""
    steering: float
    """rad between their front wheels."""
    on_road: tuple[list[bool], list[bool]]
    """Which wheels touch the road."""
    agreeing: float
    """Part of the pixels of the frame that differ by no more than 8 of 255; NaN where none are drawn."""
    same: float
    """By no more than 2."""


class Recorded:
    """A generator of uniform numbers that remembers what it drew."""

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)
        self.drawn = []

    def uniform(self, low, high):
        self.drawn.append(self._rng.random())
        return low + (high - low) * self.drawn[-1]


def open_theirs():
    """Gymnasium's world, unwrapped."""
    with (
        warnings.catch_warnings()
    ):  # Box2D warns while it is imported, and crashes where that is an error
        warnings.simplefilter("ignore")
        return gymnasium.make("CarRacing-v3").unwrapped


def theirs(seed):
    """Gymnasium's world on a track of its own making, its first frame, and the 12 x 2 numbers behind it."""
    env = open_theirs()
    env.reset(seed=seed)
    env._np_random = recorded = Recorded(seed)
    frame, _ = env.reset()
    return env, frame, np.array(recorded.drawn).reshape(-1, 12, 2)[-1]


def ours(drawn):
    """Our track of those numbers, whether it closes, and the first frame and state on it."""
    track, closed = LAY(*jnp.asarray(drawn.T, jnp.float32))
    return track, bool(closed), *START(track)


def pedals(env, rng):
    """Follow the road, fast and carelessly."""
    track, place = np.array(env.track), np.array(env.car.hull.position)
    nearest = np.argmin(((track[:, 2:] - place) ** 2).sum(1))
    ahead = track[(nearest + 6) % len(track), 2:] - place
    error = math.atan2(-ahead[0], ahead[1]) - env.car.hull.angle
    error = (error + math.pi) % (2 * math.pi) - math.pi
    speed = np.hypot(*env.car.hull.linearVelocity)
    brake = 0.9 * (rng.random() < 0.05)
    return np.array([np.clip(-1.5 * error + 0.5 * rng.normal(), -1, 1), 0.4 * (speed < 45), brake])


def drive(seed, steps, images=False):
    """Drive both worlds; a `Compared` for each step, until either ends.

    Args:
        seed: Of the track and the driver.
        steps: At most.
        images: Whether Gymnasium draws, which takes most of its time.
    """
    env, _, drawn = theirs(seed)
    *_, state = ours(drawn)
    if not images:
        env._render = lambda mode: None
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        action = pedals(env, rng)
        frame, reward, ended, _, _ = env.step(action)
        own_action = jnp.array([action[0], 2 * action[1] - 1, 2 * action[2] - 1], jnp.float32)
        image, state, own, terminated, _, _ = STEP(jax.random.key(0), state, own_action)
        agreeing = same = math.nan
        if images:
            difference = np.abs(frame.astype(int) - np.asarray(image)).max(-1)
            agreeing, same = (float((difference <= most).mean()) for most in (8, 2))
        yield Compared(
            rewards=(reward, float(own)),
            ended=(ended, bool(terminated)),
            apart=float(
                np.hypot(*(np.array(env.car.hull.position) - np.stack(state.car.position)))
            ),
            steering=abs(float(state.car.steering) - env.car.wheels[0].joint.angle),
            on_road=([bool(wheel.tiles) for wheel in env.car.wheels], state.on_road.tolist()),
            agreeing=agreeing,
            same=same,
        )
        if ended or terminated:
            return


def main():
    """Compare on eight tracks, print and write."""
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from sensorium.serialisation import write_json

    runs = {seed: list(drive(seed, 600, images=True)) for seed in range(8)}
    table = Table(title="CarRacing-v3 and ours, a careless driver")
    columns = (
        "seed", "return, theirs", "ours", "apart after 100 steps, mm", "300", "600",
        "off the road, %", "pixels that agree, %", "to 2 of 255, %",
    )  # fmt: skip
    for column in columns:
        table.add_column(column, justify="right")
    rows = []
    for seed, steps in runs.items():
        down = [step.agreeing for step in steps[50:]]  # the camera is down after a second
        rows.append(
            {
                "seed": seed,
                "steps": len(steps),
                "returns": [sum(step.rewards[who] for step in steps) for who in (0, 1)],
                "apart": {n: steps[n - 1].apart for n in (100, 300, 600) if n <= len(steps)},
                "off_road": float(np.mean([not all(step.on_road[0]) for step in steps])),
                "pixels": [float(np.mean(down)), float(np.min(down))],
                "same_pixels": float(np.mean([step.same for step in steps[50:]])),
                "pixels_first_second": float(np.mean([step.agreeing for step in steps[:50]])),
            }
        )
        row = rows[-1]
        table.add_row(
            str(seed),
            *(f"{value:.1f}" for value in row["returns"]),
            *(f"{1000 * row['apart'].get(n, math.nan):.1f}" for n in (100, 300, 600)),
            f"{100 * row['off_road']:.0f}",
            f"{100 * row['pixels'][0]:.1f}",
            f"{100 * row['same_pixels']:.1f}",
        )
    write_json(Path("benchmarks/results/car_racing_twin.json"), rows)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
