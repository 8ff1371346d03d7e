"""Measures a network's cost: memory, and processor time until it is ready, idle, and in a run.

There are four machines: the network is bootstrapped, unless that was done before; it is resumed
from the kept state and stays idle for minutes; a circuit's links carry plain TCP; and there is a
run as users run it.
"""

import json
import os
import shutil
from dataclasses import asdict, dataclass
from typing import Any

import psutil
from rich.console import Console

from testbed import results
from testbed.asked.plans import make_plan
from testbed.basics import cache
from testbed.inside.idle import IDLE, IDLE_S, OVER, SETTLING, WAKE_UPS
from testbed.inside.over_links import PATH_MB, SENDING, SENT
from testbed.machines.guest import run_in_guest
from testbed.machines.watching import Step
from testbed.runs.bootstrapped import bootstrap_usage
from testbed.runs.runner import carry_out, guest_folders, plan_need
from testbed.setup.ready import ensure_ready


@dataclass(frozen=True)
class NetworkCost:
    """A network's cost.

    Attributes:
        nodes: clients, relays, servers and authorities; tors: the number of them that run Tor.
        memory_mb: the most memory that the machine had in the run; 1 MB = 2^20 bytes.
        bootstrap_cpu_s: the machine in which the network was bootstrapped, now or earlier.
        ready_cpu_s: a machine from its boot until all clients have a circuit, from the kept state.
        settling_cpu_s: the first virtual minute without traffic.
        idle_cpu_s_per_min: the mean of the five virtual minutes after that.
        wake_ups_per_s: of an idle Tor in these minutes, by kind of node.
        links_cpu_s_per_mb: plain TCP over each of the four paths of a circuit, without Tor.
        run_cpu_s, run_wall_s, delivered_mb: figures of the whole run, including boot and results.
        duration_s: the run's virtual seconds of traffic: warm-up and measuring.
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
    wake_ups_per_s: dict[str, float]
    links_cpu_s_per_mb: float
    run_cpu_s: float
    run_wall_s: float
    duration_s: float
    delivered_mb: float

    @property
    def cpu_s_per_mb(self) -> float:
        """Processor seconds per MB in the run, without the time until it was ready."""
        return (self.run_cpu_s - self.ready_cpu_s) / self.delivered_mb

    def record(self) -> dict[str, Any]:
        """All figures as plain data, for programs."""
        return {**asdict(self), "cpu_s_per_mb": self.cpu_s_per_mb}


def run_network_bench(
    scenario: str, variant: str, duration: str | None, messages: Console
) -> NetworkCost:
    """Measure a scenario's network.

    Args:
        duration: the run's duration instead of the scenario's.

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
        run_in_guest(plan, folders, kernel, use.on_step, module="testbed.inside.idle")
        wake_ups_per_s = json.loads((directory / WAKE_UPS).read_text())
    with results.staging(runs / "bench-network-links") as directory:
        folders = guest_folders(plan, directory, ready, _say_nothing)
        over_links = _Use()
        module = "testbed.inside.over_links"
        usage = run_in_guest(plan, folders, kernel, over_links.on_step, module=module)
    # A machine that has ended has no time any more.
    sent_cpu_s = over_links.cpu_s_at.get(SENT) or usage.cpu_s
    run = runs / f"bench-network-{os.getpid()}"  # a failed run's evidence stays beside it
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
        wake_ups_per_s=wake_ups_per_s,
        links_cpu_s_per_mb=(sent_cpu_s - over_links.cpu_s_at[SENDING]) / PATH_MB,
        run_cpu_s=cost.cpu_s,
        run_wall_s=cost.wall_s,
        duration_s=plan.traffic_s,
        delivered_mb=cost.delivered_mb,
    )


class _Use:
    """The processor time of this process's machine when each step began, and its most memory."""

    def __init__(self) -> None:
        self.cpu_s_at: dict[str, float] = {}
        self.memory_mb = 0

    def on_step(self, step: Step) -> None:
        """Record a step, the first time that it is reported."""
        if step.name in self.cpu_s_at:
            return
        cpu_s = 0.0
        for process in psutil.Process().children(recursive=True):
            try:
                times = process.cpu_times()
                cpu_s += times.user + times.system
                if process.name() == "linux":
                    # The time of programs that have ended.
                    cpu_s += times.children_user + times.children_system
                    self.memory_mb = max(self.memory_mb, process.memory_info().rss // 2**20)
            except psutil.NoSuchProcess:
                continue
        self.cpu_s_at[step.name] = cpu_s


def _say_nothing(_step: Step) -> None:
    pass
