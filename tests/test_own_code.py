"""The copy of the testbed's code for machines: named by its content, and equal from every clone."""

import marshal
import os
import shutil
import time
from pathlib import Path

import pytest

from testbed.machines.folders import Folders, seen_by_guest
from testbed.machines.virtual import INIT
from testbed.setup.environment import GUEST_FOLDER
from testbed.setup.own_code import GUEST_CODE, own_code

UNCHECKED_HASH = 0b01
PYC_HEADER_BYTES = 16


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HYDRA_CACHE", str(tmp_path / "cache"))
    return made(tmp_path / "project")


def made(folder: Path) -> Path:
    (folder / "testbed/inside/lab").mkdir(parents=True)
    (folder / "testbed/inside/tor/torrc").mkdir(parents=True)
    (folder / "testbed" / "__init__.py").touch()
    (folder / "testbed/inside/lab/links.py").write_text("def shape():\n    return 1\n")
    (folder / "testbed/inside/tor/torrc/all.torrc").write_text("Nickname $name\n")
    return folder


def test_what_was_copied_is_found_again(project: Path) -> None:
    copy = own_code(project)
    assert (copy / "testbed/inside/tor/torrc/all.torrc").read_text() == "Nickname $name\n"
    assert own_code(project) == copy
    (project / "testbed/inside/lab/links.py").write_text("def shape():\n    return 2\n")
    assert own_code(project) != copy
    assert (copy / "testbed/inside/lab/links.py").read_text() == "def shape():\n    return 1\n"


def test_compiled_as_the_guest_sees_it_and_never_compared(project: Path) -> None:
    (compiled,) = (own_code(project) / "testbed/inside/lab/__pycache__").iterdir()
    content = compiled.read_bytes()
    assert int.from_bytes(content[4:8], "little") == UNCHECKED_HASH
    code = marshal.loads(content[PYC_HEADER_BYTES:])
    assert code.co_filename == str(GUEST_CODE / "testbed/inside/lab/links.py")


def test_two_checkouts_and_caches_give_files_of_the_same_length(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = own_code(project)
    monkeypatch.setenv("HYDRA_CACHE", str(tmp_path / "another cache, with a longer name"))
    other = own_code(made(tmp_path / "another" / "place" / "of a project"))
    assert sizes(one) == sizes(other)
    assert len(sizes(one)) == 5


def test_what_is_compiled_has_the_paths_that_the_guest_sees(tmp_path: Path) -> None:
    """The set-up can't import `machines`, so it repeats these paths."""
    seen, _ = seen_by_guest(Folders(run=tmp_path, code=tmp_path))
    assert (seen.code, seen.environment) == (GUEST_CODE, GUEST_FOLDER)
    assert f'RUN = Path("{seen.run}")' in INIT.read_text(encoding="utf-8")


def sizes(folder: Path) -> dict[Path, int]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder): path.stat().st_size for path in files}


def test_old_copies_are_removed(project: Path) -> None:
    copy = own_code(project)
    long_ago = time.time() - 8 * 86_400
    os.utime(copy, (long_ago, long_ago))
    shutil.copytree(copy, copy.with_name("used-lately"))
    os.utime(copy.with_name("used-lately"))
    (project / "testbed" / "new.py").touch()
    new = own_code(project)
    assert {path.name for path in copy.parent.iterdir()} == {new.name, "used-lately"}
