"""The cards of the zoo: what each agent is, what it cost, and what it scores."""

from collections.abc import Iterator
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from sensorium.evaluation.report import console_for, write
from sensorium.policies import num_parameters
from sensorium.recipes import RECIPES
from sensorium.terminal import shown, with_unit
from sensorium.zoo.agent import Agent, load, names, read_card


def show_all(json: str | None) -> None:
    """Print every agent and every recipe; the agents' cards as JSON if asked."""
    cards = {name: read_card(name) for name in names()}
    write(cards, json)
    # Without frames, as 80 columns have no room for them
    title, narrow = "Trained agents, mean ± standard deviation", (0, 1, 0, 0)
    agents = Table(title=title, box=box.SIMPLE_HEAD, show_edge=False, padding=narrow)
    agents.add_column("agent", no_wrap=True)
    for column in ("params", "plain", "shuffled", "+5 noise"):
        agents.add_column(column, justify="right", no_wrap=True)
    for name, card in cards.items():
        scores = (
            _mean(card, perturbation) for perturbation in ("plain", "shuffled", "+5 noise channels")
        )
        agents.add_row(name, str(card.get("parameters", "-")), *scores)
    recipes = Table(title="Recipes, for `sensorium train`", show_header=False, box=box.SIMPLE)
    recipes.add_column(no_wrap=True)
    recipes.add_column()
    for name, recipe in RECIPES.items():
        recipes.add_row(name, recipe.summary)
    console_for(json).print(agents, recipes)


def show_card(agent: str, json: str | None) -> None:
    """Print the card of one agent: what it is, what each stage of its training cost, and its scores."""
    loaded = load(agent)
    card = loaded.card
    write(card, json)
    facts = Table(title=escape(loaded.name), show_header=False, box=box.SIMPLE)
    for what, text in _facts(loaded):
        facts.add_row(what, escape(text))
    stages = Table(title="Training", box=box.SIMPLE)
    stages.add_column("stage")
    for column in ("generations", "steps", "time"):
        stages.add_column(column, justify="right")
    stages.add_column("expert, and its time")
    for stage in card.get("stages", ()):
        start = stage.get("start")
        if start:  # whose training is part of this
            stages.add_row(escape(start["name"]), "", "", in_minutes(start["training_seconds"]), "")
        stages.add_row(
            escape(stage["stage"]),
            str(stage["generations"]),
            with_unit(stage["env_steps"]) if "env_steps" in stage else "-",
            in_minutes(stage["seconds"]),
            _expert(stage.get("expert")),
        )
    episodes = card.get("evaluation", {}).get("episodes", "?")
    table = Table(title=f"Scores in {episodes} episodes", box=box.SIMPLE)
    for column in ("perturbation", "mean ± std", "95% of the mean"):
        table.add_column(column, justify="left" if column == "perturbation" else "right")
    for perturbation, scores in card.get("scores", {}).items():
        low, high = scores["ci95"]
        mean, std = shown(scores["mean"], 1), shown(scores["std"], 1)
        table.add_row(escape(perturbation), f"{mean} ± {std}", f"{shown(low)} to {shown(high)}")
    console = console_for(json)
    for each in (facts, stages, table):
        if each.row_count:
            console.print(each)


def in_minutes(seconds: float) -> str:
    """Format a time with the unit that suits it: 40 s, 12 min, 3 h 35 min."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _facts(agent: Agent) -> Iterator[tuple[str, str]]:
    card, recipe = agent.card, agent.recipe
    yield "summary", recipe.summary
    yield "environment", recipe.env
    yield "policy", type(recipe.policy).__name__.removesuffix("Config")
    yield "parameters", f"{num_parameters(agent.policy):,}"
    if "training_seconds" in card:
        yield "trained in", in_minutes(card["training_seconds"])
    if card.get("machine"):
        yield "on", card["machine"]
    if "versions" in card:
        yield "with", ", ".join(f"{name} {version}" for name, version in card["versions"].items())


def _expert(expert: dict[str, Any] | None) -> str:
    if expert is None:
        return ""
    seconds = expert.get("training_seconds")
    return escape(expert["name"]) + ("" if seconds is None else f", {in_minutes(seconds)}")


def _mean(card: dict[str, Any], perturbation: str) -> str:
    scores = card.get("scores", {}).get(perturbation)
    return "-" if scores is None else f"{shown(scores['mean'])} ± {shown(scores['std'])}"
