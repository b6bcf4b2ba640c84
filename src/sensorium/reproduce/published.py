"""Every number of the papers that reproductions, README and docs are held against, as printed.

| key | paper |
|---|---|
| AN | Tang & Ha 2021, The Sensory Neuron as a Transformer |
| AA | Tang, Nguyen & Ha 2020, Neuroevolution of Self-Interpretable Agents |
| NLA | Muzaffar et al., Optimizing Sensory Neurons |

`LOGS` alone is from no paper. `counterparts.py` says which row stands beside which agent of ours. Not in
here: AN Figure 5 (Pong with patches missing) and the curves of all three, which are drawn and not printed;
NLA's Table 1, which repeats AN's.
"""

import dataclasses
from collections.abc import Mapping
from typing import Generic, TypeVar

Cell = TypeVar("Cell")
Number = int | float


@dataclasses.dataclass(frozen=True)
class Score:
    """A mean over episodes, and their standard deviation where it is given."""

    mean: Number
    std: Number | None = None

    def __str__(self) -> str:
        return f"{self.mean:g}" if self.std is None else f"{self.mean:g} ± {self.std:g}"


@dataclasses.dataclass(frozen=True)
class Table(Generic[Cell]):
    """A table of a paper."""

    source: str
    """Paper and table."""
    subject: str
    """What its cells are."""
    columns: tuple[str, ...]
    """Their headings."""
    rows: Mapping[str, tuple[Cell | None, ...]]
    """A cell for each column, None where there is none, by the name of the row."""
    episodes: int | None = None
    """How many each score is over."""

    def __post_init__(self) -> None:
        for name, cells in self.rows.items():
            assert len(cells) == len(self.columns), f"{self.source}, {name}"

    def row(self, name: str) -> dict[str, Cell]:
        """Return the cells of a row that are there, by their column."""
        pairs = zip(self.columns, self.rows[name], strict=True)
        return {column: cell for column, cell in pairs if cell is not None}

    def column(self, name: str) -> dict[str, Cell]:
        """Return the cells of a column that are there, by their row."""
        index = self.columns.index(name)
        pairs = ((row, cells[index]) for row, cells in self.rows.items())
        return {row: cell for row, cell in pairs if cell is not None}


AN_TABLE_1 = Table(
    "AN Table 1",
    "sizes of each part",
    ("CartPole", "Ant", "CarRacing", "Atari Pong"),
    {
        "full observation": ("5", "28", "96 x 96 x 4", "84 x 84 x 4"),
        "what a sensor observes": ("1", "1", "6 x 6 x 4", "6 x 6 x 4"),
        "sensors, N": ("5", "28", "256", "196"),
        "actions": ("1", "8", "3", "6 (one-hot)"),
        "queries, M": ("16", "32", "1024", "400"),
        "W_q": ("8 x 32", "8 x 32", "8 x 16", "8 x 32"),
        "W_k": ("8 x 32", "8 x 32", "111 x 16", "114 x 32"),
        "W_v": ("identity", "identity", "144 x 16", "144 x 32"),
        "activation after attention": ("tanh", "tanh", "softmax", "softmax"),
        "code": ("16", "32", "1024 x 16", "400 x 32"),
    },
)

AN_TABLE_2 = Table(
    "AN Table 2",
    "return in CartPoleSwingUpHarder",
    ("5 obs", "5 obs (shuffled)", "10 obs", "5 obs + 5 noise"),
    {
        "FNN (trained with 5 obs)": (Score(593, 433), Score(38, 120), None, None),
        "FNN (trained with 10 obs)": (None, None, Score(593, 433), Score(137, 242)),
        "Ours (trained with 5 obs)": (
            Score(472, 426),
            Score(471, 426),
            Score(471, 425),
            Score(461, 410),
        ),
    },
    episodes=1000,
)

AN_TABLE_3 = Table(
    "AN Table 3",
    "R² of a linear regression from the code to each sensor of CartPole",
    # The text at hand has lost the third heading and the last; they follow the order of the observation
    ("x", "dx/dt", "cos θ", "sin θ", "dθ/dt"),
    {"R²": (0.354, 0.620, 0.626, 0.233, 0.550)},
)

