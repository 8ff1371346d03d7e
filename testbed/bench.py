"""What a run costs: processor time per delivered MB, and the system calls that make it up.

The same each time, pctls in SharedDropping: a run as users run it; as many MB by the same programs
on the bare host, which tells a slow host from a slow testbed; and a run whose calls are counted.
"""

import json
import os
import re
import shutil
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from testbed import results
from testbed.bare_host import BareCost, deliver_on_bare_host, may_have_own_network
from testbed.guest import run_in_guest
from testbed.plan import make_plan
from testbed.plan_model import Plan
from testbed.runner import carry_out, guest_folders, plan_need
from testbed.setup import cache
from testbed.setup.ready import ensure_ready
from testbed.traffic.tgen_log import generator_log, read_heartbeats

SCENARIO, VARIANT = "SharedDropping", "pctls"

DURATION = "60 s"
COUNTED_DURATION = "12 s"
"""Long enough for the window in which system calls are counted."""

MOST_KINDS = 8
NO_OWN_NETWORK = (
    "not measured with packets of 1500 bytes: this kernel lets an ordinary user have no network"
    " of its own (user namespaces)"
)

WAKE_UP = "epoll_wait"
"""Tor and the generator wait in this call alone, so that its number is that of their wake-ups."""


@dataclass(frozen=True)
class Bench:
    """A bench's figures.

    Attributes:
        duration_s: virtual seconds measured in the run whose cost this is.
        cpu_s, wall_s, delivered_mb: of that whole run, boot and bootstrap included.
        bare: as much by the same Tors and generators on this host without emulation, over a
            loopback that carries 64 kB at once.
        bare_packets: the same with packets of 1500 bytes, as on an emulated link; None where the
            kernel lets this user have no network of its own.
        calls_per_mb: system calls per MB delivered to the clients, by program and kind.
        packets_per_mb: packets that crossed emulated links.
        wake_ups_per_packet: of all programs together.
    """

    duration_s: float
    cpu_s: float
    wall_s: float
    delivered_mb: float
    bare: BareCost
    bare_packets: BareCost | None
    calls_per_mb: dict[str, dict[str, float]]
    packets_per_mb: float
    wake_ups_per_packet: float

    @property
    def cpu_s_per_mb(self) -> float:
        """Processor seconds per MB that the clients received."""
        return self.cpu_s / self.delivered_mb

    @property
    def ratio(self) -> float:
        """What a MB costs in the machine, by what it costs on the bare host."""
        return self.cpu_s_per_mb / self.bare.cpu_s_per_mb

    @property
    def ratio_with_packets(self) -> float | None:
        """The same with packets of one size on both sides."""
        if self.bare_packets is None:
            return None
        return self.cpu_s_per_mb / self.bare_packets.cpu_s_per_mb

    def record(self) -> dict[str, Any]:
        """All of it as plain data, for programs."""
        return {
            **asdict(self),
            "cpu_s_per_mb": self.cpu_s_per_mb,
            "ratio": self.ratio,
            "ratio_with_packets": self.ratio_with_packets,
        }


def run_bench(duration: str, messages: Console) -> Bench:
    """Run them one after the other.

    Args:
        duration: of the first, such as "60 s".

    Raises:
        InputError: the duration is none.
        TestbedError: a run failed.
    """
    plan = make_plan(SCENARIO, VARIANT, duration=duration)
    runs = cache.subfolder("runs")
    run = runs / f"bench-{os.getpid()}"  # if it fails, its evidence stays beside it
    cost = carry_out(plan, run, messages, lambda _step: None).cost
    shutil.rmtree(run)
    tor = ensure_ready(messages, [plan_need(plan)]).tors[plan_need(plan)]

    def deliver(*, single_packets: bool) -> BareCost:
        with results.staging(runs / "bench-bare") as directory:
            return deliver_on_bare_host(
                plan, tor, cost.delivered_mb, directory, single_packets=single_packets
            )

    bare = deliver(single_packets=False)
    bare_packets = deliver(single_packets=True) if may_have_own_network() else None
    with results.staging(runs / "bench-counted") as counted:
        calls, delivered_mb, packets = _count(
            make_plan(SCENARIO, VARIANT, duration=COUNTED_DURATION), counted, messages
        )
    wake_ups = sum(kinds.get(WAKE_UP, 0) for kinds in calls.values())
    return Bench(
        duration_s=plan.duration_s,
        cpu_s=cost.cpu_s,
        wall_s=cost.wall_s,
        delivered_mb=cost.delivered_mb,
        bare=bare,
        bare_packets=bare_packets,
        calls_per_mb={
            program: {kind: number / delivered_mb for kind, number in kinds.items()}
            for program, kinds in calls.items()
        },
        packets_per_mb=packets / delivered_mb,
        wake_ups_per_packet=wake_ups / packets,
    )


