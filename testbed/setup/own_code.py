"""The testbed's own code for machines: a compiled copy in the cache, named by its content.

So a run keeps the code that it started with, whatever is edited meanwhile. And it sees nothing of
the clone: Python compares the times of a source and its compiled file, and compiling again would
cost virtual time.
"""

import hashlib
import os
import py_compile
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from testbed.basics import cache
from testbed.basics.toml_file import PROJECT

IN_THE_MACHINE = ("basics", "plan", "inside")
"""The rooms of `testbed` whose code runs in a machine, which sees nothing else of the project."""

GUEST_CODE = Path("/run/testbed/code")
"""Where the virtual machine sees the copy. Python writes these paths into compiled files, whose
size can change when the guest's kernel has work to do."""

_KEPT_S = 7 * 86_400.0
"""How long an unused copy is kept: longer than any run."""


def own_code(project: Path = PROJECT) -> Path:
    """Return the folder of the copy; make the copy first if the cache lacks this content.

    It gets its name last, so it is there whole or not at all.
    """
    files = sorted(_files(project))
    copies = cache.subfolder("code")
    copy = copies / _key(project, files)
    if not copy.exists():
        with tempfile.TemporaryDirectory(dir=copies, prefix=".partial-") as partial:
            _fill(Path(partial, "copy"), project, files)
            _take_place(Path(partial, "copy"), copy)
        _sweep(copies, copy)
    os.utime(copy)
    return copy


def _files(project: Path) -> Iterator[Path]:
    yield project / "testbed/__init__.py"
    for room in IN_THE_MACHINE:
        for path in (project / "testbed" / room).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def _key(project: Path, files: list[Path]) -> str:
    """A key of the content and of the Python version, for which the files are compiled."""
    total = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        total.update(f"{path.relative_to(project)}\0{len(content)}\0".encode() + content)
    return f"{total.hexdigest()[:16]}-{sys.implementation.cache_tag}"


def _fill(copy: Path, project: Path, files: list[Path]) -> None:
    for path in files:
        place = copy / path.relative_to(project)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
        if place.suffix == ".py":
            py_compile.compile(
                str(place),
                dfile=str(GUEST_CODE / path.relative_to(project)),  # not this user's path
                doraise=True,
                # Never compared with the source again, as neither can change.
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )


def _take_place(partial: Path, copy: Path) -> None:
    try:
        partial.rename(copy)
    except OSError:  # another process has made the same copy
        if not copy.exists():
            raise


def _sweep(copies: Path, but: Path) -> None:
    """Remove copies that are long unused, and the remains of copies of killed processes."""
    for path in copies.iterdir():
        with suppress(FileNotFoundError):  # another process has removed it
            if path != but and time.time() - path.stat().st_mtime > _KEPT_S:
                shutil.rmtree(path, ignore_errors=True)
