"""Stable-Baselines3, both ways: its models as experts (`load_model`), and our agents behind its `predict`.

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

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Float

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.sb3_files import import_sb3 as import_sb3
from sensorium.bridges.sb3_files import load_model as load_model
from sensorium.bridges.spaces import CHOICES, action_bounds
from sensorium.errors import ConfigError, ObservationError
from sensorium.policies import ConvolutionalConfig, FeedForwardConfig, Policy, PolicyConfig
from sensorium.types import ObservationSpec, PyTree, spec_of

_COLOURS = 3  # channels of an image in colour


@runtime_checkable
class HasPolicy(Protocol):
    """What `sensorium.load` gives: a policy, and what is known of it."""

    @property
    def policy(self) -> Policy:
        """What acts."""


class Sb3Agent:
    """One of our agents with the `predict` of Stable-Baselines3's models: any number of sensors or entities.

    The state is the memory of every environment; pass back what the last call returned.
    """

    def __init__(self, agent: Policy | HasPolicy):
        """Wrap an agent, or its policy alone, whose actions in [-1, 1] are what the environment takes."""
        self.policy = agent if isinstance(agent, Policy) else agent.policy
        self._step = jax.jit(jax.vmap(self.policy.step))

    def predict(
        self,
        observation: Float[np.ndarray, "..."],
        state: PyTree | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = True,
    ) -> tuple[Float[np.ndarray, "*L A"], PyTree]:
        """Act in one environment, or in L side by side.

        Args:
            observation: N readings, or entities (N, F); with a leading axis L of many environments.
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
        entities = readings.ndim > 1 and not self.policy.takes(readings.shape[-1])
        wrong = np.isinf(readings) if entities else ~np.isfinite(readings)
        dimensions = readings.ndim - entities
        if dimensions not in (1, 2) or wrong.any():
            raise ObservationError(
                "Observations must be finite, of shape (N) or (environments, N), of entities (N, F) or "
                f"(environments, N, F), got shape {readings.shape}."
            )
        rows = jnp.asarray(readings[None] if dimensions == 1 else readings)
        blank = self._blank_memories(len(rows), spec_of(rows.shape[1:]))
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
        return np.array(actions[0] if dimensions == 1 else actions), state

    def _blank_memories(self, environments: int, spec: ObservationSpec) -> PyTree:
        carry = self.policy.initial_carry(spec)
        return jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (environments, *jnp.shape(leaf))), carry
        )


def check_explorable(world: HostWorld) -> None:
    """Raise ConfigError unless actions are numbers with bounds: PPO here explores by noise on them."""
    env = world.opener()()
    space = env.action_space
    env.close()
    if not (
        isinstance(space, spaces.Box)
        and np.issubdtype(space.dtype, np.floating)
        and space.is_bounded()
    ):
        raise ConfigError(
            f"PPO here acts in a Box of floats with bounds, and {world.name} takes {space}: "
            "train one with Stable-Baselines3 itself, and name its zip with `sensorium train --expert`."
        )


