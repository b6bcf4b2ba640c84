"""What the outputs of a policy's last layer mean: Gaussians in [-1, 1], or independent categoricals.

A policy computes `outputs`, A numbers of any size. Its `ActionDistribution` turns them into the action;
training also draws actions from it, computes their log-probability, and compares them with those of an
expert.
"""

import abc
import dataclasses
import itertools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sensorium.types import Action, Actions, Key, Scalar

SHARPNESS = 5.0
"""What the logits of an expert are multiplied by before a student learns from them."""

_ROUNDING = 1e-3

Outputs = Float[Array, " A"]
"""Of a policy's last layer."""

Drawn = Float[Array, " A"]
"""A sample: numbers of any size of a Gaussian, one-hot vectors of categoricals."""


class ActionDistribution(abc.ABC):
    """A family of distributions over actions; an immutable value."""

    bounded: ClassVar[bool]
    """Whether actions lie in [-1, 1]."""

    @abc.abstractmethod
    def action(self, outputs: Outputs) -> Action:
        """Return the action without exploration: the mode."""

    @abc.abstractmethod
    def draw(self, key: Key, outputs: Outputs, spread: Scalar) -> Drawn:
        """Draw a sample; the same key gives the same noise whatever the outputs are.

        Args:
            key: Random key.
            outputs: Of the policy.
            spread: Standard deviation of Gaussians; temperature of categoricals.
        """

    @abc.abstractmethod
    def to_action(self, drawn: Drawn) -> Action:
        """Convert a sample to the action that the world gets."""

    @abc.abstractmethod
    def feedback(self, action: Action) -> Action:
        """Return what is fed back to a policy of an action, its own or another's."""

    @abc.abstractmethod
    def log_prob(self, drawn: Drawn, outputs: Outputs, spread: Scalar) -> Scalar:
        """Compute the log-probability (density) of a sample, up to a constant."""

    @abc.abstractmethod
    def entropy(self, outputs: Outputs, spread: Scalar) -> Scalar:
        """Compute the entropy; 0 of Gaussians, whose standard deviation does not depend on the outputs."""

    @abc.abstractmethod
    def imitation_loss(
        self, outputs: Outputs, expert_action: Action, weights: Float[np.ndarray, " A"]
    ) -> Scalar:
        """Compute the loss of imitation: how far outputs are from the advice of an expert."""

    @abc.abstractmethod
    def advice(self, action: Action) -> Action:
        """Return what a policy advises by an action: numbers in [-1, 1].

        Of choices they tell how likely each option is, from -1 to 1, at a temperature of 1 / `SHARPNESS`: a
        student learns from near ties too, but what counts in the end is which option is the largest.
        """

    @abc.abstractmethod
    def mixed(self, key: Key, share: Scalar, one: Action, other: Action, noise: Scalar) -> Action:
        """Mix an action of which `share`, from 0 to 1, is `one` and the rest `other`, with noise.

        Args:
            key: Random key.
            share: β of DAgger.
            one: The expert's.
            other: The student's.
            noise: Standard deviation of Gaussian noise; of categoricals, how often a random action is done.
        """


@dataclasses.dataclass(frozen=True)
class Gaussian(ActionDistribution):
    """Independent Gaussians around the outputs, squashed to [-1, 1].

    The noise is added before the squashing. Added after it and clipped, it would press pedals that the
    policy releases; a policy that compensates for it is too fast without noise.
    """

    bounded = True

    clipped: bool = False
    """Cut at -1 and 1, as by the policies of Stable-Baselines3, instead of a tanh."""

    def action(self, outputs: Outputs) -> Action:
        return jnp.clip(outputs, -1.0, 1.0) if self.clipped else jnp.tanh(outputs)

    def draw(self, key: Key, outputs: Outputs, spread: Scalar) -> Drawn:
        return outputs + spread * jax.random.normal(key, outputs.shape)

    def to_action(self, drawn: Drawn) -> Action:
        return self.action(drawn)

    def feedback(self, action: Action) -> Action:
        return action

    def log_prob(self, drawn: Drawn, outputs: Outputs, spread: Scalar) -> Scalar:
        return -jnp.sum(0.5 * ((drawn - outputs) / spread) ** 2 + jnp.log(spread))

    def entropy(self, outputs: Outputs, spread: Scalar) -> Scalar:
        del outputs, spread
        return jnp.zeros(())

    def imitation_loss(
        self, outputs: Outputs, expert_action: Action, weights: Float[np.ndarray, " A"]
    ) -> Scalar:
        """Compute the logarithm of the error: states in which the expert fails too must not count most."""
        return jnp.log1p(jnp.mean(weights * (self.action(outputs) - expert_action) ** 2))

    def advice(self, action: Action) -> Action:
        return action

    def mixed(self, key: Key, share: Scalar, one: Action, other: Action, noise: Scalar) -> Action:
        mean = share * one + (1 - share) * other
        return jnp.clip(mean + noise * jax.random.normal(key, mean.shape), -1, 1)


