"""What learning needs of episodes: transitions of many lanes, and what acts while they are collected.

A lane is a place for episodes, one after another. A collector (`collect.py` on the device, `host_collect.py`
on the host) steps B lanes for T steps and returns a `Segment`. What acts in the lanes is a `Behaviour`: a
policy that explores, a student whose expert labels its steps, or two policies in turns. It also decides what
is recorded.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sensorium.envs import World
from sensorium.perturbations import begin
from sensorium.serialisation import to_data
from sensorium.types import Action, Key, PyTree, Sensed, num_sensors_of


class StepContext(NamedTuple):
    """What one lane shows to a behaviour before a step."""

    observation: Sensed
    """As the policy receives it: perturbed."""
    unperturbed: Sensed
    """As the world shows it."""
    sensor_of_channel: Int[Array, " N"]
    """Which sensor or entity each channel of the observation carries, -1 for noise; of size 0 of images."""
    perturbation: PyTree
    """The state of the perturbation."""
    truth: Float[Array, " F"]
    """The true state for critics and experts: of a world on the device its `critic_features`, of one on the
    host the unperturbed readings; of size 0 where there is none."""
    world_state: PyTree
    """The state of a world on the device; nothing on the host."""
    advice: Float[Array, " A"]
    """The action of an expert that acts beside a world on the host; of size 0 where there is none."""
    lane: Int[Array, ""]
    """Which lane it is."""
    step: Int[Array, ""]
    """Of the segment."""
    key: Key
    """Of the lane, the same for the whole segment."""

    def held_key(self, steps: int) -> Key:
        """Derive a key that stays the same for `steps` steps of the segment, for noise that is held."""
        return jax.random.fold_in(self.key, self.step // steps)


class Behaviour(eqx.Module):
    """Acts in the lanes of a collector. Policies are leaves, so that new weights compile nothing anew."""

    @abc.abstractmethod
    def initial_carry(self, world: World) -> PyTree:
        """Make the memory at the start of an episode."""

    @abc.abstractmethod
    def act(self, context: StepContext, carry: PyTree) -> tuple[Action, PyTree, PyTree]:
        """Take one step in one lane.

        Returns:
            The action, the new carry, and what to record of the step.
        """

    def view(self, context: StepContext, carry: PyTree) -> Float[Array, " F"]:
        """Compute what a critic reads before a step; the default is the true state."""
        del carry
        return context.truth


class Transitions(NamedTuple):
    """T steps of B lanes."""

    started: Bool[Any, "T B"]
    """Whether an episode begins with this step: the carry before it is blank."""
    alive: Bool[Any, "T B"]
    """Whether the step counts; after an end on the device a lane idles to the end of the segment."""
    time: Int[Any, "T B"]
    """Steps of the episode before this one."""
    earned: Float[Any, "T B"]
    """Sum of the episode's rewards before this step."""
    reward: Float[Any, "T B"]
    terminated: Bool[Any, "T B"]
    """Whether the world ended the episode with this step."""
    truncated: Bool[Any, "T B"]
    """Whether the time limit did, or the lane was lost or cut short."""
    view: Float[Any, "T B F"]
    """What a critic reads before the step; see `Behaviour.view`."""
    next_view: Float[Any, "T B F"]
    """And after it: of the final observation where the episode ended."""
    record: PyTree
    """What the behaviour recorded, with leading axes T, B."""


class Memory(NamedTuple):
    """What a lane carries from step to step, beside its world."""

    carry: PyTree
    """Of the behaviour."""
    perturbation: PyTree
    """Of the perturbation."""


class Segment(NamedTuple):
    """T steps of B lanes, and the memory before them."""

    memory: Memory
    """With a leading axis B; random keys in it are numbers (`jax.random.key_data`)."""
    transitions: Transitions


class Collector(abc.ABC):
    """Lanes of episodes in one world; what they collect depends on arguments and earlier calls only."""

    def __init__(self, world: World, num_envs: int):
        """Set up.

        Args:
            world: The world, perturbed or not.
            num_envs: B, how many lanes.
        """
        self.world = world
        self.num_envs = num_envs
        self.returns: list[float] = []
        """Of the episodes that have ended by themselves or at the time limit of the world."""
        self.env_steps = 0
        """Steps of episodes so far, over all lanes."""

    @abc.abstractmethod
    def collect(self, behaviour: Behaviour, num_steps: int, key: Key) -> Segment:
        """Collect the next `num_steps` steps of all lanes.

        Args:
            behaviour: Acts; of the same structure in all calls.
            num_steps: T.
            key: Random key.
        """


def as_numpy(memory: Memory) -> Memory:
    """Copy a memory to the host."""
    return jax.tree.map(lambda leaf: np.array(to_data(leaf)), memory)


def blank_memory(behaviour: Behaviour, world: World, key: Key) -> Memory:
    """Make the memory at the start of an episode."""
    state = begin(world.perturbation, key, world.raw_observation_spec, world.num_actions)
    return Memory(behaviour.initial_carry(world), state)


def look(
    world: World,
    key_apply: Key,
    memory: Memory,
    shown: Sensed,
    **rest: Any,
) -> tuple[StepContext, Memory]:
    """Pass what a world shows through its perturbation.

    Args:
        world: The world.
        key_apply: Random key.
        memory: Of the lane, before.
        shown: What the world shows.
        rest: The other fields of the `StepContext`.

    Returns:
        The context, and the memory with the perturbation's new state.
    """
    perturbation = world.perturbation
    observation, state = perturbation.apply(key_apply, memory.perturbation, shown)
    sensors = jnp.zeros(0, jnp.int32)
    if num_sensors_of(world.raw_observation_spec) is not None:
        sensors = perturbation.sensor_of_channel(state, world.raw_observation_spec)
    context = StepContext(observation, shown, sensors, state, **rest)
    return context, memory._replace(perturbation=state)
