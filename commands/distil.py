"""Make small files from consensus documents, without addresses and names.

consensuses/README.md describes these files.

[How to use a consensus of your own](../consensuses/README.md).
"""

import argparse
from pathlib import Path

from rich.console import Console

from testbed.basics.console import say
from testbed.basics.ending import VALID
from testbed.network.distilled import distil


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments."""
    parser.add_argument(
        "documents", nargs="+", type=Path, metavar="DOCUMENT", help="a consensus of either flavour"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the files go")
    parser.add_argument(
        "--policies-from",
        nargs="+",
        type=Path,
        default=[],
        metavar="DOCUMENT",
        help="documents with the exit policies that the others lack, joined by relays' keys",
    )
    parser.add_argument(
        "--geoip", type=Path, metavar="FILE", help="Tor's geoip file, for the relays' countries"
    )


def run(given: argparse.Namespace, messages: Console) -> int:
    """Make the files and print their names."""
    made = distil(given.documents, given.out, policies=given.policies_from, countries=given.geoip)
    for path in made:
        say(messages, f"made {path}")
    return VALID
