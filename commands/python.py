"""Start Python with the testbed's packages, for scripts that import hydra."""

import argparse
import os
import sys

from rich.console import Console

PARSER = {"add_help": False, "prefix_chars": "\0"}
"""All options are Python's, even --help."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments."""
    parser.add_argument("arguments", nargs="*")


def run(given: argparse.Namespace, _messages: Console) -> int:
    """Become the environment's Python, which has the testbed on its path."""
    os.execv(sys.executable, [sys.executable, *given.arguments])
