"""Make the files of places/: users, rates and round trips by country.

Reads files like those named in places/README.md.

[How to use places of your own](../places/README.md).
"""

import argparse
from pathlib import Path

from rich.console import Console

from testbed.basics.console import say
from testbed.basics.ending import VALID
from testbed.network.distilled_places import Sources, distil_places


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments."""
    for option, what in (
        ("users", "JSON: the share of Tor's users of each country"),
        ("round-trips", "CSV: pings between countries, their number, mean and deviation"),
        ("access-rates", "JSON: the rates of users' access links, by country"),
        ("cities", "JSON: cities with population, for countries' positions"),
        ("relays", "JSON: relays with their capacities"),
        ("consensus", "a consensus of the relays' time, for their weights"),
    ):
        parser.add_argument(f"--{option}", type=Path, required=True, metavar="FILE", help=what)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the files go")


def run(given: argparse.Namespace, messages: Console) -> int:
    """Make the files and print their names."""
    names = Sources.__dataclass_fields__
    sources = Sources(**{name: getattr(given, name) for name in names})
    for path in distil_places(sources, given.out):
        say(messages, f"made {path}")
    return VALID
