"""Motor neurons: outputs that find out, while they act, what each of them does.

What senses show is a change in K channels. B (K x M) is what a unit of each motor seems to change, the digest
of motor j its column b_j. Motors remember their last L actions U (L x M), and what changed after each, less
what senses expected anyhow, Y (L x K):

    E = Y - U Bᵀ                                 what digests do not explain
    B <- (1 - λ) B + Eᵀ (U Uᵀ + diag ρ)⁻¹ U      affine projection: the least change that explains it
    drive = Bᵀ (B Bᵀ + ε I)⁻¹ wish               the smallest action that should change what is wished for
    u = drive, none beyond 1, + σ ξ              with noise of each motor's own

ρ says how little each step still tells. It grows with age, and with each surprise: an error although motors
had been tried in that way before, so that they must have been rewired. σ is larger while there is surprise,
and in motors of which little is known. In channels that matter less, B and wish are smaller.

All is a sum over motors or the same for each, so that another order of the motors gives the same actions in
that order, and a motor whose sign flips the opposite action, if memory and noise move along. Cost is linear
in M, and grows as the cube of K. Without noise of its own no motor could become unlike another
(docs/motors.md).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt32

from sensorium.layers.motor_senses import PACE, Perceived
from sensorium.types import Action, Order, Scalar

_STEPS = 8  # L
_LEAST_POWER = 0.05
_KNOWN = 4.0  # how fast noise falls with the size of a digest
_UNSEEN = 10.0  # ρ of steps before the first
_LARGEST_ACTION = 0.99


class MotorMemory(NamedTuple):
    """What M motors know of themselves."""

    digest: Float[Array, "K M"]
    """What a unit of each motor changes."""
    action: Action
    """Of the step before."""
    actions: Float[Array, "L M"]
    """Of the steps before that, the last one first."""
    changes: Float[Array, "L K"]
    """What changed after each of these, beside what was expected."""
    doubts: Float[Array, " L"]
    """How little each of these still tells, from 0 on."""
    seed: UInt32[Array, " M"]
    """Of the noise of each."""
    sign: Float[Array, " M"]
    """Of that noise: 1, or -1 where a motor was turned around with its memory."""
    time: Int[Array, ""]
    """Steps since the start."""

    def reordered(self, order: Order, sign: Float[Array, " M"]) -> "MotorMemory":
        """Return the memory after motors moved: place `j` now holds what `order[j]` held, times a sign."""
        return self._replace(
            digest=self.digest[:, order] * sign[None],
            action=self.action[order] * sign,
            actions=self.actions[:, order] * sign[None],
            seed=self.seed[order],
            sign=self.sign[order] * sign,
        )

    def of_channels(self, order: Int[Array, " K"]) -> "MotorMemory":
        """Return the memory after channels moved."""
        return self._replace(digest=self.digest[order], changes=self.changes[:, order])


class MotorNeurons(eqx.Module):
    """Motors that share eight numbers, in units of a fifth, since they have far to go in training."""

    gain: Float[Array, ""]
    ridge: Float[Array, ""]
    leak: Float[Array, ""]
    doubt: Float[Array, ""]
    ageing: Float[Array, ""]
    alarm: Float[Array, ""]
    least_noise: Float[Array, ""]
    noise: Float[Array, ""]
    learns_noise: bool = eqx.field(static=True)
    """Whether training changes how much noise there is."""

    def __init__(self, *, learns_noise: bool = True) -> None:
        """Begin with numbers that work untrained."""
        self.learns_noise = learns_noise
        self.gain, self.ridge = jnp.array(0.5 / PACE), jnp.array(-4.0 / PACE)
        self.leak, self.doubt = jnp.array(-5.0 / PACE), jnp.array(-4.5 / PACE)
        self.ageing, self.alarm = jnp.array(-2.0 / PACE), jnp.array(-1.0 / PACE)
        self.least_noise, self.noise = jnp.array(-3.5 / PACE), jnp.array(-1.0 / PACE)

    def initial_memory(self, num_channels: int, num_motors: int) -> MotorMemory:
        """Return the memory of motors that know nothing."""
        return MotorMemory(
            digest=jnp.zeros((num_channels, num_motors)),
            action=jnp.zeros(num_motors),
            actions=jnp.zeros((_STEPS, num_motors)),
            changes=jnp.zeros((_STEPS, num_channels)),
            doubts=jnp.full(_STEPS, _UNSEEN),
            seed=jnp.arange(num_motors, dtype=jnp.uint32),
            sign=jnp.ones(num_motors),
            time=jnp.zeros((), jnp.int32),
        )

    def foreseen(self, memory: MotorMemory) -> Float[Array, " K"]:
        """Return what the last action should have changed: the digest of all motors."""
        return memory.digest @ memory.action

    def __call__(
        self, perceived: Perceived, memory: MotorMemory, scale: float = 1.0
    ) -> tuple[Float[Array, " M"], MotorMemory]:
        """Learn from the last action, and choose the next.

        Args:
            perceived: What the last action changed, and what is wished for.
            memory: Before the step.
            scale: Factor on sums over channels, where each is there several times.

        Returns:
            What a tanh makes actions of, and the memory, in which `action` is still the one before.
        """
        memory, surprise = self._learn(perceived, memory)
        size = scale * jnp.sum(memory.digest**2, axis=0)
        unsure = surprise + jnp.exp(-_KNOWN * size)
        spread = jax.nn.softplus(PACE * self.least_noise)
        spread += jax.nn.softplus(PACE * self.noise) * unsure
        spread = spread if self.learns_noise else jax.lax.stop_gradient(spread)
        noise = memory.sign * normal(memory.seed, memory.time)
        cared = jnp.sqrt(scale * perceived.care)
        effect, wish = cared[:, None] * memory.digest, cared * perceived.wish
        gram = effect @ effect.T + jnp.exp(PACE * self.ridge) * jnp.eye(effect.shape[0])
        drive = solved(gram, wish[:, None])[:, 0] @ effect
        action = _none_beyond_one(jnp.exp(PACE * self.gain) * drive) + spread * noise
        action = jnp.clip(action, -_LARGEST_ACTION, _LARGEST_ACTION)
        return jnp.arctanh(action), memory._replace(time=memory.time + 1)

    def _learn(self, perceived: Perceived, memory: MotorMemory) -> tuple[MotorMemory, Scalar]:
        """Return the memory with what the last step taught, and how much of a surprise it was."""
        action, own = memory.action, jnp.exp(PACE * self.doubt)
        actions = jnp.concatenate([action[None], memory.actions[:-1]])
        changes = jnp.concatenate([perceived.change[None], memory.changes[:-1]])
        aged = memory.doubts[:-1] * jnp.exp(jax.nn.softplus(PACE * self.ageing))
        doubts = jnp.concatenate([own[None], aged])
        errors = changes - actions @ memory.digest.T
        gram = actions @ actions.T + jnp.diag(doubts)
        first = (jnp.arange(_STEPS) == 0).astype(gram.dtype)[:, None]
        # jax2onnx does not translate `jnp.concatenate` along an axis whose length is free
        explained = solved(gram, jax.lax.concatenate([perceived.rate[None] * errors, first], 1))
        power = jnp.sum(action**2)
        told = power / (_LEAST_POWER + power)  # a motor at rest forgets nothing
        leak = told * jax.nn.sigmoid(PACE * self.leak)
        digest = (1.0 - leak) * memory.digest + explained[:, :-1].T @ actions
        weight = perceived.rate / (jnp.sum(perceived.rate) + 1e-6)
        surprise = jnp.tanh(jnp.sum(weight * errors[0] ** 2))
        # What of the action is at right angles to those before it: an error there is no surprise
        novelty = jnp.maximum(1 / explained[0, -1] - own, 0.0) / (power + own)
        alarm = jnp.exp(PACE * self.alarm) * surprise * (1 - novelty) ** 2
        memory = memory._replace(
            digest=digest,
            actions=actions,
            changes=changes,
            doubts=jnp.concatenate([own[None], aged + alarm]),
        )
        return memory, surprise


def _none_beyond_one(drive: Float[Array, " M"]) -> Float[Array, " M"]:
    """Scale all alike, softly, so that the largest is at most about 1: the direction stays."""
    largest = jnp.sum((drive**2 + 1e-8) ** 4) ** 0.125
    return drive / (1 + largest**4) ** 0.25


_Elimination = tuple[Array, Array, Array, Array, Array]
"""The next row, how many there are, both sides of the equation, and the unit matrix."""


@jax.custom_vjp
def solved(gram: Float[Array, "L L"], right: Float[Array, "L K"]) -> Float[Array, "L K"]:
    """Solve a positive definite system by elimination: of few rows, in many worlds side by side."""

    def step(rows: _Elimination) -> _Elimination:
        i, count, gram, right, unit = rows
        others = ((gram[:, i] - unit[i]) / gram[i, i])[:, None]
        return i + 1, count, gram - others * gram[i][None], right - others * right[i][None], unit

    # What does not change goes along, since jax2onnx cannot follow a loop into what it closes over; how many
    # rows there are is added up, since it is free there
    unit = jnp.eye(gram.shape[0], dtype=gram.dtype)
    start = jnp.zeros((), jnp.int32), unit.sum().astype(jnp.int32), gram, right, unit
    return jax.lax.while_loop(lambda rows: rows[0] < rows[1], step, start)[3]


def _solved_forth(gram: Array, right: Array) -> tuple[Array, tuple[Array, Array]]:
    solution = solved(gram, right)
    return solution, (gram, solution)


def _solved_back(kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    gram, solution = kept
    of_right = solved(gram, gradient)
    return -of_right @ solution.T, of_right


solved.defvjp(_solved_forth, _solved_back)


def normal(seed: UInt32[Array, " M"], time: Int[Array, ""]) -> Float[Array, " M"]:
    """Draw from a normal distribution, by hashing (Box and Muller 1958)."""
    bits = _mixed(seed + _mixed(time.astype(jnp.uint32) + 1))
    first, second = ((each >> 8).astype(jnp.float32) / 2**24 for each in (bits, _mixed(bits + 1)))
    return jnp.sqrt(-2 * jnp.log(1 - first)) * jnp.cos(2 * jnp.pi * second)


def _mixed(bits: UInt32[Array, "*shape"]) -> UInt32[Array, "*shape"]:
    """Return other bits, each of which depends on all (the end of MurmurHash3, Appleby 2011)."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)
