"""What motor neurons learn from and act for: a change of the readings in K channels, and a wish for another.

Channels stand for the same throughout an episode. Where sensors have names each is a channel (`NamedSenses`).
Where they have none each has two (`AnonymousSenses`), and all may be attended to.
"""

import abc
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sensorium.layers.gated import gated
from sensorium.layers.linear import Linear
from sensorium.seeding import stream
from sensorium.types import Attention, Key, Observation, Order, Scalar

PACE = 5.0
"""How much faster than weights single numbers change in training."""
_LARGEST_CHANGE = 12.0  # about; what is far beyond it, as when a target jumps, no motor has done


class SensesMemory(NamedTuple):
    """What senses remember of N sensors."""

    before: Observation
    """Readings of the step before."""
    earlier: Observation
    """And of the one before that."""
    hidden: Float[Array, "H N"]
    """Of each sensor, where sensors have no names; of no units otherwise."""

    def reordered(self, order: Order) -> "SensesMemory":
        """Return the memory after its sensors moved: place `i` now holds what `order[i]` held."""
        return jax.tree.map(lambda leaf: leaf[..., order], self)


class Perceived(NamedTuple):
    """What the senses make of a step."""

    change: Float[Array, " K"]
    """Beside what they expected."""
    rate: Float[Array, " K"]
    """How much of its error each channel teaches, from 0 to 1."""
    wish: Float[Array, " K"]
    """What the motors should change."""
    care: Float[Array, " K"]
    """How much that matters in each channel, from 0 to 1."""
    surprise: Scalar
    """How wrong expectations were, if there are any: what training makes small."""
    attention: Attention | None = None
    """Of K channels to N sensors."""


class Senses(eqx.Module):
    """From readings to changes and wishes."""

    fixed_inputs: ClassVar[bool]
    """Whether sensors are known by their places."""

    @abc.abstractmethod
    def num_channels(self, num_sensors: int) -> int:
        """Return K."""

    @abc.abstractmethod
    def initial_memory(self, num_sensors: int) -> SensesMemory:
        """Return the memory at the start."""

    @abc.abstractmethod
    def __call__(
        self,
        readings: Observation,
        foreseen: Float[Array, " K"],
        memory: SensesMemory,
        time: Int[Array, ""],
    ) -> tuple[Perceived, SensesMemory]:
        """Take one step.

        Args:
            readings: Of N sensors.
            foreseen: What motors think that their last action changed.
            memory: Before the step.
            time: Steps since the start.
        """

    def channels_after(self, order: Order) -> Int[Array, " K"] | None:
        """Return the channels in the order that they have after sensors moved; None if they stay."""
        del order
        return None


def _begun(
    readings: Observation, memory: SensesMemory, time: Int[Array, ""]
) -> tuple[Observation, Observation]:
    """Return the last two readings; at the start, when there were none, those that there are."""
    before = jnp.where(time > 0, memory.before, readings)
    return before, jnp.where(time > 1, memory.earlier, before)


class NamedSenses(Senses):
    """Senses that know sensors by their places: each is a channel, with a rate and a care of its own."""

    fixed_inputs: ClassVar[bool] = True

    rate: Float[Array, " N"]
    care: Float[Array, " N"]
    expect: "_Network"
    wish: "_Network"
    change_scale: float = eqx.field(static=True)

    def __init__(self, num_sensors: int, hidden_size: int, change_scale: float, *, key: Key):
        """Draw weights; `change_scale` is what makes changes of readings about 1."""
        keys = jax.random.split(key, 2)
        self.rate, self.care = 0.4 * jnp.ones(num_sensors), 0.3 * jnp.ones(num_sensors)
        expect = _Network(num_sensors, hidden_size, num_sensors, key=keys[0])
        weight = jnp.zeros_like(expect.output.weight)
        self.expect = eqx.tree_at(lambda network: network.output.weight, expect, weight)
        self.wish = _Network(num_sensors, hidden_size, num_sensors, key=keys[1])
        self.change_scale = change_scale

    def num_channels(self, num_sensors: int) -> int:
        """One of each sensor."""
        return num_sensors

    def initial_memory(self, num_sensors: int) -> SensesMemory:
        """Return the memory at the start."""
        blank, none = jnp.zeros(num_sensors), jnp.zeros((0, num_sensors))
        return SensesMemory(blank, blank, none)

    def __call__(
        self,
        readings: Observation,
        foreseen: Float[Array, " K"],
        memory: SensesMemory,
        time: Int[Array, ""],
    ) -> tuple[Perceived, SensesMemory]:
        """Compare with what would have changed without motors, and decide what to wish for."""
        before, _ = _begun(readings, memory, time)
        change = _limited(self.change_scale * (readings - before))
        expected = self.expect(jax.lax.stop_gradient(before))
        known = time > 0
        error = jnp.where(known, change - expected - foreseen, 0.0)
        # What is expected should follow from what happens, not make it happen
        missed = jnp.where(known, jax.lax.stop_gradient(change - foreseen) - expected, 0.0)
        rate, care = (jax.nn.sigmoid(PACE * each) for each in (self.rate, self.care))
        surprise = jnp.mean(jnp.log1p(missed**2))
        perceived = Perceived(foreseen + error, rate, self.wish(readings), care, surprise)
        return perceived, memory._replace(before=readings, earlier=before)


