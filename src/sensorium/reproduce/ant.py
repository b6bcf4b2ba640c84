"""AN's results on the ant, and NLA's."""

from pathlib import Path

from sensorium.perturbations import Identity, Reshuffle, Shuffle
from sensorium.reproduce.counterparts import AN_4, AN_6, LOGGED, NLA, NLA_BASELINE
from sensorium.reproduce.tables import Result, present, score_tables
from sensorium.zoo import read_published

ENV = "gym:AntBulletEnv-v0"
_TAUGHT = ("ant-pi-dagger", "ant-pi-dagger-wide", "ant-pi-coached", "ant-pi-evolved")
"""Taught by an expert trained under shuffling, or by a coach; and the last of them evolved."""


def authors(episodes: int, seed: int, out: Path) -> Result:
    """The authors' own ant agents, plain and shuffled, beside the scores that they logged."""
    agents = {name: read_published(name) for name in ("ant_pi", "ant_mlp")}
    return score_tables(agents, ENV, (Identity(), Shuffle()), LOGGED, episodes, seed, out)


def table_4(episodes: int, seed: int, out: Path) -> Result:
    """AN Table 4: experts, clones, and agents that learned from the reward or from those."""
    clones = ("ant-pi-clone", "ant-pi-clone-large", "ant-pi-clone-wide")
    learned = ("ant-pi", "ant-pi-large", "ant-pi-wide", "ant-pi-evolution")
    agents = present("ant-fnn", "ant-coach", *clones, *learned, *_TAUGHT)
    return score_tables(agents, ENV, (Identity(), Shuffle()), AN_4, episodes, seed, out)


def table_6_ant(episodes: int, seed: int, out: Path) -> Result:
    """AN Table 6, the ant's column: reshuffled in mid-episode."""
    senses = tuple(Reshuffle(every) for every in (25, 50, 100, 200, 500))
    agents = present("ant-pi", "ant-pi-large", "ant-pi-wide", *_TAUGHT)
    return score_tables(agents, ENV, senses, AN_6, episodes, seed, out)


def nla_table_3(episodes: int, seed: int, out: Path) -> Result:
    """NLA Table 3: the ant with each form of the layer, cloned alike, and taught alike by one that walks."""
    clones = ("ant-pi-clone", "ant-nla-published-clone", "ant-nla-clone")
    agents = present(*clones, "ant-pi", "ant-pi-dagger", "ant-nla-published", "ant-nla")
    paper = {**NLA_BASELINE, **NLA}
    return score_tables(agents, ENV, (Identity(), Shuffle()), paper, episodes, seed, out)
