"""Stable-Baselines3, both ways: its models as teachers (`load_model`), and our agents behind its `predict`.

```python
import numpy as np

import sensorium
from sensorium.bridges.sb3 import Sb3Agent

agent = Sb3Agent(sensorium.load("cartpole-pi"))
readings = np.zeros((3, 5), np.float32)  # three environments, five sensors
actions, state = agent.predict(readings)
actions, state = agent.predict(readings, state, episode_start=np.array([True, False, False]))
```

Reading a model of Stable-Baselines3 runs pickled code: read only files that you trust.
"""

import json
import zipfile
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Float

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.spaces import action_bounds
from sensorium.errors import AgentFileError, ConfigError, MissingExtraError, ObservationError
from sensorium.policies import ConvolutionalConfig, FeedForwardConfig, Policy
from sensorium.types import PyTree, Senses

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


@runtime_checkable
class HasPolicy(Protocol):
    """What `sensorium.load` gives: a policy, and what is known of it."""

    @property
    def policy(self) -> Policy:
        """What acts."""


class Sb3Agent:
    """One of our agents with the `predict` of Stable-Baselines3's models: any number of sensors.

    The state is the memory of every environment; pass back what the last call returned.
    """

    def __init__(self, agent: Policy | HasPolicy):
        """Wrap an agent, or its policy alone, whose actions in [-1, 1] are what the environment takes."""
        self.policy = agent if isinstance(agent, Policy) else agent.policy
        self._step = jax.jit(jax.vmap(self.policy.step))

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
        return np.array(actions).reshape(*readings.shape[:-1], -1), state

    def _blank_memories(self, environments: int, sensors: int) -> PyTree:
        carry = self.policy.initial_carry(sensors)
        return jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (environments, *jnp.shape(leaf))), carry
        )


def check_explorable(world: HostWorld) -> None:
    """ConfigError unless actions are numbers with bounds: PPO here explores by noise on them."""
    env = world.opener()()
    space = env.action_space
    env.close()
    if not (
        isinstance(space, spaces.Box)
        and np.issubdtype(space.dtype, np.floating)
        and space.is_bounded()
    ):
        raise ConfigError(
            f"Teachers are trained to drive a Box of floats with bounds, and {world.name} takes {space}: "
            "train one with Stable-Baselines3 itself, and name its zip with `sensorium clone --teacher`."
        )


def network_of(config: FeedForwardConfig | ConvolutionalConfig) -> tuple[str, dict[str, Any]]:
    """The policy of PPO and A2C, and its arguments, that become an agent of `config` by `to_policy`.

    Raises:
        ConfigError: No policy of Stable-Baselines3 is like it.
    """
    nn = import_sb3().common.utils.th.nn
    if config != type(config)(hidden_sizes=config.hidden_sizes, clipped=True):
        raise ConfigError(
            "PPO of Stable-Baselines3 trains agents that are clipped, and whose other settings but "
            f"hidden_sizes are the defaults, not {config}."
        )
    if isinstance(config, FeedForwardConfig):
        sizes = list(config.hidden_sizes)
        return "MlpPolicy", dict(activation_fn=nn.Tanh, net_arch=dict(pi=sizes, vf=sizes))
    if not config.hidden_sizes:
        raise ConfigError("The CnnPolicy of Stable-Baselines3 has a layer after its convolutions.")
    features, *sizes = config.hidden_sizes
    return "CnnPolicy", dict(
        activation_fn=nn.ReLU,
        net_arch=dict(pi=sizes, vf=sizes),
        features_extractor_kwargs=dict(features_dim=features),
    )


def to_policy(
    model: Any,
    config: FeedForwardConfig | ConvolutionalConfig,
    senses: Senses,
    num_actions: int,
) -> Policy:
    """The same agent as one of ours: what a PPO or A2C model does deterministically.

    Args:
        model: One whose network is `network_of(config)`.
        config: What it becomes.
        senses: What it was trained to sense: N, or the shape of pictures.
        num_actions: A.

    Raises:
        ConfigError: The model has another architecture.
    """
    kind = "convolutional" if isinstance(config, ConvolutionalConfig) else "feed-forward"
    activation = "ReLU" if kind == "convolutional" else "Tanh"
    try:
        policy = model.policy
        modules = [*policy.mlp_extractor.policy_net, policy.action_net]
        if kind == "convolutional":
            seeing = policy.features_extractor
            modules = [*seeing.cnn, *seeing.linear, *modules]
    except (AttributeError, TypeError) as error:
        raise ConfigError(f"A {type(model).__name__} is no {kind} agent of PPO.") from error
    layers = [module for module in modules if hasattr(module, "weight")]
    others = {type(module).__name__ for module in modules if module not in layers} - {"Flatten"}
    if others - {activation}:
        raise ConfigError(
            f"Only models whose layers are {activation} can become a {kind} agent of ours."
        )
    if not isinstance(model.action_space, spaces.Box):
        raise ConfigError("Only models that drive a Box can become an agent of ours.")
    weights = [
        np.array(array.detach().numpy())
        for module in layers
        for array in (module.weight, module.bias)
    ]
    # Theirs acts in the units of the world, ours from -1 to 1
    low, high = action_bounds(model.action_space)
    width = np.where(high > low, high - low, 1.0)  # where there is but one action, any will do
    weights[-2] *= (2.0 / width)[:, None]
    weights[-1] = 2.0 * (weights[-1] - low) / width - 1.0
    leaves, structure = jax.tree.flatten(config.build(senses, num_actions, jax.random.key(0)))
    if [leaf.shape for leaf in leaves] != [array.shape for array in weights]:
        raise ConfigError("The model senses or does something else than the world takes.")
    return jax.tree.unflatten(structure, [jnp.asarray(array, jnp.float32) for array in weights])
