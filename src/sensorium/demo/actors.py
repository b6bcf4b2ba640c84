"""An agent and its baseline, compiled once for all connections.

The baseline is the agent of the same world whose inputs have fixed places. It gets the same rewired
observation: of sensors the first N inputs, as many as the world has sensors; of images all pixels.
"""

import threading
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sensorium import recipes, zoo
from sensorium.demo.rewiring import Rewired, rewiring_for
from sensorium.envs import Environment, World
from sensorium.errors import did_you_mean
from sensorium.policies import Policy
from sensorium.rollout import by_kind, make_world
from sensorium.rollout.acting import zeros_of
from sensorium.types import Action, Key, ObservationSpec, PyTree, num_sensors_of
from sensorium.zoo import Agent


class ActorTrace(NamedTuple):
    """What an agent computed in its last step."""

    arrived: Any
    """The observation after the perturbation."""
    action: Action
    command: Action
    """The action after the perturbation: what arrives at the motors."""
    code: Array | None
    attention: Array | None
    digest: Array | None
    """What each output seems to change."""


class ActorState(NamedTuple):
    """An agent in an episode on the device."""

    state: PyTree
    """What steps change of the state of the world; see `Environment.split`."""
    constant: PyTree
    """What they do not."""
    observation: Any
    """Before the perturbation."""
    carry: PyTree
    trace: ActorTrace
    total: Array
    """Return so far."""
    ended: Array
    """Whether the episode has ended."""
    failed: Array
    """Whether the world has ended it, and not its time limit."""


class Progress(NamedTuple):
    """What every frame needs of an actor, one array on the device."""

    total: float
    time: int
    ended: bool
    failed: bool
    pose: np.ndarray

    @classmethod
    def of(cls, numbers: Array) -> "Progress":
        """Read it from the array."""
        total, time, ended, failed, *pose = np.asarray(numbers).tolist()
        return cls(total, int(time), bool(ended), bool(failed), np.array(pose, np.float32))


class RewiredPolicy:
    """A policy behind a rewiring; compiled at the first call for each number of inputs."""

    def __init__(self, policy: Policy, world: World, first: ObservationSpec | None = None):
        """Set up.

        Args:
            policy: The agent.
            world: Decides what can be rewired.
            first: The first inputs, which alone the policy gets; None for all.

        Raises:
            ConfigError: The world shows something that cannot be rewired.
        """
        self.policy, self.first = policy, first
        self.rewiring: Any = rewiring_for(policy, world)
        self.act = jax.jit(self._act, static_argnames="copies")

    def initial_carry(self, rewired: Rewired) -> PyTree:
        """Make the carry at the start of an episode."""
        return self.policy.initial_carry(self.first or self.rewiring.inputs(rewired))

    def _act(
        self, key: Key, rewired: Rewired, observation: Any, carry: PyTree, copies: int
    ) -> tuple[ActorTrace, PyTree]:
        """Take one step; the sum over sensors is divided by `copies` (AN section 4.1)."""
        arrived = rewired.apply(key, observation)
        inputs = arrived if self.first is None else arrived[: num_sensors_of(self.first)]
        carry = self.rewiring.clear_unused(self.initial_carry(rewired), carry, rewired)
        policy = self.policy.with_code_scale(1.0 / copies)
        action, carry, trace = policy.step(inputs, carry)
        command = rewired.perturb_action(key, action)
        inside = trace.code, trace.attention, trace.digest
        return ActorTrace(arrived, action, command, *inside), carry


