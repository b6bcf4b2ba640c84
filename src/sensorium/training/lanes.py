"""Environments side by side on the host: all that an agent senses, does and earns there while it learns."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sensorium.bridges.from_gymnasium import HostWorld
from sensorium.bridges.pool import PoolVectorEnv
from sensorium.errors import WorldError
from sensorium.policies import Policy
from sensorium.rollout.acting import restarted
from sensorium.training.critic import Critic
from sensorium.training.policy_gradient import advantage_estimates, log_probability
from sensorium.types import Key, Keys, PyTree, Scalar

_ATTEMPTS = 3  # losses of workers before any episode ends


class RewardScale(NamedTuple):
    """Running moments of discounted returns; rewards are divided by their standard deviation."""

    steps: Float[Array, ""]
    mean: Float[Array, ""]
    squares: Float[Array, ""]

    @classmethod
    def unknown(cls) -> "RewardScale":
        """Of no steps yet."""
        return cls(*(jnp.zeros(()) for _ in range(3)))


class Memories(NamedTuple):
    """Of the environments side by side, the last axis of every leaf."""

    carry: PyTree
    senses: PyTree


class Moment(NamedTuple):
    """What was sensed and done in one step of all R environments; a round stacks T of them."""

    started: Bool[Array, "... R"]
    readings: Float[Array, "... C R"]
    sources: Int[Array, "... C R"]
    mean: Float[Array, "... A R"]
    """What the agent would do if it did not explore."""
    drawn: Float[Array, "... A R"]
    """Actions before they are cut to [-1, 1]."""
    log_probability: Float[Array, "... R"]


class Outcome(NamedTuple):
    """What came of it."""

    observation: Float[Array, "T N R"]
    """Before the step, unperturbed."""
    next_observation: Float[Array, "T N R"]
    """After it, and before any restart."""
    reward: Float[Array, "T R"]
    terminated: Bool[Array, "T R"]
    done: Bool[Array, "T R"]
    """Terminated, truncated or lost."""


Act = Callable[..., tuple[Float[Array, "R A"], Moment, Memories]]
"""One step of all lanes: from the arguments of `act_by` but for its first and last."""


class Lanes:
    """The environments of a generation, and what each remembers from round to round."""

    def __init__(self, pool: PoolVectorEnv, world: HostWorld, discount: float, hold: int, key: Key):
        """Start all episodes, the first of each lane cut short at a random step.

        Args:
            pool: The environments, one a lane.
            world: What they are, and what happens to their senses.
            discount: Of the rewards, for their scale.
            hold: Steps for which the same noise is added to the actions.
            key: Decides everything.
        """
        self._pool = pool
        self._world = world
        self._discount = discount
        self._hold = hold
        self._random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        self._memories: Memories | None = None
        count = pool.num_envs
        self._started = np.ones(count, bool)
        self._steps = np.zeros(count, int)
        self._limit = self._random.integers(1, world.max_steps + 1, count)
        self._total = np.zeros(count)
        self._discounted = np.zeros(count)
        self._losses = 0
        self._observations = self._reset(self._started)
        self.returns: list[float] = []
        """Of the episodes that ended by themselves or at the world's own limit."""
        self.env_steps = 0
        """That were simulated, in all environments."""

    def collect(
        self, policy: Policy, act: Act, horizon: int, key: Key
    ) -> tuple[Memories, Moment, Outcome]:
        """One round: the memories before it, what was sensed and done, and what came of it.

        Args:
            policy: Whose memories they are.
            act: Compiled; given the policy, the world, memories, which lanes have started, observations,
                and keys of the senses and of the noise on actions.
            horizon: Steps.
            key: Of senses and actions.
        """
        moments, outcomes = [], []
        key, key_noise, key_blank = jax.random.split(key, 3)
        if self._memories is None:
            lanes = jax.random.split(key_blank, self._pool.num_envs)
            self._memories = blank(policy, self._world, lanes)  # all start, so replaced at once
        before = self._memories
        for step in range(horizon):
            observations = self._observations
            actions, moment, self._memories = act(
                policy,
                self._world,
                self._memories,
                jnp.array(self._started),
                jnp.asarray(observations, jnp.float32),
                jax.random.fold_in(key, step),
                jax.random.fold_in(key_noise, step // self._hold),
            )
            moments.append(moment)
            seen, *rest = self._advance(np.asarray(actions))
            outcomes.append((observations.T, seen.T, *rest))
        stacked = (np.stack(column) for column in zip(*outcomes, strict=True))
        outcome = Outcome(*(jnp.asarray(column) for column in stacked))
        return before, jax.tree.map(lambda *leaves: jnp.stack(leaves), *moments), outcome

    def scaled(self, outcome: Outcome, scale: RewardScale) -> tuple[Outcome, RewardScale]:
        """The outcome with rewards of about 1, and what is now known of their size."""
        count, mean, squares = (float(value) for value in scale)
        rewards, done = np.asarray(outcome.reward), np.asarray(outcome.done)
        for reward, over in zip(rewards, done, strict=True):
            self._discounted = self._discount * self._discounted + reward
            new = count + len(reward)
            away = self._discounted.mean() - mean
            squares += self._discounted.var() * len(reward) + away**2 * count * len(reward) / new
            mean, count = mean + away * len(reward) / new, new
            self._discounted = np.where(over, 0.0, self._discounted)
        deviation = np.sqrt(squares / count + 1e-8)
        scale = RewardScale(*(jnp.asarray(value, jnp.float32) for value in (count, mean, squares)))
        return outcome._replace(reward=jnp.asarray(rewards / deviation, jnp.float32)), scale

    def _advance(self, actions: np.ndarray) -> tuple[np.ndarray, ...]:
        seen, rewards, terminated, truncated, infos = self._pool.step(
            self._world.to_env_actions(actions)
        )
        lost = self._mind_losses(infos)
        self._steps += 1
        self.env_steps += len(rewards)
        self._total += rewards
        over = terminated | truncated | (self._steps >= self._world.max_steps)
        ended = over & ~lost
        self.returns += [float(total) for total in self._total[ended]]
        if ended.any():
            self._losses = 0
        done = over | lost | (self._steps >= self._limit)
        self._started = done
        self._observations = self._reset(done) if done.any() else seen
        return seen, rewards.astype(np.float32), terminated, done

    def _reset(self, which: Bool[np.ndarray, " R"]) -> np.ndarray:
        drawn = self._random.integers(2**31, size=len(which))
        seeds = [int(seed) if reset else None for seed, reset in zip(drawn, which, strict=True)]
        if self._steps.any():  # only the first episode of each is cut short
            self._limit[which] = self._world.max_steps
        self._steps[which] = 0
        self._total[which] = 0.0
        observations, infos = self._pool.reset(seed=seeds, options={"reset_mask": which})
        lost = self._mind_losses(infos)
        return self._reset(lost) if lost.any() else observations

    def _mind_losses(self, infos: dict[str, object]) -> Bool[np.ndarray, " R"]:
        """Which environments are gone with their worker; an episode that is lost ends there."""
        lost = np.broadcast_to(np.asarray(infos.get("lost", False)), self._started.shape)
        self._losses += bool(lost.any())
        if self._losses > _ATTEMPTS:
            raise WorldError(
                f"{self._world.name} cannot go on: its worker {infos['reason']}, "
                f"{self._losses} times before an episode ended."
            )
        return lost


def act_by(
    policy: Policy,
    world: HostWorld,
    memories: Memories,
    started: Bool[Array, " R"],
    observations: Float[Array, "R N"],
    key: Key,
    key_noise: Key,
    *,
    choose: Callable[[Array, Array, Array], tuple[Array, Array]],
) -> tuple[Float[Array, "R A"], Moment, Memories]:
    """One step of the senses and the agent in every lane, and of what is made of its actions.

    Args:
        policy: Who senses.
        world: Where, and what happens to its senses.
        memories: Of before.
        started: Lanes whose episode has just begun.
        observations: As the world shows them.
        key: Of the senses.
        key_noise: Of the noise on actions.
        choose: From the agent's actions, the observations and standard normal noise, A, N and A times R, to
            what is done and the logarithm of its probability.
    """
    perturbation = world.perturbation
    count = len(observations)
    keys = jax.vmap(jax.random.split, out_axes=1)(jax.random.split(key, count))
    memories = restarted(started, lambda: blank(policy, world, keys[0]), memories, axis=-1)

    def sense(key: Key, now: Memories, observation: Array) -> tuple:
        readings, senses = perturbation.apply(key, now.senses, observation)
        sources = perturbation.sources(senses, len(observation))
        mean, carry, _ = policy.step(readings, now.carry)
        return readings, sources, mean, Memories(carry, senses)

    readings, sources, mean, memories = jax.vmap(sense, in_axes=(0, -1, -1), out_axes=-1)(
        keys[1], memories, observations.T
    )
    noise = jax.random.normal(key_noise, (world.num_actions, count))
    drawn, likelihood = choose(mean, observations.T, noise)
    done = jnp.clip(drawn, -1, 1)
    carry = jax.vmap(policy.told, in_axes=-1, out_axes=-1)(memories.carry, done)
    moment = Moment(started, readings, sources, mean, drawn, likelihood)
    return done.T, moment, memories._replace(carry=carry)


@eqx.filter_jit
def explore(
    exploration: Scalar, policy: Policy, world: HostWorld, *now: PyTree
) -> tuple[Float[Array, "R A"], Moment, Memories]:
    """`act_by` an agent whose actions are Gaussian; `exploration` is the logarithm of their deviation."""

    def choose(mean: Array, observations: Array, noise: Array) -> tuple[Array, Array]:
        del observations
        drawn = mean + jnp.exp(exploration) * noise
        return drawn, log_probability(drawn, mean, exploration)

    return act_by(policy, world, *now, choose=choose)


@eqx.filter_jit
def blank(policy: Policy, world: HostWorld, keys: Keys) -> Memories:
    """Memories of an agent and its senses at the start of an episode, a key for each lane."""

    def lane(key: Key) -> Memories:
        senses = world.perturbation.init(key, world.raw_senses)
        return Memories(policy.initial_carry(world.num_sensors), senses)

    return jax.vmap(lane, out_axes=-1)(keys)


def judge(
    critic: Critic, outcome: Outcome, discount: float, trace_decay: float
) -> tuple[Float[Array, "T R"], Float[Array, "T R"], Scalar]:
    """What came of each step, as a critic sees it.

    Args:
        critic: Who values observations.
        outcome: Of a round.
        discount: γ.
        trace_decay: λ of generalised advantage estimation.

    Returns:
        Advantages, what the critic should have said, and how much of that it did say (1 is all).
    """
    values = values_along(critic, outcome.observation)
    next_values = values_along(critic, outcome.next_observation)
    advantages = advantage_estimates(
        outcome.reward,
        values,
        jnp.where(outcome.terminated, 0.0, next_values),
        outcome.done,
        discount,
        trace_decay,
    )
    targets = advantages + values
    return advantages, targets, 1 - jnp.var(advantages) / (jnp.var(targets) + 1e-8)


def values_along(critic: Critic, observations: Float[Array, "T N R"]) -> Float[Array, "T R"]:
    """Of the observations of a round."""
    return jax.vmap(jax.vmap(critic, in_axes=-1))(observations)
