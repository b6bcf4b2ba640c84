"""An agent and its rival, compiled once for all visitors.

The rival is the feed-forward agent of the same world, driven by the same senses. Of numbers it takes as many
as the world has sensors, those in the first places; of pictures it sees all.
"""

import threading
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.demo.senses import Patches, Rewirable, Wires
from sensorium.envs import CarRacingState, CartPoleState, Environment, World
from sensorium.errors import ConfigError, did_you_mean
from sensorium.policies import ConvolutionalPolicy, FeedForwardPolicy, Policy
from sensorium.rollout import make_world
from sensorium.types import Action, Key, PyTree, Senses
from sensorium.zoo import Agent, load

RIVALS = {
    "CartPoleSwingUpHarder": "cartpole-fnn",
    "gym:AntBulletEnv-v0": "ant-fnn",
    "CarRacing": "carracing-cnn",
    "gym:CarRacing-v3": "carracing-cnn",
}
"""The feed-forward agent of each world."""


class Inside(NamedTuple):
    """What happened in an agent at its last step."""

    arrived: Any
    action: Action
    code: Array | None
    attention: Array | None


class Player(NamedTuple):
    """An agent in an episode on the device."""

    state: PyTree
    """Of the world, without what stays as it is."""
    ground: PyTree
    """What stays: a track and its texture."""
    observation: Any
    carry: PyTree
    inside: Inside
    total: Array
    """Return so far."""
    ended: Array
    """Whether the world has ended the episode, or time has."""
    failed: Array
    """Whether it was the world."""


class Report(NamedTuple):
    """What is asked of a player at every frame, as one array on its way from the device."""

    total: float
    time: int
    ended: bool
    failed: bool
    body: np.ndarray
    """Cart and pole: position and angle. Car: place, angle and that of the front wheels."""

    @classmethod
    def of(cls, numbers: Array) -> "Report":
        """From the array."""
        total, time, ended, failed, *body = np.asarray(numbers).tolist()
        return cls(total, int(time), bool(ended), bool(failed), np.array(body, np.float32))


class Performer:
    """One policy behind senses that change, compiled at the first call for each number of places."""

    def __init__(self, policy: Policy, senses: Rewirable, inputs: int | None = None):
        """Set up.

        Args:
            policy: Who acts.
            senses: How its senses change.
            inputs: How many places it takes; None for all.
        """
        self.policy, self.senses, self.inputs = policy, senses, inputs
        self.hear = jax.jit(self._hear, static_argnames="copies")

    def blank(self, drawn: Any) -> PyTree:
        """The memory of an agent that has heard nothing."""
        return self.policy.initial_carry(self.inputs or self.senses.seats(drawn))

    def _hear(
        self, key: Key, drawn: Any, observation: Any, carry: PyTree, copies: int
    ) -> tuple[Inside, PyTree]:
        """One step of the agent; `copies` is what the sum over sensors is divided by (AN section 4.1)."""
        arrived = self.senses.arrive(key, drawn, observation)
        heard = arrived if self.inputs is None else arrived[: self.inputs]
        carry = self.senses.settle(self.blank(drawn), carry, drawn)
        policy = self.policy.with_code_scale(1.0 / copies)
        action, carry, trace = policy.step(heard, carry)
        return Inside(arrived, action, trace.code, trace.attention), carry


