"""Perturbations whose state changes while compiled code runs.

A perturbation of `sensorium.perturbations` draws its state at the start of an episode. Here the state is
written from the controls instead, many times a minute: the order of `Shuffle`, the mask of `Silence` or
`Occlude`, the choice of `OneOf`. The code that applies it is compiled once.

The number of inputs must not change either, so an AttentionNeuron always gets the most copies and noise
channels there can be. Those that are not asked for come last, read zero and have a blank recurrent state. The
layer sums over its sensors, so they add nothing, up to rounding. Other agents get exactly the inputs that are
asked for, and are compiled for each number of them.

The last perturbation, `WireMotors`, is of actions.
"""

import abc
import functools
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt8

from sensorium.demo.messages import CHANGES, MOST_COPIES, MOST_NOISE, NOISE, UPLOAD, Controls
from sensorium.demo.motor_wires import WireMotors
from sensorium.envs import World
from sensorium.errors import ConfigError
from sensorium.layers.vision_attention import grid
from sensorium.perturbations import (
    MODIFICATIONS,
    Compose,
    Duplicate,
    HideRows,
    Identity,
    NoiseBackground,
    NoiseChannels,
    Occlude,
    OneOf,
    Perturbation,
    RandomBackground,
    Shuffle,
    ShufflePatches,
    Silence,
)
from sensorium.perturbations.backgrounds import frames_of
from sensorium.perturbations.patches import PatchOrder
from sensorium.policies import Policy
from sensorium.seeding import key_of, stream
from sensorium.types import (
    Action,
    Key,
    ObservationSpec,
    PyTree,
    in_words,
    num_sensors_of,
    shape_of,
    with_num_sensors,
)

FROM_NOISE = -1
"""The source of a noise channel."""
SIGMA = NoiseChannels.sigma
"""Standard deviation of noise channels."""
PATCH = ShufflePatches.size
"""Pixels each way of the patches that are shuffled and hidden."""


class Rewired(eqx.Module):
    """A perturbation in the state that the controls ask for; an argument of compiled code."""

    perturbation: Perturbation = eqx.field(static=True)
    state: PyTree

    def apply(self, key: Key, observation: Any) -> Any:
        """Perturb one observation."""
        state = jax.tree.map(jnp.asarray, self.state)
        return self.perturbation.apply(key, state, jnp.asarray(observation))[0]

    def perturb_action(self, key: Key, action: Action) -> Action:
        """Return what arrives at the motors."""
        state = jax.tree.map(jnp.asarray, self.state)
        return self.perturbation.perturb_action(key, state, action)[0]


class RewiredSensors(Rewired):
    """Of sensors: what each of C inputs of the agent carries."""

    channel: Int[np.ndarray | Array, " C"]
    """Number of the channel at each input; see `SensorRewiring`."""
    used: Int[np.ndarray | Array, ""]
    """How many inputs are in use: the first ones."""


class RewiredImage(Rewired):
    """Of images."""

    @property
    def hidden(self) -> np.ndarray:
        """Which patches are black, before they change places."""
        *_, hidden, _, _ = self.state
        return np.asarray(hidden)

    @property
    def changes_anything(self) -> bool:
        """Whether the agent gets another image than the world shows."""
        _, *choices, hidden, (order, _), _ = self.state
        moved = np.any(order != np.arange(len(order)))
        return bool(moved or any(choice for choice, _ in choices) or hidden.any())


_R = TypeVar("_R", bound=Rewired)


class Rewiring(abc.ABC, Generic[_R]):
    """How controls perturb the observations and actions of one world, for one policy."""

    def __init__(self, num_motors: int):
        """Set up for so many motors; 0 where actions are choices."""
        self.motors = WireMotors(num_motors)

    def check(self, controls: Controls) -> None:
        """Raise ConfigError if the policy or the world does not fit the controls."""
        self.motors.check(controls)
        self._check(controls)

    @abc.abstractmethod
    def _check(self, controls: Controls) -> None:
        """Raise it if they do not fit what happens to observations."""

    @abc.abstractmethod
    def rewire(
        self, controls: Controls, reshuffles: int, upload: UInt8[np.ndarray, "H W 3"] | None = None
    ) -> _R:
        """Write the state of the perturbation.

        Args:
            controls: As the user has set them.
            reshuffles: How often the order has changed since it was set.
            upload: The user's own background, of the size of the world's images.
        """

    @abc.abstractmethod
    def inputs(self, rewired: _R) -> ObservationSpec:
        """Return what `Policy.initial_carry` asks for."""

    def clear_unused(self, blank: PyTree, carry: PyTree, rewired: _R) -> PyTree:
        """Take the recurrent state of unused inputs from `blank`; pure."""
        del blank, rewired
        return carry


