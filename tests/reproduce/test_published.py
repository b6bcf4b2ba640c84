"""Published numbers are those of the papers' texts and of agents built as the papers say."""

import re
from pathlib import Path

import jax
import pytest

from sensorium import recipes
from sensorium.policies import num_parameters
from sensorium.reproduce import counterparts, published
from sensorium.reproduce.published import Score, Table

PAPERS = Path(__file__).parents[3] / "shared" / "papers"
TEXTS = {"AN": "attention_neuron", "AA": "attention_agent", "NLA": "nonlinear_attention"}
ROWS = [
    pytest.param(name, row, id=f"{name}: {row}")
    for name, table in vars(published).items()
    if isinstance(table, Table) and name.split("_")[0] in TEXTS
    for row, cells in table.rows.items()
    if any(isinstance(cell, Score) and cell.std for cell in cells)
]
"""Rows with a deviation, which are found again in the texts by it."""


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_a_row_of_scores_is_a_line_of_the_paper(name, row):
    table = getattr(published, name)
    scores = [str(cell) for cell in table.rows[row] if isinstance(cell, Score) and cell.std]
    path = PAPERS / f"{TEXTS[name.split('_')[0]]}.txt"
    if not path.is_file():
        pytest.skip(f"the papers' texts are not at {PAPERS}")
    text = re.sub(r" *(\\pm|±) *", " ± ", path.read_text().replace("$", ""))
    lines = [re.findall(r"-?\d+ ± \d+", line) for line in text.splitlines()]
    if name == "AA_FIGURE_9":  # in a sentence
        assert any(set(scores) <= set(line) for line in lines)
    else:
        # "± 0" counts in the line, too
        everything = [str(cell) for cell in table.rows[row] if isinstance(cell, Score)]
        assert [cell for cell in everything if "±" in cell] in lines


@pytest.mark.parametrize(
    ("world", "plain", "nla"),
    [
        ("CartPole", "cartpole-pi", "cartpole-nla-published"),
    ],
)
def test_agents_have_as_many_parameters_as_the_papers(world, plain, nla):
    printed = published.NLA_PARAMETERS.column(world)
    sizes = {"CartPole": (5, 1), "PyBullet Ant": (28, 8)}[world]
    for row, recipe in (("Baseline", plain), ("Proposed (NLA)", nla)):
        policy = recipes.find(recipe).policy.build(*sizes, jax.random.key(0))
        assert num_parameters(policy) == printed[row]


def test_counterparts_are_agents_that_there_are():
    from sensorium.zoo.published import _ARCHITECTURES

    known = {*recipes.RECIPES, *_ARCHITECTURES}
    for rows in vars(counterparts).values():
        if isinstance(rows, dict) and any(isinstance(row, dict) for row in rows.values()):
            named = {name for name, row in rows.items() if isinstance(row, dict) and row}
            assert named <= known | {"cartpole", "ant", "carracing"}


def test_what_stands_beside_an_agent_is_of_its_kind():
    beside = counterparts.beside
    assert str(beside("cartpole-fnn")["shuffled"]) == "38 ± 120"
    assert str(beside("carracing-pi")["background kimetsu.jpg + shuffled"]) == "171 ± 146"
    # Not AN Table 5's AttentionAgent, another training run than that of its own paper
    assert str(beside("carracing-attention-agent")["plain"]) == "914 ± 15"
    # Not NLA's baseline, which was stopped early
    assert "plain" not in beside("ant-pi")
    assert "shuffled" not in beside("carracing-netrand")
    assert beside("carracing-cnn") == {}
