"""Wires and patches that can change while compiled code runs.

The perturbations of `sensorium.perturbations` are values that code is compiled for. A visitor changes them
many times a minute, so here the same things are arrays that go into code compiled once: which sensor each
place carries, what each patch of a picture shows. Shapes do not change, as there are places that stay empty:
an AttentionNeuron sums over its sensors, so one that reads zero and remembers nothing is one that is not
there, up to rounding. Other agents get exactly as many places as there are, and are compiled for each number.
"""

import abc
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt8

from sensorium.demo.messages import CHANGES, DROPPED, MOST_COPIES, MOST_NOISE, NOISE, Controls
from sensorium.errors import ConfigError
from sensorium.layers import AttentionNeuron
from sensorium.layers.vision_attention import grid
from sensorium.perturbations import MODIFICATIONS, Identity, OneOf
from sensorium.perturbations.backgrounds import frames_of
from sensorium.perturbations.patches import from_patches, to_patches
from sensorium.perturbations.racing import on_grass
from sensorium.policies import Policy, SensoryCarry, SensoryPolicy
from sensorium.seeding import key_of, stream
from sensorium.types import Key, Observation, Picture, PyTree, Senses

FROM_NOISE, EMPTY = -1, -2
SIGMA = 0.1
"""Standard deviation of channels of noise, as in the papers."""
PATCH = 6
"""Pixels each way of the patches that are shuffled and hidden, as in the papers."""


class Wired(NamedTuple):
    """What each of C places carries."""

    wire: Int[np.ndarray | Array, " C"]
    """The wire that ends there, or `EMPTY`; the empty ones come last."""
    source: Int[np.ndarray | Array, " C"]
    """The sensor that it comes from, `FROM_NOISE`, or `EMPTY`."""
    whole: Bool[np.ndarray | Array, " C"]
    """False where the wire is cut."""


class Patched(NamedTuple):
    """What happens to a picture of P patches."""

    order: Int[np.ndarray | Array, " P"]
    """Which patch is shown in each place."""
    hidden: Bool[np.ndarray | Array, " P"]
    """Patches that are black, before they change places."""
    ground: UInt8[np.ndarray | Array, "H W 3"]
    """What is painted where grass was."""
    painted: Bool[np.ndarray | Array, ""]
    noisy: Bool[np.ndarray | Array, ""]
    """Whether noise is painted instead."""
    change: tuple[Int[np.ndarray | Array, ""], tuple[PyTree, ...]]
    """Which of `CHANGES` happens to it, then, and what each has drawn: the state of `_CHANGE`."""

    @property
    def changes_anything(self) -> bool:
        """Whether what arrives is another picture than there is."""
        moved = self.order != np.arange(len(self.order))
        return bool(moved.any() or self.hidden.any() or self.painted or self.change[0])


class Rewirable(abc.ABC):
    """The senses of one world, as visitors change them."""

    @abc.abstractmethod
    def check(self, controls: Controls) -> None:
        """ConfigError if this agent cannot live with what a visitor wants."""

    @abc.abstractmethod
    def draw(self, controls: Controls, turn: int, dropped: np.ndarray | None) -> Any:
        """What `arrive` needs, as arrays.

        Args:
            controls: What the visitor has set.
            turn: How many times the order has changed by itself.
            dropped: The visitor's own picture, of the size that the world shows.
        """

    @abc.abstractmethod
    def arrive(self, key: Key, drawn: Any, observation: Any) -> Any:
        """What arrives at the agent; pure."""

    @abc.abstractmethod
    def seats(self, drawn: Any) -> Senses:
        """What an agent is to be ready for."""

    def settle(self, blank: PyTree, carry: PyTree, drawn: Any) -> PyTree:
        """The carry, as blank as `blank` in places that are empty; pure."""
        del blank, drawn
        return carry


