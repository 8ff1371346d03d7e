"""What the documents show: files that can be planned, commands that exist, links that lead on.

Whether their figures are right is said by the command beside each.
"""

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from string import Template

import pytest
from made_runs import Made

from analysis.runs import Found, find_runs
from analysis.tables import as_markdown
from papers.hydra import tables
from papers.hydra.published import TABLE_4
from testbed import cli
from testbed.batch import read_batch
from testbed.drawing import draw_scenario
from testbed.plan import make_plan
from testbed.repeats import paired_plans
from testbed.results import read_run
from testbed.scenario import SAMPLED
from testbed.setup import builds
from testbed.toml_file import PROJECT

DOCUMENTS = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/*.md")])
EXAMPLES = PROJECT / "docs" / "examples"
LOOP_VARIABLES = {
    "scenario": "NoDropping",
    "variant": "vanilla",
    "seed": "1",
    "packets": "1000",
    "loss": "0.2",
    "clients": "4",
}

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FIRST_COMMENT = re.compile(r"# (\S+\.toml)\n")
_TEST = re.compile(r"\[(test_\w+)\]\(\.\./(tests/test_\w+\.py)\)")
_FIGURE = re.compile(r"-?\d+(?:\.\d+)?")
_LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]*))?\)")


def blocks(document: Path, language: str) -> Iterator[str]:
    for found, text in _BLOCK.findall(document.read_text(encoding="utf-8")):
        if found == language:
            yield text


def toml_blocks() -> list[tuple[str, str]]:
    """The file's name, which its first line says, and the text of each."""
    found = []
    for document in DOCUMENTS:
        for text in blocks(document, "toml"):
            name = _FIRST_COMMENT.match(text)
            assert name, f"{document.name}: a TOML block without its file's name: {text}"
            found.append((name[1], text))
    return found


def commands(documents: Iterable[Path] = DOCUMENTS) -> list[str]:
    """Every `./run.py …` of the documents' shell blocks that is whole in one line."""
    lines = {
        line.removeprefix("sudo ").strip()
        for document in documents
        for text in blocks(document, "sh")
        for line in text.splitlines()
    }
    return sorted(line for line in lines if line.startswith("./run.py"))


def test_there_is_something_to_test() -> None:
    assert {name for name, _ in toml_blocks()} >= {"ThinLink.toml", "no-delay.toml"}
    assert "./run.py scenario SharedDropping --variant pctls" in commands()


@pytest.mark.parametrize(("name", "text"), toml_blocks(), ids=lambda value: value[:20])
def test_shown_files_can_be_planned(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    for patch in tomllib.loads(text).get("patches", []):
        shutil.copy(EXAMPLES / patch, tmp_path)
    for policy in EXAMPLES.glob("*.py"):
        shutil.copy(policy, tmp_path)
    if "runs" in tomllib.loads(text):
        for other_name, other in toml_blocks():
            (tmp_path / other_name).write_text(other, encoding="utf-8")
        shutil.copy(EXAMPLES / "no-delay.patch", tmp_path)
        assert read_batch(str(file)).plans
    elif tomllib.loads(text).get("topology") == SAMPLED:
        assert draw_scenario(str(file), 1).scenario == file.stem
    elif "topology" in tomllib.loads(text):
        assert make_plan(str(file), "vanilla").scenario == file.stem
    else:
        assert make_plan("NoDropping", str(file)).variant == file.stem


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda file: file.name)
def test_example_files_are_as_shown(file: Path) -> None:
    shown = [tomllib.loads(text) for name, text in toml_blocks() if name == file.name]
    assert tomllib.loads(file.read_text(encoding="utf-8")) in shown


@pytest.mark.parametrize("line", commands())
def test_shown_commands_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    for name, text in toml_blocks():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for name, copy in (("Two", "Two-1000"), ("NoDropping", "NoDropping-of-two")):  # made by sed
        shutil.copy(PROJECT / "scenarios" / f"{name}.toml", tmp_path / f"{copy}.toml")
    for variant in ("vanilla", "pctls"):
        shutil.copy(EXAMPLES / "pctls-no-delay.toml", tmp_path / f"{variant}-at-once.toml")
    shutil.copy(EXAMPLES / "no-delay.patch", tmp_path)
    (tmp_path / "docs").symlink_to(PROJECT / "docs")
    monkeypatch.chdir(tmp_path)
    words = shlex.split(Template(line).substitute(LOOP_VARIABLES), comments=True)
    given = cli._parser().parse_args(words[1:])
    if given.command is cli._scenario:
        plan = make_plan(
            given.scenario,
            given.variant,
            duration=given.duration,
            traffic=given.traffic,
            changes=dict(given.set),
        )
        assert plan.duration_s > 0
    if given.command is cli._compare:
        variants = [given.first, *given.others]
        assert paired_plans(
            given.scenario, variants, 1, duration=given.duration, traffic=given.traffic
        )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target, heading in _LINK.findall(document.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        file = (document.parent / target) if target else document
        assert file.exists(), f"{document.name}: {target}"
        if heading:
            text = file.read_text(encoding="utf-8")
            titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            assert heading in [title.lower().replace(" ", "-") for title in titles]


def test_named_tests_exist() -> None:
    text = (PROJECT / "docs" / "reliability.md").read_text(encoding="utf-8")
    named = _TEST.findall(text)
    assert len(named) > 30
    for name, file in named:
        assert f"\ndef {name}(" in (PROJECT / file).read_text(encoding="utf-8"), name


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len((PROJECT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """The runs behind results.md, as far as they are kept."""
    folder = tmp_path_factory.mktemp("kept")
    archive = PROJECT / "docs" / "runs" / "table-4.tar.xz"
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", folder], check=True)
    return find_runs(folder / "hydra", whole=False)


def test_the_published_tables_are_those_of_the_kept_runs(kept: Found) -> None:
    document = (PROJECT / "docs" / "results.md").read_text(encoding="utf-8").splitlines()
    assert not kept.left_out
    for table in (tables.table_4(kept), tables.two_clients_table(kept)):
        assert table.rows
        assert not set(as_markdown(table).splitlines()) - set(document)
    # The windows alone need the runs' tables.
    statements = as_markdown(tables.statements_table(kept)).splitlines()
    assert all("window" in line for line in set(statements) - set(document))


def test_the_readmes_table_is_that_of_the_kept_runs(kept: Found) -> None:
    """A scenario's throughput and round trip in one row, of today's Tor, without deviations."""
    readme = (PROJECT / "README.md").read_text(encoding="utf-8").splitlines()
    cells = {tuple(row[:3]): row[3:] for row in tables.table_4(kept).rows}
    for names in TABLE_4:
        shown = [*names]
        for unit in ("MB/s", "ms"):
            paper, _, packets, _, bundles, _ = cells[*names, unit]
            shown += [paper, *(re.sub(r" ± [\d.]+", "", ours) for ours in (packets, bundles))]
        assert f"| {' | '.join(shown)} |" in readme


def what_differs() -> list[tuple[str, set[str]]]:
    """The rows of that table in results.md: what is published, and our figures beside it."""
    document = (PROJECT / "docs" / "results.md").read_text(encoding="utf-8")
    section = document.split("\n## What differs, and why\n\n")[1].split("\n\n")[0]
    rows = [line.split(" | ") for line in section.splitlines()[2:]]
    return [
        (published, set(_FIGURE.findall(here.replace("Tor of 2021", ""))))
        for published, here, _cause in rows
    ]


def is_of(published: str, row: Sequence[str]) -> bool:
    """Whether a row of what differs is of the variant and scenario of a row of Table 4."""
    variant, scenario = row[:2]
    return variant in published and (scenario in published or "all three" in published)


def test_what_differs_has_the_tables_figures(kept: Found) -> None:
    for published, told in what_differs():
        cells = [row[5:] for row in tables.table_4(kept).rows if is_of(published, row)]
        assert told and told <= set(_FIGURE.findall(str(cells))), published


def test_each_figure_outside_the_published_deviation_has_its_cause(kept: Found) -> None:
    for row in tables.table_4(kept).rows:
        told = set().union(*(told for published, told in what_differs() if is_of(published, row)))
        outside = {_FIGURE.findall(ours)[0] for ours in row[5:] if "*" not in ours}
        assert outside <= told, row[:3]


# Carried out, as whoever runs the tests; by .ci/run that is an ordinary user.

FOR_ALL = [
    *(PROJECT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(PROJECT / "docs" / f"{name}.md" for name in ("commands", "scenarios", "variants")),
]
TAKE_MINUTES = {"scenario", "compare", "batch", "shell", "calibrate", "bench", "test", "verify"}
"""Unless they are told to do only a part (--dry-run, -k)."""
PATIENCE_S = 400.0


def takes_seconds(line: str) -> bool:
    words = line.split()
    return words[1] not in TAKE_MINUTES or "--dry-run" in words or "-k" in words


def carried_out(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Carry out a command where the project's files seem to be, with what a login gives."""
    for path in PROJECT.iterdir():
        if path.name != "results":
            (folder / path.name).symlink_to(path)
    for name, text in toml_blocks():
        if not (folder / name).exists():
            (folder / name).write_text(text, encoding="utf-8")
    kept = ("HOME", "USER", "LOGNAME", "LANG", "HYDRA_CACHE", "XDG_CACHE_HOME")
    login = {name: os.environ[name] for name in kept if name in os.environ}
    return subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env=login | {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("line", [one for one in commands(FOR_ALL) if takes_seconds(one)])
def test_shown_commands_that_take_seconds(tmp_path: Path, line: str) -> None:
    if not {"tor", "linux"} <= {build.metadata["name"] for build in builds.all_finished()}:
        pytest.skip("not set up here: run ./run.py setup first")
    for variant in ("vanilla", "pctls"):
        Made(variant=variant).write(tmp_path / "results" / "hydra")
    done = carried_out(line, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.experiment
@pytest.mark.parametrize("line", [one for one in commands(FOR_ALL) if "--out /tmp/" in one])
def test_a_newcomers_first_runs(tmp_path: Path, line: str) -> None:
    """As CONTRIBUTING shows them, but shorter and elsewhere."""
    shorter = line.replace('"20 s"', '"4 s"').replace("/tmp/", f"{tmp_path}/out-")
    assert len({line, shorter}) == 2
    done = carried_out(shorter, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (out,) = tmp_path.glob("out-*")
    assert read_run(out).summary.valid
