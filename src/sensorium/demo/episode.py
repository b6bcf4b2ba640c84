"""One episode of an agent and its baseline in a world on the device, rewired while it runs."""

import abc
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, UInt8

from sensorium.demo.actors import Actors, ActorState, ActorTrace, Progress, RewiredInWorld
from sensorium.demo.rewiring import Rewired
from sensorium.errors import ConfigError
from sensorium.seeding import key_of, stream
from sensorium.types import PyTree


class Snapshot(NamedTuple):
    """One of the two at this moment."""

    total: float
    """Return so far."""
    time: int
    """Steps since the start."""
    ended: str
    """Empty, "failed" or "time"."""
    pose: np.ndarray
    """As `Environment.pose`."""
    trace: ActorTrace | None = None
    """Of the agent's last step; None before the first, and of the baseline."""
    observation: np.ndarray | None = None
    """Of the agent, before the perturbation; None of the baseline."""


class Episode(abc.ABC):
    """An episode of both."""

    @abc.abstractmethod
    def reset(self, seed: int, rewired: Rewired) -> None:
        """Start anew, both from the same start."""

    @abc.abstractmethod
    def resize(self, rewired: Rewired, before: int, after: int) -> None:
        """Go on with another number of inputs; those that stay keep their recurrent state."""

    @abc.abstractmethod
    def advance(self, count: int, rewired: Rewired, copies: int) -> None:
        """Take `count` steps of each whose episode has not ended."""

    @abc.abstractmethod
    def push(self, strength: float) -> None:
        """Push both bodies by a part of full strength, from -1 to 1."""

    @property
    def actions(self) -> tuple[str, ...]:
        """What the user can do instead of the agent, by name; nothing in most worlds."""
        return ()

    def play(self, action: int) -> None:
        """Let the user act; with -1 the agent acts again. ConfigError if there is no such action."""
        if action >= len(self.actions):
            raise ConfigError(f"There are {len(self.actions)} actions to choose from here.")

    @property
    @abc.abstractmethod
    def over(self) -> bool:
        """Whether the agent's episode has ended."""

    @abc.abstractmethod
    def snapshots(self) -> tuple[Snapshot, Snapshot | None]:
        """Return those of the agent and of the baseline."""

    def scenery(self) -> Float[np.ndarray, "points 2"]:
        """Return what stays in its place, as `Environment.scenery`."""
        return np.zeros((0, 2), np.float32)

    @abc.abstractmethod
    def render(self) -> UInt8[np.ndarray, "height width 3"] | None:
        """Return the image that the agent's world draws of itself; None if it does not."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free what is held."""


class DeviceEpisode(Episode):
    """In a world on the device."""

    def __init__(self, actors: Actors):
        """Set up; call `reset` before anything else."""
        self._actors = [actor for actor in actors.all() if isinstance(actor, RewiredInWorld)]
        self._world = self._actors[0].world
        self._states: list[ActorState] = []
        self._progress: list[Progress] = []

    def reset(self, seed: int, rewired: Rewired) -> None:
        key = key_of(seed)
        self._key_steps = stream(key, "steps")
        lead, *others = self._actors
        first = lead.reset(key, rewired)
        self._states = [first, *(other.join(first, rewired) for other in others)]
        self._update_progress()

    def _update_progress(self) -> None:
        pairs = zip(self._actors, self._states, strict=True)
        self._progress = [Progress.of(actor.progress(state)) for actor, state in pairs]

    def resize(self, rewired: Rewired, before: int, after: int) -> None:
        first = self._states[0]
        blank = self._actors[0].join(first, rewired)
        self._states[0] = first._replace(
            carry=resize_carry(first.carry, blank.carry, before, after), trace=blank.trace
        )
        for place, state in enumerate(self._states[1:], 1):
            trace = state.trace._replace(arrived=blank.trace.arrived)
            self._states[place] = state._replace(trace=trace)

    def advance(self, count: int, rewired: Rewired, copies: int) -> None:
        for place, actor in enumerate(self._actors):
            state, progress = actor.advance(
                self._states[place], self._key_steps, rewired, count, copies
            )
            self._states[place], self._progress[place] = state, Progress.of(progress)

    def push(self, strength: float) -> None:
        if not self._world.can_be_pushed:
            return
        for place, now in enumerate(self._states):
            state = self._world.push(self._world.join(now.state, now.constant), strength)
            changing, constant = self._world.split(state)
            observation = self._world.observe(state)
            self._states[place] = now._replace(
                state=changing, constant=constant, observation=observation
            )
        self._update_progress()

    @property
    def over(self) -> bool:
        return self._progress[0].ended

    def snapshots(self) -> tuple[Snapshot, Snapshot | None]:
        first, *second = [_snapshot(progress) for progress in self._progress]
        lead = self._states[0]
        trace = jax.tree.map(np.asarray, lead.trace) if first.time else None
        first = first._replace(trace=trace, observation=np.asarray(lead.observation))
        return first, second[0] if second else None

    def scenery(self) -> Float[np.ndarray, "points 2"]:
        return self._world.scenery(self._state_of_lead())

    def render(self) -> UInt8[np.ndarray, "height width 3"] | None:
        return self._world.draw(self._state_of_lead())

    def close(self) -> None:
        self._states = []

    def _state_of_lead(self) -> PyTree:
        return self._world.join(self._states[0].state, self._states[0].constant)


def _snapshot(progress: Progress) -> Snapshot:
    ended = "" if not progress.ended else "failed" if progress.failed else "time"
    return Snapshot(progress.total, progress.time, ended, progress.pose)


def resize_carry(old: PyTree, blank: PyTree, before: int, after: int) -> PyTree:
    """Keep the recurrent state of inputs that are still there.

    Args:
        old: The carry of so many inputs as there were before.
        blank: One of so many as there are now.
        before: Number of inputs; the axis of a leaf that has another length holds one or several blocks of
            so many.
        after: The same in `blank`.
    """
    kept = np.arange(min(before, after))

    def resize(new: Any, old: Any) -> Any:
        axes = [axis for axis in range(new.ndim) if new.shape[axis] != old.shape[axis]]
        if not axes:
            return old
        blocks = np.arange(old.shape[axes[0]] // before)[:, None]
        source, target = ((blocks * count + kept).reshape(-1) for count in (before, after))
        first = jnp.moveaxis(new, axes[0], 0)
        first = first.at[target].set(jnp.moveaxis(old, axes[0], 0)[source])
        return jnp.moveaxis(first, 0, axes[0])

    return jax.tree.map(resize, blank, old)
