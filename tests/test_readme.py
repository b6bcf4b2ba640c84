"""What README and docs say is true: the tree is the disk, scores are those of cards, results and papers."""

import functools
import inspect
import json
import re
import shlex
import subprocess
import sys
import textwrap

import pytest
import tyro

from sensorium import cli, recipes, zoo
from sensorium.reproduce import counterparts
from sensorium.reproduce import run as reproduce
from sensorium.reproduce.tables import fingerprint
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


@pytest.mark.parametrize(
    "name",
    [
        *("table-4", "table-5", "table-6-ant", "table-6-racing", "nla-table-3", "nla-table-4"),
        *("aa-table-3", "aa-table-4", "aa-noise"),
    ],
)
def test_results_are_those_of_the_agents_that_are_shipped(name):
    rows = json.loads((ROOT / "benchmarks/results" / f"{name}.json").read_text())
    weights = {(row["agent"], row.get("weights")) for row in rows if row["agent"] in zoo.names()}
    assert weights == {(agent, fingerprint(zoo.load(agent).policy)) for agent, _ in weights}


def test_tree_is_the_disk():
    said = re.findall(r"^  (\w+)/", place(README.read_text(), "tree").group(1), re.M)
    here = [
        path.name
        for path in (ROOT / "src/sensorium").iterdir()
        if path.is_dir() and (path / "__init__.py").exists()
    ]
    assert sorted(said) == sorted(here)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_images_exist(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


# Examples: each block of Python runs, each command is parsed, and run where it is quick

FENCE = re.compile(r"^( *)```(python|sh)\n(.*?)^ *```", re.M | re.S)
SOURCES = sorted((ROOT / "src/sensorium").rglob("*.py"))
PYTHON = [
    pytest.param(page, textwrap.dedent(block), id=f"{page.relative_to(ROOT)}")
    for page in [*PAGES, *SOURCES]
    for _, language, block in FENCE.findall(page.read_text())
    if language == "python"
]
PLACEHOLDERS = {
    "AGENT": "cartpole-pi",
    "RECIPE": "cartpole-pi",
    "NAME": "cartpole-pi",
    "N": "2",
    "I": "1",
}
"""What stands for whatever one has; other words in capitals are files, folders and addresses."""
SMALL = {
    "eval": ["--episodes", "2"],
    "show": ["--steps", "3"],
    "bench": ["--population", "2", "--rollouts", "1", "--rounds", "1"],
    "export": [],
    "zoo": [],
}
"""Commands that are run, with what makes them small; to train, to serve and to rebuild tables takes minutes,
and is what the tests of those commands do with small worlds."""


def commands():
    """Every command line of README, docs and the docstring of `sensorium.cli`, as words."""
    texts = [
        block
        for page in PAGES
        for _, language, block in FENCE.findall(page.read_text())
        if language == "sh"
    ]
    for page in PAGES:
        spans = re.findall(r"`(sensorium [a-z]+ [^`]*)`", prose(FENCE.sub("", page.read_text())))
        texts += [" ".join(span.split()) for span in spans if "..." not in span]
    texts += re.findall(r"sensorium (?:\S+ )*\S+", cli.__doc__)
    for line in "\n".join(texts).splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["sensorium"]:
            yield tuple(PLACEHOLDERS.get(word, word) for word in words[1:])


COMMANDS = sorted(set(commands()))


def test_the_help_names_every_table_that_can_be_rebuilt():
    named = re.search(r"table: One of (.*?)\.\n", inspect.getdoc(cli.reproduce), re.S).group(1)
    assert sorted(re.split(r",\s+", named)) == sorted(reproduce.TABLES)


def test_examples_were_found():
    assert len(PYTHON) >= 7
    assert {words[0] for words in COMMANDS} == set(cli.COMMANDS)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_of_the_docs_is_understood(words, monkeypatch):
    """Flags and values are parsed as `main` does, and agents, recipes and tables of these names exist."""

    def only_parsed(command):
        @functools.wraps(command)
        def record(*arguments, **options):
            return inspect.signature(command).bind(*arguments, **options).arguments

        return record

    stubs = {name: only_parsed(command) for name, command in cli.COMMANDS.items()}
    asked = tyro.extras.subcommand_cli_from_dict(stubs, prog="sensorium", args=words)
    for argument, known in {
        "recipe": recipes.RECIPES,
        "table": reproduce.TABLES,
        "agent": {*zoo.names(), *recipes.RECIPES},
        "expert": zoo.names(),
        "start": zoo.names(),
    }.items():
        value = asked.get(argument)
        # A run, a file or a module is what another command or the reader makes
        if value is not None and not set("/.:") & set(str(value)):
            assert value in known, f"{argument}: {value}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which the quick commands about CartPole have been run, all in one new process."""
    folder = tmp_path_factory.mktemp("examples")
    quick = [
        [*words, *SMALL[words[0]]]
        for words in COMMANDS
        if words[0] in SMALL and not re.search("ant|carracing|gym:|json", " ".join(words))
    ]
    script = (
        "import json, sys; from sensorium.cli import main\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    sys.argv = ['sensorium', *words]; print(words, flush=True); main()\n"
    )
    run_in(folder, "-c", script, json.dumps(quick))
    return folder


def run_in(folder, *arguments):
    """Run Python in a new process there; what it printed is in the message if it fails."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def test_quick_commands_write_what_the_docs_say(folder):
    assert (folder / "agent.onnx").is_file()
    assert (folder / "out.mp4").is_file()


RUN_EXAMPLES = """
import json, runpy, sys, traceback
import sensorium.rollout.host

sensorium.rollout.host.usable_cores = lambda: 0  # as in conftest.py
failures = []
for number in range(int(sys.argv[1])):
    try:
        runpy.run_path(f"example{number}.py", run_name="__main__")
        failures.append(None)
    except BaseException:
        failures.append(traceback.format_exc())
with open("failures.json", "w") as file:
    json.dump(failures, file)
"""


@pytest.fixture(scope="module")
def failures(folder):
    """Why each example failed, or None; all run in one new process, each as a script of its own."""
    for number, example in enumerate(PYTHON):
        (folder / f"example{number}.py").write_text(example.values[1])
    run_in(folder, "-c", RUN_EXAMPLES, str(len(PYTHON)))
    return json.loads((folder / "failures.json").read_text())


@pytest.mark.parametrize("number", range(len(PYTHON)), ids=[example.id for example in PYTHON])
def test_python_of_the_docs_runs(number, failures):
    assert failures[number] is None, failures[number]
