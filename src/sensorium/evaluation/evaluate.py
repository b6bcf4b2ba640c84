"""Policy x world x perturbation x seeds -> scores."""

import contextlib
import dataclasses
import time
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from sensorium.envs import World
from sensorium.errors import ConfigError, WorldError, check_counts
from sensorium.evaluation.statistics import Summary, summarise
from sensorium.perturbations import HideRows, Identity, Perturbation, compose
from sensorium.policies import Policy
from sensorium.rollout import Engine, EngineConfig, make_world, open_engine
from sensorium.seeding import Seed, check_seed, key_of
from sensorium.terminal import significant
from sensorium.types import Keys

_EVALUATION = 0x5C0  # keeps these seeds apart from those of training and of choosing the best


@dataclasses.dataclass(frozen=True)
class Scores:
    """The returns of one agent under one perturbation, their summary, and how long its episodes were."""

    agent: str
    env: str
    perturbation: str
    episodes: int
    seed: int
    summary: Summary
    returns: Float[np.ndarray, " episodes"]
    lengths: Int[np.ndarray, " episodes"]
    """Steps of each episode."""
    seconds: float
    env_steps_per_second: float

    def to_json(self) -> dict[str, Any]:
        """Return one flat dictionary, as `--json` prints it."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        summary = dataclasses.asdict(fields.pop("summary"))
        returns = [significant(value) for value in fields.pop("returns").tolist()]
        lengths = fields.pop("lengths").tolist()
        tail = {name: fields.pop(name) for name in ("seconds", "env_steps_per_second")}
        return {**fields, **summary, "returns": returns, "lengths": lengths, **tail}

    @classmethod
    def from_json(cls, written: dict[str, Any]) -> "Scores":
        """Restore what `to_json` gave, its returns as it rounded them."""
        summary = {field.name: written[field.name] for field in dataclasses.fields(Summary)}
        summary |= {name: tuple(summary[name]) for name in ("ci95", "iqm_ci95")}
        of_scores = {f.name: written[f.name] for f in dataclasses.fields(cls) if f.name in written}
        of_scores |= {name: np.array(written[name]) for name in ("returns", "lengths")}
        of_scores |= {"summary": Summary(**summary)}
        return cls(**of_scores)


def evaluation_keys(seed: Seed, episodes: int) -> Keys:
    """Make the keys of the episodes of an evaluation; never those of a training run.

    Episode `i` of a seed is the same start whatever the number of episodes and the perturbation, so that
    scores can be compared in pairs.

    Raises:
        ConfigError: No episodes, or the seed is no whole number from 0 on.
    """
    check_counts(episodes=episodes)
    key = jax.random.fold_in(key_of(seed), _EVALUATION)
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, np.arange(episodes))


def as_shown(policy: Policy, perturbation: Perturbation) -> Perturbation:
    """Put `HideRows` before `perturbation`, for an agent of images that is not shown the lowest rows."""
    return (
        compose(HideRows(policy.hidden_rows), perturbation) if policy.hidden_rows else perturbation
    )


def fitting_world(policy: Policy, env: str, perturbation: Perturbation, name: str = "") -> World:
    """Make the world that an agent is scored in; ConfigError if it does not work in it."""
    world = make_world(env, as_shown(policy, perturbation))
    if policy.fixed_outputs and policy.num_actions != world.num_actions:
        raise ConfigError(
            f"{name or 'The agent'} has {policy.num_actions} action(s), but {env} takes "
            f"{world.num_actions}."
        )
    policy.initial_carry(world.observation_spec)
    return world


def evaluate(
    policy: Policy,
    env: str,
    perturbation: Perturbation | None = None,
    *,
    episodes: int = 1000,
    seed: Seed = 0,
    name: str = "",
    engine: EngineConfig | Engine | None = None,
) -> Scores:
    """Score an agent over the episodes of a seed.

    Args:
        policy: The agent.
        env: A world of `sensorium.envs`, or `gym:` and the id of a Gymnasium environment.
        perturbation: Of its observations; the agent's code is scaled as it asks.
        episodes: How many, each from a start of its own.
        seed: Any whole number from 0 on; decides the starts and all noise.
        name: What to call the agent in tables.
        engine: Which engine runs the episodes, or one that is open, in the same world behind any
            perturbation; by default the one that the world needs.

    Returns:
        The scores with all returns.

    Raises:
        UnknownNameError: There is no such world.
        ConfigError: No episodes, a seed that is no whole number from 0 on, or the policy works with
            another number of channels or actions.
        WorldError: An environment on the host raised, died, hangs or returned what it may not, or a return
            is not finite.
    """
    perturbation = perturbation or Identity()
    world = fitting_world(policy, env, perturbation, name)
    policy = policy.with_motors(world.num_actions).with_code_scale(perturbation.code_scale)
    keys = evaluation_keys(seed, episodes)
    with contextlib.ExitStack() as stack:
        if isinstance(engine, Engine):
            runs = engine.on(world)
        else:
            runs = stack.enter_context(open_engine(world, engine))
        started = time.perf_counter()
        result = jax.tree.map(np.asarray, runs.run_episodes(policy, keys))
        seconds = time.perf_counter() - started
    check_returns(result.total, name or "The agent", env)
    return Scores(
        agent=name or type(policy).__name__,
        env=env,
        perturbation=str(perturbation),
        episodes=episodes,
        seed=check_seed(seed),
        summary=summarise(result.total, world.solved_return),
        returns=result.total,
        lengths=result.length,
        seconds=seconds,
        env_steps_per_second=float(result.length.sum()) / seconds,
    )


def check_returns(returns: Float[np.ndarray, " episodes"], agent: str, env: str) -> None:
    """Raise WorldError if a return is NaN or infinite."""
    wrong = ~np.isfinite(returns)
    if wrong.any():
        episode = int(wrong.argmax())
        raise WorldError(
            f"{agent} in {env}: the return of episode {episode} is {returns[episode]}, since its actions or "
            "the rewards of the world are NaN, infinite or too large for float32."
        )
