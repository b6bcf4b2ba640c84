"""Motor neurons: outputs that find out, while they act, what each of them does.

What senses show is a change in K channels, such as the acceleration of a body. B (K x M) is what a unit of
each motor seems to change, the digest of motor j its column b_j, and u the action before:

    e = change - drift - B u                  what nobody foresaw: the prediction error
    B <- (1 - λ) B + η e uᵀ / (ε + |u|²)      normalised least mean squares, η one rate for each channel,
                                              λ proportional to |u|² / (ε + |u|²)
    drive = Bᵀ (B Bᵀ + ε I)⁻¹ wish            the smallest action that should change what is wished for
    u = tanh(g drive + σ ξ)                   with noise of each motor's own

σ is larger while there is much surprise, and in motors of which little is known. All is a sum over motors or
the same for each, so that another order of the motors gives the same actions in that order, and a motor whose
sign flips the opposite action, if memory and noise move along. Cost is linear in M. Without noise of its own
no motor could become unlike another (docs/motors.md).
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt32

from sensorium.layers.linear import Linear
from sensorium.types import Action, Key, Observation, Order

_RIDGE = 0.05  # ε of the drive
_LEAST_POWER = 0.05  # ε of the least mean squares
_LEAST_AUTHORITY = 0.1  # of a channel, where each is divided by its own
_LARGEST_DRIVE = 3.0
_LARGEST_ERROR = 6.0  # about; what is far beyond it, and what motors were to do, no motor has done
_ROOM = 3.0  # for a rewired motor, in units of what it was to do
_KNOWN = 4.0  # how fast noise falls with the size of a digest


class MotorMemory(NamedTuple):
    """What M motors know of themselves."""

    digest: Float[Array, "K M"]
    """What a unit of each motor changes."""
    action: Action
    """Of the step before."""
    seed: UInt32[Array, " M"]
    """Of the noise of each."""
    sign: Float[Array, " M"]
    """Of that noise: 1, or -1 where a motor was turned around with its memory."""
    time: Int[Array, ""]
    """Steps since the start."""

    def reordered(self, order: Order, sign: Float[Array, " M"]) -> "MotorMemory":
        """Return the memory after motors moved: place `j` now holds what `order[j]` held, times a sign."""
        return MotorMemory(
            self.digest[:, order] * sign,
            self.action[order] * sign,
            self.seed[order],
            self.sign[order] * sign,
            self.time,
        )


class Perceived(NamedTuple):
    """What the senses make of a step."""

    rate: Float[Array, " K"]
    """How much of its error each channel teaches, from 0 to 1."""
    wish: Float[Array, " K"]
    """What the motors should change."""


class MotorNeurons(eqx.Module):
    """Motors that share five numbers."""

    gain: Float[Array, ""]
    leak: Float[Array, ""]
    least_noise: Float[Array, ""]
    noise: Float[Array, ""]
    whitened: bool = eqx.field(static=True)
    """Whether the drive takes into account that channels change together; at K³ operations, for few."""

    def __init__(self, *, whitened: bool):
        """Begin with rates that work untrained."""
        self.gain, self.leak = jnp.array(0.0), jnp.array(-4.0)
        self.least_noise, self.noise = jnp.array(-3.0), jnp.array(-1.0)
        self.whitened = whitened

    def initial_memory(self, num_channels: int, num_motors: int) -> MotorMemory:
        """Return the memory of motors that know nothing."""
        return MotorMemory(
            jnp.zeros((num_channels, num_motors)),
            jnp.zeros(num_motors),
            jnp.arange(num_motors, dtype=jnp.uint32),
            jnp.ones(num_motors),
            jnp.zeros((), jnp.int32),
        )

    def foreseen(self, memory: MotorMemory) -> Float[Array, " K"]:
        """Return what the last action should have changed: the digest of all motors."""
        return memory.digest @ memory.action

    def error(
        self, change: Float[Array, " K"], drift: Float[Array, " K"], foreseen: Float[Array, " K"]
    ) -> Float[Array, " K"]:
        """Return what nobody foresaw; hardly anything where that is far beyond what motors can do.

        A target that jumps would otherwise be taken for the work of all motors.
        """
        error = change - drift - foreseen
        largest = _LARGEST_ERROR + _ROOM * jnp.abs(foreseen)
        return error * jnp.exp(-((error / largest) ** 2))

    def __call__(
        self, error: Float[Array, " K"], perceived: Perceived, memory: MotorMemory
    ) -> tuple[Float[Array, " M"], MotorMemory]:
        """Learn from the last action, and choose the next.

        Args:
            error: What it changed beside what was foreseen.
            perceived: Rates, and what is wished for.
            memory: Before the step.

        Returns:
            What a tanh makes actions of, and the memory, in which `action` is still the one before.
        """
        power = jnp.sum(memory.action**2)
        told = power / (_LEAST_POWER + power)  # a motor at rest learns nothing, and forgets nothing
        learned = (perceived.rate * error)[:, None] * memory.action / (_LEAST_POWER + power)
        digest = (1.0 - told * jax.nn.sigmoid(self.leak)) * memory.digest + learned
        if self.whitened:
            gram = digest @ digest.T + _RIDGE * jnp.eye(len(digest))
            drive = jnp.linalg.solve(gram, perceived.wish) @ digest
        else:
            drive = (perceived.wish / (jnp.sum(digest**2, axis=1) + _LEAST_AUTHORITY)) @ digest
        drive = jnp.clip(jnp.exp(self.gain) * drive, -_LARGEST_DRIVE, _LARGEST_DRIVE)
        unsure = jnp.tanh(jnp.mean(error**2)) + jnp.exp(-_KNOWN * jnp.sum(digest**2, axis=0))
        size = jax.nn.softplus(self.least_noise) + jax.nn.softplus(self.noise) * unsure
        noise = memory.sign * jax.vmap(_normal, in_axes=(0, None))(memory.seed, memory.time)
        memory = memory._replace(digest=digest, time=memory.time + 1)
        return drive + size * noise, memory


def _normal(seed: UInt32[Array, ""], time: Int[Array, ""]) -> Float[Array, ""]:
    return jax.random.normal(jax.random.fold_in(jax.random.key(seed), time))


class SensesMemory(NamedTuple):
    """What senses remember of N sensors."""

    before: Observation
    """Readings of the step before."""
    earlier: Observation
    """And of the one before that."""
    hidden: Float[Array, "H N"]
    """Of each sensor, where sensors are anonymous; of no units otherwise."""


class NamedSenses(eqx.Module):
    """Senses that know sensors by their places: channels are linear in the change of readings."""

    fixed_inputs: ClassVar[bool] = True
    num_steps: ClassVar[int] = 1
    """How many readings before the present one a change is made of."""

    channels: Linear
    drift: Linear
    hidden: Linear
    wish: Linear
    rate: Float[Array, " K"]
    change_scale: float = eqx.field(static=True)

    def __init__(
        self,
        num_sensors: int,
        num_channels: int,
        hidden_size: int,
        change_scale: float,
        *,
        key: Key,
    ):
        """Draw weights; `change_scale` is what makes changes of readings about 1."""
        keys = jax.random.split(key, 4)
        self.channels = Linear(num_sensors, num_channels, key=keys[0])
        self.hidden = Linear(num_sensors, hidden_size, key=keys[1])
        self.wish = Linear(hidden_size, num_channels, key=keys[2])
        drift = Linear(num_sensors, num_channels, key=keys[3])
        self.drift = eqx.tree_at(lambda layer: layer.weight, drift, jnp.zeros_like(drift.weight))
        self.rate = jnp.zeros(num_channels)
        self.change_scale = change_scale

    def num_channels(self, num_sensors: int) -> int:
        """K, whatever the number of sensors."""
        del num_sensors
        return len(self.rate)

    def initial_memory(self, num_sensors: int) -> SensesMemory:
        """Return the memory at the start."""
        blank = jnp.zeros(num_sensors)
        return SensesMemory(blank, blank, jnp.zeros((0, num_sensors)))

    def change(
        self, readings: Observation, memory: SensesMemory
    ) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
        """Return what changed, and what of it would have without any motor."""
        change = self.change_scale * (self.channels.weight @ (readings - memory.before))
        return change, self.drift(memory.before)

    def __call__(
        self,
        readings: Observation,
        change: Float[Array, " K"],
        foreseen: Float[Array, " K"],
        error: Float[Array, " K"],
        memory: SensesMemory,
    ) -> tuple[Perceived, SensesMemory]:
        """Decide what to learn, and what to wish for."""
        del change, foreseen, error
        wish = self.wish(jnp.tanh(self.hidden(readings)))
        return (
            Perceived(jax.nn.sigmoid(self.rate), wish),
            SensesMemory(readings, memory.before, memory.hidden),
        )


class AnonymousSenses(eqx.Module):
    """Senses in any order: each sensor has two channels, the first and second difference of its readings.

    A gated recurrent unit with shared weights runs in each sensor. Its state decides how much the
    sensor's errors change the digests, and what the sensor wishes for. There is a digest for each pair of
    sensor and motor.
    """

    fixed_inputs: ClassVar[bool] = False
    num_steps: ClassVar[int] = 2

    gates: Linear
    candidate: Linear
    rate: Linear
    hidden: Linear
    wish: Linear
    change_scale: float = eqx.field(static=True)

    def __init__(self, hidden_size: int, wish_size: int, change_scale: float, *, key: Key):
        """Draw weights; `change_scale` is what makes changes of readings about 1."""
        keys, inputs = jax.random.split(key, 5), 6
        gates = Linear(inputs + hidden_size, 2 * hidden_size, key=keys[0])
        slow = gates.bias.at[:hidden_size].set(-1.0)
        self.gates = eqx.tree_at(lambda layer: layer.bias, gates, slow)
        self.candidate = Linear(inputs + hidden_size, hidden_size, key=keys[1])
        self.rate = Linear(hidden_size, 2, key=keys[2])
        self.hidden = Linear(hidden_size + 2, wish_size, key=keys[3])
        self.wish = Linear(wish_size, 2, key=keys[4])
        self.change_scale = change_scale

    def num_channels(self, num_sensors: int) -> int:
        """Two of each sensor."""
        return 2 * num_sensors

    def initial_memory(self, num_sensors: int) -> SensesMemory:
        """Return the memory at the start."""
        blank = jnp.zeros(num_sensors)
        return SensesMemory(blank, blank, jnp.zeros((self.candidate.weight.shape[0], num_sensors)))

    def change(
        self, readings: Observation, memory: SensesMemory
    ) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
        """Return what changed; a sensor foresees nothing but what motors do."""
        first = (readings - memory.before) * self.change_scale
        second = readings - 2 * memory.before + memory.earlier
        second = jnp.clip(second * self.change_scale**2, -5.0, 5.0)
        change = jnp.concatenate([first, second])
        return change, jnp.zeros_like(change)

    def __call__(
        self,
        readings: Observation,
        change: Float[Array, " K"],
        foreseen: Float[Array, " K"],
        error: Float[Array, " K"],
        memory: SensesMemory,
    ) -> tuple[Perceived, SensesMemory]:
        """Listen to each sensor, then decide what to learn from it and what it wishes for."""
        count = len(readings)
        heard = jnp.concatenate([change, foreseen, error[:count]]).reshape(-1, count) / 2
        heard = jnp.concatenate([readings[None], heard])

        def of_sensor(x: Array, h: Array) -> tuple[Array, Array, Array]:
            update, reset = jnp.split(jax.nn.sigmoid(self.gates(jnp.concatenate([x, h]))), 2)
            new = jnp.tanh(self.candidate(jnp.concatenate([x, reset * h])))
            h = (1 - update) * h + update * new
            wish = self.wish(
                jnp.tanh(self.hidden(jnp.concatenate([h, x[:2] * jnp.array([1.0, 2.0])])))
            )
            return h, jax.nn.sigmoid(self.rate(h)), wish

        hidden, rate, wish = jax.vmap(of_sensor, in_axes=-1, out_axes=-1)(heard, memory.hidden)
        return (
            Perceived(rate.reshape(-1), wish.reshape(-1)),
            SensesMemory(readings, memory.before, hidden),
        )