class RewiredInWorld(RewiredPolicy):
    """The same together with its world on the device."""

    def __init__(self, policy: Policy, world: Environment, first: ObservationSpec | None = None):
        """Set up, as `RewiredPolicy`."""
        super().__init__(policy, world, first)
        self.world = world
        self._blank = jax.jit(self._make_blank)
        self.progress = jax.jit(self._progress)
        self._advance = jax.jit(self._steps, static_argnames="copies")

    def reset(self, key: Key, rewired: Rewired) -> ActorState:
        """Start an episode."""
        observation, state = self.world.reset(key)
        no = jnp.zeros((), bool)
        carry, trace = self._blank(rewired, observation)
        return ActorState(
            *self.world.split(state), observation, carry, trace, jnp.zeros(()), no, no
        )

    def join(self, other: ActorState, rewired: Rewired) -> ActorState:
        """Start in the state of the world that another actor is in, with a blank carry."""
        carry, trace = self._blank(rewired, other.observation)
        return other._replace(carry=carry, trace=trace)

    def advance(
        self, now: ActorState, key: Key, rewired: Rewired, count: int, copies: int
    ) -> tuple[ActorState, Array]:
        """Take `count` steps, fewer if the episode ends; also return the `progress`."""
        # The constant part goes in but not out: it would be copied, and a track's canvas has 21 MB
        after, progress = self._advance(now, key, rewired, np.int32(count), copies=copies)
        return after._replace(constant=now.constant), progress

    def _make_blank(self, rewired: Rewired, observation: Any) -> tuple[PyTree, ActorTrace]:
        """Make the carry at the start, and a trace of zeros."""
        carry = self.initial_carry(rewired)
        shapes = jax.eval_shape(
            lambda: self._act(jax.random.key(0), rewired, observation, carry, 1)[0]
        )
        return carry, zeros_of(shapes)

    def _progress(self, now: ActorState) -> Array:
        state = self.world.join(now.state, now.constant)
        numbers = (now.total, self.world.time(state), now.ended, now.failed)
        return jnp.concatenate(
            [jnp.stack([jnp.asarray(n, jnp.float32) for n in numbers]), self.world.pose(state)]
        )

    def _steps(
        self, start: ActorState, key: Key, rewired: Rewired, count: Array, copies: int
    ) -> tuple[ActorState, Array]:
        world, constant = self.world, start.constant

        def goes_on(now: tuple[Array, ActorState]) -> Array:
            return (now[0] < count) & ~now[1].ended

        def step(now: tuple[Array, ActorState]) -> tuple[Array, ActorState]:
            number, actor = now
            state = world.join(actor.state, constant)
            step_key = jax.random.fold_in(key, world.time(state))
            key_perturbation, key_world = jax.random.split(step_key)
            trace, carry = self._act(
                key_perturbation, rewired, actor.observation, actor.carry, copies
            )
            observation, state, reward, failed, late, _ = world.advance(
                key_world, state, trace.command
            )
            changing, _ = world.split(state)
            total = actor.total + reward
            after = ActorState(
                changing, (), observation, carry, trace, total, failed | late, failed
            )
            return number + 1, after

        begin = (jnp.zeros((), jnp.int32), start._replace(constant=()))
        after = jax.lax.while_loop(goes_on, step, begin)[1]
        return after, self._progress(after._replace(constant=constant))


class Actors:
    """The agent in its world, and the baseline if there is one."""

    def __init__(self, agent: Agent, name: str):
        """Set up; ConfigError if the agent's world cannot be shown."""
        self.name, self.agent = name, agent
        self.world: World = make_world(agent.recipe.env)
        self.lead = self._actor(agent.policy)
        self.rewiring = self.lead.rewiring
        self.baseline_name, self.baseline = self._find_baseline()

    def all(self) -> list[RewiredPolicy]:
        """Return the agent, then the baseline."""
        return [actor for actor in (self.lead, self.baseline) if actor is not None]

    def _find_baseline(self) -> tuple[str | None, RewiredPolicy | None]:
        recipe = recipes.baseline(self.agent.recipe.env)
        if recipe is None or recipe.name not in zoo.names():
            return None, None
        policy = zoo.load(recipe.name).policy
        if type(policy) is type(self.agent.policy):  # one of the kind, which is no contrast
            return None, None
        spec = self.world.raw_observation_spec
        of_sensors = num_sensors_of(spec) is not None
        return recipe.name, self._actor(policy, spec if of_sensors else None)

    def _actor(self, policy: Policy, first: ObservationSpec | None = None) -> RewiredPolicy:
        return by_kind(
            self.world,
            lambda device: RewiredInWorld(policy, device, first),
            lambda host: RewiredPolicy(policy, host, first),
        )


class AgentCatalog:
    """The agents that users may choose from."""

    def __init__(self, sources: dict[str, str]):
        """Set up.

        Args:
            sources: Names that users choose by, and what `sensorium.load` loads for each.
        """
        self.sources = sources
        self._loaded: dict[str, Actors] = {}
        self._lock = threading.Lock()

    def actors(self, name: str) -> Actors:
        """Load an agent and its baseline, once.

        Raises:
            UnknownNameError: There is no such agent.
            ConfigError: Its world cannot be shown.
            MissingExtraError: Its world needs packages that are not installed.
        """
        if name not in self.sources:
            raise did_you_mean("agent", name, self.sources)
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = Actors(zoo.load(self.sources[name]), name)
            return self._loaded[name]
