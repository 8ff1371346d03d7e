"""The documents: their files can be planned, their links work, their numbers are kept runs'.

test_shown_commands carries out their commands.
"""

import re
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from shown import DOCUMENTS, toml_blocks

from analysis.runs import Found, find_runs
from analysis.table import as_markdown
from papers.hydra.published import TABLE_4
from papers.hydra.tables import statements, table_4, two_clients
from testbed.asked.drawing import draw_scenario
from testbed.asked.plans import make_plan
from testbed.asked.scenario import SAMPLED
from testbed.basics.toml_file import PROJECT
from testbed.batch import read_batch
from testbed.results.columns import columns_markdown

EXAMPLES = PROJECT / "docs" / "examples"
_TEST = re.compile(r"\[(test_\w+)\]\(\.\./(tests/test_\w+\.py)\)")
_FIGURE = re.compile(r"-?\d+(?:\.\d+)?")
_LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]*))?\)")


def test_the_page_on_tables_is_made_of_the_rows() -> None:
    page = (PROJECT / "docs/tables.md").read_text(encoding="utf-8")
    assert page == columns_markdown(), "./run.py tables --columns > docs/tables.md"


def test_there_is_something_to_test() -> None:
    assert {name for name, _ in toml_blocks()} >= {"ThinLink.toml", "no-delay.toml"}


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
    for table in (table_4.table(kept), two_clients.table(kept)):
        assert table.rows
        assert not set(as_markdown(table).splitlines()) - set(document)
    # The windows alone need the runs' tables.
    said = as_markdown(statements.table(kept)).splitlines()
    assert all("window" in line for line in set(said) - set(document))


def test_the_readmes_table_is_that_of_the_kept_runs(kept: Found) -> None:
    """A scenario's throughput and round trip in one row, of today's Tor, without deviations."""
    readme = (PROJECT / "README.md").read_text(encoding="utf-8").splitlines()
    cells = {tuple(row[:3]): row[3:] for row in table_4.table(kept).rows}
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
        cells = [row[5:] for row in table_4.table(kept).rows if is_of(published, row)]
        assert told and told <= set(_FIGURE.findall(str(cells))), published


def test_each_figure_outside_the_published_deviation_has_its_cause(kept: Found) -> None:
    for row in table_4.table(kept).rows:
        told = set().union(*(told for published, told in what_differs() if is_of(published, row)))
        outside = {_FIGURE.findall(ours)[0] for ours in row[5:] if "*" not in ours}
        assert outside <= told, row[:3]