def network_of(config: PolicyConfig) -> tuple[str, dict[str, Any]]:
    """Return policy and arguments of PPO and A2C that become an agent of `config` by `to_policy`.

    Raises:
        ConfigError: No policy of Stable-Baselines3 is like it.
    """
    if not isinstance(config, FeedForwardConfig | ConvolutionalConfig):
        raise ConfigError(
            "PPO of Stable-Baselines3 trains feed-forward and convolutional policies, not "
            f"{type(config).__name__}."
        )
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
    config: PolicyConfig,
    spec: ObservationSpec,
    num_actions: int,
) -> Policy:
    """Convert a PPO or A2C model to one of our agents, which does what the model does deterministically.

    Args:
        model: One whose network is `network_of(config)`.
        config: What it becomes.
        spec: Of its observations in training: N, or the shape of images.
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
        raise ConfigError("Only models that act in a Box can become an agent of ours.")
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
    leaves, structure = jax.tree.flatten(config.build(spec, num_actions, jax.random.key(0)))
    if [leaf.shape for leaf in leaves] != [array.shape for array in weights]:
        raise ConfigError("The model has other observations or actions than the world.")
    return jax.tree.unflatten(structure, [jnp.asarray(array, jnp.float32) for array in weights])


def tells_logits(model: Any) -> bool:
    """Return whether a model says how likely it takes each option of a discrete action.

    Actor-critics without memory do; those with memory, and those of values, tell their choice alone.
    """
    policy = model.policy
    return (
        isinstance(model.action_space, CHOICES)
        and hasattr(policy, "get_distribution")
        and not hasattr(policy, "lstm_actor")
    )


def logits_of(model: Any, observations: Any) -> Float[np.ndarray, "L A"]:
    """Compute the logits of a model that `tells_logits`, the options of all choices in a row.

    Args:
        model: The model.
        observations: A batch, as the environment shows them.
    """
    policy = model.policy
    with import_sb3().common.utils.th.no_grad():
        distribution = policy.get_distribution(policy.obs_to_tensor(observations)[0]).distribution
    parts = distribution if isinstance(distribution, list) else [distribution]
    logits = np.concatenate([part.logits.numpy() for part in parts], axis=1)
    if isinstance(model.action_space, spaces.MultiBinary):  # each bit off and on
        logits = np.stack([np.zeros_like(logits), logits], axis=-1).reshape(len(logits), -1)
    return logits


def check_statistics(statistics: Any, world: HostWorld) -> None:
    """Refuse what VecNormalize noted of other observations, or what cannot be used; ConfigError says why."""
    if not statistics.norm_obs:
        return
    space, noted = world.own_observation_space, statistics.obs_rms
    if not isinstance(noted, dict):
        noted, parts = {"": noted}, {"": space}
    else:
        parts = space.spaces if isinstance(space, spaces.Dict) else {}
    theirs = {name: np.shape(each.mean) for name, each in noted.items()}
    if any(name not in parts or parts[name].shape != shape for name, shape in theirs.items()):
        known = theirs.get("", theirs)
        raise ConfigError(
            f"The statistics of VecNormalize are of observations of shape {known}, and {world.name} shows "
            f"{world.raw_observation_shape if isinstance(space, spaces.Box) else space}: name others with "
            "--vecnormalize FILE, or say none."
        )
    blank = world.to_own_observations(np.zeros((1, *world.raw_observation_shape), np.float32))
    usual = statistics.normalize_obs(blank)
    arrays = usual.values() if isinstance(usual, dict) else [usual]
    if not all(np.isfinite(array).all() for array in arrays):
        raise ConfigError(
            "The statistics of VecNormalize hold NaN or infinity, or a variance below zero."
        )


def check_spaces(model: Any, world: HostWorld) -> None:
    """Refuse a model that was trained with other spaces than a world's; ConfigError says what differs.

    Images may be stacks of frames, see `num_frames`.
    """
    shown = world.own_observation_space
    frames = num_frames(model, world)
    if frames % _COLOURS == 0 and shown.shape[2:] == (1,):
        raise ConfigError(
            f"The expert ({type(model).__name__}) was trained with images of {frames} channels, as those in "
            f"colour, and {world.name} shows grey ones; if they are {frames} grey frames, register the "
            "environment with the wrappers that stack them, and name that one as gym:module:Id."
        )
    if frames > 1:
        low, high = (np.repeat(bound, frames, -1) for bound in (shown.low, shown.high))
        shown = spaces.Box(low, high, dtype=shown.dtype)
    for what, theirs, ours in (
        ("observations", model.observation_space, shown),
        ("actions", model.action_space, world.action_space),
    ):
        if differs := difference(theirs, ours):
            raise ConfigError(
                f"The expert ({type(model).__name__}) was trained with other {what} than those of "
                f"{world.name}: {differs}. If it was trained behind wrappers, register the environment "
                "with them, and name that one as gym:module:Id."
            )


def num_frames(model: Any, world: HostWorld) -> int:
    """Return how many of a world's images a model sees at once, as behind VecFrameStack; 1 of all else."""
    theirs, ours = model.observation_space.shape or (), world.own_observation_space.shape or ()
    if len(theirs) != 3 or len(ours) != 3:
        return 1
    if theirs[:2] != ours[:2]:
        theirs = (*theirs[1:], theirs[0])  # channels first, see `difference`
    frames, left = divmod(theirs[2], ours[2])
    return frames if theirs[:2] == ours[:2] and not left else 1


