"""One episode of an agent and its rival, in a world on the device, whose senses change while it runs."""

import abc
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sensorium.demo.company import Company, DevicePerformer, Inside, Player
from sensorium.envs import CarRacingState, CartPoleState
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
    inside: Inside | None
    """Of the last step; None before the first."""
    observation: np.ndarray
    """What the world shows, unperturbed."""
    body: np.ndarray
    """Where the body is; what it means depends on the world."""


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

    @abc.abstractmethod
    def standings(self) -> tuple[Standing, Standing | None]:
        """Of the agent and of its rival."""

    def scenery(self) -> np.ndarray:
        """What stays where it is for an episode; of no points where there is nothing to draw."""
        return np.zeros((0, 2), np.float32)

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

    def begin(self, seed: int, drawn: Any) -> None:
        self._key = jax.random.key(seed)
        self._players = [each.begin(self._key, drawn) for each in self._cast]

    def rewire(self, drawn: Any) -> None:
        fresh = self._cast[0].begin(self._key, drawn)
        first = self._players[0]
        kept = keep_memory(first.carry, fresh.carry)
        self._players[0] = first._replace(carry=kept, inside=fresh.inside)
        if len(self._players) > 1:
            inside = self._players[1].inside._replace(arrived=fresh.inside.arrived)
            self._players[1] = self._players[1]._replace(inside=inside)

    def advance(self, count: int, drawn: Any, copies: int) -> None:
        for place, performer in enumerate(self._cast):
            player = self._players[place]
            player = performer.advance(player, self._key, drawn, count, copies)
            self._players[place] = player

    def push(self, strength: float) -> None:
        for place, player in enumerate(self._players):
            state = _pushed(player.state, strength)
            observation = (
                self._world.observe(state) if state is not player.state else player.observation
            )
            self._players[place] = player._replace(state=state, observation=observation)

    def standings(self) -> tuple[Standing, Standing | None]:
        first, *second = [self._standing(player) for player in self._players]
        return first, second[0] if second else None

    def _standing(self, player: Player) -> Standing:
        time = int(self._world.time(player.state))
        return Standing(
            float(player.total),
            time,
            ("failed" if player.failed else "time") if player.ended else "",
            jax.tree.map(np.asarray, player.inside) if time else None,
            np.asarray(player.observation),
            _body(player.state),
        )

    def scenery(self) -> np.ndarray:
        if isinstance(self._players[0].state, CarRacingState):
            road, _ = self._players[0].ground
            return np.asarray(road.lines).T[: int(road.size), :2].astype(np.float32)
        return super().scenery()

    def close(self) -> None:
        self._players = []


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


def _body(state: PyTree) -> np.ndarray:
    """Cart and pole: position and angle. Car: place, angle and that of the front wheels."""
    if isinstance(state, CartPoleState):
        return np.array([state.position, state.angle], np.float32)
    if isinstance(state, CarRacingState):
        car = state.car
        return np.array([*car.position, car.angle, car.steering], np.float32)
    return np.zeros(0, np.float32)
