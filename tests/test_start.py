"""The first page for users: its pictures and sentences are those of the report on its kept runs."""

import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from read_page import Page

from analysis.report import write_report
from analysis.runs import Found
from testbed.basics.toml_file import PROJECT

START = PROJECT / "docs" / "start.md"
ARCHIVE = PROJECT / "docs" / "start" / "shared-dropping.tar.xz"
PICTURES = sorted(ARCHIVE.parent.glob("*.png"))
MOST_BYTES = 500_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kept runs, and their report."""
    folder = tmp_path_factory.mktemp("tour")
    subprocess.run(["tar", "--extract", "--file", ARCHIVE, "--directory", folder], check=True)
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> Found:
    return write_report(folder, folder / "report" / "report.html")


def test_all_kept_runs_count(found: Found) -> None:
    assert (found.count, found.left_out, found.apart) == (6, [], [])


def test_pictures_are_those_of_the_report(found: Found, folder: Path) -> None:
    assert found
    assert len(PICTURES) == 3
    for picture in PICTURES:
        made = Image.open(folder / "report" / picture.name).convert("RGB")
        assert np.array_equal(np.array(made), np.array(Image.open(picture).convert("RGB")))
        assert f"(start/{picture.name})" in START.read_text(encoding="utf-8")


def test_quoted_sentences_are_those_of_the_report(found: Found, folder: Path) -> None:
    assert found
    said = Page((folder / "report" / "report.html").read_text(encoding="utf-8")).words
    quoted = [line[2:] for line in START.read_text(encoding="utf-8").split("\n") if line[:1] == ">"]
    assert quoted
    for sentence in quoted:
        assert sentence in said.replace("\n:", ":")


def test_what_is_kept_is_small_and_of_no_machine() -> None:
    assert sum(path.stat().st_size for path in ARCHIVE.parent.iterdir()) < MOST_BYTES
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            assert member.name.split("/")[0] == "SharedDropping"
            assert (member.uname, member.gname, member.uid, member.mtime) == ("", "", 0, 0)
            content = archive.extractfile(member)
            text = content.read() if content else b""
            assert b"/root/" not in text
            assert b"/home/" not in text
