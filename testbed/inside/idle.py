"""A network that becomes ready and then has no traffic for minutes, for the bench."""

import json
import time
from pathlib import Path
from statistics import fmean

from testbed.inside.experiment import ready_network
from testbed.inside.recording import Record
from testbed.inside.start import arguments_of, errors_reported
from testbed.inside.tor.bootstrap import NETWORK
from testbed.inside.tor.network import TorNetwork
from testbed.plan.model import Plan

SETTLING, IDLE, OVER = "settling", "idle", "idle no longer"
SETTLING_S = 60.0
"""Clients that have just become ready still build circuits ahead of need, and the like."""
IDLE_S = 300.0
WAKE_UPS = "wake_ups.json"
"""The file with the wake-ups of a Tor in an idle second, by kind of node."""


def main() -> None:
    """Run as `python -m testbed.inside.idle` by a machine, with a plan in a file."""
    given = arguments_of(__doc__).parse_args()
    plan = Plan.model_validate_json(given.plan.read_text())
    logs = given.directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    kept = given.network and given.network / NETWORK
    with (
        errors_reported(given.directory),
        Record(given.directory / "raw") as record,
        ready_network(plan, given.tor, given.state, logs, record, kept) as (_, network, _),
    ):
        record.step(SETTLING)
        time.sleep(SETTLING_S)
        record.step(IDLE)
        before = _sleeps(plan, network)
        time.sleep(IDLE_S)
        record.step(OVER)
        after = _sleeps(plan, network)
        a_second = {kind: (after[kind] - before[kind]) / IDLE_S for kind in before}
        (given.directory / WAKE_UPS).write_text(json.dumps(a_second))


def _sleeps(plan: Plan, network: TorNetwork) -> dict[str, float]:
    """How often a Tor has slept until now, on average over those of a kind of node.

    A process that sleeps switches voluntarily to another one (proc(5)).
    """
    pids: dict[str, list[int]] = {}
    for node in plan.of_kind("client", "relay", "authority"):
        pids.setdefault(node.kind, []).append(network[node.name].process.pid)
    return {kind: fmean(map(_voluntary_switches, those)) for kind, those in pids.items()}


def _voluntary_switches(pid: int) -> int:
    text = Path("/proc", str(pid), "status").read_text()
    return int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0])


if __name__ == "__main__":
    main()