class AnonymousSenses(Senses):
    """Senses in any order: each sensor has two channels, the first and second difference of its readings.

    A gated recurrent unit with shared weights runs in each sensor. Its state decides how much the sensor's
    errors change the digests, what the sensor wishes for, and how much that matters. If what is good for one
    sensor depends on others, the state is also the key by which queries attend to the sensors: all of them
    get the code, the reading and its change of the sensor that each query finds. There is a digest for each
    pair of sensor and motor, so that what motors learn does not depend on where attention goes. Sensors
    expect nothing: what changed before may have been the work of motors.
    """

    fixed_inputs: ClassVar[bool] = False

    gates: Linear
    candidate: Linear
    rate: Linear
    hidden: Linear
    wish: Linear
    key: Linear | None
    queries: Float[Array, "Q D"] | None
    change_scale: float = eqx.field(static=True)

    def __init__(
        self,
        hidden_size: int,
        wish_size: int,
        change_scale: float,
        num_queries: int = 0,
        message_size: int = 16,
        *,
        key: Key,
    ):
        """Draw weights; `change_scale` is what makes changes of readings about 1."""
        keys, inputs = jax.random.split(key, 5), 7
        gates = Linear(inputs + hidden_size, 2 * hidden_size, key=keys[0])
        slow = gates.bias.at[:hidden_size].set(-1.0)
        self.gates = eqx.tree_at(lambda layer: layer.bias, gates, slow)
        self.candidate = Linear(inputs + hidden_size, hidden_size, key=keys[1])
        self.rate = Linear(hidden_size, 2, key=keys[2])
        self.hidden = Linear(hidden_size + 2 + 2 * num_queries, wish_size, key=keys[3])
        wish = Linear(wish_size, 4, key=keys[4])
        self.wish = eqx.tree_at(lambda layer: layer.weight, wish, 0.1 * wish.weight)
        self.key = self.queries = None
        if num_queries:
            key_key, key_queries = jax.random.split(stream(key, "attention"))
            self.key = Linear(hidden_size, message_size, key=key_key)
            self.queries = jax.random.normal(key_queries, (num_queries, message_size))
        self.change_scale = change_scale

    def num_channels(self, num_sensors: int) -> int:
        """Two of each sensor."""
        return 2 * num_sensors

    def channels_after(self, order: Order) -> Int[Array, " K"]:
        """Move both along with their sensor."""
        return jnp.concatenate([order, len(order) + order])

    def initial_memory(self, num_sensors: int) -> SensesMemory:
        """Return the memory at the start."""
        blank, size = jnp.zeros(num_sensors), self.candidate.weight.shape[0]
        return SensesMemory(blank, blank, jnp.zeros((size, num_sensors)))

    def __call__(
        self,
        readings: Observation,
        foreseen: Float[Array, " K"],
        memory: SensesMemory,
        time: Int[Array, ""],
    ) -> tuple[Perceived, SensesMemory]:
        """Remember each sensor, attend to all, then decide what to learn from each and what it wishes for."""
        before, earlier = _begun(readings, memory, time)
        first = (readings - before) * self.change_scale
        second = (readings - 2 * before + earlier) * self.change_scale**2
        change = _limited(jnp.stack([first, second]).reshape(-1))
        error = jnp.where(time > 1, change - foreseen, 0.0)
        inputs = jnp.stack([change, foreseen, error]).reshape(6, readings.size) / 2
        inputs = jnp.concatenate([readings[None], inputs])
        hidden = jax.vmap(self._remembered, in_axes=-1, out_axes=-1)(inputs, memory.hidden)
        shown = jnp.stack([readings, change[: readings.size]])
        attention, code = self._attended(hidden, shown)

        def of_sensor(h: Array, own: Array) -> tuple[Array, Array, Array]:
            wanted = self.wish(jnp.tanh(self.hidden(jnp.concatenate([h, own, *code]))))
            return jax.nn.sigmoid(self.rate(h)), wanted[:2], jax.nn.sigmoid(wanted[2:])

        # jax2onnx translates layers of rows only
        rate, wish, care = (each.T.reshape(-1) for each in jax.vmap(of_sensor)(hidden.T, shown.T))
        perceived = Perceived(foreseen + error, rate, wish, care, jnp.zeros(()), attention)
        return perceived, SensesMemory(readings, before, hidden)

    def _attended(
        self, hidden: Float[Array, "H N"], shown: Float[Array, "2 N"]
    ) -> tuple[Attention | None, tuple[Float[Array, " Q"], ...]]:
        """Return where queries attend, and the readings and the changes that they find, if there are any."""
        if self.key is None or self.queries is None:
            return None, ()
        keys = jax.vmap(self.key)(hidden.T)
        attention = jax.nn.softmax(self.queries @ keys.T, axis=-1)
        return attention, (attention @ shown[0], attention @ shown[1])

    def _remembered(self, inputs: Array, hidden: Array) -> Array:
        return gated(self.gates, self.candidate, inputs, hidden)


class _Network(eqx.Module):
    """A layer of units with tanh, and one that reads these and the inputs."""

    hidden: Linear
    output: Linear

    def __init__(self, inputs: int, units: int, outputs: int, *, key: Key):
        keys = jax.random.split(key, 2)
        self.hidden = Linear(inputs, units, key=keys[0])
        self.output = Linear(inputs + units, outputs, key=keys[1])

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        return self.output(jnp.concatenate([inputs, jnp.tanh(self.hidden(inputs))]))


def _limited(change: Float[Array, " K"]) -> Float[Array, " K"]:
    """Return changes, and next to nothing of those far beyond what motors do."""
    return change * jnp.exp(-((change / _LARGEST_CHANGE) ** 2))
