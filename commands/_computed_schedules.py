"""Prints what `flashflow` computes: schedules of the live network's relays, and liars' gains."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from flashflow.liars import liars
from flashflow.live import Schedule
from flashflow.parameters import PAPER, Parameters
from flashflow.published import FACTOR_IN_SECTION_7, SECTION_7
from testbed.basics.console import say


def print_schedules(console: Console, found: Sequence[Schedule], by: Parameters) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    headings = (
        *("network", "relays", "capacity,\nGbit/s", "team,\nGbit/s", "slots,\nleast", "slots"),
        *("hours", "busy,\n%", "new relays\nwait, s"),
    )
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    table.add_row(*SECTION_7)
    for one in found:
        table.add_row(
            one.network,
            str(one.relays),
            f"{one.total_bit_per_s / 1e9:.0f}",
            f"{one.team_bit_per_s / 1e9:g}",
            str(one.least_slots),
            str(one.slots),
            f"{one.hours:.1f}",
            f"{one.busy_percent:.0f}",
            _waits(one),
        )
    console.print(table)
    say(console, f"f = {by.excess:.2f}. {FACTOR_IN_SECTION_7}")
    for one in found:
        if one.left_out:
            text = f"{one.network}: the period has no slot for {one.left_out} measurements"
            say(console, text)


def _waits(of: Schedule) -> str:
    """The median wait, and the longest in parentheses."""
    if of.new_median_wait_s is None:
        return "-"
    return f"{of.new_median_wait_s:.0f} ({of.new_longest_wait_s:.0f})"


def print_liars(as_json: bool) -> None:
    found = liars(PAPER)
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=1))
        return
    console = Console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("a relay that", "what", "value", "published"):
        table.add_column(heading, justify="right" if heading == "value" else "left")
    for one in found:
        table.add_row(one.does, one.what, _shown(one.value), one.published)
    console.print(table)


def _shown(value: float) -> str:
    return f"{value:.2f}" if value >= 0.01 else f"{value:.0e}"