class Wires(Rewirable):
    """Scalar sensors: places, copies, noise, cut wires.

    Wires keep their numbers whatever else there is: N `MOST_COPIES` + j is the j-th channel of noise, and
    below that N k + i is the k-th copy of sensor i.
    """

    def __init__(self, policy: Policy, num_sensors: int):
        """Set up for an agent and N sensors."""
        self._policy, self._count = policy, num_sensors
        layer = policy.layer if isinstance(policy, SensoryPolicy) else None
        sums = isinstance(layer, AttentionNeuron) and layer.nonlinear_keys is None
        self._room = num_sensors * MOST_COPIES + MOST_NOISE if sums else 0

    @property
    def exact(self) -> bool:
        """Whether there are never empty places."""
        return not self._room

    @property
    def any_number(self) -> bool:
        """Whether the agent can live with another number of sensors."""
        try:
            self._policy.initial_carry(self._count + 1)
        except ConfigError:
            return False
        return True

    def check(self, controls: Controls) -> None:
        self._policy.initial_carry(self.channels(controls))
        last = self.first_noise + MOST_NOISE - 1
        if max(controls.cut, default=0) > last:
            raise ConfigError(
                f"There are wires 0 to {last}, and none of number {max(controls.cut)}."
            )
        if controls.hidden or controls.occlude or controls.background or controls.modify:
            raise ConfigError("This world shows numbers; it has no patches, background or colours.")

    @property
    def first_noise(self) -> int:
        """Number of the wire of the first channel of noise."""
        return self._count * MOST_COPIES

    def channels(self, controls: Controls) -> int:
        """How many places are not empty."""
        return self._count * controls.copies + controls.noise

    def draw(self, controls: Controls, turn: int, dropped: np.ndarray | None = None) -> Wired:
        del dropped
        sensors = np.arange(self._count * controls.copies, dtype=np.int32)
        noise = np.arange(controls.noise, dtype=np.int32) + self.first_noise
        wire = np.append(sensors, noise)
        wire = wire[order_of(controls, turn, len(wire))]
        source = np.where(wire < self.first_noise, wire % self._count, FROM_NOISE)
        empty = np.full(max(self._room - len(wire), 0), EMPTY, np.int32)
        return Wired(
            np.append(wire, empty),
            np.append(source.astype(np.int32), empty),
            np.append(~np.isin(wire, controls.cut), np.zeros(len(empty), bool)),
        )

    def arrive(self, key: Key, drawn: Wired, observation: Observation) -> Float[Array, " C"]:
        noise = SIGMA * jax.random.normal(key, drawn.source.shape, observation.dtype)
        sensed = observation[jnp.maximum(drawn.source, 0)]
        reading = jnp.where(drawn.source == FROM_NOISE, noise, sensed)
        return jnp.where(drawn.whole, reading, 0.0)

    def seats(self, drawn: Wired) -> int:
        return len(drawn.source)

    def settle(self, blank: PyTree, carry: PyTree, drawn: Wired) -> PyTree:
        if self.exact or not isinstance(carry, SensoryCarry):
            return carry
        here = drawn.source != EMPTY
        memory = jax.tree.map(
            lambda new, old: jnp.where(here, old, new), blank.memory, carry.memory
        )
        return carry._replace(memory=memory)


class Patches(Rewirable):
    """Pictures: the order of patches, patches that are hidden, what is beside the road."""

    def __init__(self, policy: Policy, shape: tuple[int, ...]):
        """Set up for an agent and pictures of (H, W, 3)."""
        self.shape, self._unseen = shape, policy.hidden_rows
        rows, columns = grid(shape[0], shape[1], PATCH)
        self._count = rows * columns

    def check(self, controls: Controls) -> None:
        if controls.cut or controls.noise or controls.copies > 1:
            raise ConfigError("This world shows pictures; it has no wires to cut, copy or add to.")
        if max(controls.hidden, default=0) >= self._count:
            raise ConfigError(f"There are patches 0 to {self._count - 1}.")

    def draw(self, controls: Controls, turn: int, dropped: np.ndarray | None = None) -> Patched:
        ground = np.zeros(self.shape, np.uint8)
        if controls.background == DROPPED and dropped is not None:
            ground = dropped
        elif controls.background not in ("", NOISE, DROPPED):
            ground = frames_of(controls.background, *self.shape[:2])[0]
        chance = np.random.default_rng(controls.seed).permutation(self._count)
        hidden = chance < round(self._count * controls.occlude / 100)
        hidden[list(controls.hidden)] = True
        painted = controls.background != "" and (
            controls.background != DROPPED or dropped is not None
        )
        return Patched(
            order_of(controls, turn, self._count),
            hidden,
            ground,
            np.asarray(painted),
            np.asarray(controls.background == NOISE),
            (
                np.asarray(CHANGES.index(controls.modify), np.int32),
                _drawn(controls.seed, self.shape),
            ),
        )

    def arrive(self, key: Key, drawn: Patched, observation: Picture) -> Picture:
        height, width, _ = self.shape
        shown = observation.at[height - self._unseen :].set(0)  # as `evaluation.as_shown`
        key_noise, key_change = jax.random.split(key)
        noise = jax.random.bits(key_noise, shown.shape, jnp.uint8)
        ground = jnp.where(drawn.noisy, noise, drawn.ground)
        shown = jnp.where(on_grass(shown) & drawn.painted, ground, shown)
        shown, _ = _CHANGE.apply(key_change, drawn.change, shown)
        patches = jnp.where(drawn.hidden[:, None, None, None], 0, to_patches(shown, PATCH))
        return from_patches(patches[drawn.order], height, width)

    def seats(self, drawn: Patched) -> tuple[int, ...]:
        del drawn
        return self.shape


# Compiled once; the visitor chooses instead of chance
_CHANGE = OneOf(tuple(MODIFICATIONS[name] if name else Identity() for name in CHANGES))


@functools.lru_cache(maxsize=64)
def _drawn(seed: int, shape: tuple[int, ...]) -> tuple[PyTree, ...]:
    """What each of `CHANGES` draws for the episode of a seed."""
    keys = jax.random.split(stream(key_of(seed), "changes"), len(_CHANGE.parts))
    return tuple(part.init(key, shape) for part, key in zip(_CHANGE.parts, keys, strict=True))


def order_of(controls: Controls, turn: int, count: int) -> Int[np.ndarray, " count"]:
    """Which of `count` things stands in each place: their own order if nobody asked for another."""
    if not controls.wiring and not turn:
        return np.arange(count, dtype=np.int32)
    chance = np.random.default_rng([controls.wiring, turn])
    return chance.permutation(count).astype(np.int32)
