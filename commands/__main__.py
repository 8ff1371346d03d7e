"""Finds the command that a user typed, runs it, and turns its errors into messages and statuses.

Only the typed command's file is imported, so no command waits for another's libraries.
"""

import argparse
import ast
import errno
import importlib
import os
import re
import select
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from rich.console import Console

from testbed.basics.console import say
from testbed.basics.ending import FAILED, INTERRUPTED, end_on_signals
from testbed.basics.errors import InputError, TestbedError, reason_of

_DISK_REFUSES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
"""Errors of the system and not of the program, so a traceback would not help."""


def main(words: Sequence[str]) -> int:
    """Run one command, and return its exit status."""
    end_on_signals()
    given = parser(words).parse_args(words)
    messages = Console(stderr=True)
    try:
        status: int = given.command(given, messages)
        sys.stdout.flush()
    except TestbedError as error:
        say(messages, f"run.py: {error}")
        return error.exit_status
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            return FAILED
        if error.errno not in _DISK_REFUSES:
            raise
        say(messages, f"run.py: {reason_of(error, Path.cwd())}")
        return FAILED
    except KeyboardInterrupt:
        say(messages, "run.py: interrupted; nothing half-done was left")
        return INTERRUPTED
    return status


def command_files() -> dict[str, Path]:
    """The commands' files, by the names that users type."""
    files = sorted(Path(__file__).parent.glob("[!_]*.py"))
    return {file.stem.replace("_", "-"): file for file in files}


def parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """A parser that knows all commands by name, and the typed command's options."""
    parser = _Parser(
        prog="run.py", description="Try changes to Tor in private networks on emulated links."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for name, file in command_files().items():
        what, *more = docstring(file).split("\n\n")
        command = _module(file) if name in words else None
        options = commands.add_parser(
            name,
            help=what,
            description=" ".join([what, *map(_plain, more[:1])]),
            epilog=getattr(command, "EPILOG", None),
            **getattr(command, "PARSER", {}),
        )
        if command:
            command.add_options(options)
            options.set_defaults(command=command.run)
    return parser


def docstring(file: Path) -> str:
    """Read what a command's file says of it: the help, what `--help` says, and Markdown."""
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


def _plain(paragraph: str) -> str:
    """Take the links out of a paragraph; nothing is left of a block."""
    if paragraph.startswith("```"):
        return ""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))


def _module(file: Path) -> ModuleType:
    return importlib.import_module(f"commands.{file.stem}")


def _nobody_reads() -> bool:
    """Whether the output is a pipe whose reader has ended, such as `head`.

    If so, all further output is discarded, so it can't fail again at the end.
    """
    reader = select.poll()
    reader.register(sys.stdout, 0)
    gone = any(event & select.POLLERR for _, event in reader.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return gone


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line with exit status 2, like the testbed's own."""

    def error(self, message: str) -> NoReturn:
        self.exit(InputError.exit_status, f"{self.prog}: {message} (see {self.prog} --help)\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
