"""What worlds of motors have in common: a body drawn for each episode, and a target that jumps."""

import abc
import dataclasses
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sensorium.envs.base import Environment, check_motors
from sensorium.errors import ConfigError
from sensorium.types import Action, Keys, PyTree


@dataclasses.dataclass(frozen=True)
class Body(Environment):
    """A world of M motors that earns 1 for each step at its target; in training its reward is smooth."""

    motors: int = 8
    """M."""
    least: int = 3
    """How many are connected at least."""
    smooth: bool = False
    """Whether it pays the reward of training."""

    options: ClassVar[tuple[str, ...]] = ("motors", "least")
    steps_per_second = 10

    def __post_init__(self) -> None:
        """Raise ConfigError if there are too many or no motors, or more connected than there are."""
        check_motors(self.motors)
        if not 1 <= self.least <= self.motors:
            raise ConfigError(f"Of {self.motors} motors at least {self.least} cannot be connected.")

    @property
    def num_actions(self) -> int:
        """M."""
        return self.motors

    def for_training(self) -> "Body":
        """Return the world with a reward that has a slope everywhere."""
        return dataclasses.replace(self, smooth=True)

    @abc.abstractmethod
    def best_action(self, state: PyTree) -> Action:
        """Return the action of a controller that knows the body, which agents are compared with."""

    def pose_of(self, state: PyTree) -> Float[np.ndarray, " numbers"]:
        """Return `pose` for drawing; `state` may be of NumPy arrays, as traces are."""
        return np.asarray(self.pose(jax.tree.map(jnp.asarray, state)))

    @partial(jax.jit, static_argnames="self")
    def best_rewards(self, keys: Keys) -> Float[Array, "R T"]:
        """Return the rewards of that controller in an episode of each of R keys, as engines start them."""

        def one(key: Array) -> Array:
            key_reset, key_step = jax.random.split(key)
            _, state = self.reset_env(key_reset, self.default_params)

            def step(state: PyTree, time: None) -> tuple[PyTree, Array]:
                del time
                _, state, reward, *_ = self.advance(key_step, state, self.best_action(state))
                return state, reward

            return jax.lax.scan(step, state, None, length=self.max_steps)[1]

        return jax.vmap(one)(keys)
