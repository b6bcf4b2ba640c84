"""Experts, whose actions a student learns: policies, models of Stable-Baselines3, functions of the state."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float

from sensorium.bridges import minari
from sensorium.bridges.advised import EnvExpert
from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.envs import Environment, World
from sensorium.errors import ConfigError
from sensorium.perturbations import Identity
from sensorium.policies import Policy
from sensorium.rollout import StepContext, by_kind, truth_size
from sensorium.rollout.acting import Actor
from sensorium.training.expert_actors import PythonActor, Sb3Actor
from sensorium.types import Action, PyTree


class Sb3Model(NamedTuple):
    """A model of Stable-Baselines3 or sb3-contrib as an expert."""

    model: Any
    statistics: Any = None
    """The `VecNormalize` that it was trained behind; None if there was none."""


class Dataset(NamedTuple):
    """A dataset of Minari as an expert: recorded actions."""

    path: Path


StateFunction = Callable[[Any], Action]
"""Computes an action from the state of a world on the device, in JAX."""


class PythonPolicy(NamedTuple):
    """A function of observations as an expert: see `expert_actors.PythonActor`."""

    act: Callable[[Any], Any]
    name: str
    """For errors."""


Expert = Policy | Sb3Model | PythonPolicy | Dataset | Actor | StateFunction | EnvExpert
"""What a stage can imitate. On the host an `Actor` acts in many environments at a time, and an `EnvExpert`
beside each one."""


class Asked(eqx.Module):
    """An expert in the form in which a behaviour calls it, step by step."""

    policy: Policy | None
    """The expert, if it is a policy; None if it is a function, or acts on the host."""
    function: StateFunction | None = eqx.field(static=True)
    reads_truth: bool = eqx.field(static=True)
    """Whether the policy reads the true state instead of the unperturbed observation."""
    wired: Environment | None = eqx.field(static=True, default=None)
    """The world, if the policy gives its plain actions instead of those of its motors."""

    def initial_carry(self, world: World) -> PyTree:
        """Make the expert's carry at the start of an episode."""
        if self.policy is None:
            return ()
        return self.policy.initial_carry(
            truth_size(world) if self.reads_truth else world.raw_observation_spec
        )

    def act(self, context: StepContext, carry: PyTree) -> tuple[Action, PyTree]:
        """Compute the expert's advice, and its new carry."""
        if self.policy is None:
            advice = self.function(context.world_state) if self.function else context.advice
            return advice, carry
        shown = context.truth if self.reads_truth else context.unperturbed
        action, carry, _ = self.policy.step(shown, carry)
        advice = self.policy.distribution.advice(action)
        return self.wired.to_motors(context.world_state, advice) if self.wired else advice, carry

    def after_action(self, context: StepContext, carry: PyTree, command: Action) -> PyTree:
        """Return the expert's carry after the world took `command`."""
        if self.policy is None:
            return carry
        if self.wired:
            command = self.wired.from_motors(context.world_state, command)
        return self.policy.after_action(carry, command)


_ADVISED = Asked(None, None, False)


def ask(expert: Expert | None, world: World, what: str) -> tuple[Asked, Actor | EnvExpert | None]:
    """Prepare an expert for a behaviour; also return what gives its advice, if it acts on the host.

    Args:
        expert: The expert.
        world: The world of the student.
        what: The way to train, for errors.

    Raises:
        ConfigError: There is none, or it was made for other observations or actions.
    """
    if expert is None:
        raise ConfigError(f"{what} needs an expert; name one with --expert.")
    if isinstance(expert, Policy):
        return _ask_policy(expert, world), None

    def on_device(device: World) -> tuple[Asked, Actor | EnvExpert | None]:
        if isinstance(expert, Sb3Model | PythonPolicy | Dataset | Actor):
            raise ConfigError(
                f"{what} in a world on the device learns from a policy of ours, or from a function of its "
                "state; models of Stable-Baselines3 and functions of observations are experts in worlds on "
                "the host."
            )
        return Asked(None, cast(StateFunction, expert), False), None

    def on_host(host: HostWorld) -> tuple[Asked, Actor | EnvExpert | None]:
        bare = dataclasses.replace(host, perturbation=Identity())
        if isinstance(expert, Sb3Model):
            return _ADVISED, Sb3Actor(expert.model, bare, expert.statistics)
        if isinstance(expert, PythonPolicy):
            return _ADVISED, PythonActor(expert.act, bare, expert.name)
        return _ADVISED, None if isinstance(expert, Dataset) else cast(EnvExpert, expert)

    return by_kind(world, on_device, on_host)


