"""What README and docs say is true: the tree is the disk, scores are those of cards, results and papers."""

import json
import re

import pytest

from sensorium.reproduce import counterparts
from tests.tables import DOCS, README, ROOT, TABLES, place, prose, scores_of_papers

PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "benchmarks/README.md", *DOCS.rglob("*.md")]


@pytest.mark.parametrize(("page", "name", "make", "arguments"), TABLES)
def test_tables_are_what_they_are_made_from(page, name, make, arguments):
    assert place(page.read_text(), name).group(1).strip() == make(*arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_published_scores_are_in_made_tables_alone(page):
    """Where nobody can change one without `published.py`; what the authors' weights score here is ours."""
    said = " ".join(prose(page.read_text()).split())
    numbers = re.findall(r"-?[\d,.]*\d ± [\d,.]*\d", said)
    assert not set(numbers) & scores_of_papers()
    assert not re.findall(
        r"\bpapers?\b[^.;:|]* (?:has|have|had|scores?|reports?) [^.;:|]*\d\d", said
    )
    assert not re.findall(r"\bauthors[^.;:|]* logged [^.;:|]*\d\d", said)
    assert not re.findall(r"^\| *\*?paper\b(?!')[^\n]*\d\d", prose(page.read_text()), re.M)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("table-4", counterparts.AN_4),
        ("table-5", counterparts.AN_5),
        ("table-6-ant", counterparts.AN_6),
        ("table-6-racing", counterparts.AN_6),
        ("aa-table-3", counterparts.AA_3),
        ("aa-table-4", counterparts.AA_4),
        ("aa-noise", counterparts.AA_NOISE),
        ("nla-table-3", {**counterparts.NLA_BASELINE, **counterparts.NLA}),
        ("nla-table-4", {**counterparts.NLA_BASELINE, **counterparts.NLA}),
        ("ant-authors", counterparts.LOGGED),
        ("racing-authors", counterparts.LOGGED),
    ],
)
def test_result_files_have_what_is_published_beside_ours(name, rows):
    for row in json.loads((ROOT / "benchmarks/results" / f"{name}.json").read_text()):
        assert row["paper"] == str(rows.get(row["agent"], {}).get(row["perturbation"], "-"))


def test_tree_is_the_disk():
    said = re.findall(r"^  (\w+)/", place(README.read_text(), "tree").group(1), re.M)
    here = [
        path.name
        for path in (ROOT / "src/sensorium").iterdir()
        if path.is_dir() and (path / "__init__.py").exists()
    ]
    assert sorted(said) == sorted(here)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_exist(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target