def print_bench(console: Console, bench: Bench) -> None:
    """Show the figures as tables."""
    beside = [_beside(bench, bare) for bare in (bench.bare, bench.bare_packets) if bare]
    lines = [
        f"{VARIANT}, {SCENARIO}, {bench.duration_s:g} s: {bench.cpu_s:.0f} CPU s and"
        f" {bench.wall_s:.0f} s of wall time for {bench.delivered_mb:.0f} MB:"
        f" {bench.cpu_s_per_mb:.3f} CPU s/MB",
        *beside,
        *([] if bench.bare_packets else [NO_OWN_NETWORK]),
        f"{bench.packets_per_mb:.0f} packets on emulated links per delivered MB,"
        f" {bench.wake_ups_per_packet:.2f} wake-ups per packet",
    ]
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
    programs = {name: calls for name, calls in bench.calls_per_mb.items() if any(calls.values())}
    table = Table("calls per MB", *programs)
    table.columns[0].no_wrap = True
    for kind in _commonest(programs):
        table.add_row(kind, *(f"{calls.get(kind, 0):.0f}" for calls in programs.values()))
    table.add_row("all", *(f"{sum(calls.values()):.0f}" for calls in programs.values()))
    console.print(table)


def _beside(bench: Bench, bare: BareCost) -> str:
    """A line on what the same costs on the bare host."""
    return (
        f"the same programs on the bare host, packets of {bare.packet_bytes:.0f} bytes:"
        f" {bare.cpu_s:.0f} CPU s and {bare.wall_s:.0f} s of wall time for"
        f" {bare.delivered_mb:.0f} MB: {bare.cpu_s_per_mb:.3f} CPU s/MB; the machine costs"
        f" {bench.cpu_s_per_mb / bare.cpu_s_per_mb:.2f} times as much"
    )


def _count(
    plan: Plan, directory: Path, messages: Console
) -> tuple[dict[str, dict[str, int]], float, int]:
    """Run once, counted: calls by program and kind, MB delivered and packets in the window."""
    ready = ensure_ready(messages, [plan_need(plan)])
    run_in_guest(
        plan,
        guest_folders(plan, directory, ready, lambda _step: None),
        ready.kernel.product("linux"),
        lambda _step: None,
        "--counting",
    )
    logs = directory / "logs"
    window = json.loads((logs / "counting.json").read_text())
    delivered_bytes = sum(
        beat.bytes_received
        for client in plan.clients
        for beat in read_heartbeats(generator_log(logs, client), client)
        if window["start_s"] <= beat.time_s < window["end_s"]
    )
    return _calls(logs), delivered_bytes / 1e6, int(window["packets"])


def _calls(logs: Path) -> dict[str, dict[str, int]]:
    """System calls by program ("tor guards", "tgen clients" …) and kind."""
    calls: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for log in sorted(logs.glob("strace-*.log")):
        program, role = re.fullmatch(r"strace-(\w+)-([a-z]+)\d*\.log", log.name).groups()  # type: ignore[union-attr]
        for line in log.read_text().splitlines()[2:]:
            words = line.split()
            if len(words) >= 5 and words[3].isdigit() and words[-1] != "total":
                calls[f"{program}, {role}"][words[-1]] += int(words[3])
    return {program: dict(kinds) for program, kinds in calls.items()}


def _commonest(calls: dict[str, dict[str, float]]) -> list[str]:
    totals: dict[str, float] = defaultdict(float)
    for kinds in calls.values():
        for kind, number in kinds.items():
            totals[kind] += number
    return sorted(totals, key=lambda kind: -totals[kind])[:MOST_KINDS]
