"""Tables of README and docs: from the cards of the zoo, from result files, and from what is published.

`python -m tests.tables` writes them anew; tests/test_readme.py compares them.
"""

import json
import re
from pathlib import Path
from statistics import mean

from sensorium.reproduce import published
from sensorium.reproduce.counterparts import (
    AA_4,
    AA_4_TAKE_COVER,
    AA_NOISE,
    AN_2,
    AN_4,
    AN_5,
    AN_6,
    IMAGES,
    NLA,
    beside,
)
from sensorium.reproduce.published import Score
from sensorium.terminal import significant

ROOT = Path(__file__).parents[1]
README, DOCS = ROOT / "README.md", ROOT / "docs"
COLUMNS = {
    "cartpole": {
        "plain": "plain",
        "shuffled": "shuffled",
        "doubled": "doubled",
        "+5 noise channels": "+5 noise",
        "reshuffled every 25": "every 25",
        "reshuffled every 100": "every 100",
    },
    "ant": {
        "plain": "plain",
        "shuffled": "shuffled",
        "+5 noise channels": "+5 noise",
        "reshuffled every 25": "every 25",
        "reshuffled every 100": "every 100",
        "reshuffled every 500": "every 500",
    },
    "carracing": {
        "plain": "plain",
        "in CarRacing-v3": "in Gymnasium's",
        "colour": "colour",
        "bars": "bars",
        "blob": "blob",
        "background hills": "hills",
        "background noise": "noise",
        "shuffled": "shuffled",
        "reshuffled every 25": "every 25",
    },
    "pong": {
        "plain": "plain",
        "shuffled": "shuffled",
        "5% occluded": "5% occluded",
        "reshuffled every 25": "every 25",
        "reshuffled every 100": "every 100",
    },
    "takecover": {
        "plain": "plain",
        "variant walls": "walls",
        "variant floor": "floor",
        "variant text": "text",
        "variant colour": "colour",
        "variant noise": "noise",
        "5% occluded": "5% occluded",
    },
}
PAPERS = {
    "cartpole": {
        "AN: feed-forward": AN_2["cartpole-fnn"],
        "AN: AttentionNeuron": AN_2["cartpole-pi"] | AN_6["cartpole-pi"],
        "NLA": NLA["cartpole-nla-published"],
    },
    "ant": {
        "AN: feed-forward": AN_4["ant-fnn"],
        "AN: cloned": AN_4["ant-pi-clone"],
        "AN: cloned, larger": AN_4["ant-pi-large"],
        "AN: evolved": AN_4["ant-pi-evolved"] | AN_6["ant-pi-evolved"],
        "NLA": NLA["ant-nla"],
    },
    "carracing": {
        "AA: AttentionAgent": AA_4["carracing-attention-agent"]
        | AA_NOISE["carracing-attention-agent"],
        "AA: PPO": AA_4["carracing-ppo"],
        "AN: AttentionNeuron": AN_5["carracing-pi"] | AN_6["carracing-pi"],
        "AN: NetRand": AN_5["carracing-netrand"],
        "NLA": NLA["carracing-nla"],
    },
    "pong": {"AN: AttentionNeuron": AN_6["pong-pi"], "NLA": NLA["pong-nla"]},
    "takecover": {"AA: AttentionAgent": AA_4_TAKE_COVER["takecover-attention-agent"]},
}
"""What the papers' agents score, by the names of our perturbations."""
IN_README = {
    "cartpole": (
        "cartpole-fnn",
        "cartpole-nla",
        "cartpole-pi",
        "cartpole-pi-best",
        "cartpole-pi-reshuffle",
        "cartpole-deep-sets",
        "cartpole-set-transformer",
    ),
    "ant": ("ant-fnn", "ant-motors", "ant-nla", "ant-pi", "ant-pi-evolved"),
    "carracing": (
        "carracing-attention-agent-colours",
        "carracing-cnn",
        "carracing-netrand",
        "carracing-pi",
        "carracing-pi-backgrounds",
        "carracing-ppo",
    ),
    "pong": ("pong-nla", "pong-pi", "pong-pi-small", "pong-pi-robust"),
    "takecover": ("takecover-attention-agent-recurrent",),
}


