"""The same in a world on the host: Gymnasium environments, PyBullet's ant among them."""

import logging
import threading
from typing import Any

import jax
import numpy as np
from jaxtyping import UInt8

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.opening import open_env
from sensorium.bridges.skeleton import kick, skeleton
from sensorium.demo.company import Company, Inside, Performer
from sensorium.demo.stage import Stage, Standing, keep_memory
from sensorium.seeding import key_of
from sensorium.types import Key

LOG = logging.getLogger("sensorium.demo")

# Opening PyBullet's worlds silences the whole process for a moment, which two must not do at a time
_OPENING = threading.Lock()


class HostStage(Stage):
    """An environment for the agent, and one for its rival."""

    def __init__(self, company: Company):
        """Open them."""
        assert isinstance(company.world, HostWorld)
        cast = [each for each in (company.lead, company.second) if each is not None]
        self._actors = [_Actor(company.world, performer) for performer in cast]

    def begin(self, seed: int, drawn: Any) -> None:
        key = key_of(seed)
        for actor in self._actors:
            actor.begin(seed, key, drawn)

    def rewire(self, drawn: Any) -> None:
        lead = self._actors[0]
        lead.carry = keep_memory(lead.carry, lead.performer.blank(drawn))

    def advance(self, count: int, drawn: Any, copies: int) -> None:
        for actor in self._actors:
            for _ in range(count):
                if not actor.ended:
                    actor.step(drawn, copies)

    def push(self, strength: float) -> None:
        for actor in self._actors:
            kick(actor.env, strength)

    @property
    def over(self) -> bool:
        return bool(self._actors[0].ended)

    def standings(self) -> tuple[Standing, Standing | None]:
        first, *second = [actor.standing() for actor in self._actors]
        return first, second[0] if second else None

    def view(self) -> UInt8[np.ndarray, "height width 3"] | None:
        return self._actors[0].draw()

    def close(self) -> None:
        for actor in self._actors:
            actor.env.close()


class _Actor:
    """One of the two in an environment of its own."""

    def __init__(self, world: HostWorld, performer: Performer):
        self.world, self.performer = world, performer
        with _OPENING:
            self.env = open_env(world.name, render_mode=world.render_mode)
        self._draws = world.render_mode is not None

    def begin(self, seed: int, key: Key, drawn: Any) -> None:
        self.key, self.carry = key, self.performer.blank(drawn)
        self.inside: Inside | None = None
        self.total, self.time, self.ended = 0.0, 0, ""
        self.observation, _ = self.env.reset(seed=seed)

    def step(self, drawn: Any, copies: int) -> None:
        key = jax.random.fold_in(self.key, self.time)
        inside, self.carry = self.performer.hear(
            key, drawn, np.asarray(self.observation, np.float32), self.carry, copies=copies
        )
        inside = jax.tree.map(np.asarray, inside)
        command = self.world.to_env_actions(inside.action[None])[0]
        self.inside = inside
        self.observation, reward, failed, late, _ = self.env.step(command)
        self.total, self.time = self.total + float(reward), self.time + 1
        self.ended = "failed" if failed else "time" if late else ""

    def draw(self) -> UInt8[np.ndarray, "height width 3"] | None:
        """A picture of the environment, if it can draw itself."""
        if not self._draws:
            return None
        try:
            picture = self.env.render()
        except Exception as error:
            # Libraries or a screen may be missing; the agent acts all the same
            LOG.warning("%s cannot draw itself: %s", self.world.name, error)
            picture = None
        self._draws = isinstance(picture, np.ndarray) and picture.ndim == 3
        return picture if self._draws else None

    def standing(self) -> Standing:
        return Standing(
            self.total, self.time, self.ended, skeleton(self.env), self.inside, self.observation
        )
