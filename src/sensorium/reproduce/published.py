"""Every published number that a reproduction is held against: paper, table, row.

AN is Tang & Ha 2021, AA is Tang, Nguyen & Ha 2020, NLA is Muzaffar et al. Scores are mean ±
standard deviation over episodes.
"""

from collections.abc import Mapping

Row = Mapping[str, str]
"""What a paper says, by the name of the perturbation."""

_AN_TABLE_2: Mapping[str, Row] = {
    # 1,000 episodes: plain, shuffled, doubled, with 5 noise channels
    "feed-forward": {"plain": "593 ± 443", "shuffled": "38 ± 91"},
    "permutation-invariant": {
        "plain": "472 ± 426",
        "shuffled": "471 ± 426",
        "doubled": "471 ± 425",
        "+5 noise channels": "461 ± 410",
    },
}

AN_TABLE_6: Row = {"reshuffled every 25": "107", "reshuffled every 100": "242"}
"""CartPole's column of the reshuffling study (AN Table 6)."""

AN_TABLE_6_ANT: Row = {
    "reshuffled every 25": "2053",
    "reshuffled every 100": "2406",
    "reshuffled every 500": "2548",
}
"""The ant's column of the same study."""

_AN_TABLE_4: Mapping[str, Row] = {
    # 100 episodes
    "ant-pi-clone": {"shuffled": "2034"},
    "ant-pi-clone-large": {"shuffled": "2579 ± 457"},
    "ant-pi-clone-wide": {"shuffled": "2579 ± 457"},
    # Ours that went on from there, by cloning or for the reward
    "ant-pi-dagger": {"shuffled": "2034"},
    "ant-pi": {"shuffled": "2034"},
    "ant-pi-large": {"shuffled": "2579 ± 457"},
    "ant-pi-wide": {"shuffled": "2579 ± 457"},
    "ant-pi-dagger-wide": {"shuffled": "2579 ± 457"},
    "ant-pi-coached": {"shuffled": "2579 ± 457"},
    "ant-pi-evolved": {"shuffled": "2576"},
    "ant-pi-evolution": {"shuffled": "2576"},
}

ANT_AUTHORS: Mapping[str, Row] = {
    # 100 episodes, logged beside the weights that the authors published
    "ant_pi": {"shuffled": "2563 ± 79"},
    "ant_mlp": {"plain": "1845 ± 121", "shuffled": "222"},
}
"""What the authors' ant agents scored for them."""


RACING_AUTHORS: Mapping[str, Row] = {
    "carracing_attention_agent": {"plain": "896 ± 61"},
    "carracing_pi": {"shuffled": "847 ± 94"},
}
"""What the authors' CarRacing agents scored for them, 100 episodes, logged beside their weights."""


AN_TABLE_5: Row = {
    "shuffled": "801",
    "background kimetsu.jpg + shuffled": "646",
    "background kof.jpg + shuffled": "503",
    "background mt_fuji.jpg + shuffled": "661",
    "background ukiyoe.jpg + shuffled": "171",
}
"""CarRacing by shuffled patches (AN Table 5), and its four pictures by the names of the authors' files."""

AN_TABLE_5_OTHERS: Mapping[str, Row] = {
    "carracing-netrand": {"plain": "480"},
    "carracing-netrand-attention-agent": {"plain": "885"},
}
"""Of the other agents of that table, what the paper's text says; none of them is shown shuffled patches."""

AA_TABLE_2: Row = {"attention": "~1200", "controller": "~2500"}
"""Parameters of AttentionAgent (AA Table 2), as the paper's text rounds them."""

AA_TABLE_3: Row = {"plain": "914 ± 15"}
"""AttentionAgent in CarRacing (AA Table 3)."""

AA_TABLE_4: Row = {"colour": "866 ± 112", "bars": "900 ± 35", "blob": "898 ± 53"}
"""AttentionAgent in what nobody told it of (AA Table 4)."""

AA_TABLE_4_PPO: Row = {"colour": "505 ± 464", "bars": "615 ± 217", "blob": "855 ± 172"}
"""The paper's PPO agent in the same."""

AA_NOISE: Row = {"background noise": "-58 ± 12"}
"""The same AttentionAgent where grass is noise (in AA's discussion)."""

AA_TRAINED_IN_NOISE: Mapping[int, Row] = {
    5: {"background noise": "452 ± 210"},
    10: {"background noise": "577 ± 243"},
    20: {"background noise": "660 ± 259"},
}
"""Agents that were trained there, by how many patches they look at (K)."""


def an_table_2(agent: str) -> Row:
    """CartPole under perturbed senses (AN Table 2): the paper's agent of the same kind.

    Args:
        agent: One of our names; an agent of another world has no row.
    """
    if not agent.startswith("cartpole-"):
        return {}
    return _AN_TABLE_2["feed-forward" if agent == "cartpole-fnn" else "permutation-invariant"]


def an_table_4(agent: str) -> Row:
    """Ant agents (AN Table 4): the paper's agent of the same kind; none for other agents."""
    return _AN_TABLE_4.get(agent, {})
