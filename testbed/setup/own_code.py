"""The testbed's own code as machines get it: a copy in the cache, compiled, named by its content.

A run so has the code that it began with, whatever is edited meanwhile. And it sees nothing of the
clone that the code comes from: Python goes by the times of files to see whether what it has
compiled is still right, and what it then does costs virtual time.
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

from testbed.setup import cache
from testbed.toml_file import PROJECT

_GLOBS = ("testbed/**/*.py", "tor-configs/torrc/*.torrc")
"""What is read inside a machine."""

GUEST_CODE = Path("/run/testbed/code")
"""Where the virtual machine sees the copy. Python writes such paths into what it compiles, and how
large the files are shows in when the guest's kernel has what to do."""

_KEPT_S = 7 * 86_400.0
"""How long a copy stays that nobody has asked for. No run lasts so long."""


def own_code(project: Path = PROJECT) -> Path:
    """The folder of the copy; made first where the cache has none of this content.

    It is there as a whole or not at all: it gets its name last.
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
    for pattern in _GLOBS:
        yield from project.glob(pattern)


def _key(project: Path, files: list[Path]) -> str:
    """What is compiled is for one version of Python only."""
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
                # Never compared with the source again: neither can change.
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )


def _take_place(partial: Path, copy: Path) -> None:
    try:
        partial.rename(copy)
    except OSError:  # another process had the same to copy
        if not copy.exists():
            raise


def _sweep(copies: Path, but: Path) -> None:
    """Remove copies that nobody has used for long, and what a killed process left of one."""
    for path in copies.iterdir():
        with suppress(FileNotFoundError):  # another process has removed it
            if path != but and time.time() - path.stat().st_mtime > _KEPT_S:
                shutil.rmtree(path, ignore_errors=True)
