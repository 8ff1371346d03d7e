"""Measures a run's cost: processor time per delivered MB, and the system calls behind it.

Each bench is of pctls in SharedDropping: a run as users run it; as many MB by the same programs on
the bare host, which distinguishes a slow host from a slow testbed; and a run with counted calls.
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

from testbed import results
from testbed.asked.plans import make_plan
from testbed.basics import cache
from testbed.inside.traffic.tgen_log import generator_log, read_heartbeats
from testbed.machines.guest import run_in_guest
from testbed.plan.model import Plan
from testbed.runs.bare_host import BareCost, deliver_on_bare_host, may_have_own_network
from testbed.runs.runner import carry_out, guest_folders, plan_need
from testbed.setup.ready import ensure_ready

SCENARIO, VARIANT = "SharedDropping", "pctls"

DURATION = "60 s"
COUNTED_DURATION = "12 s"
"""Long enough for the window in which system calls are counted."""

WAKE_UP = "epoll_wait"
"""Tor and the generator wait only in this call, so its number is that of their wake-ups."""


@dataclass(frozen=True)
class Bench:
    """A bench's figures.

    Attributes:
        duration_s: the run's virtual seconds of measuring.
        cpu_s, wall_s, delivered_mb: figures of the whole run, including boot and bootstrap.
        bare: the cost of as many MB by the same Tors and generators on this host without emulation,
            over a loopback that carries 64 kB at once.
        bare_packets: the same with packets of 1500 bytes, as on an emulated link; None where this
            user may have no network namespace.
        calls_per_mb: system calls per MB delivered to the clients, by program and kind.
        packets_per_mb: packets that crossed emulated links, per MB.
        wake_ups_per_packet: wake-ups of all programs together, per packet.
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
        """The cost of a MB in the machine, divided by that on the bare host."""
        return self.cpu_s_per_mb / self.bare.cpu_s_per_mb

    @property
    def ratio_with_packets(self) -> float | None:
        """The same ratio with packets of the same size on both sides."""
        if self.bare_packets is None:
            return None
        return self.cpu_s_per_mb / self.bare_packets.cpu_s_per_mb

    def record(self) -> dict[str, Any]:
        """All figures as plain data, for programs."""
        return {
            **asdict(self),
            "cpu_s_per_mb": self.cpu_s_per_mb,
            "ratio": self.ratio,
            "ratio_with_packets": self.ratio_with_packets,
        }


def run_bench(duration: str, messages: Console) -> Bench:
    """Make the measurements one after the other.

    Args:
        duration: the first run's duration, such as "60 s".

    Raises:
        InputError: the duration is wrong.
        TestbedError: a run failed.
    """
    plan = make_plan(SCENARIO, VARIANT, duration=duration)
    runs = cache.subfolder("runs")
    run = runs / f"bench-{os.getpid()}"  # a failed run's evidence stays beside it
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


def _count(
    plan: Plan, directory: Path, messages: Console
) -> tuple[dict[str, dict[str, int]], float, int]:
    """Make a run and count its calls.

    Returns:
        In the window: calls by program and kind, delivered MB, and packets.
    """
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
    """System calls by program ("tor, guards", "tgen, clients" …) and kind."""
    calls: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for log in sorted(logs.glob("strace-*.log")):
        program, role = re.fullmatch(r"strace-(\w+)-([a-z]+)\d*\.log", log.name).groups()  # type: ignore[union-attr]
        for line in log.read_text().splitlines()[2:]:
            words = line.split()
            if len(words) >= 5 and words[3].isdigit() and words[-1] != "total":
                calls[f"{program}, {role}"][words[-1]] += int(words[3])
    return {program: dict(kinds) for program, kinds in calls.items()}
