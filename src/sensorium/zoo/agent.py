"""Agents as files: load one by the name of the zoo, from a run, or from a file; save one."""

import contextlib
import dataclasses
import os
from pathlib import Path
from typing import Any

from sensorium.bridges.sb3_files import is_model
from sensorium.errors import (
    AgentFileError,
    MissingExtraError,
    RunError,
    UnknownNameError,
    did_you_mean,
)
from sensorium.policies import Policy
from sensorium.recipes import Recipe
from sensorium.serialisation import load_pytree, parse_json, read_header, save_pytree
from sensorium.training import RunDirectory
from sensorium.training.checkpoints import BEST
from sensorium.training.run_directory import written_by
from sensorium.types import Action, ObservationSpec, PyTree


@dataclasses.dataclass(frozen=True)
class Agent:
    """A trained policy, what it was trained by, and what is known of it.

    ```python
    import sensorium

    agent = sensorium.load("cartpole-pi")
    carry = agent.initial_carry(5)
    action, carry = agent([0.1, -2.0, 0.3, 0.95, 1.2], carry)
    ```
    """

    policy: Policy
    recipe: Recipe
    card: dict[str, Any] = dataclasses.field(repr=False)
    """Training and scores, as in the zoo's `.json` beside the weights; may be empty."""

    @property
    def name(self) -> str:
        """The recipe's name."""
        return self.recipe.name

    def initial_carry(self, spec: ObservationSpec) -> PyTree:
        """As `Policy.initial_carry`."""
        return self.policy.initial_carry(spec)

    def __call__(self, observation: Any, carry: PyTree) -> tuple[Action, PyTree]:
        """As `Policy.__call__`: checked, one step."""
        return self.policy(observation, carry)

    def save(self, path: Path | str) -> None:
        """Write weights and recipe as one safetensors file; WriteError leaves nothing partial."""
        save_pytree(path, self.policy, {"recipe": self.recipe.to_json(), "card": self.card})


def zoo_directory() -> Path:
    """Where the shipped agents are: `zoo/` of a checkout, or inside the installed package.

    The environment variable `SENSORIUM_ZOO` names another place.
    """
    if "SENSORIUM_ZOO" in os.environ:
        return Path(os.environ["SENSORIUM_ZOO"])
    installed = Path(__file__).parent / "agents"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "zoo"


def names() -> list[str]:
    """Every agent of the zoo."""
    return sorted(path.stem for path in zoo_directory().glob("*.safetensors"))


def load(source: Path | str) -> Agent:
    """Load an agent.

    Args:
        source: A name of the zoo (`"cartpole-pi"`), a run directory (its best agent) or a file.

    Returns:
        The agent.

    Raises:
        UnknownNameError: There is no such agent; the nearest names are given.
        AgentFileError: The file is damaged, or does not fit its own description.
    """
    return _load_file(_find(source))


def read_card(source: Path | str) -> dict[str, Any]:
    """Read the card of an agent alone, as `Agent.card`: neither recipe nor weights are looked at.

    Raises:
        UnknownNameError: There is no such agent; the nearest names are given.
        AgentFileError: The file is damaged, or holds no agent.
    """
    path = _find(source)
    return _read_card(path, _agent_header(path))


def _find(source: Path | str) -> Path:
    """Find the file of an agent."""
    path, shipped = Path(source), zoo_directory() / f"{source}.safetensors"
    if not str(source).strip():
        raise UnknownNameError(
            "No agent was named: name one of the zoo (`sensorium zoo` lists them), a run directory or "
            "a file."
        )
    if os.path.isfile(path / BEST):
        return path / BEST
    if RunDirectory.exists(path):
        raise AgentFileError(f"{path} has no {BEST} yet: no test has been made in that run.")
    # A run comes before an agent of the zoo, which comes before any other folder or file of its name
    if len(path.parts) == 1 and os.path.isfile(shipped):
        return shipped
    if os.path.isdir(path):
        raise AgentFileError(f"{path} is a folder, but no run directory.")
    if os.path.isfile(path) or path.suffix or len(path.parts) > 1:
        return path
    if not names():
        raise UnknownNameError(
            f"There is no agent {str(source)!r}: the zoo, {zoo_directory()}, holds none at all."
        )
    raise did_you_mean("agent", str(source), names())


def _agent_header(path: Path) -> dict[str, Any]:
    if is_model(path):
        raise AgentFileError(
            f"{path} is a model of Stable-Baselines3, not an agent of ours; it can be the expert of one: "
            f"`sensorium convert {path} --env gym:ID`."
        )
    try:
        header = read_header(path)
    except AgentFileError as error:
        if not os.path.isfile(path) or path.suffix == Path(BEST).suffix:
            raise
        raise AgentFileError(
            f"{path} is no agent: agents are names of the zoo, run directories, and files that "
            f"`Agent.save` wrote, such as {BEST}."
        ) from error
    if "recipe" not in header:
        raise AgentFileError(f"{path} holds no agent: its header names no recipe.")
    return header


def _load_file(path: Path) -> Agent:
    header = _agent_header(path)
    try:
        recipe = Recipe.from_json(header["recipe"])
        like = recipe.outline(recipe.stage(header["stage"]) if "stage" in header else None)
    except MissingExtraError:
        raise
    except (
        Exception
    ) as error:  # a description from anywhere may ask for anything, such as -1 queries
        versions = header.get("versions") or header.get("card", {}).get("versions")
        raise AgentFileError(
            f"{path} holds no agent of this version{written_by(versions)}: {error}"
        ) from error
    policy = load_pytree(path, like)
    return Agent(policy, recipe, _read_card(path, header))


def _read_card(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    """Read the card beside the weights or in their header; JSON of another kind is no card."""
    beside = path.with_suffix(".json")
    if os.path.isfile(beside):
        try:
            card = parse_json(beside.read_bytes())
        except OSError as error:
            raise AgentFileError(f"Could not read {beside}: {error.strerror or error}.") from error
        except ValueError as error:
            raise AgentFileError(f"The card {beside} is damaged: {error}.") from error
        if isinstance(card, dict) and "scores" in card:
            return _checked(card, beside)
    card = header.get("card", {key: header[key] for key in header if key != "recipe"})
    if path.name == BEST and RunDirectory.exists(path.parent):
        with contextlib.suppress(RunError):  # not finished: nobody knows yet
            card = card | RunDirectory.open(path.parent).cost()
    return _checked(card, path)


def _checked(card: Any, path: Path) -> dict[str, Any]:
    """Refuse a card whose scores cannot be shown."""
    scores = card.get("scores", {}) if isinstance(card, dict) else None
    if not isinstance(scores, dict) or not all(map(_is_score, scores.values())):
        raise AgentFileError(
            f"The card in {path} is damaged: its scores are no means and intervals."
        )
    return card


def _is_score(score: Any) -> bool:
    if not isinstance(score, dict) or not isinstance(score.get("ci95"), list):
        return False
    numbers = (score.get("mean"), score.get("std"), *score["ci95"])
    return len(numbers) == 4 and all(type(number) in (int, float) for number in numbers)
