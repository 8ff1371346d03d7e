"""How the consensuses that a user names are found: by name, or in files, folders and archives.

Several documents are read on all cores; `testbed.network.consensus` reads one.
"""

import multiprocessing
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path

from testbed.basics.errors import InputError
from testbed.basics.toml_file import suggestion
from testbed.network import distilled
from testbed.network.consensus import Consensus, parse_document, read_document

Reading = tuple[str, Path | bytes]
"""A consensus's name, and its file or the content of an archive's member."""

_READ_AT_ONCE = 64
"""The most documents in memory, as an archive of a month has 2 GB."""


def read_consensuses(
    names: Sequence[str], tell: Callable[[int], None] = lambda _: None
) -> list[Consensus]:
    """Read the consensuses that a user names, in the order of time.

    Args:
        names: names of consensuses that come with the project, or paths of documents, of distilled
            ones, of folders with either, or of tar archives of documents; if empty, all that come
            with the project.
        tell: called with the number of consensuses read so far.

    Raises:
        InputError: a name is unknown, or a file can't be read or is damaged.
    """
    if not names:
        names = distilled.names()
        if not names:
            raise InputError(f"{distilled.CONSENSUSES} is empty: name a consensus to read")
    readings = chain.from_iterable(map(_readings, names))
    found: list[Consensus] = []
    with _executor_for(names) as executor:
        while some := list(islice(readings, _READ_AT_ONCE)):
            read = executor.map(_read, some) if executor else map(_read, some)
            for consensus in read:
                found.append(consensus)
                tell(len(found))
    if not found:
        raise InputError(f"there is no consensus in {', '.join(names)}")
    return sorted(found, key=lambda consensus: consensus.valid_after)


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def processes() -> ProcessPoolExecutor:
    """Start processes for all cores: fresh ones, as Polars's threads don't survive a fork."""
    return ProcessPoolExecutor(cores(), mp_context=multiprocessing.get_context("spawn"))


@contextmanager
def _executor_for(names: Sequence[str]) -> Iterator[Executor | None]:
    """Processes if there are several documents, as starting them takes as long as reading one."""
    documents = [one for one in names if one not in distilled.names()]
    if cores() == 1 or (len(documents) < 3 and not any(map(_holds_many, documents))):
        yield None
        return
    with processes() as executor:
        yield executor


def _holds_many(name: str) -> bool:
    return Path(name).is_dir() or ".tar" in name


def _readings(name: str) -> Iterator[Reading]:
    if name in distilled.names():
        yield name, distilled.CONSENSUSES / f"{name}{distilled.SUFFIX}"
        return
    path = Path(name).expanduser()
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file() and _may_be_one(file))
        for file in files:
            yield from _in_file(file)
    elif path.is_file():
        yield from _in_file(path)
    else:
        raise InputError(
            f'there is no consensus "{name}": give a name, a file or a folder;'
            f" {suggestion(path.name, distilled.names())}"
        )


def _may_be_one(file: Path) -> bool:
    return not file.name.startswith(".") and file.suffix not in (".md", ".txt")


def _in_file(file: Path) -> Iterator[Reading]:
    if ".tar" not in file.suffixes:
        yield str(file), file
        return
    try:
        with tarfile.open(file) as archive:
            for member in archive:
                content = archive.extractfile(member)
                if content is not None:
                    yield f"{file}: {member.name}", content.read()
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InputError(f"{file}: the archive can't be read: {error}") from error


def _read(reading: Reading) -> Consensus:
    name, where = reading
    if isinstance(where, bytes):
        return parse_document(name, where).consensus
    if where.suffix == distilled.SUFFIX:
        return distilled.read_distilled(where, name)
    return read_document(where).consensus