def markdown(headings, rows, left=1):
    """A table whose first columns are aligned to the left, and all others to the right."""
    ruler = "---|" * left + "--:|" * (len(headings) - left)
    lines = [f"| {' | '.join(cells)} |" for cells in (headings, *rows)]
    return "\n".join([lines[0], f"|{ruler}", *lines[1:]])


def score(value):
    """A score of a card or a result file, as it is shown everywhere."""
    return f"{value['mean']:.0f} ± {value['std']:.0f}"


def results(name):
    """The scores of a result file, in its order."""
    return json.loads((ROOT / "benchmarks/results" / f"{name}.json").read_text())


def cards(world):
    """The cards of all agents of a world."""
    paths = sorted((ROOT / "zoo").glob(f"{world}-*.json"))
    return [json.loads(path.read_text()) for path in paths]


def of_some(world):
    """Those of the README, above the papers'."""
    wanted = IN_README[world]
    chosen = [card for card in cards(world) if card["name"] in wanted]
    assert len(chosen) == len(wanted)
    return side_by_side(world, chosen)


def of_all(world):
    """The whole zoo of a world, above the papers'."""
    return side_by_side(world, cards(world))


def side_by_side(world, chosen):
    """An agent a row, a perturbation a column."""
    columns = COLUMNS[world]
    rows = []
    for card in chosen:
        cells = [card["scores"].get(perturbation) for perturbation in columns]
        rows.append(
            [
                f"`{card['name']}`",
                f"{card['parameters']:,}",
                *("-" if cell is None else score(cell) for cell in cells),
                f"{card['evaluation']['episodes']:,}",
                *times(card),
            ]
        )
    episodes = "1,000" if world == "cartpole" else "100"
    for name, row in PAPERS[world].items():
        rows.append(
            [
                f"*{name}*",
                "-",
                *(str(row.get(perturbation, "-")) for perturbation in columns),
                episodes,
                "-",
                "-",
            ]
        )
    return markdown(
        ["agent", "parameters", *columns.values(), "episodes", "trained in", "experts"], rows
    )


def times(card):
    """What all stages and starts took, and experts apart."""
    experts = {
        stage["expert"]["name"]: stage["expert"]["training_seconds"]
        for stage in stages_of(card)
        if "training_seconds" in stage.get("expert", {})  # a player of ours was not trained
    }
    apart = f"{sum(experts.values()) / 60:.0f} min" if experts else "-"
    return f"{card['training_seconds'] / 60:.0f} min", apart


def stages_of(card):
    """Those of an agent, after those of what it started from."""
    for stage in card.get("stages", ()):
        yield from stages_of(stage.get("start", {}))
        yield stage


def details(world):
    """A row for each agent and perturbation."""
    rows = []
    for card in cards(world):
        paper = beside(card["name"])
        for perturbation, value in card["scores"].items():
            low, high = value["ci95"]
            rows.append(
                [
                    f"`{card['name']}`",
                    perturbation,
                    score(value),
                    f"{low:.0f} to {high:.0f}",
                    f"{value['iqm']:.0f}",
                    "-" if value["solved"] is None else f"{value['solved']:.0%}",
                    str(paper.get(perturbation, "-")),
                ]
            )
    headings = ["agent", "perturbation", "mean ± sd", "95% interval", "IQM", "solved", "paper"]
    return markdown(headings, rows, left=2)


def measured(scores, columns, first, papers=()):
    """Rows of result files: `first` has the label of each agent, `papers` are rows above them."""
    by_agent = {}
    for each in scores:
        by_agent.setdefault(each["agent"], {})[each["perturbation"]] = score(each)
    rows = [
        [label, *(str(row.get(perturbation, "-")) for perturbation in columns)]
        for label, row in (*papers, *((first[name], by_agent[name]) for name in first))
    ]
    return markdown(["agent", *columns.values()], rows)


def own(*names):
    """Agents labelled by their names."""
    return {name: f"`{name}`" for name in names}


_AUTHORS_PI = {"carracing_pi": "the authors' weights"}


