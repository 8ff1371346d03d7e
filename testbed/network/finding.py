"""Which consensuses a user means: names, files, folders and archives, in the order of time.

Documents are read on all cores if there are several; how one is read is said in its module.
"""

import multiprocessing
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path

from testbed.errors import InputError
from testbed.network import distilled
from testbed.network.consensus import Consensus, parse_document, read_document
from testbed.toml_file import suggestion

Reading = tuple[str, Path | bytes]
"""A consensus's name and where it is: a file, or the content of an archive's member."""

_READ_AT_ONCE = 64
"""So that an archive of a month's documents, 2 GB, is never in memory as a whole."""


def read_consensuses(
    said: Sequence[str], tell: Callable[[int], None] = lambda _: None
) -> list[Consensus]:
    """The consensuses that these words mean, in the order of time.

    Args:
        said: names of the project's, or paths of documents, of distilled ones, of folders of
            either, or of tar archives of documents; without any, all that come with the project.
        tell: is called with how many have been read.

    Raises:
        InputError: one of them is none, can't be read, or is damaged.
    """
    if not said:
        said = distilled.names()
        if not said:
            raise InputError(f"{distilled.CONSENSUSES} is empty: say which consensus to read")
    readings = chain.from_iterable(map(_readings, said))
    found: list[Consensus] = []
    with _executor_for(said) as executor:
        while some := list(islice(readings, _READ_AT_ONCE)):
            read = executor.map(_read, some) if executor else map(_read, some)
            for consensus in read:
                found.append(consensus)
                tell(len(found))
    if not found:
        raise InputError(f"there is no consensus in {', '.join(said)}")
    return sorted(found, key=lambda consensus: consensus.valid_after)


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


def processes() -> ProcessPoolExecutor:
    """Processes for all cores; fresh ones, as Polars's threads don't survive a fork."""
    return ProcessPoolExecutor(cores(), mp_context=multiprocessing.get_context("spawn"))


@contextmanager
def _executor_for(said: Sequence[str]) -> Iterator[Executor | None]:
    """Processes where documents are several: starting them takes as long as reading one."""
    documents = [one for one in said if one not in distilled.names()]
    if cores() == 1 or (len(documents) < 3 and not any(map(_holds_many, documents))):
        yield None
        return
    with processes() as executor:
        yield executor


def _holds_many(said: str) -> bool:
    return Path(said).is_dir() or ".tar" in said


def _readings(said: str) -> Iterator[Reading]:
    if said in distilled.names():
        yield said, distilled.CONSENSUSES / f"{said}{distilled.SUFFIX}"
        return
    path = Path(said).expanduser()
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file() and _may_be_one(file))
        for file in files:
            yield from _in_file(file)
    elif path.is_file():
        yield from _in_file(path)
    else:
        raise InputError(
            f'there is no consensus "{said}": give a name, a file or a folder;'
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
