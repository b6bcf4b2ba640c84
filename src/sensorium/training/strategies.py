"""Evolution strategies of evosax behind `init`, `ask`, `tell`; they minimise, this maximises."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from sensorium.errors import ConfigError, check_counts, did_you_mean
from sensorium.types import Key, PyTree


def _cma_es(population: int, solution: Array, sigma: float, learning_rate: float) -> Any:
    from evosax.algorithms import CMA_ES

    del learning_rate
    return _with_sigma(CMA_ES(population, solution), std_init=jnp.asarray(sigma))


def _sep_cma_es(population: int, solution: Array, sigma: float, learning_rate: float) -> Any:
    from evosax.algorithms import Sep_CMA_ES

    del learning_rate
    return _with_sigma(Sep_CMA_ES(population, solution), std_init=jnp.asarray(sigma))


def _snes(population: int, solution: Array, sigma: float, learning_rate: float) -> Any:
    from evosax.algorithms import SNES

    algorithm = SNES(population, solution, optimizer=optax.sgd(learning_rate))
    return _with_sigma(algorithm, std_init=jnp.asarray(sigma))


def _pgpe(population: int, solution: Array, sigma: float, learning_rate: float) -> Any:
    from evosax.algorithms import PGPE

    algorithm = PGPE(population, solution, optimizer=optax.adam(learning_rate))
    return _with_sigma(algorithm, std_init=sigma)


def _open_es(population: int, solution: Array, sigma: float, learning_rate: float) -> Any:
    from evosax.algorithms import Open_ES

    algorithm = Open_ES(
        population,
        solution,
        optimizer=optax.adam(learning_rate),
        std_schedule=optax.constant_schedule(sigma),
    )
    return algorithm, algorithm.default_params


def _cr_fm_nes(population: int, solution: Array, sigma: float, learning_rate: float) -> Any:
    from evosax.algorithms import CR_FM_NES

    del learning_rate
    return _with_sigma(CR_FM_NES(population, solution), std_init=sigma)


def _with_sigma(algorithm: Any, **settings: Any) -> tuple[Any, Any]:
    return algorithm, algorithm.default_params.replace(**settings)


STRATEGIES: dict[str, Callable[..., Any]] = {
    "cma-es": _cma_es,
    "sep-cma-es": _sep_cma_es,
    "snes": _snes,
    "pgpe": _pgpe,
    "open-es": _open_es,
    "cr-fm-nes": _cr_fm_nes,
}
"""Every strategy by its name."""

_EVEN = ("pgpe", "open-es", "cr-fm-nes")


@dataclasses.dataclass(frozen=True)
class StrategyConfig:
    """Which strategy, and how it starts."""

    name: str = "cma-es"
    """One of `STRATEGIES`."""
    sigma: float = 0.1
    """Standard deviation of the first population."""
    learning_rate: float = 0.05
    """Of the mean; used by snes, pgpe and open-es."""


class Strategy:
    """One of evosax's strategies over vectors, maximising.

    state = strategy.init(key, mean)
    population, state = strategy.ask(key, state)
    state = strategy.tell(key, population, fitness, state)
    """

    def __init__(self, config: StrategyConfig, population: int, num_parameters: int):
        """Set up.

        Raises:
            UnknownNameError: There is no such strategy.
            ConfigError: The population is too small, or odd where mirrored sampling needs pairs.
        """
        if config.name not in STRATEGIES:
            raise did_you_mean("strategy", config.name, STRATEGIES)
        check_counts(4, population=population)
        if population % 2 and config.name in _EVEN:
            raise ConfigError(f"{config.name} samples in pairs: population {population} is odd.")
        build = STRATEGIES[config.name]
        self._algorithm, self._params = build(
            population, jnp.zeros(num_parameters), config.sigma, config.learning_rate
        )

    def init(self, key: Key, mean: Float[Array, " parameters"]) -> PyTree:
        """Make the state of a search that starts around `mean`."""
        state = self._algorithm.init(key, mean, self._params)
        # Python numbers, and arrays that came of them, become what a step returns: else it is compiled twice
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)), state)

    def ask(self, key: Key, state: PyTree) -> tuple[Float[Array, "P parameters"], PyTree]:
        """Draw a population to evaluate."""
        return self._algorithm.ask(key, state, self._params)

    def tell(
        self,
        key: Key,
        population: Float[Array, "P parameters"],
        fitness: Float[Array, " P"],
        state: PyTree,
    ) -> PyTree:
        """Update the search by the fitness of a population; more is better."""
        state, _ = self._algorithm.tell(key, population, -fitness, state, self._params)
        return state

    def mean(self, state: PyTree) -> Float[Array, " parameters"]:
        """Return the centre of the search: the agent that a run keeps."""
        return state.mean
