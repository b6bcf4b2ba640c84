"""PyBullet's locomotion worlds, such as `AntBulletEnv-v0`: opened quietly, repeatable, and fast.

They come from pybullet_envs_gymnasium, the extra `ant`. PyBullet has wheels for Python 3.11 only.

Departures from the environment itself: the first episode of a fresh PyBullet world differs in the last
digits from a later one of the same seed, and legs are chaotic, so one is started and thrown away.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium

from sensorium.errors import did_you_mean, needs

_MARK = "BulletEnv-"


def knows(name: str) -> bool:
    """Check whether `name` is one of PyBullet's worlds, or meant to be."""
    return _MARK in name


def open_env(
    name: str, make: Callable[[], gymnasium.Env], training_reward: bool = False
) -> gymnasium.Env:
    """Open one of PyBullet's worlds.

    Args:
        name: Such as `"AntBulletEnv-v0"`.
        make: Opens the environment of that name, which is registered by then.
        training_reward: Pay `TrainingReward` instead of the world's own.

    Raises:
        MissingExtraError: PyBullet is not installed.
        UnknownNameError: PyBullet has no such world.
    """
    with _without_greetings():
        with needs("ant", name, note=", with Python 3.11 (there are no wheels for another)"):
            from sensorium.bridges.fast_bullet import (
                quicken,  # its imports register PyBullet's worlds
            )
        if name not in gymnasium.registry:
            theirs = [known for known in gymnasium.registry if knows(known)]
            raise did_you_mean("PyBullet environment", name, theirs)
        env = make()
        env.reset(seed=0)  # see the departures above
        quicken(env)
    return TrainingReward(env) if training_reward else env


class TrainingReward(gymnasium.Wrapper):
    """What the authors trained the ant with: max(0, the reward without the bonus for being alive).

    An ant that stands still earns the bonus every step; without it, only moving forward pays.
    """

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the world, and change the reward."""
        observation, _, terminated, truncated, info = self.env.step(action)
        _alive, *others = self.env.unwrapped.rewards
        return observation, max(0.0, float(sum(others))), terminated, truncated, info


@contextlib.contextmanager
def _without_greetings() -> Iterator[None]:
    """Drop what PyBullet prints from C when it is loaded and started."""
    libc = ctypes.CDLL(None)
    with contextlib.ExitStack() as undo:
        for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
            with contextlib.suppress(OSError):  # a process may lack one
                stream.flush()
                kept = os.dup(descriptor)
                undo.callback(os.close, kept)
                undo.callback(os.dup2, kept, descriptor)
                undo.callback(libc.fflush, None)
                nowhere = os.open(os.devnull, os.O_WRONLY)
                undo.callback(os.close, nowhere)
                libc.fflush(None)
                os.dup2(nowhere, descriptor)
        yield
