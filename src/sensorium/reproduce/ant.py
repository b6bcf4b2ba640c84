"""AN's results on the ant, and NLA's."""

from pathlib import Path

from sensorium.perturbations import Identity, Reshuffle, RewireMotors, Shuffle, compose
from sensorium.reproduce.counterparts import AN_4, AN_6, LOGGED, NLA, NLA_BASELINE
from sensorium.reproduce.tables import Result, present, score_tables
from sensorium.zoo import read_published

ENV = "gym:AntBulletEnv-v0"


def authors(episodes: int, seed: int, out: Path) -> Result:
    """Score the authors' own ant agents, plain and shuffled, beside the scores that they logged."""
    agents = {name: read_published(name) for name in ("ant_pi", "ant_mlp")}
    return score_tables(agents, ENV, (Identity(), Shuffle()), LOGGED, episodes, seed, out)


def table_4(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild AN Table 4: the expert, and agents that learned from it and from the reward."""
    agents = present("ant-fnn", "ant-pi", "ant-pi-large", "ant-pi-evolved")
    return score_tables(agents, ENV, (Identity(), Shuffle()), AN_4, episodes, seed, out)


def table_6_ant(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild AN Table 6, the ant's column: reshuffled in mid-episode."""
    perturbations = tuple(Reshuffle(every) for every in (25, 50, 100, 200, 500))
    agents = present("ant-pi", "ant-pi-large", "ant-pi-evolved")
    return score_tables(agents, ENV, perturbations, AN_6, episodes, seed, out)


def motors(episodes: int, seed: int, out: Path) -> Result:
    """Score ants that know neither sensors nor motors: as at the start, and rewired in mid-episode."""
    rewired = (RewireMotors(every, signed=True) for every in (None, 500, 100))
    perturbations = Identity(), *(compose(Shuffle(), each) for each in rewired)
    agents = present("ant-fnn-robust", "ant-motors")
    return score_tables(agents, ENV, perturbations, {}, episodes, seed, out)


def nla_table_3(episodes: int, seed: int, out: Path) -> Result:
    """Rebuild NLA Table 3: the ant with linear and with nonlinear attention."""
    agents = present("ant-pi", "ant-nla")
    paper = {**NLA_BASELINE, **NLA}
    return score_tables(agents, ENV, (Identity(), Shuffle()), paper, episodes, seed, out)
