"""What a module that runs inside a machine is told on its command line, and how it tells its error.

The command line is made in folders; the error is read in watching.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import TestbedError


def arguments_of(description: str | None) -> argparse.ArgumentParser:
    """A parser of what every such module is told; see `folders.Folders.command`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--tor", type=Path)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--network", type=Path)
    parser.add_argument("tgen", nargs="*", help="the command, after --")
    return parser


@contextmanager
def errors_told(directory: Path) -> Iterator[None]:
    """Leave the first error of the testbed in a file, and end with status 1."""
    try:
        yield
    except* TestbedError as errors:
        first = errors.exceptions[0]
        (directory / "error.txt").write_text(f"{first}\n")
        raise SystemExit(1) from errors
