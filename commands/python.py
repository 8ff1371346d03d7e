"""Start Python with the testbed's packages, for scripts that import hydra.

All arguments are Python's own ([what scripts can do](python.md)).

```sh
./run.py python -m pydoc hydra
```
"""

import argparse
import os
import sys

from rich.console import Console

PARSER = {"add_help": False, "prefix_chars": "\0"}
"""All options are Python's, even --help."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments."""
    parser.add_argument("arguments", nargs="*", help="as Python has them")


def run(given: argparse.Namespace, _messages: Console) -> int:
    """Become the environment's Python, which has the testbed on its path."""
    os.execv(sys.executable, [sys.executable, *given.arguments])
