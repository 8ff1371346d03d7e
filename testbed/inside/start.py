"""The command line of modules that run inside a machine, and the file with their error.

`machines.folders` makes the command line; `machines.watching` reads the error.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.basics.errors import TestbedError


def arguments_of(description: str | None) -> argparse.ArgumentParser:
    """A parser for the arguments of every such module; see `machines.folders.Folders.command`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--tor", type=Path)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--network", type=Path)
    parser.add_argument("tgen", nargs="*", help="the command, after --")
    return parser


@contextmanager
def errors_reported(directory: Path) -> Iterator[None]:
    """Write the first error of the testbed to a file, and exit with status 1."""
    try:
        yield
    except* TestbedError as errors:
        first = errors.exceptions[0]
        (directory / "error.txt").write_text(f"{first}\n")
        raise SystemExit(1) from errors
