"""Which published score stands beside which agent: of the same kind, in the same world.

A row is named after an agent of ours (`cartpole-pi`) or after the authors' weights (`carracing_pi`), its
scores after the perturbations under which ours are evaluated.
"""

from collections.abc import Mapping

from sensorium.reproduce.published import (
    AA_FIGURE_9,
    AA_TABLE_3,
    AA_TABLE_4,
    AA_TABLE_4_TAKE_COVER,
    AN_TABLE_2,
    AN_TABLE_4,
    AN_TABLE_5,
    AN_TABLE_6,
    LOGS,
    NLA_TABLE_2,
    NLA_TABLE_3,
    NLA_TABLE_4,
    NLA_TABLE_5,
    Score,
)

Row = Mapping[str, Score]
"""What is published of one agent, by the name of the perturbation."""

_ANT_PI = {
    "Ours (BC, shuffled)": ("ant-pi-clone", "ant-pi"),
    "Ours (BC, shuffled, larger)": ("ant-pi-large",),
    "Ours (ES, shuffled)": ("ant-pi-evolved", "ant-pi-evolution"),
}
"""Ours by the row of AN Table 4: cloned or learned from there on, of the small size or larger; evolved."""
_CARTPOLE_PI = (
    "cartpole-pi",
    "cartpole-pi-evolution",
    "cartpole-pi-feedback",
    "cartpole-pi-best",
    "cartpole-pi-reshuffle",
)
RACING_PI = ("carracing-pi", "carracing-pi-backgrounds")
"""Ours of CarRacing that take patches in any order."""
AUTHORS_ATTENTION_AGENTS = ("carracing_attention_agent_2020", "carracing_attention_agent")
"""That of the paper, and the one that the authors trained a year later."""
ATTENTION_AGENTS = ("carracing-attention-agent", "carracing-attention-agent-colours")
"""Ours."""
TAKE_COVER_AGENTS = ("takecover-attention-agent", "takecover-attention-agent-recurrent")
"""Ours of DoomTakeCover."""
PONG_PI = ("pong-pi", "pong-pi-small", "pong-pi-robust")
"""Ours of Pong that take patches in any order."""
_RACING_PI = ("carracing_pi", *RACING_PI)
_ATTENTION_AGENTS = (*AUTHORS_ATTENTION_AGENTS, *ATTENTION_AGENTS)
IMAGES = {
    "kof.jpg": "KOF",
    "mt_fuji.jpg": "Mt. Fuji",
    "ukiyoe.jpg": "Ukiyoe",
    "kimetsu.jpg": "DS",
}
"""Columns of AN Table 5 by the authors' files of images, in the order of the table."""


def _named(scores: Row, names: Mapping[str, str]) -> Row:
    """Select the scores that have a name in `names` (perturbation to the paper's), by our names."""
    return {ours: scores[theirs] for ours, theirs in names.items() if theirs in scores}


def _an_table_2(row: str) -> Row:
    columns = {
        "plain": "5 obs",
        "shuffled": "5 obs (shuffled)",
        "doubled": "10 obs",
        "+5 noise channels": "5 obs + 5 noise",
    }
    return _named(AN_TABLE_2.row(row), columns)


def _an_table_5(row: str, *, shuffled: bool) -> Row:
    after = " + shuffled" if shuffled else ""
    columns = {f"background {file}{after}": name for file, name in IMAGES.items()}
    plain = {"plain": "training env"} | ({"shuffled": "training env"} if shuffled else {})
    return _named(AN_TABLE_5.row(row), plain | columns)


def _an_table_6(column: str) -> Row:
    names = {f"reshuffled every {t}": f"t = {t}" for t in (25, 50, 100, 200, 500)}
    if column == "Atari Pong":  # others have a score of their own in another table
        names["shuffled"] = "No reshuffle"
    return _named(AN_TABLE_6.column(column), names)


def _aa_table_4(row: str) -> Row:
    columns = {
        "plain": "original",
        "colour": "color perturb",
        "bars": "vertical bars",
        "blob": "blob",
    }
    return _named(AA_TABLE_4.row(row), columns)


AN_2: Mapping[str, Row] = {
    "cartpole-fnn": _an_table_2("FNN (trained with 5 obs)"),
    **dict.fromkeys(_CARTPOLE_PI, _an_table_2("Ours (trained with 5 obs)")),
}
"""Beside AN Table 2."""

