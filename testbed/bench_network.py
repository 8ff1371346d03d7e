"""What a network costs by its size: memory, until it is ready, while idle, and per delivered MB.

Each is a machine of its own: the network bootstrapped from nothing, unless that was done before;
resumed from what was kept, and idle for minutes; and a run as users run it.
"""

import os
import shutil
from dataclasses import asdict, dataclass
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from testbed import results
from testbed.bootstrapped import bootstrap_usage
from testbed.guest import run_in_guest
from testbed.idle import IDLE, IDLE_S, OVER, SETTLING, SETTLING_S
from testbed.machines.watching import Step
from testbed.plan import make_plan
from testbed.runner import carry_out, guest_folders, plan_need
from testbed.setup import cache
from testbed.setup.ready import ensure_ready


@dataclass(frozen=True)
class NetworkCost:
    """What a network takes.

    Attributes:
        nodes: clients, relays, servers and authorities; tors: of these, those that run Tor.
        memory_mb: of the guest, at most, in the run; 1 MB = 2^20 bytes.
        bootstrap_cpu_s: the machine in which it was bootstrapped from nothing, when that was done.
        ready_cpu_s: a machine from its boot until all clients have a circuit, from the kept state.
        settling_cpu_s: the first virtual minute without traffic.
        idle_cpu_s_per_min: of the five virtual minutes after that.
        run_cpu_s, run_wall_s, delivered_mb: of the whole run, boot and results included.
        duration_s: what it measured.
    """

    scenario: str
    variant: str
    nodes: int
    tors: int
    memory_mb: int
    bootstrap_cpu_s: float
    ready_cpu_s: float
    settling_cpu_s: float
    idle_cpu_s_per_min: float
    run_cpu_s: float
    run_wall_s: float
    duration_s: float
    delivered_mb: float

    @property
    def cpu_s_per_mb(self) -> float:
        """Of the run, without what it took until it was ready."""
        return (self.run_cpu_s - self.ready_cpu_s) / self.delivered_mb

    def record(self) -> dict[str, Any]:
        """All of it as plain data, for programs."""
        return {**asdict(self), "cpu_s_per_mb": self.cpu_s_per_mb}


def run_network_bench(
    scenario: str, variant: str, duration: str | None, messages: Console
) -> NetworkCost:
    """Measure a scenario's network.

    Args:
        duration: of the run, instead of the scenario's.

    Raises:
        InputError: there is no such scenario or variant, or they can't be run.
        TestbedError: a machine failed.
    """
    plan = make_plan(scenario, variant, duration=duration)
    ready = ensure_ready(messages, [plan_need(plan)])
    kernel = ready.kernel.product("linux")
    runs = cache.subfolder("runs")
    use = _Use()
    with results.staging(runs / "bench-network-idle") as directory:
        folders = guest_folders(plan, directory, ready, _say_nothing)
        assert folders.network
        bootstrapped = bootstrap_usage(folders.network)
        run_in_guest(plan, folders, kernel, use.on_step, module="testbed.idle")
    run = runs / f"bench-network-{os.getpid()}"  # if it fails, its evidence stays beside it
    cost = carry_out(plan, run, messages, use.on_step, ready=ready).cost
    shutil.rmtree(run)
    return NetworkCost(
        scenario=plan.scenario,
        variant=plan.variant,
        nodes=len(plan.of_kind("client", "relay", "server", "authority")),
        tors=len(plan.of_kind("client", "relay", "authority")),
        memory_mb=use.memory_mb,
        bootstrap_cpu_s=bootstrapped.cpu_s,
        ready_cpu_s=use.cpu_s_at[SETTLING],
        settling_cpu_s=use.cpu_s_at[IDLE] - use.cpu_s_at[SETTLING],
        idle_cpu_s_per_min=(use.cpu_s_at[OVER] - use.cpu_s_at[IDLE]) * 60 / IDLE_S,
        run_cpu_s=cost.cpu_s,
        run_wall_s=cost.wall_s,
        duration_s=plan.duration_s,
        delivered_mb=cost.delivered_mb,
    )


def print_network_bench(console: Console, cost: NetworkCost) -> None:
    """Show the figures as a table."""
    table = Table(f"{cost.scenario}, {cost.variant}", "")
    rows = {
        "nodes, of which run Tor": f"{cost.nodes}, {cost.tors}",
        "memory of the guest, MB": f"{cost.memory_mb}",
        "CPU s until bootstrapped, from nothing": f"{cost.bootstrap_cpu_s:.1f}",
        "CPU s until ready, from the kept state": f"{cost.ready_cpu_s:.1f}",
        f"CPU s in the {SETTLING_S:g} s after that, without traffic": f"{cost.settling_cpu_s:.1f}",
        "CPU s per idle virtual minute, later": f"{cost.idle_cpu_s_per_min:.2f}",
        "CPU s per delivered MB": f"{cost.cpu_s_per_mb:.3f}",
        f"a run of {cost.duration_s:g} s": (
            f"{cost.run_cpu_s:.0f} CPU s, {cost.run_wall_s:.0f} s of wall time,"
            f" {cost.delivered_mb:.0f} MB"
        ),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table)


class _Use:
    """What this process's machine had taken when it came to each step, and its memory at most."""

    def __init__(self) -> None:
        self.cpu_s_at: dict[str, float] = {}
        self.memory_mb = 0

    def on_step(self, step: Step) -> None:
        """Take note."""
        if step.name in self.cpu_s_at:
            return
        cpu_s = 0.0
        for process in psutil.Process().children(recursive=True):
            try:
                times = process.cpu_times()
                cpu_s += times.user + times.system
                if process.name() == "linux":
                    # Of the programs that have ended.
                    cpu_s += times.children_user + times.children_system
                    self.memory_mb = max(self.memory_mb, process.memory_info().rss // 2**20)
            except psutil.NoSuchProcess:
                continue
        self.cpu_s_at[step.name] = cpu_s


def _say_nothing(_step: Step) -> None:
    pass