def _ask_policy(policy: Policy, world: World) -> Asked:
    """Prepare a policy: it reads the observation without perturbation if it can, or else the true state."""
    reads_truth = not policy.takes(world.raw_observation_spec)
    if reads_truth:
        # Raises what does not fit; where there is no true state, the observation itself is what does not
        policy.initial_carry(truth_size(world) or world.raw_observation_spec)
    if policy.num_actions == world.num_actions:
        return Asked(policy, None, reads_truth)
    wired = by_kind(world, lambda device: device.unperturbed, lambda _: None)
    if wired is not None and policy.num_actions == wired.num_plain_actions:
        return Asked(policy, None, reads_truth, wired)
    raise ConfigError(
        f"The expert has {policy.num_actions} action(s), but the world takes {world.num_actions}."
    )


def kind_of(expert: Expert) -> str:
    """Say in a few words what kind of expert it is, and whether observations are normalised for it."""
    if isinstance(expert, Sb3Model):
        how = "observations as they are" if expert.statistics is None else "behind VecNormalize"
        return f"{type(expert.model).__name__} of Stable-Baselines3, {how}"
    if isinstance(expert, PythonPolicy):
        return "a function of observations"
    return type(expert).__name__


class Demonstrated(NamedTuple):
    """Steps of a dataset: T steps of B stretches of episodes."""

    observations: np.ndarray
    """Unperturbed: T, B, and the shape of one."""
    actions: Float[np.ndarray, "T B A"]
    started: Bool[np.ndarray, "T B"]
    alive: Bool[np.ndarray, "T B"]


def read_dataset(dataset: Dataset, world: World, steps: int) -> Demonstrated:
    """Read a dataset of Minari, and cut its episodes into stretches of `steps` steps.

    Raises:
        ConfigError: It is of another world.
        MissingExtraError: Minari is not installed.
    """

    def on_device(device: World) -> Demonstrated:
        raise ConfigError(
            "Datasets of Minari are of environments: use one with a world on the host."
        )

    return by_kind(world, on_device, lambda host: _read_dataset(dataset.path, host, steps))


def _read_dataset(path: Path, world: HostWorld, steps: int) -> Demonstrated:
    data = minari.read(path, world.max_steps)
    count, length, *shape = data.actions.shape
    # A single number may be the place of one of many actions
    size = math.prod(shape) if shape else world.num_actions
    if data.observations.shape[2:] != world.raw_observation_shape or (
        size != world.num_actions and isinstance(world.actions, int)
    ):
        raise ConfigError(
            f"The dataset {path} shows {data.observations.shape[2:]} and has {size} action(s); {world.name} "
            f"shows {world.raw_observation_shape} and takes {world.num_actions}."
        )
    actions = world.from_env_actions(data.actions.reshape(count * length, *shape))
    actions = actions.reshape(count, length, -1)
    stretches = []
    for start in range(0, length, steps):
        left = np.clip(data.lengths - start, 0, steps)
        some, stretch = left > 0, slice(start, start + steps)
        arrays = (data.observations[:, :-1], actions)
        shown, done = (_padded(array[some, stretch], steps).swapaxes(0, 1) for array in arrays)
        time = np.arange(steps)[:, None]
        started = (time == 0) & np.full(some.sum(), start == 0)
        stretches.append(Demonstrated(shown, done, started, time < left[some]))
    return Demonstrated(*(np.concatenate(arrays, 1) for arrays in zip(*stretches, strict=True)))


def _padded(array: np.ndarray, steps: int) -> np.ndarray:
    return np.pad(array, [(0, 0), (0, steps - array.shape[1])] + [(0, 0)] * (array.ndim - 2))
