"""Stable-Baselines3, both ways: its models as teachers, and our agents behind its `predict`.

    model = load_model("ppo_ant.zip")
    actions, state = Sb3Agent(sensorium.load("ant-pi")).predict(observations, state, episode_start)

Reading a model of Stable-Baselines3 runs pickled code: read only files that you trust.
"""

import json
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Float

from sensorium.bridges.from_gymnasium import action_bounds
from sensorium.errors import AgentFileError, ConfigError, MissingExtraError, ObservationError
from sensorium.policies import FeedForwardConfig, FeedForwardPolicy, Policy
from sensorium.types import PyTree

_ALGORITHMS = {"sac": "SAC", "td3": "TD3", "dqn": "DQN"}
"""By the module of the policy; A2C and PPO share one, and act alike."""


def import_sb3() -> Any:
    """Stable-Baselines3; MissingExtraError where it is not installed."""
    try:
        import stable_baselines3
    except ImportError as error:
        raise MissingExtraError(
            "Teachers of Stable-Baselines3 need it: pip install 'sensorium[teachers]'."
        ) from error
    return stable_baselines3


def load_model(path: Path | str) -> Any:
    """Read any model that Stable-Baselines3 saved.

    Args:
        path: A zip file of A2C, DDPG, DQN, PPO, SAC or TD3.

    Raises:
        MissingExtraError: Stable-Baselines3 is not installed.
        AgentFileError: There is no such file, it is damaged, or not such a model.
    """
    sb3 = import_sb3()
    try:
        with zipfile.ZipFile(path) as archive:
            module = json.loads(archive.read("data"))["policy_class"]["__module__"]
        algorithm = getattr(sb3, _ALGORITHMS.get(module.split(".")[1], "PPO"))
        return algorithm.load(path, device="cpu")
    except (OSError, zipfile.BadZipFile, KeyError, TypeError, ValueError, IndexError) as error:
        raise AgentFileError(
            f"{path} is missing, damaged or no model of Stable-Baselines3."
        ) from error


class Sb3Agent:
    """One of our agents with the `predict` of Stable-Baselines3's models: any number of sensors.

    The state is the memory of every environment; pass back what the last call returned.
    """

    def __init__(self, policy: Policy):
        """Wrap a policy whose actions, in [-1, 1], are what the environment takes."""
        self.policy = policy
        self._step = jax.jit(jax.vmap(policy.step))

    def predict(
        self,
        observation: Float[np.ndarray, "*L N"],
        state: PyTree | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = True,
    ) -> tuple[Float[np.ndarray, "*L A"], PyTree]:
        """Act in one environment, or in L side by side.

        Args:
            observation: N readings, or a row of them for each environment.
            state: What the last call returned; None to begin with blank memories.
            episode_start: Whether each environment has just begun an episode: its memory is blanked.
            deterministic: Our agents are; the argument is there for the interface.

        Returns:
            Actions of the same leading shape, and the new state.

        Raises:
            ObservationError: The readings are of another shape, or hold NaN or infinity.
            ConfigError: The state is of another number of environments or sensors.
        """
        del deterministic
        readings = np.asarray(observation, np.float32)
        if readings.ndim not in (1, 2) or not np.isfinite(readings).all():
            raise ObservationError(
                "Observations must be finite, of shape (N) or (environments, N), got shape "
                f"{readings.shape}."
            )
        rows = jnp.asarray(np.atleast_2d(readings))
        blank = self._blank_memories(*rows.shape)
        if state is None:
            state = blank
        elif jax.tree.map(jnp.shape, state) != jax.tree.map(jnp.shape, blank):
            raise ConfigError(
                f"The state is of another number of environments or sensors than {rows.shape}."
            )
        if episode_start is not None:
            start = jnp.asarray(np.atleast_1d(episode_start), bool)
            state = jax.tree.map(
                lambda new, old: jnp.where(start.reshape(-1, *[1] * (jnp.ndim(old) - 1)), new, old),
                blank,
                state,
            )
        actions, state, _ = self._step(rows, state)
        return np.asarray(actions).reshape(*readings.shape[:-1], -1), state

    def _blank_memories(self, environments: int, sensors: int) -> PyTree:
        carry = self.policy.initial_carry(sensors)
        return jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (environments, *jnp.shape(leaf))), carry
        )


def to_feed_forward(model: Any, num_sensors: int, num_actions: int) -> FeedForwardPolicy:
    """The same agent as one of ours: what a PPO or A2C model with tanh layers does deterministically.

    Raises:
        ConfigError: The model has another architecture.
    """
    try:
        policy = model.policy
        hidden = [module for module in policy.mlp_extractor.policy_net if hasattr(module, "weight")]
        others = [module for module in policy.mlp_extractor.policy_net if module not in hidden]
        linear = [*hidden, policy.action_net]
    except AttributeError as error:
        raise ConfigError(f"A {type(model).__name__} is no feed-forward agent of PPO.") from error
    if not all(type(module).__name__ == "Tanh" for module in others):
        raise ConfigError("Only models whose layers are tanh can become an agent of ours.")
    if not isinstance(model.action_space, spaces.Box):
        raise ConfigError("Only models that drive a Box can become an agent of ours.")
    sizes = tuple(module.weight.shape[0] for module in hidden)
    blank = FeedForwardConfig(sizes, clipped=True).build(
        num_sensors, num_actions, jax.random.key(0)
    )
    weights = [
        np.array(array.detach().numpy())
        for module in linear
        for array in (module.weight, module.bias)
    ]
    # Theirs acts in the units of the world, ours from -1 to 1
    low, high = action_bounds(model.action_space)
    weights[-2] *= (2.0 / (high - low))[:, None]
    weights[-1] = 2.0 * (weights[-1] - low) / (high - low) - 1.0
    leaves, structure = jax.tree.flatten(blank)
    if [leaf.shape for leaf in leaves] != [array.shape for array in weights]:
        raise ConfigError("The model senses or does something else than the world takes.")
    return jax.tree.unflatten(structure, [jnp.asarray(array, jnp.float32) for array in weights])
