"""Results on CarRacing, in Gymnasium's own world but where it says otherwise."""

import os
from pathlib import Path

import jax
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sensorium.perturbations import (
    MODIFICATIONS,
    Background,
    Identity,
    Perturbation,
    ShufflePatches,
    compose,
    each_background,
)
from sensorium.policies import AttentionAgent, num_parameters
from sensorium.reproduce.counterparts import (
    AA_3,
    AA_4,
    AA_NOISE,
    AN_5,
    AN_6,
    ATTENTION_AGENTS,
    AUTHORS_ATTENTION_AGENTS,
    LOGGED,
    NLA,
    NLA_BASELINE,
    RACING_PI,
)
from sensorium.reproduce.published import AA_TABLE_2
from sensorium.reproduce.tables import Result, all_of, present, score_tables
from sensorium.zoo import names, read_published

OURS, THEIRS = "CarRacing", "gym:CarRacing-v3"
_UNSHUFFLED = (
    *ATTENTION_AGENTS,
    "carracing-netrand",
    "carracing-cnn",
    "carracing-ppo",
)
"""Agents of AN Table 5, and ours beside them, that depend on the order of patches."""


def authors(episodes: int, seed: int, out: Path) -> Result:
    """Score the authors' own agents in our world and in Gymnasium's, beside the scores that they logged."""
    rows, tables = [], []
    for env in (OURS, THEIRS):
        for name in ("carracing_attention_agent", "carracing_pi"):
            perturbations = (ShufflePatches(),) if "shuffled" in LOGGED[name] else (Identity(),)
            agents = {name: read_published(name)}
            scores, table = score_tables(agents, env, perturbations, LOGGED, episodes, seed, out)
            rows += scores
            tables.append(table)
    return rows, _together(*tables)


def table_5(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild AN Table 5: other backgrounds; with shuffled patches for permutation-invariant agents."""
    backgrounds = _backgrounds()
    fixed = present(*_UNSHUFFLED, needed=False)
    agents = all_of(("carracing_pi",), *RACING_PI, needed=not fixed)
    shuffled = ShufflePatches(), *(compose(each, ShufflePatches()) for each in backgrounds)
    rows, tables = score_tables(agents, THEIRS, shuffled, AN_5, episodes, seed, out)
    plain = Identity(), *backgrounds
    more, others = score_tables(fixed, THEIRS, plain, AN_5, episodes, seed, out)
    return rows + more, _together(tables, others, _left_out(*RACING_PI, *_UNSHUFFLED))


def table_6(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild AN Table 6, the column of CarRacing: patches reshuffled in mid-episode."""
    agents = all_of(("carracing_pi",), *RACING_PI)
    perturbations = tuple(ShufflePatches(every=every) for every in (25, 50, 100, 200, 500))
    return score_tables(agents, THEIRS, perturbations, AN_6, episodes, seed, out)


def aa_table_2(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild AA Table 2: how many parameters compute the attention, and how many act."""
    del episodes, seed, out
    table = Table(title="AA Table 2: parameters in CarRacing")
    for column in ("agent", "attention", "controller", "all"):
        table.add_column(column, justify="left" if column == "agent" else "right", no_wrap=True)
    paper = AA_TABLE_2.column("parameters")
    attention = paper["Ours: FC (query)"] + paper["Ours: FC (key)"]
    controller, both = paper["Ours: LSTM (16 units)"], paper["Ours: total"]
    table.add_row("paper", f"{attention:,}", f"{controller:,}", f"{both:,}")
    rows = []
    for name, policy in all_of(AUTHORS_ATTENTION_AGENTS, *ATTENTION_AGENTS).items():
        assert isinstance(policy, AttentionAgent)
        both = num_parameters(policy)
        looking = sum(leaf.size for leaf in jax.tree.leaves(policy.look))
        rows.append({"agent": name, "attention": looking, "controller": both - looking})
        table.add_row(name, f"{looking:,}", f"{both - looking:,}", f"{both:,}")
    return rows, table


def aa_table_3(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild AA Table 3: CarRacing as it is."""
    agents = all_of(AUTHORS_ATTENTION_AGENTS, *ATTENTION_AGENTS)
    return score_tables(agents, THEIRS, (Identity(),), AA_3, episodes, seed, out)


def aa_table_4(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild AA Table 4: changes of the world that training did not have."""
    agents = all_of(AUTHORS_ATTENTION_AGENTS, *ATTENTION_AGENTS)
    agents |= present("carracing-cnn", "carracing-ppo", needed=False)
    perturbations = tuple(MODIFICATIONS[name] for name in ("colour", "bars", "blob"))
    return score_tables(agents, THEIRS, perturbations, AA_4, episodes, seed, out)


def aa_noise(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild AA's discussion: noise where the grass was, and an agent that was trained there."""
    trained = "carracing-noise-10"
    agents = all_of(AUTHORS_ATTENTION_AGENTS, *ATTENTION_AGENTS, trained)
    perturbations = (MODIFICATIONS["noise"],)
    rows, tables = score_tables(agents, THEIRS, perturbations, AA_NOISE, episodes, seed, out)
    return rows, _together(tables, _left_out(trained))


def nla_table_4(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild NLA Table 4: CarRacing with linear and with nonlinear attention, plain and shuffled."""
    forms = ("carracing-pi", "carracing-nla")
    agents = all_of(("carracing_pi",), *forms)
    perturbations = (Identity(), ShufflePatches())
    paper = {**NLA_BASELINE, **NLA}
    rows, tables = score_tables(agents, THEIRS, perturbations, paper, episodes, seed, out)
    return rows, _together(tables, _left_out(*forms))


def _left_out(*wanted: str) -> Text:
    """Name the wanted agents that are not in the zoo."""
    missing = [name for name in wanted if name not in names()]
    return Text(f"Left out, as not in the zoo: {', '.join(missing)}." if missing else "")


def _together(*parts: RenderableType | None) -> Group:
    """Group the parts that there are, below one another."""
    return Group(*(part for part in parts if part is not None))


def _backgrounds() -> list[Perturbation]:
    """List the backgrounds of the folder that SENSORIUM_BACKGROUNDS names, or else our own."""
    source = os.environ.get("SENSORIUM_BACKGROUNDS", "scenes")
    return [Background(each) for each in each_background(source).values()]