AN_TABLE_4 = Table(
    "AN Table 4",
    "return in PyBullet's ant",
    ("score",),
    {
        "FNN (teacher)": (Score(2700, 28),),
        "FNN (shuffled)": (Score(232, 112),),
        "Ours (ES, shuffled)": (Score(2576, 75),),
        "Ours (BC, shuffled)": (Score(2034, 948),),
        "Ours (BC, shuffled, larger)": (Score(2579, 457),),
    },
    # The table does not say so, but its 2576 ± 75 is the last row of Table 6, over 100 tests
    episodes=100,
)

AN_TABLE_5 = Table(
    "AN Table 5",
    "return in CarRacing, images in place of its grass",
    ("training env", "KOF", "Mt. Fuji", "Ukiyoe", "DS"),
    {
        "AttentionAgent": (
            Score(901, 54),
            Score(-81, 4),
            Score(-57, 38),
            Score(-107, 50),
            Score(-56, 23),
        ),
        "NetRand": (
            Score(480, 144),
            Score(20, 84),
            Score(356, 159),
            Score(533, 111),
            Score(-27, 34),
        ),
        "NetRand + AttentionAgent": (
            Score(885, 64),
            Score(-51, 14),
            Score(709, 94),
            Score(656, 131),
            Score(122, 134),
        ),
        "Ours": (
            Score(801, 147),
            Score(646, 189),
            Score(503, 152),
            Score(661, 140),
            Score(171, 146),
        ),
    },
    episodes=100,
)

AN_TABLE_6 = Table(
    "AN Table 6",
    "return, sensors reshuffled every t steps (in CartPole over 1,000 episodes)",
    ("CartPole", "PyBullet Ant", "Atari Pong", "CarRacing"),
    {
        "t = 25": (Score(107, 146), Score(2053, 225), Score(-20, 1), Score(732, 161)),
        "t = 50": (Score(163, 198), Score(2319, 188), Score(-20, 2), Score(772, 163)),
        "t = 100": (Score(242, 254), Score(2406, 178), Score(-10, 12), Score(768, 167)),
        "t = 200": (Score(318, 310), Score(2493, 105), Score(-2, 17), Score(774, 182)),
        "t = 500": (Score(407, 380), Score(2548, 87), Score(18, 9), Score(805, 158)),
        "No reshuffle": (Score(472, 426), Score(2576, 75), Score(21, 0), Score(801, 147)),
    },
    episodes=100,
)

AN_GENERATIONS = Table(
    "AN Appendix A.4.1",
    "generations of evolution, 256 individuals of 16 episodes each; Pong was cloned",
    ("CartPole", "PyBullet Ant", "Atari Pong", "CarRacing"),
    {"generations": (14_000, 12_000, None, 4_000)},
)

AA_TABLE_1 = Table(
    "AA Table 1",
    "sizes of AttentionAgent",
    ("value",),
    {
        "input size L": (96,),
        "window size M": (7,),
        "stride S": (4,),
        "patches N": (529,),
        "d_in": (147,),
        "d": (4,),
        "K": (10,),
        "units of the LSTM": (16,),
    },
)

AA_TABLE_2 = Table(
    "AA Table 2",
    "learnable parameters in CarRacing",
    ("parameters",),
    {
        "World model, GA, DIP: VAE": (4_348_547,),
        "World model, GA, DIP: MD-RNN": (384_071,),
        "World model, GA, DIP: controller": (867,),
        "World model, GA, DIP: total": (4_733_485,),
        "PPO: conv stack": (393_848,),
        "PPO: FC stack": (52_107,),
        "PPO: total": (445_955,),
        "Ours: FC (query)": (592,),
        "Ours: FC (key)": (592,),
        "Ours: LSTM (16 units)": (2_483,),
        "Ours: total": (3_667,),
    },
)

