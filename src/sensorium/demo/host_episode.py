"""The same in a world on the host: Gymnasium environments, PyBullet's ant among them."""

import logging
import threading

import jax
import numpy as np
from jaxtyping import UInt8

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.open_env import open_env
from sensorium.demo.actors import Actors, ActorTrace, RewiredPolicy
from sensorium.demo.episode import Episode, Snapshot, resize_carry
from sensorium.demo.rewiring import Rewired
from sensorium.seeding import key_of
from sensorium.types import Key
from sensorium.world_names import with_options

LOG = logging.getLogger("sensorium.demo")

# Opening PyBullet's worlds silences the whole process for a moment, which two must not do at a time
_OPENING = threading.Lock()


class HostEpisode(Episode):
    """An environment for the agent, and one for the baseline."""

    def __init__(self, actors: Actors, world: HostWorld, look: dict[str, str]):
        """Open them; `look` as of `Controls`."""
        name = with_options(world.name, **look)
        self._runs = [_HostRun(world, actor, name) for actor in actors.all()]
        self._played = -1

    def reset(self, seed: int, rewired: Rewired) -> None:
        key = key_of(seed)
        for run in self._runs:
            run.reset(seed, key, rewired)

    def resize(self, rewired: Rewired, before: int, after: int) -> None:
        lead = self._runs[0]
        blank = lead.actor.initial_carry(rewired)
        lead.carry = resize_carry(lead.carry, blank, before, after)

    def advance(self, count: int, rewired: Rewired, copies: int) -> None:
        for run in self._runs:
            for _ in range(count):
                if not run.ended:
                    run.step(rewired, copies, self._played if run is self._runs[0] else -1)

    @property
    def actions(self) -> tuple[str, ...]:
        return self._runs[0].world.option_names

    def play(self, action: int) -> None:
        super().play(action)
        self._played = action

    def push(self, strength: float) -> None:
        for run in self._runs:
            run.world.push(run.env, strength)

    @property
    def over(self) -> bool:
        return bool(self._runs[0].ended)

    def snapshots(self) -> tuple[Snapshot, Snapshot | None]:
        first, *second = [run.snapshot() for run in self._runs]
        return first, second[0] if second else None

    def render(self) -> UInt8[np.ndarray, "height width 3"] | None:
        return self._runs[0].render()

    def close(self) -> None:
        for run in self._runs:
            run.env.close()


class _HostRun:
    """One of the two in an environment of its own."""

    def __init__(self, world: HostWorld, actor: RewiredPolicy, name: str):
        self.world, self.actor = world, actor
        with _OPENING:
            self.env = open_env(name, render_mode=world.render_mode)
        self._draws = world.render_mode is not None

    def reset(self, seed: int, key: Key, rewired: Rewired) -> None:
        self.key, self.carry = key, self.actor.initial_carry(rewired)
        self.trace: ActorTrace | None = None
        self.total, self.time, self.ended = 0.0, 0, ""
        self.observation, _ = self.env.reset(seed=seed)

    def step(self, rewired: Rewired, copies: int, played: int = -1) -> None:
        key = jax.random.fold_in(self.key, self.time)
        observation = np.asarray(self.observation, np.float32)
        trace, self.carry = self.actor.act(key, rewired, observation, self.carry, copies=copies)
        self.trace = jax.tree.map(np.asarray, trace)
        command = self.world.to_env_actions(np.asarray(trace.command)[None])[0]
        if played >= 0:
            command = played
        self.observation, reward, failed, late, _ = self.env.step(command)
        self.total, self.time = self.total + float(reward), self.time + 1
        self.ended = "failed" if failed else "time" if late else ""

    def render(self) -> UInt8[np.ndarray, "height width 3"] | None:
        if not self._draws:
            return None
        try:
            image = self.env.render()
        except Exception as error:
            # Libraries or a screen may be missing; the agent acts all the same
            LOG.warning("%s cannot draw itself: %s", self.world.name, error)
            image = None
        self._draws = isinstance(image, np.ndarray) and image.ndim == 3
        return image if self._draws else None

    def snapshot(self) -> Snapshot:
        pose = self.world.pose(self.env)
        return Snapshot(self.total, self.time, self.ended, pose, self.trace, self.observation)
