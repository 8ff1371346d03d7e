"""Measure what a run costs this machine.

Processor time per MB that reached the clients; its ratio to what the same Tors and generators take
on the bare host, over a loopback that carries 64 kB at once and with packets of 1500 bytes; system
calls per MB, and wake-ups per packet. [What was found with it](performance.md).

```sh
./run.py bench --duration "60 s"
./run.py bench --network SmallNetwork --duration "60 s"
```

`--network` measures a network instead: the guest's memory, and the CPU seconds until it is
bootstrapped from nothing, until it is ready from its kept state, for a virtual minute without
traffic, and for each MB.
"""

import argparse
import json
from collections import defaultdict

from rich.console import Console
from rich.table import Table

from commands import _options
from testbed.basics.console import say
from testbed.basics.ending import VALID
from testbed.basics.errors import InputError
from testbed.inside.idle import SETTLING_S
from testbed.runs import bench, bench_network
from testbed.runs.bare_host import BareCost
from testbed.runs.bench import Bench
from testbed.runs.bench_network import NetworkCost

_MOST_KINDS = 8
_NO_OWN_NETWORK = (
    "not measured with packets of 1500 bytes: this kernel lets ordinary users create no network"
    " of their own (user namespaces)"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments."""
    parser.add_argument(
        "--duration",
        help="the measured run's duration (default: 60 s; with --network the scenario's)",
    )
    parser.add_argument(
        "--network", metavar="SCENARIO", help="measure the network of this scenario instead"
    )
    _options.add_variant(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, not tables")


def run(given: argparse.Namespace, messages: Console) -> int:
    """Measure, and print the figures."""
    if given.network:
        return _run_network(given, messages)
    if given.variant != "vanilla":
        raise InputError(f"--variant: without --network it is {bench.VARIANT} that is measured")
    measured = bench.run_bench(given.duration or bench.DURATION, messages)
    if given.json:
        print(json.dumps(measured.record(), indent=1))
    else:
        _print(Console(), measured)
    return VALID


def _run_network(given: argparse.Namespace, messages: Console) -> int:
    cost = bench_network.run_network_bench(given.network, given.variant, given.duration, messages)
    if given.json:
        print(json.dumps(cost.record(), indent=1))
    else:
        _print_network(Console(), cost)
    return VALID


def _print(console: Console, measured: Bench) -> None:
    """Show the figures as tables."""
    beside = [_beside(measured, bare) for bare in (measured.bare, measured.bare_packets) if bare]
    lines = [
        f"{bench.VARIANT}, {bench.SCENARIO}, {measured.duration_s:g} s: {measured.cpu_s:.0f}"
        f" CPU s and {measured.wall_s:.0f} s of wall time for {measured.delivered_mb:.0f} MB:"
        f" {measured.cpu_s_per_mb:.3f} CPU s/MB",
        *beside,
        *([] if measured.bare_packets else [_NO_OWN_NETWORK]),
        f"{measured.packets_per_mb:.0f} packets on emulated links per delivered MB,"
        f" {measured.wake_ups_per_packet:.2f} wake-ups per packet",
    ]
    for line in lines:
        say(console, line)
    programs = {name: calls for name, calls in measured.calls_per_mb.items() if any(calls.values())}
    table = Table("calls per MB", *programs)
    table.columns[0].no_wrap = True
    for kind in _commonest(programs):
        table.add_row(kind, *(f"{calls.get(kind, 0):.0f}" for calls in programs.values()))
    table.add_row("all", *(f"{sum(calls.values()):.0f}" for calls in programs.values()))
    console.print(table)


def _beside(measured: Bench, bare: BareCost) -> str:
    """A line about the cost of the same on the bare host."""
    return (
        f"the same programs on the bare host, packets of {bare.packet_bytes:.0f} bytes:"
        f" {bare.cpu_s:.0f} CPU s and {bare.wall_s:.0f} s of wall time for"
        f" {bare.delivered_mb:.0f} MB: {bare.cpu_s_per_mb:.3f} CPU s/MB; the machine costs"
        f" {measured.cpu_s_per_mb / bare.cpu_s_per_mb:.2f} times as much"
    )


def _commonest(calls: dict[str, dict[str, float]]) -> list[str]:
    totals: dict[str, float] = defaultdict(float)
    for kinds in calls.values():
        for kind, number in kinds.items():
            totals[kind] += number
    return sorted(totals, key=lambda kind: -totals[kind])[:_MOST_KINDS]


def _print_network(console: Console, cost: NetworkCost) -> None:
    """Show the figures as a table."""
    table = Table(f"{cost.scenario}, {cost.variant}", "")
    rows = {
        "nodes, of which run Tor": f"{cost.nodes}, {cost.tors}",
        "memory of the guest, MB": f"{cost.memory_mb}",
        "CPU s until bootstrapped, from nothing": f"{cost.bootstrap_cpu_s:.1f}",
        "CPU s until ready, from the kept state": f"{cost.ready_cpu_s:.1f}",
        f"CPU s in the {SETTLING_S:g} s after that, without traffic": f"{cost.settling_cpu_s:.1f}",
        "CPU s per idle virtual minute, later": f"{cost.idle_cpu_s_per_min:.2f}",
        f"wake-ups of a Tor in an idle second: {', '.join(cost.wake_ups_per_s)}": ", ".join(
            f"{number:.2f}" for number in cost.wake_ups_per_s.values()
        ),
        "CPU s per MB over a circuit's four paths, without Tor": f"{cost.links_cpu_s_per_mb:.3f}",
        "CPU s per delivered MB": f"{cost.cpu_s_per_mb:.3f}",
        f"a run of {cost.duration_s:g} s": (
            f"{cost.run_cpu_s:.0f} CPU s, {cost.run_wall_s:.0f} s of wall time,"
            f" {cost.delivered_mb:.0f} MB"
        ),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table)
