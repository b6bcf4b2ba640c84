"""Results on CarRacing, in Gymnasium's own world but where it says otherwise."""

import os
from pathlib import Path

from rich.console import Group
from rich.text import Text

from sensorium.perturbations import (
    MODIFICATIONS,
    SCENES,
    Background,
    Identity,
    Perturbation,
    ShufflePatches,
    compose,
)
from sensorium.policies import Policy
from sensorium.reproduce.published import (
    AA_TABLE_3,
    AN_TABLE_5,
    AN_TABLE_5_OTHERS,
    RACING_AUTHORS,
)
from sensorium.reproduce.tables import Result, present, score_tables
from sensorium.zoo import names, read_published

OURS, THEIRS = "CarRacing", "gym:CarRacing-v3"
_PUBLISHED = "SENSORIUM_PUBLISHED"
_UNSHUFFLED = (
    "carracing-attention-agent",
    *AN_TABLE_5_OTHERS,
    "carracing-cnn",
    "carracing-ppo",
)
"""Agents of AN Table 5, and ours beside them, that mind the order of patches."""


def authors(episodes: int, seed: int, out: Path) -> Result:
    """The authors' own agents in our world and in Gymnasium's, beside the scores that they logged."""
    del out
    rows, tables = [], []
    for env in (OURS, THEIRS):
        for name, row in RACING_AUTHORS.items():
            senses = (ShufflePatches(),) if "shuffled" in row else (Identity(),)
            agents = {name: read_published(name)}
            scores, table = score_tables(
                agents, env, senses, RACING_AUTHORS.__getitem__, episodes, seed
            )
            rows += scores
            tables.append(table)
    return rows, Group(*(table for table in tables if table is not None))


def table_5(episodes: int, seed: int, out: Path) -> Result:
    """AN Table 5: other backgrounds; on top of shuffled patches for agents that do not mind their order."""
    del out
    backgrounds = _backgrounds()
    fixed = present(*_UNSHUFFLED, needed=False)
    agents = _all_of("carracing_pi", "carracing-pi", needed=not fixed)
    shuffled = ShufflePatches(), *(compose(each, ShufflePatches()) for each in backgrounds)
    rows, tables = score_tables(agents, THEIRS, shuffled, lambda _: AN_TABLE_5, episodes, seed)
    plain = Identity(), *backgrounds
    more, others = score_tables(
        fixed, THEIRS, plain, lambda name: AN_TABLE_5_OTHERS.get(name, {}), episodes, seed
    )
    missing = [name for name in ("carracing-pi", *_UNSHUFFLED) if name not in names()]
    note = Text(f"Left out, as not in the zoo: {', '.join(missing)}." if missing else "")
    return rows + more, Group(*(part for part in (tables, others) if part is not None), note)


def table_6(episodes: int, seed: int, out: Path) -> Result:
    """AN Table 6, the column of CarRacing: patches reshuffled in mid-episode."""
    del out
    agents = _all_of("carracing_pi", "carracing-pi")
    senses = tuple(ShufflePatches(every=every) for every in (25, 100, 500))
    return score_tables(agents, THEIRS, senses, lambda _: {}, episodes, seed)


def attention_agent(episodes: int, seed: int, out: Path) -> Result:
    """AttentionAgent's Tables 2 and 3: plain, and what nobody told it of."""
    del out
    agents = _all_of("carracing_attention_agent", "carracing-attention-agent")
    senses = (Identity(), *(MODIFICATIONS[name] for name in ("colour", "bars", "blob", "noise")))
    return score_tables(agents, THEIRS, senses, lambda _: AA_TABLE_3, episodes, seed)


def _all_of(published: str, *ours: str, needed: bool = True) -> dict[str, Policy]:
    """The authors' agent, where their weights are at hand, and those of ours that are in the zoo."""
    authors = {published: read_published(published)} if _PUBLISHED in os.environ else {}
    return authors | present(*ours, needed=needed and not authors)


def _backgrounds() -> list[Perturbation]:
    """Those of the folder that SENSORIUM_BACKGROUNDS names, or else our own."""
    folder = os.environ.get("SENSORIUM_BACKGROUNDS")
    if folder is None:
        return [Background(scene) for scene in SCENES]
    return [Background(str(path)) for path in sorted(Path(folder).iterdir())]