_ANT = AN_TABLE_4.column("score")
AN_4: Mapping[str, Row] = {
    "ant-fnn": {"plain": _ANT["FNN (teacher)"], "shuffled": _ANT["FNN (shuffled)"]},
    **{name: {"shuffled": _ANT[row]} for row, names in _ANT_PI.items() for name in names},
}
"""Beside AN Table 4."""

AN_5: Mapping[str, Row] = {
    # Permutation-invariant agents act on shuffled patches as on plain ones
    **dict.fromkeys(_RACING_PI, _an_table_5("Ours", shuffled=True)),
    **dict.fromkeys(_ATTENTION_AGENTS, _an_table_5("AttentionAgent", shuffled=False)),
    "carracing-netrand": _an_table_5("NetRand", shuffled=False),
}
"""Beside AN Table 5."""

AN_6: Mapping[str, Row] = {
    **dict.fromkeys(_CARTPOLE_PI, _an_table_6("CartPole")),
    **{name: _an_table_6("PyBullet Ant") for names in _ANT_PI.values() for name in names},
    **dict.fromkeys(_RACING_PI, _an_table_6("CarRacing")),
    **dict.fromkeys(PONG_PI, _an_table_6("Atari Pong")),
}
"""Beside AN Table 6."""

AA_3: Mapping[str, Row] = {
    **{key: {"plain": AA_TABLE_3.row("Ours")["CarRacing"]} for key in _ATTENTION_AGENTS},
    "carracing-ppo": {"plain": AA_TABLE_3.row("PPO")["CarRacing"]},
}
"""Beside AA Table 3."""

AA_4: Mapping[str, Row] = {
    **dict.fromkeys(_ATTENTION_AGENTS, _aa_table_4("Ours")),
    "carracing-ppo": _aa_table_4("PPO"),
}
"""Beside AA Table 4."""

AA_4_TAKE_COVER: Mapping[str, Row] = dict.fromkeys(
    ("takecover_attention_agent", *TAKE_COVER_AGENTS),
    _named(
        AA_TABLE_4_TAKE_COVER.row("Ours"),
        {
            "plain": "original",
            "variant walls": "higher walls",
            "variant floor": "floor texture",
            "variant text": "text",
        },
    ),
)
"""Beside the half of AA Table 4 that is about DoomTakeCover."""

_NOISE = AA_FIGURE_9.column("score")
AA_NOISE: Mapping[str, Row] = {
    **{key: {"background noise": _NOISE["trained on grass"]} for key in _ATTENTION_AGENTS},
    "carracing-noise-10": {"background noise": _NOISE["trained on noise, K = 10"]},
}
"""Beside AA Figure 9."""

_NLA_TABLES = {
    "cartpole": NLA_TABLE_2,
    "ant": NLA_TABLE_3,
    "carracing": NLA_TABLE_4,
    "pong": NLA_TABLE_5,
}
NLA: Mapping[str, Row] = {
    name: {"plain": table.row("Proposed (NLA)")["score"]}
    for name, table in zip(
        ("cartpole-nla-published", "ant-nla", "carracing-nla", "pong-nla"),
        _NLA_TABLES.values(),
        strict=True,
    )
}
"""Beside NLA Tables 2 to 5: as published on CartPole; elsewhere in its invariant form, which is ours."""

NLA_BASELINE: Mapping[str, Row] = {
    f"{world}-pi": {"plain": table.row("Baseline")["score"]} for world, table in _NLA_TABLES.items()
}
"""Beside the plain layer in the same tables, which has had as few iterations as NLA there."""

LOGGED: Mapping[str, Row] = {name: LOGS.row(name) for name in LOGS.rows}
"""Beside the scores that the authors logged of their own agents."""


def beside(agent: str) -> Row:
    """Collect all scores in the papers of an agent like one of ours; none where there is no such agent.

    Where two tables have a score under the same perturbation, that of the agent's own paper counts.
    """
    row: dict[str, Score] = {}
    for rows in (NLA, AN_6, AN_5, AN_4, AN_2, AA_NOISE, AA_4_TAKE_COVER, AA_4, AA_3):
        row |= rows.get(agent, {})
    return row
