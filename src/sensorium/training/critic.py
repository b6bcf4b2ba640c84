"""The critic of actor-critic methods: values, the advantages that follow, and the scale of rewards."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from sensorium.layers import Linear
from sensorium.rollout import Transitions
from sensorium.training.learner import mean_over
from sensorium.types import Key, Scalar


class Critic(eqx.Module):
    """Estimates a value, most often from the true state: tanh layers, then one number."""

    layers: tuple[Linear, ...]

    def __init__(self, sizes: tuple[int, ...], *, key: Key):
        """Draw a critic; `sizes` are the inputs and the hidden layers."""
        keys = jax.random.split(key, len(sizes))
        self.layers = tuple(
            Linear(inputs, outputs, key=layer_key)
            for inputs, outputs, layer_key in zip(sizes, (*sizes[1:], 1), keys, strict=True)
        )

    def __call__(self, inputs: Float[Array, " F"]) -> Scalar:
        """Estimate the value."""
        for layer in self.layers[:-1]:
            inputs = jnp.tanh(layer(inputs))
        return self.layers[-1](inputs)[0]


def estimate_advantages(
    rewards: Float[Array, "T B"],
    values: Float[Array, "T B"],
    next_values: Float[Array, "T B"],
    done: Bool[Array, "T B"],
    discount: float | Scalar,
    gae_lambda: float | Scalar,
) -> Float[Array, "T B"]:
    """Compute generalised advantage estimates (Schulman et al. 2016, eq. 16).

    Args:
        rewards: Of each step.
        values: Of the states before each step.
        next_values: Of the states after it, zero where the world terminated.
        done: Whether the episode ended there, for whatever reason.
        discount: γ.
        gae_lambda: λ.
    """

    def back(later: Array, now: tuple) -> tuple[Array, Array]:
        surprise, done = now
        advantage = surprise + discount * gae_lambda * jnp.where(done, 0.0, later)
        return advantage, advantage

    surprises = rewards + discount * next_values - values
    start = jnp.zeros(rewards.shape[1])
    return jax.lax.scan(back, start, (surprises, done), reverse=True)[1]


class RewardScale(NamedTuple):
    """Running moments of discounted returns; rewards are divided by their standard deviation."""

    count: Float[Any, ""]
    mean: Float[Any, ""]
    squares: Float[Any, ""]

    @classmethod
    def unknown(cls) -> "RewardScale":
        """Return the moments of no steps."""
        return cls(*(jnp.zeros(()) for _ in range(3)))

    @property
    def deviation(self) -> Any:
        """The standard deviation; 1 before the first step."""
        return np.sqrt(self.squares / self.count + 1e-8) if self.count else np.float32(1.0)


class Discounter:
    """Discounted returns of lanes, for their `RewardScale`; kept from segment to segment."""

    def __init__(self, discount: float, num_envs: int):
        self._discount = discount
        self._sums = np.zeros(num_envs)

    def update(self, scale: RewardScale, steps: Transitions) -> RewardScale:
        """Update the moments by the steps of a segment."""
        ends = steps.terminated | steps.truncated
        count, mean, squares = (float(value) for value in scale)
        for reward, over, counts in zip(steps.reward, ends, steps.alive, strict=True):
            self._sums = np.where(counts, self._discount * self._sums + reward, 0.0)
            if some := int(counts.sum()):
                now = self._sums[counts]
                away, new = now.mean() - mean, count + some
                squares += now.var() * some + away**2 * count * some / new
                mean, count = mean + away * some / new, new
            self._sums = np.where(over, 0.0, self._sums)
        return RewardScale(*(jnp.asarray(value, jnp.float32) for value in (count, mean, squares)))


def critic_inputs(
    steps: Transitions, max_steps: int, scale: RewardScale
) -> tuple[Float[Any, "T B F"], Float[Any, "T B F"]]:
    """Compute the inputs of a critic before and after each step: a view, the time, the return so far."""

    def inputs(view: np.ndarray, time: np.ndarray, earned: np.ndarray) -> np.ndarray:
        late, earned = time / max_steps, earned / scale.deviation
        beside = np.stack([late, earned], axis=-1).astype(np.float32)
        return np.concatenate([view, beside], axis=-1)

    return (
        inputs(steps.view, steps.time, steps.earned),
        inputs(steps.next_view, steps.time + 1, steps.earned + steps.reward),
    )


@partial(jax.jit, static_argnames=("discount", "gae_lambda"))
def critic_estimates(
    critic: Critic,
    inputs: Float[Array, "T B F"],
    following: Float[Array, "T B F"],
    rewards: Float[Array, "T B"],
    steps: Transitions,
    discount: float,
    gae_lambda: float,
) -> tuple[Float[Array, "T B"], Float[Array, "T B"], Scalar]:
    """Estimate the advantage of each step of a segment.

    Args:
        critic: Estimates the values.
        inputs: From `critic_inputs`, before each step.
        following: After it.
        rewards: Scaled.
        steps: The segment.
        discount: γ.
        gae_lambda: λ of generalised advantage estimation.

    Returns:
        Advantages, targets of the critic, and the share of their variance that it explains (1 is all).
    """
    now, then = (jax.vmap(jax.vmap(critic))(each) for each in (inputs, following))
    then = jnp.where(steps.terminated, 0.0, then)
    done = steps.terminated | steps.truncated | ~steps.alive
    advantages = estimate_advantages(rewards, now, then, done, discount, gae_lambda)
    targets = advantages + now
    mean = partial(mean_over, steps.alive)
    spread = mean((targets - mean(targets)) ** 2)
    missed = advantages - mean(advantages)
    return advantages, targets, 1 - mean(missed**2) / (spread + 1e-8)


def normalised(counts: Bool[Any, "T B"], advantages: Float[Any, "T B"]) -> Float[Array, "T B"]:
    """Scale advantages to mean 0 and standard deviation 1 over those that count."""
    centre = mean_over(counts, advantages)
    spread = jnp.sqrt(mean_over(counts, (advantages - centre) ** 2))
    return (advantages - centre) / (spread + 1e-8)


def values(critic: Critic, inputs: Float[Array, "T F B"]) -> Float[Array, "T B"]:
    """Estimate the values of a minibatch."""
    return jax.vmap(jax.vmap(critic, in_axes=-1))(inputs)
