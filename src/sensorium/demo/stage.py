"""One episode of an agent and its rival, in a world on the device, whose senses change while it runs."""

import abc
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8

from sensorium.demo.company import Company, DevicePerformer, Inside, Player, Report
from sensorium.envs import CarRacingState, CartPoleState
from sensorium.seeding import key_of, stream
from sensorium.types import PyTree

PUSH = 1.5
"""m/s that a push of full strength adds to the speed of a cart."""


class Standing(NamedTuple):
    """How one of the two is doing."""

    total: float
    """Return so far."""
    time: int
    """Steps since the start."""
    ended: str
    """Empty, "failed" or "time"."""
    body: np.ndarray
    """Where the body is; what it means depends on the world."""
    inside: Inside | None = None
    """Of the agent at the last step; None before the first, and of a rival."""
    observation: np.ndarray | None = None
    """What the world shows, unperturbed; None of a rival."""


class Stage(abc.ABC):
    """An episode of both."""

    @abc.abstractmethod
    def begin(self, seed: int, drawn: Any) -> None:
        """Start anew, both from the same start."""

    @abc.abstractmethod
    def rewire(self, drawn: Any) -> None:
        """The senses have another number of places from now on."""

    @abc.abstractmethod
    def advance(self, count: int, drawn: Any, copies: int) -> None:
        """So many steps of each that is still in its episode."""

    @abc.abstractmethod
    def push(self, strength: float) -> None:
        """Push both."""

    @property
    @abc.abstractmethod
    def over(self) -> bool:
        """Whether the agent's episode has ended."""

    @abc.abstractmethod
    def standings(self) -> tuple[Standing, Standing | None]:
        """Of the agent and of its rival."""

    def scenery(self) -> np.ndarray:
        """What stays where it is for an episode; of no points where there is nothing to draw."""
        return np.zeros((0, 2), np.float32)

    @abc.abstractmethod
    def view(self) -> UInt8[np.ndarray, "height width 3"] | None:
        """What the world of the agent draws of itself; None if it does not."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free what is held."""


class DeviceStage(Stage):
    """In a world of JAX."""

    def __init__(self, company: Company):
        """Set up; `begin` before anything else."""
        performers = (company.lead, company.second)
        self._cast = [each for each in performers if isinstance(each, DevicePerformer)]
        self._world = self._cast[0].world
        self._players: list[Player] = []
        self._reports: list[Report] = []

    def begin(self, seed: int, drawn: Any) -> None:
        key = key_of(seed)
        self._key_steps = stream(key, "steps")
        lead, *others = self._cast
        first = lead.begin(key, drawn)
        self._players = [first, *(other.join(first, drawn) for other in others)]
        self._look()

    def _look(self) -> None:
        pairs = zip(self._cast, self._players, strict=True)
        self._reports = [Report.of(each.report(player)) for each, player in pairs]

    def rewire(self, drawn: Any) -> None:
        first = self._players[0]
        fresh = self._cast[0].join(first, drawn)
        kept = keep_memory(first.carry, fresh.carry)
        self._players[0] = first._replace(carry=kept, inside=fresh.inside)
        if len(self._players) > 1:
            inside = self._players[1].inside._replace(arrived=fresh.inside.arrived)
            self._players[1] = self._players[1]._replace(inside=inside)

    def advance(self, count: int, drawn: Any, copies: int) -> None:
        for place, performer in enumerate(self._cast):
            player = self._players[place]
            player, report = performer.advance(player, self._key_steps, drawn, count, copies)
            self._players[place], self._reports[place] = player, Report.of(report)

    def push(self, strength: float) -> None:
        for place, player in enumerate(self._players):
            state = _pushed(player.state, strength)
            observation = (
                self._world.observe(state) if state is not player.state else player.observation
            )
            self._players[place] = player._replace(state=state, observation=observation)
        self._look()

    @property
    def over(self) -> bool:
        return self._reports[0].ended

    def standings(self) -> tuple[Standing, Standing | None]:
        first, *second = [_standing(report) for report in self._reports]
        player = self._players[0]
        inside = jax.tree.map(np.asarray, player.inside) if first.time else None
        first = first._replace(inside=inside, observation=np.asarray(player.observation))
        return first, second[0] if second else None

    def scenery(self) -> np.ndarray:
        if isinstance(self._players[0].state, CarRacingState):
            road, _ = self._players[0].ground
            return np.asarray(road.lines).T[: int(road.size), :2].astype(np.float32)
        return super().scenery()

    def view(self) -> UInt8[np.ndarray, "height width 3"] | None:
        return self._world.draw(self._players[0].state)

    def close(self) -> None:
        self._players = []


def _standing(report: Report) -> Standing:
    ended = "" if not report.ended else "failed" if report.failed else "time"
    return Standing(report.total, report.time, ended, report.body)


def keep_memory(old: PyTree, blank: PyTree) -> PyTree:
    """Memory of places that are still there, and blank for new ones; places are the last axis."""

    def keep(new: Any, before: Any) -> Any:
        if new.shape == before.shape:
            return before
        places = min(new.shape[-1], before.shape[-1])
        return jnp.asarray(new).at[..., :places].set(before[..., :places])

    return jax.tree.map(keep, blank, old)


def _pushed(state: PyTree, strength: float) -> PyTree:
    if isinstance(state, CartPoleState):
        return state._replace(velocity=state.velocity + np.float32(PUSH * strength))
    return state
