"""A study's page as HTML: what becomes of its links, tables, headings and figures."""

from pathlib import Path

import pytest
from command_line import refused, status_of
from read_page import Page as Read

from study.folder import Study, find_study
from study.page import HEAD, Page
from study.web_page import write_web_page
from testbed.basics.ending import VALID
from testbed.basics.toml_file import PROJECT

TEXT = f"""{HEAD.format(template="page.md")}# Which is faster?

**Neither**, as [another page](../../docs/links.md#rates) says; all is in [all.csv](all.csv).

## What came out

| variant | MB/s |
| --- | ---: |
| `vanilla` | 1.97 |

### In words

[Above](#what-came-out) <script>alert(1)</script>
"""


def written(text: str, folder: Path) -> str:
    study = find_study("hydra")
    write_web_page(study, Page(text, {"all.csv": "a,b\n"}, ()), folder / "page.html")
    return (folder / "page.html").read_text(encoding="utf-8")


def test_a_page_is_whole(tmp_path: Path) -> None:
    content = written(TEXT, tmp_path)
    read = Read(content)
    assert read.open == []
    assert read.tags.count("h1") == 1
    assert "<title>Which is faster?</title>" in content
    assert '<p class="lead"><strong>Neither</strong>' in content
    assert '<section id="what-came-out"><h2>What came out</h2>' in content
    assert '<li><a href="#what-came-out">What came out</a></li>' in content
    assert (tmp_path / "all.csv").read_text(encoding="utf-8") == "a,b\n"


def test_links_lead_to_the_projects_files(tmp_path: Path) -> None:
    addresses = Read(written(TEXT, tmp_path)).addresses
    (way,) = (one for one in addresses if "links.md" in one)
    assert (tmp_path / way.partition("#")[0]).resolve() == PROJECT / "docs" / "links.md"
    assert way.endswith("#rates")
    assert {"all.csv", "#what-came-out"} < {*addresses}


def test_tables_have_names_heads_and_numbers(tmp_path: Path) -> None:
    content = written(TEXT, tmp_path)
    assert '<div class="scroll" tabindex="0" role="region" aria-label="Table 1">' in content
    assert '<th scope="col">variant</th>' in content
    assert '<td class="number">1.97</td>' in content
    assert "<script>" not in content


@pytest.mark.slow
def test_the_command_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    study: Study = find_study("mitigations")
    assert status_of(["report", str(study.folder)]) == VALID
    file = Path("results/mitigations/page.html")
    assert f"page in {file}" in capsys.readouterr().err
    assert file.read_text(encoding="utf-8").count("<figure ") == 1
    assert file.with_name("gain-against-price.svg").is_file()
    wrong = ["report", str(study.folder), "--out", "page.md"]
    assert "give a file that ends in .html" in refused(wrong, monkeypatch, capsys)