def in_front_of_images():
    """AN Table 5, the authors' weights and ours beside it."""
    files = {file: f"background {file}" for file in IMAGES}
    columns = {"plain": "none"} | {files[file]: name for file, name in IMAGES.items()}

    def unshuffled(perturbation):
        return perturbation.removesuffix(" + shuffled").replace("shuffled", "plain")

    scores = [
        each | {"perturbation": unshuffled(each["perturbation"])} for each in results("table-5")
    ]
    shuffled = {
        **_AUTHORS_PI,
        **own("carracing-pi", "carracing-pi-backgrounds"),
    }
    labels = {name: f"{label}, shuffled" for name, label in shuffled.items()} | own(
        "carracing-attention-agent-colours",
        "carracing-netrand",
    )
    names = {
        "AN: AttentionNeuron": "carracing-pi",
        "AN: AttentionAgent": "carracing-attention-agent",
        "AN: NetRand": "carracing-netrand",
    }
    papers = [
        (
            f"*{name}*",
            {unshuffled(perturbation): cell for perturbation, cell in AN_5[agent].items()},
        )
        for name, agent in names.items()
    ]
    return measured(scores, columns, labels, papers)


def reshuffled_races():
    """AN Table 6, its column of CarRacing."""
    columns = {f"reshuffled every {every}": f"every {every}" for every in (25, 100, 500)}
    labels = _AUTHORS_PI | own("carracing-pi", "carracing-pi-backgrounds")
    paper = [("*AN: AttentionNeuron*", AN_6["carracing-pi"])]
    return measured(results("table-6-racing"), columns, labels, paper)


def modified_races():
    """AA Tables 3 and 4."""
    columns = {"plain": "plain", "colour": "colour", "bars": "bars", "blob": "blob"}
    labels = {
        "carracing_attention_agent_2020": "the authors' weights of 2020",
        "carracing_attention_agent": "the authors' weights of 2021",
    } | own("carracing-attention-agent", "carracing-attention-agent-colours")
    paper = [("*AA: AttentionAgent*", AA_4["carracing-attention-agent"])]
    scores = results("aa-table-3") + results("aa-table-4")
    return measured(scores, columns, labels, paper)


def races_in_noise():
    """AA Figure 9."""
    scores = results("aa-noise")
    rows = [
        [f"`{each['agent']}`", score(each), str(AA_NOISE[each["agent"]]["background noise"])]
        for each in scores
    ]
    return markdown(["agent", "ours", "paper"], rows)


def forms_of_attention(world):
    """NLA Tables 3 and 4: each form of the layer, plain and shuffled."""
    number = {"ant": 3, "carracing": 4}[world]
    labels = {
        "ant": {
            "ant-pi": "linear (`ant-pi`)",
            "ant-nla": "NLA, invariant; imitates `ant-pi` (`ant-nla`)",
        },
        "carracing": {
            "carracing_pi": "linear, the authors' weights",
            "carracing-pi": "linear (`carracing-pi`)",
            "carracing-nla": "NLA, invariant (`carracing-nla`)",
        },
    }[world]
    table = {"ant": published.NLA_TABLE_3, "carracing": published.NLA_TABLE_4}[world]
    papers = [(f"*NLA: {row}*", {"plain": cell}) for row, cell in table.column("score").items()]
    columns = {"plain": "plain", "shuffled": "shuffled"}
    return measured(results(f"nla-table-{number}"), columns, labels, papers)


def logged(world):
    """The authors' weights, beside the scores that they logged."""
    rows = [
        [
            f"`{each['agent']}`",
            each["env"].removeprefix("gym:"),
            each["perturbation"],
            score(each),
            str(published.LOGS.row(each["agent"]).get(each["perturbation"], "-")),
        ]
        for each in results(f"{world}-authors")
    ]
    return markdown(["weights", "world", "sensors", "here", "logged"], rows, left=3)


