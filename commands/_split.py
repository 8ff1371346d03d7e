"""Prints how a network is divided among several kernels, and what that gives at most."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from testbed.asked.expected_load import CPU_S_PER_MB, expected_load, expected_rates
from testbed.asked.split import BARRIER_S, LEAST_WINDOW_MS, Split, split, splits
from testbed.basics.console import say
from testbed.plan.model import Plan
from testbed.plan.network import Kind

_KINDS: tuple[Kind, ...] = ("client", "relay", "server", "authority")
_SITES_SHOWN = 6
_NOTHING = "-"
_OF = "in"


def split_record(plan: Plan, parts: int) -> dict[str, Any]:
    """The split into so many parts as plain data, and what splits into 1, 2, 4, … parts give."""
    load_s = expected_load(plan)
    found = splits(plan, load_s)
    cores = [len(one.parts) for one in found]
    return {
        "expected_mb_per_s": sum(expected_rates(plan).values()),
        "split": split(plan, load_s, parts).record(),
        "computed": [
            {
                "kernels": len(one.parts),
                "window_ms": one.window_ms,
                "fullest": one.fullest,
                "links_across": one.links_across,
                "times_as_fast": {
                    number: one.times_as_fast(number)
                    for number in cores
                    if number <= len(one.parts)
                },
            }
            for one in found
        ],
    }


def print_split(console: Console, plan: Plan, parts: int) -> None:
    """Print the parts, and how much faster several kernels would be at most."""
    load_s = expected_load(plan)
    rate_mb_per_s = sum(expected_rates(plan).values())
    say(
        console,
        f"Expected load: {rate_mb_per_s:.1f} MB/s, {sum(load_s.values()):.2f} CPU s for a virtual"
        f" second ({CPU_S_PER_MB:g} for each MB)",
    )
    found = splits(plan, load_s)
    if len(found) == 1:
        say(
            console,
            "In one part: it can't be divided into groups of hosts that are"
            f" {LEAST_WINDOW_MS:g} ms or more apart",
        )
        return
    shown = split(plan, load_s, parts)
    if len(shown.parts) < parts:
        say(console, f"Not in {parts} parts: only {len(shown.parts)} are far enough apart")
    console.print(_parts(plan, shown))
    say(
        console,
        f"Computed: several kernels that meet after each window ({BARRIER_S * 1e6:.0f} µs), at most"
        " so many times as fast as one",
    )
    console.print(_computed(found))


def _parts(plan: Plan, shown: Split) -> Table:
    table = _table("part", "load,\n%", "clients", "relays", "servers", "authorities", _OF)
    total_s = sum(part.load_s for part in shown.parts)
    for number, part in enumerate(shown.parts, 1):
        nodes = [plan.node(name) for name in part.nodes]
        kinds = Counter(node.kind for node in nodes)
        sites = Counter(node.site for node in nodes if node.site and node.kind != "authority")
        names = [site for site, _ in sites.most_common(_SITES_SHOWN)]
        further = f" and {len(sites) - len(names)} more" if len(sites) > len(names) else ""
        table.add_row(
            str(number),
            f"{100 * part.load_s / total_s:.1f}",
            *(str(kinds[kind]) for kind in _KINDS),
            ", ".join(names) + further if names else ", ".join(part.nodes),
        )
    return table


def _computed(found: Sequence[Split]) -> Table:
    cores = [len(one.parts) for one in found]
    table = _table(
        "kernels",
        "window,\nms",
        "fullest\npart, %",
        "links\nacross",
        *(f"on {number}\ncore{'s' * (number > 1)}" for number in cores),
    )
    for one in found:
        table.add_row(
            str(len(one.parts)),
            _NOTHING if one.window_ms is None else f"{one.window_ms:.1f}",
            f"{100 * one.fullest:.1f}",
            str(one.links_across),
            *(
                f"{one.times_as_fast(number):.2f}" if number <= len(one.parts) else ""
                for number in cores
            ),
        )
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="left" if column == _OF else "right")
    return table