AA_TABLE_3 = Table(
    "AA Table 3",
    "return",
    ("CarRacing", "DoomTakeCover"),
    {
        "Required score": (Score(900), Score(750)),
        "World model": (Score(906, 21), Score(1092, 556)),
        "PPO": (Score(865, 159), None),
        "GA": (Score(903, 73), None),
        "DIP": (None, Score(824, 492)),
        "Ours": (Score(914, 15), Score(1125, 589)),
    },
    episodes=100,
)

AA_TABLE_4 = Table(
    "AA Table 4",
    "return in CarRacing, modified",
    ("original", "color perturb", "vertical bars", "blob"),
    {
        "World model": (Score(901, 37), Score(655, 353), Score(166, 137), Score(446, 299)),
        "GA": (Score(859, 79), Score(442, 362), Score(675, 254), Score(833, 135)),
        "PPO": (Score(865, 159), Score(505, 464), Score(615, 217), Score(855, 172)),
        "Ours": (Score(914, 15), Score(866, 112), Score(900, 35), Score(898, 53)),
    },
    episodes=100,
)

AA_TABLE_4_TAKE_COVER = Table(
    "AA Table 4, second half",
    "return in DoomTakeCover, modified",
    ("original", "higher walls", "floor texture", "text"),
    {
        "World model": (Score(959, 564), Score(243, 104), Score(218, 69), Score(240, 63)),
        "Ours": (Score(1125, 589), Score(934, 560), Score(1120, 613), Score(1035, 627)),
    },
    episodes=100,
)

AA_FIGURE_9 = Table(
    "AA Figure 9",
    "return in CarRacing, noise in place of its grass",  # the number of episodes is not given
    ("score",),
    {
        "trained on grass": (Score(-58, 12),),
        "trained on noise, K = 5": (Score(452, 210),),
        "trained on noise, K = 10": (Score(577, 243),),
        "trained on noise, K = 20": (Score(660, 259),),
    },
)

NLA_PARAMETERS = Table(
    "NLA sections 4.1 and 4.2",
    "trainable parameters",
    ("CartPole", "PyBullet Ant"),
    {"Baseline": (913, 2_504), "Proposed (NLA)": (998, 3_428)},
)

NLA_TABLE_2 = Table(
    "NLA Table 2",
    "return in CartPoleSwingUpHarder after 5,000 iterations",
    ("score",),
    {"Baseline": (Score(265, 264),), "Proposed (NLA)": (Score(512, 419),)},
    episodes=1000,
)

NLA_TABLE_3 = Table(
    "NLA Table 3",
    "return in PyBullet's ant after 5,000 iterations",
    ("score",),
    {"Baseline": (Score(327, 35),), "Proposed (NLA)": (Score(2582, 49),)},
    episodes=100,
)

NLA_TABLE_4 = Table(
    "NLA Table 4",
    "return in CarRacing after 800 iterations",
    ("score",),
    {"Baseline": (Score(383, 184),), "Proposed (NLA)": (Score(827, 34),)},
    episodes=100,
)

NLA_TABLE_5 = Table(
    "NLA Table 5",
    "return in Atari Pong after 9,000 iterations",
    ("score",),
    {"Baseline": (Score(-21, 2),), "Proposed (NLA)": (Score(21, 0),)},
    episodes=100,
)

NLA_TABLE_6 = Table(
    "NLA Table 6",
    "iterations until convergence, and days of training",
    ("baseline: iterations", "days", "NLA: iterations", "days with NLA"),
    {
        "CartPole": (14_000, 6, 5_000, 2),
        "PyBullet Ant": (15_000, 36, 5_000, 9),
        "CarRacing": (4_000, 73, 700, 25),
        "Atari Pong (cloned)": (90_000, 16, 9_000, 2),
    },
)

LOGS = Table(
    "logged by the authors beside their weights",
    "return of the authors' agents, in no paper",
    ("plain", "shuffled"),
    {
        "ant_pi": (None, Score(2563.3, 79.2)),
        "ant_mlp": (Score(1844.7, 121.0), None),
        "carracing_attention_agent": (Score(895.6, 60.8), None),
        "carracing_pi": (None, Score(846.6, 94.2)),
    },
    episodes=100,
)
