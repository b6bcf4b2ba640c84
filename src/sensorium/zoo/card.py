"""The cards of the zoo: what each agent is, what it cost, and what it scores."""

from typing import Any

from rich import box
from rich.table import Table

from sensorium.evaluation.report import console_for, write
from sensorium.recipes import RECIPES
from sensorium.terminal import shown
from sensorium.zoo.agent import load, names, read_card


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
    """Print the card of one agent."""
    card = load(agent).card
    write(card, json)
    table = Table(title=agent, show_header=False)
    for name, value in card.items():
        if name != "scores":
            table.add_row(name, str(value))
    for perturbation, scores in card.get("scores", {}).items():
        low, high = scores["ci95"]
        mean, std = shown(scores["mean"], 1), shown(scores["std"], 1)
        text = f"{mean} ± {std} (95% {shown(low)} to {shown(high)})"
        table.add_row(perturbation, text)
    console_for(json).print(table)


def _mean(card: dict[str, Any], perturbation: str) -> str:
    scores = card.get("scores", {}).get(perturbation)
    return "-" if scores is None else f"{shown(scores['mean'])} ± {shown(scores['std'])}"