def converted():
    """Twins and other students of the same experts, means over seeds; the shares are of their returns."""
    grouped = {}
    for row in results("convert"):
        grouped.setdefault((row["env"].removeprefix("gym:"), row["student"]), []).append(row)
    shares = {
        "shuffled": "share",
        "+5 noise channels + shuffled": "+5 noise",
        "1 dropped + shuffled": "1 dropped",
        "reshuffled in mid-episode": "in mid-episode",
    }
    rows = []
    for (env, student), seeds in sorted(grouped.items()):
        scores = [
            [row["random"] for row in seeds],
            [row["expert"]["plain"]["mean"] for row in seeds],
            [row["expert"]["shuffled"]["mean"] for row in seeds],
            [row["twin"]["shuffled"]["mean"] for row in seeds],
        ]
        minutes = mean(row["seconds"] for row in seeds) / 60
        parts = [
            [row["twin"][name]["share"] for row in seeds if name in row["twin"]] for name in shares
        ]
        rows.append(
            [
                env if student == "twin" else f"{env}, {student}",
                *(f"{significant(mean(each), 3):g}" for each in scores),
                *(f"{mean(each):.0%}" if each else "-" for each in parts),
                f"{minutes:.1f}",
                str(len(seeds)),
            ]
        )
    headings = ["environment", "random", "expert", "shuffled", "twin", *shares.values()]
    return markdown([*headings, "min", "seeds"], rows)


def as_printed(*tables):
    """What papers print, a table below the other."""
    parts = []
    for table in tables:
        caption = f"**{table.source}**: {table.subject}"
        caption += f", {table.episodes:,} episodes." if table.episodes else "."
        rows = [
            [name, *("-" if cell is None else _printed(cell) for cell in cells)]
            for name, cells in table.rows.items()
        ]
        parts.append(f"{caption}\n\n{markdown(['', *table.columns], rows)}")
    return "\n\n".join(parts)


def _printed(cell):
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)


def tables_of(paper):
    """All tables of a paper, as printed."""
    return as_printed(*(table for name, table in vars(published).items() if name.startswith(paper)))


TABLES = [
    *(
        (page, f"{world}-{name}", make, (world,))
        for world in COLUMNS
        for page, name, make in (
            (README, "scores", of_some),
            (DOCS / "results.md", "agents", of_all),
            (DOCS / "results.md", "scores", details),
        )
    ),
    (DOCS / "results.md", "ant-authors", logged, ("ant",)),
    (DOCS / "results.md", "nla-table-3", forms_of_attention, ("ant",)),
    (DOCS / "results.md", "nla-table-4", forms_of_attention, ("carracing",)),
    (DOCS / "convert.md", "convert", converted, ()),
    (DOCS / "worlds.md", "racing-authors", logged, ("racing",)),
    (DOCS / "car_racing.md", "table-5", in_front_of_images, ()),
    (DOCS / "car_racing.md", "table-6-racing", reshuffled_races, ()),
    (DOCS / "papers/attention_agent.md", "aa-tables", modified_races, ()),
    (DOCS / "papers/attention_agent.md", "aa-noise", races_in_noise, ()),
    (DOCS / "papers/attention_agent.md", "as-printed", tables_of, ("AA_",)),
    (DOCS / "papers/attention_neuron.md", "as-printed", tables_of, ("AN_",)),
    (DOCS / "papers/nla.md", "as-printed", tables_of, ("NLA_",)),
]
"""Page, name of the place in it, and what makes the table there."""


def place(text, name):
    """Where a table is in a page, as a match whose first group it is."""
    found = re.search(rf"<!-- {name}\b.*?-->\n(.*?)<!-- /{name} -->", text, re.S)
    assert found, f"no place for {name}"
    return found


def prose(text):
    """A page without its generated tables."""
    return re.sub(r"<!-- ([\w-]+): .*?-->\n.*?<!-- /\1 -->", "", text, flags=re.S)


def scores_of_papers():
    """Every mean ± deviation that a paper prints or its authors logged, with and without commas."""
    said = set()
    for table in vars(published).values():
        if isinstance(table, published.Table):
            for cells in table.rows.values():
                for cell in cells:
                    if isinstance(cell, Score) and cell.std is not None:
                        said |= {str(cell), f"{cell.mean:,g} ± {cell.std:g}"}
    return said


if __name__ == "__main__":
    for page, name, make, arguments in TABLES:
        text = page.read_text()
        start, end = place(text, name).span(1)
        page.write_text(f"{text[:start]}{make(*arguments)}\n{text[end:]}")