@dataclasses.dataclass(frozen=True)
class Categorical(ActionDistribution):
    """Independent categoricals: the action is the logits, and the world takes the largest of each choice."""

    bounded = False

    choices: tuple[int, ...]
    """How many options each choice has; their logits follow one another."""

    def action(self, outputs: Outputs) -> Action:
        return outputs

    def draw(self, key: Key, outputs: Outputs, spread: Scalar) -> Drawn:
        """Draw by the Gumbel-max trick."""
        return self._largest(outputs / spread + jax.random.gumbel(key, outputs.shape))

    def to_action(self, drawn: Drawn) -> Action:
        return drawn

    def feedback(self, action: Action) -> Action:
        return self._largest(action)

    def log_prob(self, drawn: Drawn, outputs: Outputs, spread: Scalar) -> Scalar:
        return jnp.sum(drawn * self._log_shares(outputs / spread))

    def entropy(self, outputs: Outputs, spread: Scalar) -> Scalar:
        log_shares = self._log_shares(outputs / spread)
        return -jnp.sum(jnp.exp(log_shares) * log_shares)

    def imitation_loss(
        self, outputs: Outputs, expert_action: Action, weights: Float[np.ndarray, " A"]
    ) -> Scalar:
        """Compute the cross-entropy. Where the advice is no distribution, its largest numbers count."""
        shares = (expert_action + 1) / 2
        totals = jnp.stack([each.sum() for each in self._split(shares)])
        is_distribution = (shares >= 0).all() & (jnp.abs(totals - 1) < _ROUNDING).all()
        shares = jnp.where(is_distribution, shares, self._largest(expert_action))
        return -jnp.sum(weights * shares * self._log_shares(outputs))

    def advice(self, action: Action) -> Action:
        return 2 * jnp.exp(self._log_shares(SHARPNESS * action)) - 1

    def mixed(self, key: Key, share: Scalar, one: Action, other: Action, noise: Scalar) -> Action:
        key_share, key_noise, key_random = jax.random.split(key, 3)
        chosen = jnp.where(jax.random.bernoulli(key_share, share), one, other)
        anything = jax.random.uniform(key_random, chosen.shape)
        random = jax.random.bernoulli(key_noise, jnp.minimum(noise, 1.0))
        return self._largest(jnp.where(random, anything, chosen))

    def _split(self, numbers: Outputs) -> list[Array]:
        ends = list(itertools.accumulate(self.choices))
        return jnp.split(numbers, ends[:-1])

    def _largest(self, numbers: Outputs) -> Drawn:
        """Return one-hot vectors of the largest of each choice."""
        hot = [jax.nn.one_hot(jnp.argmax(each), len(each)) for each in self._split(numbers)]
        return jnp.concatenate(hot)

    def _log_shares(self, outputs: Outputs) -> Array:
        return jnp.concatenate([jax.nn.log_softmax(each) for each in self._split(outputs)])


def distribution_of(actions: Actions, *, clipped: bool = False) -> ActionDistribution:
    """Return the distribution for a world that takes `actions`; `clipped` is of Gaussians only."""
    return Gaussian(clipped) if isinstance(actions, int) else Categorical(actions)
