"""Parts shared by the trainers that learn by gradients: optimizer, schedules, moving averages."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from sensorium.types import PyTree, Scalar


class Learner(NamedTuple):
    """Parameters in training."""

    model: PyTree
    """What gradients change."""
    average: PyTree
    """Exponential moving average of `model`."""
    optimizer: PyTree


class Optimizer:
    """Adam with clipped gradients and a learning rate that falls over the whole stage."""

    def __init__(
        self,
        rate: float | Callable[[Array], Array],
        max_grad_norm: float,
        ema_decay: float = 0.0,
        **adam: Any,
    ):
        """Set up.

        Args:
            rate: The learning rate, or a schedule over updates.
            max_grad_norm: Largest norm of a gradient.
            ema_decay: Of the average; 0 for the model itself.
            adam: Further arguments of `optax.adam`.
        """
        self._ema_decay = ema_decay
        self._transform = optax.chain(
            optax.clip_by_global_norm(max_grad_norm), optax.adam(rate, **adam)
        )

    def init(self, model: PyTree) -> Learner:
        """Make a learner before its first update."""
        return Learner(model, model, self._transform.init(eqx.filter(model, eqx.is_inexact_array)))

    def update(self, learner: Learner, gradient: PyTree) -> Learner:
        """Update once. What has no gradient, such as a frozen encoder, stays as it is to the last bit."""
        updates, optimizer = self._transform.update(gradient, learner.optimizer)
        model = eqx.apply_updates(learner.model, updates)
        return Learner(model, moving_average(learner.average, model, self._ema_decay), optimizer)


def moving_average(average: PyTree, model: PyTree, decay: float) -> PyTree:
    """Add a model to an exponential moving average; weights that do not change stay the same bits."""
    if not decay:
        return model
    return jax.tree.map(
        lambda old, new: old + (1 - decay) * (new - old) if eqx.is_inexact_array(new) else new,
        average,
        model,
    )


def falling(first: float, updates: int) -> Callable[[Array], Array]:
    """Return a learning rate that falls linearly from `first` to zero over so many updates."""
    return optax.linear_schedule(first, 0.0, updates)


def geometric(first: float, last: float, done: Scalar) -> Scalar:
    """Compute a number that falls from `first` to `last` by the same factor in each step.

    Args:
        first: At the start.
        last: At the end, and after it.
        done: How much of the way is behind: from 0 to 1, or more.
    """
    return first * (last / first) ** jnp.minimum(done, 1.0)


def to_batch_last(tree: PyTree, lanes: Any) -> PyTree:
    """Select lanes of transitions (T, B, ...) and move them to the last axis: fastest on a CPU."""
    return jax.tree.map(lambda leaf: np.moveaxis(leaf[:, lanes], 1, -1), tree)


def mean_over(valid: Bool[Any, "..."], values: Float[Any, "..."]) -> Scalar:
    """Compute the mean of the values where `valid` is true; 0 if there are none."""
    return jnp.sum(jnp.where(valid, values, 0.0)) / jnp.maximum(jnp.sum(valid), 1)


def mean_figures(figures: list[dict[str, Any]]) -> dict[str, Scalar]:
    """Compute the means of the figures of several updates."""
    names = figures[0] if figures else {}
    return {
        name: jnp.asarray(np.mean([np.asarray(each[name]) for each in figures])) for name in names
    }


def where(condition: Array, new: PyTree, old: PyTree) -> PyTree:
    """Select `new` where `condition` is true, or else `old`, in every leaf."""
    return jax.tree.map(lambda new, old: jnp.where(condition, new, old), new, old)
