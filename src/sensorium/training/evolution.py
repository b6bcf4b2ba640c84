"""Evolution, as the papers train: draw a population, run its episodes, update by their returns.

One generation (AN section 4.1, A.4.1): P sets of parameters, R episodes each, the same R starts for all P
(common random numbers), fitness the mean return. The centre of the strategy is tested and kept.

Beyond the papers: some of the starts may be those with the lowest returns so far (`replays`; after
prioritised level replay, Jiang et al. 2021). Where an agent is good almost everywhere, returns from most
starts do not separate the individuals.
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sensorium.errors import ConfigError, WorldError, check_counts
from sensorium.policies import Policy, from_vector, num_parameters, to_vector
from sensorium.rollout import Engine
from sensorium.seeding import stream
from sensorium.training.strategies import Strategy, StrategyConfig
from sensorium.training.trainer import DrawPolicy, Metrics, Trainer, TrainerConfig, TrainingContext
from sensorium.types import Key, Keys, PyTree, Scalar

Population = Float[Array, "P parameters"]


@dataclasses.dataclass(frozen=True)
class EvolutionConfig(TrainerConfig):
    """Settings of evolution; the defaults are the paper's for CartPole."""

    strategy: StrategyConfig = StrategyConfig()
    """Which evolution strategy of evosax."""
    population: int = 256
    """Individuals in a generation."""
    num_episodes: int = 16
    """Episodes of each individual, the same starts for all."""
    start_at_zero: bool = True
    """Start the search around zeros, as the papers do, or else around random weights.

    A recipe that names a start starts there."""
    replays: int = 0
    """How many of the episodes begin at one of the starts with the lowest returns so far."""
    remembered: int = 32
    """How many such starts are kept."""
    scouted: int = 256
    """Starts from which the centre runs before the first generation, to find them."""

    distributed = True
    may_be_zero = ("replays",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(4, population=self.population)

    def build(self, context: TrainingContext) -> "Evolution":
        """Set up the trainer of an agent in a world; ConfigError where settings do not fit."""
        config = dataclasses.replace(self, start_at_zero=False) if context.start else self
        return Evolution(config, context.draw, context.engine)


class Hard(NamedTuple):
    """The starts with the lowest returns so far; none unless the search replays any."""

    keys: Keys
    returns: Float[Array, " B"]
    """Mean return of the population when it last started there; infinite before that."""


class EvolutionState(NamedTuple):
    """All that a run needs to resume."""

    strategy: PyTree
    key: Key
    hard: Hard


class Evolution(Trainer):
    """Evolution of one agent in one world."""

    def __init__(self, config: EvolutionConfig, draw: DrawPolicy, engine: Engine):
        """Set up; raises ConfigError or UnknownNameError where settings do not fit."""
        if not 0 <= config.replays <= min(config.num_episodes, config.remembered):
            raise ConfigError(
                f"Evolution can replay from 0 to {min(config.num_episodes, config.remembered)} of its "
                f"{config.num_episodes} episode(s), with {config.remembered} starts remembered, got "
                f"{config.replays}."
            )
        if config.replays and config.scouted < config.remembered:
            raise ConfigError(
                f"Evolution must scout as many starts as it remembers ({config.remembered}), got "
                f"{config.scouted}."
            )
        self.config = config
        self.draw = draw
        self.engine = engine
        self._like = draw(jax.random.key(0))  # for its architecture
        size = num_parameters(self._like)
        self.strategy = Strategy(config.strategy, config.population, size)
        self.compiled_for = config, size

    def init(self, key: Key) -> EvolutionState:
        """Start the search around zeros, or around the policy that is drawn."""
        key, key_init, key_draw, key_nowhere = jax.random.split(key, 4)
        mean = to_vector(self.draw(key_draw))
        mean = jnp.zeros_like(mean) if self.config.start_at_zero else mean
        count = self.config.remembered if self.config.replays else 0
        nowhere = Hard(jax.random.split(key_nowhere, count), jnp.full(count, jnp.inf))
        return EvolutionState(self._start(key_init, mean), key, nowhere)

    @partial(jax.jit, static_argnames="self")
    def _start(self, key: Key, mean: Float[Array, " parameters"]) -> PyTree:
        return self.strategy.init(key, mean)

    def step(self, state: EvolutionState) -> tuple[EvolutionState, Metrics]:
        """Run one generation; WorldError if no individual has a finite fitness."""
        scouted = 0
        if self.config.replays and bool(jnp.isinf(state.hard.returns).all()):
            state, scouted = self._scout(state)
        population, episodes, again, asked, key_tell = self._ask(state)
        totals = self.engine.totals(_policies(population, self._like), episodes)
        returns = _without_failures(np.asarray(totals.returns))
        state, figures = self._tell(asked, key_tell, population, episodes, again, returns)
        return state, Metrics(scouted + int(np.sum(totals.steps, dtype=np.int64)), figures)

    def _scout(self, state: EvolutionState) -> tuple[EvolutionState, int]:
        """Find starts with low returns of the centre; also return the number of steps simulated."""
        key, key_episodes = jax.random.split(state.key)
        episodes = jax.random.split(key_episodes, self.config.scouted)
        totals = self.engine.totals(self.candidates(state), episodes)
        hard = self._worst(Hard(episodes, jnp.asarray(totals.returns[0])))
        return state._replace(key=key, hard=hard), int(np.sum(totals.steps, dtype=np.int64))

    def _worst(self, tried: Hard) -> Hard:
        """Select the starts to remember."""
        order = jnp.argsort(tried.returns)[: self.config.remembered]
        return jax.tree.map(lambda leaf: leaf[order], tried)

    @partial(jax.jit, static_argnames="self")
    def _ask(self, state: EvolutionState) -> tuple[Population, Keys, Array, EvolutionState, Key]:
        """Draw a population and its episodes; also return which are replayed, the next state, and a key."""
        key, key_ask, key_episodes, key_tell = jax.random.split(state.key, 4)
        population, strategy = self.strategy.ask(key_ask, state.strategy)
        episodes = jax.random.split(key_episodes, self.config.num_episodes)
        again = jnp.zeros(0, jnp.int32)
        if replays := self.config.replays:
            key_again = stream(key_episodes, "replays")
            again = jax.random.choice(key_again, self.config.remembered, (replays,), replace=False)
            episodes = jnp.concatenate([state.hard.keys[again], episodes[replays:]])
        return population, episodes, again, EvolutionState(strategy, key, state.hard), key_tell

    @partial(jax.jit, static_argnames="self")
    def _tell(
        self,
        asked: EvolutionState,
        key: Key,
        population: Population,
        episodes: Keys,
        again: Int[Array, " replays"],
        returns: Float[Array, "P R"],
    ) -> tuple[EvolutionState, dict[str, Scalar]]:
        """Update the strategy by the returns, and the starts to replay."""
        fitness = jnp.mean(returns, axis=1)
        strategy = self.strategy.tell(key, population, fitness, asked.strategy)
        figures = {
            "best": jnp.max(fitness),
            "mean": jnp.mean(fitness),
            "fitness_std": jnp.std(fitness),
        }
        hard, replays = asked.hard, self.config.replays
        if replays:
            there = jnp.mean(returns, axis=0)
            seen = Hard(hard.keys, hard.returns.at[again].set(there[:replays]))
            fresh = Hard(episodes[replays:], there[replays:])
            hard = self._worst(jax.tree.map(lambda *leaves: jnp.concatenate(leaves), seen, fresh))
            figures["hard"] = jnp.mean(hard.returns)
        return EvolutionState(strategy, asked.key, hard), figures

    def candidates(self, state: EvolutionState) -> Policy:
        """Return the centre of the search."""
        return _policies(self.strategy.mean(state.strategy)[None], self._like)


@eqx.filter_jit
def _policies(vectors: Population, like: Policy) -> Policy:
    """Build a policy of the architecture of `like` from each vector of parameters."""
    return eqx.filter_vmap(lambda vector: from_vector(vector, like))(vectors)


def _without_failures(returns: Float[np.ndarray, "P R"]) -> Float[np.ndarray, "P R"]:
    """Give an individual whose fitness is not finite the returns of the worst other one."""
    with np.errstate(over="ignore", invalid="ignore"):
        fitness = returns.mean(axis=1)
    finite = np.isfinite(fitness)
    if finite.all():
        return returns
    if not finite.any():
        raise WorldError(
            "No individual of the generation has a finite return: their actions, or the rewards of the "
            "world, are NaN or infinite."
        )
    worst = np.where(finite, fitness, np.inf).argmin()
    return np.where(finite[:, None], returns, returns[worst])
