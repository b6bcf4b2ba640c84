"""The world of a name, and the engine that it needs or that was asked for."""

import dataclasses
import difflib
import math
import string
from collections.abc import Callable
from typing import Literal, TypeVar

import jax

from sensorium.bridges import bullet
from sensorium.bridges.advised import Advised, EnvExpert
from sensorium.bridges.from_gymnasium import HostWorld, make_host_world
from sensorium.bridges.open_env import EnvName, env_ids
from sensorium.envs import WORLDS, Environment, Perturbed, World, is_world, make
from sensorium.errors import ConfigError, UnknownNameError, check_counts, did_you_mean
from sensorium.perturbations import Perturbation
from sensorium.rollout.acting import Actor
from sensorium.rollout.cluster import LANES, ClusterEngine
from sensorium.rollout.collect import DeviceCollector
from sensorium.rollout.distributed import DistributedEngine, join
from sensorium.rollout.engine import DeviceEngine, Engine
from sensorium.rollout.host import HostEngine
from sensorium.rollout.host_collect import HostCollector
from sensorium.rollout.transitions import Collector
from sensorium.types import Key, num_sensors_of, shape_of

_ON_HOST = "gym:"
_AROUND = string.whitespace + ":"
_Made = TypeVar("_Made")


@dataclasses.dataclass(frozen=True)
class EngineConfig:
    """Which engine runs the episodes. No result depends on it, but for the last digits on a cluster."""

    kind: Literal["auto", "ray", "jax"] = "auto"
    """`auto` is what the world needs, on this machine; `ray` is a Ray cluster; `jax` shares the population
    out to processes that all run this program, through `jax.distributed`."""
    address: str | None = None
    """Of the head of the Ray cluster (`auto` for that of this machine, None to start one), or of the
    first process of `jax`."""
    workers: int | None = None
    """Processes that simulate a world on the host; by default one a core, for each of two groups."""
    processes: int | None = None
    """How many run this program, for `jax`; None where JAX finds out by itself."""
    process: int | None = None
    """Which of them this is, from 0."""

    def __post_init__(self) -> None:
        for name, least in (("workers", 0), ("processes", 1), ("process", 0)):
            count = getattr(self, name)
            if count is not None:
                check_counts(least, **{name: count})


def make_world(
    name: str, perturbation: Perturbation | None = None, *, training_reward: bool = False
) -> World:
    """Build a world, on the device or on the host.

    Args:
        name: A world of `sensorium.envs`, or `gym:` and the id of a Gymnasium environment; perhaps with
            options (see `Environment.options` and `sensorium.bridges.open_env`).
        perturbation: Of its observations; None for nothing.
        training_reward: Pay the reward that agents are trained with, where there is one for that.

    Raises:
        UnknownNameError: There is no such world, option, or way to observe; the nearest names are given.
        MissingExtraError: It needs packages that are not installed.
        ConfigError: An option does not fit; or it is a Gymnasium environment with spaces that agents
            cannot work with, or has no reward of its own for training.
    """
    if is_world(name):
        return make(name, perturbation, training=training_reward)
    if not _is_of_gymnasium(name):
        raise _unknown_world(name)
    return make_host_world(name.removeprefix(_ON_HOST), perturbation, training_reward)


def _is_of_gymnasium(name: str) -> bool:
    """Check whether a name is `gym:` and what may be an environment; ConfigError if its options are wrong."""
    env_id = EnvName.parse(name.removeprefix(_ON_HOST)).id
    return name.startswith(_ON_HOST) and env_id not in ("", *WORLDS) and env_id == _plain(env_id)


def _plain(name: str) -> str:
    """Strip what stands before an id of Gymnasium, spaces and colons: the name that may have been meant."""
    name = name.strip(_AROUND)
    while name.casefold().startswith(_ON_HOST):
        name = name[len(_ON_HOST) :].strip(_AROUND)
    return name


def _unknown_world(name: str) -> UnknownNameError:
    """Build the error for a name of no world, or of one of Gymnasium without `gym:` before it."""
    before, mark, options = name.partition("?")
    meant, ids = _plain(before), env_ids()
    if meant in ids or ":" in meant or bullet.knows(meant):
        right = _ON_HOST + meant + mark + options
        return UnknownNameError(f"There is no world {name!r}; did you mean {right!r}?")
    if meant in WORLDS:
        return did_you_mean("world", name, [meant + mark + options])
    known = {each.casefold(): each for each in (*WORLDS, *ids)}
    near = difflib.get_close_matches(meant.casefold(), known, n=3)
    if near:
        meanings = (known[each] for each in near)
        names = (each if each in WORLDS else _ON_HOST + each + mark + options for each in meanings)
        return did_you_mean("world", name, names)
    return UnknownNameError(
        f"There is no world {name!r}; there are {', '.join(WORLDS)}, and {_ON_HOST} with the id of a "
        f"Gymnasium environment, such as {_ON_HOST}Pendulum-v1."
    )


