"""Evolution, as the papers train: ask for a population, let it live, tell what each was worth.

One generation (AN section 4.1): P sets of parameters, R episodes each, the same R starts for all P
(common random numbers), fitness the mean return. The centre of the strategy is what is tested and kept.
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sensorium.errors import ConfigError
from sensorium.policies import Policy, from_vector, num_parameters, to_vector
from sensorium.rollout import Engine
from sensorium.training.strategies import Strategy, StrategyConfig
from sensorium.training.trainer import DrawPolicy, Metrics, Trainer
from sensorium.types import Key, Keys, PyTree

Population = Float[Array, "P parameters"]


@dataclasses.dataclass(frozen=True)
class EvolutionConfig:
    """Settings of evolution; the defaults are the paper's for CartPole."""

    strategy: StrategyConfig = StrategyConfig()
    """Which evolution strategy of evosax."""
    population: int = 256
    """Individuals in a generation."""
    rollouts: int = 16
    """Episodes of each individual, the same starts for all."""
    start_at_zero: bool = True
    """Start the search around zeros, as the papers do, or else around random weights.

    A recipe that names a start starts there."""

    def build(self, draw: DrawPolicy, engine: Engine) -> "Evolution":
        """Set up the trainer of an agent in a world; ConfigError where settings do not fit."""
        return Evolution(self, draw, engine)


class EvolutionState(NamedTuple):
    """All that a run needs to go on."""

    strategy: PyTree
    key: Key


class Evolution(Trainer):
    """Evolution of one agent in one world."""

    def __init__(self, config: EvolutionConfig, draw: DrawPolicy, engine: Engine):
        """Set up; raises ConfigError or UnknownNameError where settings do not fit."""
        if config.rollouts < 1:
            raise ConfigError(f"Evolution needs at least 1 rollout, got {config.rollouts}.")
        self.config = config
        self.draw = draw
        self.engine = engine
        self._like = draw(jax.random.key(0))  # for its architecture
        self.strategy = Strategy(config.strategy, config.population, num_parameters(self._like))
        self.steps_per_generation = config.population * config.rollouts * engine.world.max_steps

    def init(self, key: Key) -> EvolutionState:
        """Start around zeros, or around what is drawn."""
        key, key_init, key_draw = jax.random.split(key, 3)
        mean = to_vector(self.draw(key_draw))
        mean = jnp.zeros_like(mean) if self.config.start_at_zero else mean
        return EvolutionState(self.strategy.init(key_init, mean), key)

    def step(self, state: EvolutionState) -> tuple[EvolutionState, Metrics]:
        """One generation."""
        population, episodes, asked, key_tell = self._ask(state)
        returns = self.engine.returns(self._policies(population), episodes)
        return self._tell(asked, key_tell, population, returns)

    @partial(jax.jit, static_argnames="self")
    def _ask(self, state: EvolutionState) -> tuple[Population, Keys, EvolutionState, Key]:
        """Whom to try, in which episodes, and how to go on from there."""
        key, key_ask, key_episodes, key_tell = jax.random.split(state.key, 4)
        population, strategy = self.strategy.ask(key_ask, state.strategy)
        episodes = jax.random.split(key_episodes, self.config.rollouts)
        return population, episodes, EvolutionState(strategy, key), key_tell

    @partial(jax.jit, static_argnames="self")
    def _tell(
        self, asked: EvolutionState, key: Key, population: Population, returns: Float[Array, "P R"]
    ) -> tuple[EvolutionState, Metrics]:
        """What each was worth."""
        fitness = jnp.mean(returns, axis=1)
        strategy = self.strategy.tell(key, population, fitness, asked.strategy)
        metrics = Metrics(jnp.max(fitness), jnp.mean(fitness), {"fitness_std": jnp.std(fitness)})
        return EvolutionState(strategy, asked.key), metrics

    def candidates(self, state: EvolutionState) -> Policy:
        """The centre of the search."""
        return self._policies(self.strategy.mean(state.strategy)[None])

    @partial(jax.jit, static_argnames="self")
    def _policies(self, vectors: Population) -> Policy:
        return eqx.filter_vmap(lambda vector: from_vector(vector, self._like))(vectors)
