"""The interface of every way to turn policies and a world into returns.

| engine | worlds | where |
|---|---|---|
| `DeviceEngine` | those of `sensorium.envs` | on the device: all in one compiled program |
| `HostEngine` | `gym:` and any Gymnasium id | worker processes, one batched policy call a step |
| `ClusterEngine` | both | on the machines of a Ray cluster |
| `DistributedEngine` | both | on the machines of `jax.distributed`, each of which runs the same program |

The same keys give the same returns whatever the number of devices, workers or machines.
"""

import abc
import copy
from types import TracebackType

import jax
import numpy as np
from jaxtyping import Float

from sensorium.envs import Environment, World
from sensorium.policies import Policy
from sensorium.rollout.device import Episode, Totals, run_population
from sensorium.rollout.sharding import episodes_of_policy, totals_of_population
from sensorium.types import Keys


class Engine(abc.ABC):
    """Policies x one world -> returns. Close it, or use it in a `with` block: it may hold processes."""

    world: World
    leads: bool = True
    """Whether this process writes the run; of several that run the same program, one does."""

    here: bool = True
    """Whether episodes run on this machine alone."""

    @abc.abstractmethod
    def run_population(self, policies: Policy, keys: Keys) -> Episode:
        """Run P policies for R episodes each with the same R keys.

        Args:
            policies: A policy whose parameters have a leading axis P.
            keys: R random keys, shared by all policies (common random numbers); a key decides the start
                of an episode and all noise.

        Returns:
            Episodes with leading axes P, R.
        """

    @abc.abstractmethod
    def run_episodes(self, policy: Policy, keys: Keys) -> Episode:
        """Run one policy for an episode of each of R keys; results have a leading axis R."""

    def totals(self, policies: Policy, keys: Keys) -> Totals:
        """Compute returns and steps of `run_population`, as NumPy arrays; some engines find them sooner."""
        episodes = self.run_population(policies, keys)
        return Totals(np.asarray(episodes.total), np.asarray(episodes.length))

    def returns(self, policies: Policy, keys: Keys) -> Float[np.ndarray, "P R"]:
        """Compute the returns alone."""
        return np.asarray(self.totals(policies, keys).returns)

    def on(self, world: World) -> "Engine":
        """Return an engine for the same world behind another perturbation; close this one alone.

        Both share what they hold, such as worker processes.
        """
        other = copy.copy(self)
        other.world = world
        return other

    def anywhere(self, flag: bool) -> bool:
        """Return whether `flag` is true in any of the processes that run the same program."""
        return flag

    def close(self) -> None:  # noqa: B027  # most hold nothing
        """Free what the engine holds; it can be used no more."""

    def __enter__(self) -> "Engine":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class DeviceEngine(Engine):
    """Worlds in JAX, sharded over all devices."""

    def __init__(self, world: Environment):
        self.world: Environment = world

    def run_population(self, policies: Policy, keys: Keys) -> Episode:
        return run_population(policies, self.world, keys)

    def run_episodes(self, policy: Policy, keys: Keys) -> Episode:
        return episodes_of_policy(policy, self.world, keys)

    def totals(self, policies: Policy, keys: Keys) -> Totals:
        return jax.tree.map(np.asarray, totals_of_population(policies, self.world, keys))