def check_world_name(name: str) -> None:
    """Raise UnknownNameError if `name` is neither a registered world nor one on the host; open nothing.

    Raises:
        ConfigError: Its options do not fit it, or do not go together.
    """
    if is_world(name):
        make(name)
    else:
        EnvName.parse(name)
        if not name.startswith(_ON_HOST):
            raise _unknown_world(name)


def require_host(world: World, otherwise: str) -> HostWorld:
    """Return the world, if it is on the host; ConfigError with the sentence `otherwise` if it is not."""
    if not isinstance(world, HostWorld):
        raise ConfigError(otherwise)
    return world


def by_kind(
    world: World, device: Callable[[Environment], _Made], host: Callable[[HostWorld], _Made]
) -> _Made:
    """Return what `device` makes of a world on the device, or `host` of one on the host.

    Only this module tells the two kinds apart: others ask the world, or call this or `require_device`.
    """
    if isinstance(world, HostWorld):
        return host(world)
    assert isinstance(world, Environment)
    return device(world)


def require_device(world: World, otherwise: str) -> Environment:
    """Return the world, if it is on the device; ConfigError with the sentence `otherwise` if it is not."""
    if not isinstance(world, Environment):
        raise ConfigError(otherwise)
    return world


def open_collector(
    engine: Engine,
    num_envs: int,
    key: Key,
    *,
    world: World | None = None,
    cut_first: bool = True,
    expert: Actor | EnvExpert | None = None,
) -> Collector:
    """Open lanes in the world of an engine, to collect transitions from.

    Args:
        engine: Runs the world on this machine.
        num_envs: B, how many lanes.
        key: Random key.
        world: That of the engine behind another perturbation; by default as it is.
        cut_first: Cut the first episode of each lane short at a random step.
        expert: On the host, acts beside the behaviour: in all lanes at once, or a function that runs beside
            each environment; see `StepContext.advice`.
    """

    def on_host(world: HostWorld) -> Collector:
        assert isinstance(engine, HostEngine)
        if expert is None or isinstance(expert, Actor):
            return HostCollector(world, engine.open_pool(num_envs), key, cut_first, expert)
        pool = engine.open_pool(num_envs, Advised, expert=expert)
        return HostCollector(world, pool, key, cut_first)

    return by_kind(
        world or engine.world,
        lambda world: DeviceCollector(world, num_envs, key, cut_first),
        on_host,
    )


def perturbed(world: World, perturbation: Perturbation) -> World:
    """Put a world behind another perturbation."""
    return by_kind(
        world,
        lambda device: Perturbed(device.unperturbed, perturbation),
        lambda host: dataclasses.replace(host, perturbation=perturbation),
    )


def truth_size(world: World) -> int:
    """Count the numbers of `StepContext.truth` of a world; 0 if there is none."""

    def on_device(world: Environment) -> int:
        state = jax.eval_shape(
            lambda key: world.reset_env(key, world.default_params)[1], jax.random.key(0)
        )
        return jax.eval_shape(world.critic_features, state).size

    def on_host(world: HostWorld) -> int:
        spec = world.raw_observation_spec
        return 0 if num_sensors_of(spec) is None else math.prod(shape_of(spec))

    return by_kind(world, on_device, on_host)


def open_engine(world: World, config: EngineConfig | None = None) -> Engine:
    """Open the engine for a world.

    Args:
        world: From `make_world`.
        config: Which engine; by default the one that the world needs.

    Raises:
        ConfigError: The settings do not fit the world.
        ClusterError: There is no cluster at the address, or the other processes did not come.
        MissingExtraError: Ray is not installed.
    """
    config = config or EngineConfig()
    if config.kind != "jax" and (config.processes, config.process) != (None, None):
        raise ConfigError("Numbers of processes go with --engine jax.")
    if config.kind == "jax":
        join(config.address, config.processes, config.process)
        return DistributedEngine(_local_engine(world, config.workers))
    if config.kind == "ray":
        if config.workers is not None:
            raise ConfigError(
                "A Ray cluster has as many workers as cores: it takes no number of them."
            )
        return ClusterEngine(world, task_engine, config.address)
    if config.address is not None:
        raise ConfigError("An address goes with --engine ray or --engine jax.")
    return _local_engine(world, config.workers)


def task_engine(world: World) -> Engine:
    """Open the engine of a task of a cluster, which has one core."""
    return by_kind(world, DeviceEngine, lambda host: HostEngine(host, workers=0, lanes=LANES))


def _local_engine(world: World, workers: int | None) -> Engine:
    if workers is not None and not world.on_host:
        raise ConfigError("Workers simulate worlds on the host; this one runs on the device.")
    return by_kind(world, DeviceEngine, lambda host: HostEngine(host, workers=workers))