class SensorRewiring(Rewiring[RewiredSensors]):
    """Sensors or entities: their order, copies, noise channels and silenced channels.

    Channels keep their numbers whatever else there is: channel N `MOST_COPIES` + j is the j-th of noise, and
    below that N k + i is the k-th copy of sensor i.
    """

    def __init__(self, policy: Policy, spec: ObservationSpec, num_motors: int = 0):
        """Set up for a policy, and N sensors or the shape of entities (N, F)."""
        super().__init__(num_motors)
        self._policy, self._spec = policy, spec
        self._count = shape_of(spec)[0]
        self.fixed_size = policy.zero_is_absent
        """Whether the number of inputs is always the largest, and those that are not in use read zero."""

    @property
    def any_number(self) -> bool:
        """Whether the policy works with another number of sensors."""
        return self._policy.takes(with_num_sensors(self._spec, self._count + 1))

    def _check(self, controls: Controls) -> None:
        self._policy.initial_carry(with_num_sensors(self._spec, self.num_used(controls)))
        last = self.first_noise + MOST_NOISE - 1
        if max(controls.cut, default=0) > last:
            raise ConfigError(
                f"There are channels 0 to {last}, and no channel {max(controls.cut)}."
            )
        if controls.hidden or controls.occlude or controls.background or controls.modify:
            raise ConfigError(
                "This world has sensors and shows no images: it has no patches, background or colours."
            )

    @property
    def first_noise(self) -> int:
        """Number of the first noise channel."""
        return self._count * MOST_COPIES

    def num_used(self, controls: Controls) -> int:
        """Count the inputs that are in use."""
        return self._count * controls.copies + controls.noise

    def rewire(
        self, controls: Controls, reshuffles: int, upload: np.ndarray | None = None
    ) -> RewiredSensors:
        del upload
        asked = self._channels(controls.copies, controls.noise)
        copies, noise = controls.copies, controls.noise
        if self.fixed_size:
            copies, noise = MOST_COPIES, MOST_NOISE
        available = self._channels(copies, noise)  # as they leave Duplicate and NoiseChannels
        unused = np.setdiff1d(available, asked)
        channel = np.append(asked[order_of(controls, reshuffles, len(asked))], unused)
        silent = np.isin(available, controls.cut) | np.isin(available, unused)
        order = np.searchsorted(available, channel).astype(np.int32)
        return RewiredSensors(
            Compose((Duplicate(copies), NoiseChannels(noise), Silence(0), Shuffle(), self.motors)),
            ((), (), silent, order, self.motors.wires(controls)),
            channel,
            np.asarray(len(asked), np.int32),
        )

    def source(self, rewired: RewiredSensors) -> Int[np.ndarray, " used"]:
        """Return the sensor that each used input carries, or `FROM_NOISE`."""
        channel = np.asarray(rewired.channel[: int(rewired.used)])
        return np.where(channel < self.first_noise, channel % self._count, FROM_NOISE).astype(
            np.int32
        )

    def inputs(self, rewired: RewiredSensors) -> ObservationSpec:
        return with_num_sensors(self._spec, len(rewired.channel))

    def clear_unused(self, blank: PyTree, carry: PyTree, rewired: RewiredSensors) -> PyTree:
        if not self.fixed_size:
            return carry
        used = jnp.arange(len(rewired.channel)) < rewired.used
        memory = jax.tree.map(
            lambda new, old: jnp.where(used, old, new), blank.memory, carry.memory
        )
        return carry._replace(memory=memory)

    def _channels(self, copies: int, noise: int) -> Int[np.ndarray, " channels"]:
        sensors = np.arange(self._count * copies, dtype=np.int32)
        return np.append(sensors, np.arange(noise, dtype=np.int32) + self.first_noise)