class DevicePerformer(Performer):
    """The same together with a world on the device."""

    def __init__(
        self, policy: Policy, senses: Rewirable, world: Environment, inputs: int | None = None
    ):
        """Set up, as `Performer`."""
        super().__init__(policy, senses, inputs)
        self.world = world
        self._fresh = jax.jit(self._hear_nothing)
        self.report = jax.jit(self._report)
        self._going_on = jax.jit(self._go_on, static_argnames="copies")

    def begin(self, key: Key, drawn: Any) -> Player:
        """The start that a key gives."""
        observation, state = self.world.reset(key)
        no = jnp.zeros((), bool)
        carry, inside = self._fresh(drawn, observation)
        return Player(*_apart(state), observation, carry, inside, jnp.zeros(()), no, no)

    def join(self, player: Player, drawn: Any) -> Player:
        """Where another stands, for this agent, which has heard nothing."""
        carry, inside = self._fresh(drawn, player.observation)
        return player._replace(carry=carry, inside=inside)

    def advance(
        self, player: Player, key: Key, drawn: Any, count: int, copies: int
    ) -> tuple[Player, Array]:
        """So many steps, or fewer if the episode ends; and the report on it."""
        # What stays goes in but not out: the texture of a track has 21 MB, which would be copied
        after, report = self._going_on(player, key, drawn, np.int32(count), copies=copies)
        return after._replace(ground=player.ground), report

    def _hear_nothing(self, drawn: Any, observation: Any) -> tuple[PyTree, Inside]:
        """The memory of an agent that has heard nothing, and what happened in it: nothing."""
        carry = self.blank(drawn)
        shapes = jax.eval_shape(
            lambda: self._hear(jax.random.key(0), drawn, observation, carry, 1)[0]
        )
        return carry, jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)

    def _report(self, player: Player) -> Array:
        numbers = (player.total, self.world.time(player.state), player.ended, player.failed)
        return jnp.stack([jnp.asarray(n, jnp.float32) for n in (*numbers, *_body(player.state))])

    def _go_on(
        self, player: Player, key: Key, drawn: Any, count: Array, copies: int
    ) -> tuple[Player, Array]:
        ground = player.ground

        def going(now: tuple[Array, Player]) -> Array:
            return (now[0] < count) & ~now[1].ended

        def step(now: tuple[Array, Player]) -> tuple[Array, Player]:
            number, player = now
            key_now = jax.random.fold_in(key, self.world.time(player.state))
            key_senses, key_world = jax.random.split(key_now)
            inside, carry = self._hear(key_senses, drawn, player.observation, player.carry, copies)
            observation, state, reward, failed, late, _ = self.world.advance(
                key_world, _together(player.state, ground), inside.action
            )
            total = player.total + reward
            state, _ = _apart(state)
            ended = failed | late
            return number + 1, Player(state, (), observation, carry, inside, total, ended, failed)

        start = (jnp.zeros((), jnp.int32), player._replace(ground=()))
        after = jax.lax.while_loop(going, step, start)[1]
        return after, self._report(after)


def _body(state: Any) -> tuple[Array, ...]:
    if isinstance(state, CartPoleState):
        return state.position, state.angle
    if isinstance(state, CarRacingState):
        return (*state.car.position, state.car.angle, state.car.steering)
    return ()


def _apart(state: Any) -> tuple[PyTree, PyTree]:
    """What moves in a world, and what stays for an episode."""
    if isinstance(state, CarRacingState):
        rest = state._replace(canvas=None, road=())  # type: ignore[arg-type]
        return rest, (state.road, state.canvas)
    return state, ()


def _together(state: Any, ground: PyTree) -> PyTree:
    if isinstance(state, CarRacingState):
        return state._replace(road=ground[0], canvas=ground[1])
    return state


class Company:
    """Who acts in a world: the agent, and its rival if there is one."""

    def __init__(self, agent: Agent, name: str):
        """Set up; ConfigError if the agent's world cannot be shown."""
        self.name, self.agent = name, agent
        self.world: World = make_world(agent.recipe.env)
        self.lead = self._performer(agent.policy)
        self.wires = self.lead.senses
        self.rival: str | None = None
        self.second: Performer | None = None
        rival = RIVALS.get(agent.recipe.env)
        if rival is not None and not isinstance(
            agent.policy, FeedForwardPolicy | ConvolutionalPolicy
        ):
            self.rival = rival
            shown = raw_senses(self.world)
            inputs = shown if isinstance(shown, int) else None
            self.second = self._performer(load(rival).policy, inputs)

    def _performer(self, policy: Policy, inputs: int | None = None) -> Performer:
        senses = senses_of_world(policy, self.world)
        if isinstance(self.world, Environment):
            return DevicePerformer(policy, senses, self.world, inputs)
        return Performer(policy, senses, inputs)


class Offer:
    """The agents that visitors may choose from."""

    def __init__(self, sources: dict[str, str]):
        """Set up.

        Args:
            sources: Names that visitors use, and what `sensorium.load` is to load for each.
        """
        self.sources = sources
        self._known: dict[str, Company] = {}
        self._lock = threading.Lock()

    def company(self, name: str) -> Company:
        """Who acts if a visitor chooses `name`; loaded once.

        Raises:
            UnknownNameError: It is not on offer.
            ConfigError: Its world cannot be shown.
            MissingExtraError: Its world needs packages that are not installed.
        """
        if name not in self.sources:
            raise did_you_mean("agent", name, self.sources)
        with self._lock:
            if name not in self._known:
                self._known[name] = Company(load(self.sources[name]), name)
            return self._known[name]


def raw_senses(world: World) -> Senses:
    """What a world shows before anything happens to it."""
    return world.raw_senses if isinstance(world, HostWorld) else world.senses


def senses_of_world(policy: Policy, world: World) -> Rewirable:
    """Wires or patches; ConfigError if the world shows something else."""
    shown = raw_senses(world)
    if isinstance(shown, int):
        return Wires(policy, shown)
    if len(shown) == 3 and shown[2] == 3:
        return Patches(policy, shown)
    raise ConfigError(f"The demo shows numbers, and pictures in colour; not arrays of {shown}.")
