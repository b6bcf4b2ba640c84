"""What the README says is true: its tree is the disk, its code runs, its scores are those of the cards.

`python tests/test_readme.py` writes the scores anew: of some agents there, of all in docs/results.md.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from sensorium.reproduce.published import (
    AA_NOISE,
    AA_TABLE_3,
    AA_TABLE_4,
    AA_TABLE_4_PPO,
    AA_TRAINED_IN_NOISE,
    AN_TABLE_5,
    AN_TABLE_5_OTHERS,
    AN_TABLE_6,
    AN_TABLE_6_ANT,
    an_table_2,
    an_table_4,
)

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "docs/results.md"
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
}
IN_README = {
    "cartpole": (
        "cartpole-fnn",
        "cartpole-nla",
        "cartpole-pi",
        "cartpole-pi-best",
        "cartpole-pi-reshuffle",
    ),
    "ant": ("ant-fnn", "ant-nla", "ant-pi", "ant-pi-evolved"),
    "carracing": (
        "carracing-attention-agent-colours",
        "carracing-cnn",
        "carracing-netrand",
        "carracing-pi",
        "carracing-pi-backgrounds",
        "carracing-ppo",
    ),
}
PAPERS = {
    "cartpole": lambda name: an_table_2(name) | (AN_TABLE_6 if "pi" in name else {}),
    "ant": lambda name: an_table_4(name) | (AN_TABLE_6_ANT if "pi" in name else {}),
    "carracing": lambda name: {
        **{
            f"carracing-attention-agent{stage}": AA_TABLE_3 | AA_TABLE_4 | AA_NOISE
            for stage in ("", "-evolved", "-dagger", "-colours")
        },
        "carracing-ppo": AA_TABLE_4_PPO,
        "carracing-pi": AN_TABLE_5,
        "carracing-pi-backgrounds": AN_TABLE_5,
        **AN_TABLE_5_OTHERS,
        **{f"carracing-noise-{top}": row for top, row in AA_TRAINED_IN_NOISE.items()},
    }.get(name, {}),
}


def cards(world):
    paths = sorted((ROOT / "zoo").glob(f"{world}-*.json"))
    return [json.loads(path.read_text()) for path in paths]


def of_some(world):
    wanted = IN_README[world]
    chosen = [card for card in cards(world) if card["name"] in wanted]
    assert len(chosen) == len(wanted)
    return side_by_side(world, chosen)


def of_all(world):
    return side_by_side(world, cards(world))


def side_by_side(world, chosen):
    columns = COLUMNS[world]
    lines = [
        "| agent | parameters | " + " | ".join(columns.values()) + " | episodes | trained in |",
        "|---|--:|" + "--:|" * (len(columns) + 2),
    ]
    for card in chosen:
        cells = []
        for senses in columns:
            score = card["scores"].get(senses)
            cells.append("-" if score is None else f"{score['mean']:.0f} ± {score['std']:.0f}")
        minutes = card["training_seconds"] / 60
        episodes = f"{card['evaluation']['episodes']:,}"
        row = [
            f"`{card['name']}`",
            f"{card['parameters']:,}",
            *cells,
            episodes,
            f"{minutes:.0f} min",
        ]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def details(world):
    lines = [
        "| agent | senses | mean ± sd | 95% interval | IQM | solved | paper |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for card in cards(world):
        paper = PAPERS[world](card["name"])
        for senses, score in card["scores"].items():
            low, high = score["ci95"]
            lines.append(
                f"| `{card['name']}` | {senses} | {score['mean']:.0f} ± {score['std']:.0f} "
                f"| {low:.0f} to {high:.0f} | {score['iqm']:.0f} | {score['solved']:.0%} "
                f"| {paper.get(senses, '-')} |"
            )
    return "\n".join(lines)


TABLES = [
    (page, f"{world}-{name}", make(world))
    for world in COLUMNS
    for page, name, make in (
        (README, "scores", of_some),
        (RESULTS, "agents", of_all),
        (RESULTS, "scores", details),
    )
]


def _place(text, name):
    return re.search(rf"<!-- {name}.*?-->\n(.*?)<!-- /{name} -->", text, re.S)


def _between(text, name):
    return _place(text, name).group(1)


def test_scores_are_those_of_the_cards():
    for page, name, table in TABLES:
        assert _between(page.read_text(), name).strip() == table, f"{page.name}: {name}"


def test_tree_is_the_disk():
    said = re.findall(r"^  (\w+)/", _between(README.read_text(), "tree"), re.M)
    here = [
        path.name
        for path in (ROOT / "src/sensorium").iterdir()
        if path.is_dir() and (path / "__init__.py").exists()
    ]
    assert sorted(said) == sorted(here)


def test_python_of_readme_and_docs_runs():
    pages = [README, ROOT / "docs/index.md"]
    blocks = [
        block
        for page in pages
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    ]
    assert len(blocks) >= 2
    for block in blocks:
        subprocess.run([sys.executable, "-c", block], check=True, timeout=200, cwd=ROOT)


def test_links_and_pictures_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert target.startswith("http") or (ROOT / target).exists(), target


if __name__ == "__main__":
    for page, name, table in TABLES:
        text = page.read_text()
        start, end = _place(text, name).span(1)
        page.write_text(f"{text[:start]}{table}\n{text[end:]}")