_BACKGROUND = OneOf((Identity(), NoiseBackground(), RandomBackground()))
_CHANGE = OneOf(tuple(MODIFICATIONS[name] if name else Identity() for name in CHANGES))


class ImageRewiring(Rewiring[RewiredImage]):
    """Images: hidden patches, and the order of patches; in colour also the background and shades."""

    def __init__(self, policy: Policy, shape: tuple[int, ...], num_motors: int = 0):
        """Set up for a policy and images of (H, W, 3) or (H, W, 1)."""
        super().__init__(num_motors)
        self.shape = shape
        self.in_colour = shape[2] == 3
        rows, columns = grid(shape[0], shape[1], PATCH)
        self._count = rows * columns
        self._perturbation = Compose(
            (
                HideRows(policy.hidden_rows),  # as `evaluation.as_shown`
                *((_BACKGROUND, _CHANGE) if self.in_colour else ()),
                Occlude(0.0, PATCH),
                ShufflePatches(PATCH),
                self.motors,
            )
        )

    def _check(self, controls: Controls) -> None:
        if controls.cut or controls.noise or controls.copies > 1:
            raise ConfigError(
                "This world shows images; it has no channels to silence, copy or add to."
            )
        if not self.in_colour and (controls.background or controls.modify):
            raise ConfigError("This world shows grey images: it has no background or colours.")
        if max(controls.hidden, default=0) >= self._count:
            raise ConfigError(f"There are patches 0 to {self._count - 1}.")

    def rewire(
        self, controls: Controls, reshuffles: int, upload: np.ndarray | None = None
    ) -> RewiredImage:
        random = np.random.default_rng(controls.seed).permutation(self._count)
        hidden = random < round(self._count * controls.occlude / 100)
        hidden[list(controls.hidden)] = True
        order = jnp.asarray(order_of(controls, reshuffles, self._count))
        choices = self._choices(controls, upload) if self.in_colour else ()
        moved = PatchOrder(order, jnp.zeros((), jnp.int32))
        state = ((), *choices, hidden, moved, self.motors.wires(controls))
        return RewiredImage(self._perturbation, state)

    def _choices(self, controls: Controls, upload: np.ndarray | None) -> tuple[PyTree, PyTree]:
        """Return the states of background and shades."""
        image = np.zeros(self.shape, np.uint8)
        kind = 0
        if controls.background == NOISE:
            kind = 1
        elif controls.background == UPLOAD and upload is not None:
            kind, image = 2, upload
        elif controls.background not in ("", UPLOAD):
            kind, image = 2, frames_of(controls.background, *self.shape[:2])[0]
        change = np.asarray(CHANGES.index(controls.modify), np.int32)
        return (
            (np.asarray(kind, np.int32), ((), (), image)),
            (change, _states_of_changes(controls.seed, self.shape)),
        )

    def inputs(self, rewired: RewiredImage) -> tuple[int, ...]:
        del rewired
        return self.shape


@functools.lru_cache(maxsize=64)
def _states_of_changes(seed: int, shape: tuple[int, ...]) -> tuple[PyTree, ...]:
    """Draw the state of each of `CHANGES` for the episode of a seed."""
    keys = jax.random.split(stream(key_of(seed), "changes"), len(_CHANGE.parts))
    return tuple(part.init(key, shape) for part, key in zip(_CHANGE.parts, keys, strict=True))


def rewiring_for(policy: Policy, world: World) -> SensorRewiring | ImageRewiring:
    """Choose by what the world shows; ConfigError if that is neither sensors nor images."""
    spec, num_motors = world.raw_observation_spec, len(world.motor_names)
    if num_sensors_of(spec) is not None:
        return SensorRewiring(policy, spec, num_motors)
    shape = shape_of(spec)
    if len(shape) == 3 and shape[2] in (1, 3):
        return ImageRewiring(policy, shape, num_motors)
    raise ConfigError(f"The demo shows sensors, entities and images; not {in_words(spec)}.")


def order_of(controls: Controls, reshuffles: int, count: int) -> Int[np.ndarray, " count"]:
    """Return which of `count` things is in each place: the natural order unless another was asked for."""
    if not controls.wiring and not reshuffles:
        return np.arange(count, dtype=np.int32)
    random = np.random.default_rng([controls.wiring, reshuffles])
    return random.permutation(count).astype(np.int32)
