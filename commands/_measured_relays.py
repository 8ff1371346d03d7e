"""What commands that measure a network's relays share: options, the table, what is said below."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from commands import _options
from flashflow.errors import capacity_error, weight_error
from flashflow.lab import Outcome
from testbed.basics.console import say

_HEADINGS = ("relay", "carries,\nMbit/s", "measured", "less, %", "measurements", "cells\nchecked")
_OF_CLIENTS = ("clients before,\nMbit/s", "meanwhile", "after")


def add_measuring(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the options for the bandwidth file and for clients' traffic meanwhile."""
    parser.add_argument(
        "--v3bw",
        type=Path,
        metavar="FILE",
        help=f"the bandwidth file (default: results/{command}/SCENARIO/seed-N.v3bw)",
    )
    parser.add_argument(
        "--clients",
        type=_options.whole(0),
        default=0,
        metavar="N",
        help="so many of the scenario's clients have traffic while relays are measured (default: 0,"
        " an idle network)",
    )


def print_outcomes(console: Console, found: Sequence[Outcome]) -> None:
    """Print a row for each relay, and a line for each result that doesn't hold.

    Where clients had traffic, the medians of what the relay reported of it are shown, too.
    """
    has_clients = any(one.before_bit_per_s for one in found)
    has_liars = any(one.lie is not None for one in found)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    headings = (
        *_HEADINGS,
        *(_OF_CLIENTS if has_clients else ()),
        *(("lie",) if has_liars else ()),
    )
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    for one in found:
        cells = ("-", "-")
        if one.bit_per_s is not None and one.error_percent is not None:
            cells = (f"{one.bit_per_s / 1e6:.2f}", f"{-one.error_percent:.1f}")
        carries = f"{one.true_bit_per_s / 1e6:.2f}"
        row = (one.relay, carries, *cells, str(one.measurements), str(one.checked))
        table.add_row(
            *row,
            *(_of_clients(one) if has_clients else ()),
            *((_lie(one),) if has_liars else ()),
        )
    console.print(table)
    for one in found:
        if one.problem:
            say(console, one.problem)
        elif not one.holds:
            say(console, f"{one.relay}: the result doesn't hold: its measurers had too little")
    if measured := [(one.true_bit_per_s, one.bit_per_s) for one in found if one.bit_per_s]:
        true, results = zip(*measured, strict=True)
        say(console, network_errors(true, results, results))


def network_errors(
    true: Sequence[float], estimated: Sequence[float], weights: Sequence[float]
) -> str:
    """The line on the whole network: the errors of its capacity and its weights.

    Args:
        true, estimated: each relay's capacity, in the same unit.
    """
    capacity, weight = capacity_error(estimated, true), weight_error(weights, true)
    return f"network: capacity error {100 * capacity:.1f} %, weight error {100 * weight:.1f} %"


def _lie(one: Outcome) -> str:
    """What a relay lies about; for one with capacity at times, in which share of the slots."""
    if isinstance(one.lie, float):
        return f"{100 * one.lie:g} % of slots"
    return one.lie or ""


def _of_clients(one: Outcome) -> tuple[str, ...]:
    """Clients' traffic before, during and after a measurement: the medians of the seconds."""
    parts = (one.before_bit_per_s, one.background_seconds_bit_per_s, one.after_bit_per_s)
    return tuple(f"{median(part) / 1e6:.2f}" if part else "-" for part in parts)