def difference(theirs: spaces.Space, ours: spaces.Space) -> str | None:
    """Describe what a model's space is and the world's is not; None if they are alike."""
    if type(theirs) is type(ours) and isinstance(theirs, spaces.Dict | spaces.Tuple):
        return _difference_of_parts(theirs, ours)
    if theirs == ours:
        return None
    if isinstance(theirs, spaces.Discrete) and isinstance(ours, spaces.Discrete):
        if (theirs.n, theirs.start) == (ours.n, ours.start):
            return None
        return f"{theirs.n} choices from {theirs.start} on, not {ours.n} from {ours.start} on"
    if type(theirs) is not type(ours):
        return f"a {type(theirs).__name__}, not a {type(ours).__name__}"
    if not isinstance(theirs, spaces.Box) or not isinstance(ours, spaces.Box):
        return f"{theirs}, not {ours}"
    shape, low, high = theirs.shape, _bounds(theirs.low), _bounds(theirs.high)
    if len(shape) == 3 and shape != ours.shape and (*shape[1:], shape[0]) == ours.shape:
        # VecTransposeImage puts the channels of images first; `predict` does so again
        shape, low, high = ours.shape, np.moveaxis(low, 0, -1), np.moveaxis(high, 0, -1)
    if shape != ours.shape:
        return f"shape {shape}, not {ours.shape}{_stacked(shape, ours.shape)}"
    if not _same_kind(theirs.dtype, ours.dtype):
        return f"{theirs.dtype}, not {ours.dtype}"
    alike = np.isclose(low, _bounds(ours.low), equal_nan=True) & np.isclose(
        high, _bounds(ours.high), equal_nan=True
    )
    if alike.all():
        return None
    place = tuple(np.argwhere(~alike)[0])
    where = "" if not alike.any() else f" of number {', '.join(str(index) for index in place)}"
    return (
        f"bounds{where} of {low[place]:.6g} to {high[place]:.6g}, not {ours.low[place]:.6g} to "
        f"{ours.high[place]:.6g}"
    )


def _difference_of_parts(theirs: Any, ours: Any) -> str | None:
    """Compare the parts of two Dicts or two Tuples."""
    one, other = (
        dict(space.spaces if isinstance(space, spaces.Dict) else enumerate(space.spaces))
        for space in (theirs, ours)
    )
    if one.keys() != other.keys():
        return f"parts {', '.join(map(str, one))}, not {', '.join(map(str, other))}"
    each = ((name, difference(one[name], other[name])) for name in one)
    return next((f"{name} of {differs}" for name, differs in each if differs), None)


def _bounds(bounds: np.ndarray) -> np.ndarray:
    """Convert bounds of any dtype; older environments write the largest float32 for infinity."""
    wide = bounds.astype(np.float64)
    return np.where(np.abs(wide) >= np.finfo(np.float32).max, np.copysign(np.inf, wide), wide)


def _same_kind(theirs: np.dtype, ours: np.dtype) -> bool:
    return theirs == ours or (theirs.kind == "f" and ours.kind == "f")


def _stacked(theirs: tuple[int, ...], ours: tuple[int, ...]) -> str:
    """Guess why a shape differs."""
    frames, left = divmod(np.prod(theirs, dtype=int), max(np.prod(ours, dtype=int), 1))
    if left or frames < 2 or len(theirs) != len(ours):
        return ""
    return f" ({frames} observations stacked, as VecFrameStack does?)"
