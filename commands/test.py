"""Check format, lint and types, and run the tests.

Without --all these are all tests that need no virtual machine and take seconds, and one short real
run of each kind.

```sh
./run.py test
```

[What the tests are](../CONTRIBUTING.md#tests).
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence

from rich.console import Console

from commands.setup import get_ready
from testbed.basics.toml_file import PROJECT

QUICK = "kind or not (experiment or slow or alone or root or long)"
"""The marks of the tests that `test` runs; CONTRIBUTING.md says what they mean."""

IN_PARALLEL = ("pytest", "-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder")
"""A file's tests share a worker, and so their fixtures; files come in conftest's order."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what may be typed after `test`."""
    parser.add_argument(
        "--all", action="store_true", help="run all tests but those marked long (CONTRIBUTING.md)"
    )
    parser.add_argument(
        "arguments",
        nargs="*",
        help="for pytest, behind --, such as -- tests/test_plan.py; only pytest runs then",
    )


def run(given: argparse.Namespace, messages: Console) -> int:
    """Run the checks one after the other; the first that fails ends it."""
    get_ready(messages)
    checks = [["ruff", "format", "--check", "."], ["ruff", "check", "."], ["mypy"]]
    for check in [] if given.arguments else checks:
        if status := _run_tool(check):
            return status
    arguments = given.arguments or ["-m", "not long" if given.all else QUICK]
    return _run_tool([*IN_PARALLEL, *arguments])


def _run_tool(words: Sequence[str]) -> int:
    return subprocess.run([sys.executable, "-m", *words], cwd=PROJECT, check=False).returncode
