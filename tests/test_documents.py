"""The documents: their files can be planned, their links work, their numbers are kept runs'.

test_shown_commands carries out their commands.
"""

import re
import shutil
import tomllib
from pathlib import Path

import pytest
from shown import DOCUMENTS, fenced, toml_blocks

from commands.reference import PAGES
from study.overview import ShownFile, check_verdict
from testbed.asked import keys_page
from testbed.asked.drawing import read_source
from testbed.asked.plans import make_plan
from testbed.asked.scenario import SAMPLED
from testbed.asked.variant_file import TorrcKeys
from testbed.basics.toml_file import PROJECT, read_model
from testbed.batch import read_batch
from testbed.results.summary import Summary

EXAMPLES = PROJECT / "docs" / "examples"
LONGEST_LINE = 100
MOST_WORDS = 1500
MOST_WORDS_TOGETHER = 20_000
_TEST = re.compile(r"\[(test_\w+)\]\(\.\./(tests/test_\w+\.py)\)")
_BLOCK = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]*))?\)")


SLOW = pytest.param("papers", marks=pytest.mark.slow)  # it reads all kept runs


def test_each_key_of_a_summary_is_explained() -> None:
    page = (PROJECT / "docs/measurements.md").read_text(encoding="utf-8")
    rows = [line for line in page.split("\n") if line.startswith("| `")]
    assert set(Summary.model_fields) <= set(re.findall(r"`(\w+)`", "\n".join(rows)))


@pytest.mark.parametrize("name", [SLOW if name == "papers" else name for name in PAGES])
def test_a_page_of_reference_is_made_of_the_code(name: str) -> None:
    page = (PROJECT / f"docs/{name}.md").read_text(encoding="utf-8")
    assert page == PAGES[name](), f"./run.py reference {name} > docs/{name}.md"


def test_each_key_of_a_users_file_is_described() -> None:
    for model in keys_page.MODELS:
        for name, field in model.model_fields.items():
            assert field.description or (model, name) == (TorrcKeys, "all"), f"{model}: {name}"


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
    elif "shows" in tomllib.loads(text):
        for row in read_model(file, ShownFile).shows:
            check_verdict(row, name)
    elif tomllib.loads(text).get("topology") == SAMPLED:
        assert read_source(str(file)).draw(1).scenario == file.stem
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
            anchors = [re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in titles]
            assert heading in anchors


def test_what_needs_python_is_a_script() -> None:
    """Which a reader can read, and a test carries out; not a line of code in a line of a shell."""
    for document in DOCUMENTS:
        assert "python -c" not in document.read_text(encoding="utf-8"), document.name


def test_examples_fit_a_screen() -> None:
    """What a program prints, in blocks without a language, is as it printed it."""
    for document in DOCUMENTS:
        for language, text in fenced(document):
            longest = max(text.splitlines(), key=len)
            assert not language or len(longest) <= LONGEST_LINE, f"{document.name}: {longest}"


def words_in(document: Path) -> int:
    """The words outside of blocks."""
    text = _BLOCK.sub("", document.read_text(encoding="utf-8"))
    return sum(1 for word in text.split() if re.search(r"\w", word))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_no_page_takes_more_than_some_minutes(document: Path) -> None:
    """What is looked up in pages made of the code may be longer."""
    name = str(document.relative_to(PROJECT))
    if name == "CHANGELOG.md" or name in {f"docs/{page}.md" for page in PAGES}:
        return
    assert words_in(document) <= MOST_WORDS, name


def test_all_that_users_may_read_takes_less_than_two_hours() -> None:
    """README, CONTRIBUTING and docs, without what is made of the code."""
    pages = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *(PROJECT / "docs").glob("*.md")]
    words = {str(page): words_in(page) for page in pages if page.stem not in PAGES}
    assert sum(words.values()) <= MOST_WORDS_TOGETHER, words


def test_named_tests_exist() -> None:
    text = (PROJECT / "docs" / "reliability.md").read_text(encoding="utf-8")
    named = _TEST.findall(text)
    assert len(named) > 30
    for name, file in named:
        assert f"\ndef {name}(" in (PROJECT / file).read_text(encoding="utf-8"), name


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len((PROJECT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_the_readmes_answer_is_that_of_the_study() -> None:
    """Its two ranges of percents are those of the study's page, which is made of kept runs."""
    spans = [
        re.findall(r"[\d.]+ to [\d.]+ %", (PROJECT / page).read_text(encoding="utf-8"))
        for page in ("README.md", "studies/hydra/README.md")
    ]
    assert len(spans[0]) == 2
    assert spans[0] == spans[1][:2]
