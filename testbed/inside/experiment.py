"""One run from the first node to the last byte: carries out a plan and records its raw rows.

It runs inside the machine and only records: `results` makes files and figures for readers.
"""

import asyncio
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.basics.check import Check, none_of
from testbed.basics.errors import TestbedError
from testbed.inside.checks import Running, all_checks
from testbed.inside.generators import playing_traffic
from testbed.inside.lab.network import Lab, running_lab
from testbed.inside.measuring import STEP_INTERVAL_S, Measuring
from testbed.inside.probes.captures import captured
from testbed.inside.probes.clock import Clock
from testbed.inside.probes.link_counts import record_links
from testbed.inside.probes.queues import queues_recorded
from testbed.inside.probes.sockets import pair_tables
from testbed.inside.recording import Record
from testbed.inside.start import arguments_of, errors_reported
from testbed.inside.tor.bootstrap import NETWORK, running_tors
from testbed.inside.tor.circuits import Circuits
from testbed.inside.tor.network import TorNetwork
from testbed.inside.traffic.models import MODELS
from testbed.inside.traffic.tgen_log import generator_log, has_settled
from testbed.inside.waiting import wait_until
from testbed.plan.model import Pair, Plan

LINK_CLEAR_TIMEOUT_S = 60.0


def run_experiment(
    plan: Plan,
    tor: Path,
    tgen: Sequence[str],
    directory: Path,
    state: Path,
    *,
    kept: Path | None = None,
    captures: Collection[str] = (),
    counting: bool = False,
) -> None:
    """Carry out a plan.

    Args:
        tor: the program; `tor-gencert` is beside it.
        tgen: the command that plays a TGen configuration, without its argument.
        directory: gets `raw/` (rows as JSON lines), `logs/` and, if there are any, `captures/`.
        state: a private directory, on a file system with UNIX sockets, for the Tors' data.
        kept: the archive of the bootstrapped network; None to bootstrap it now.
        captures: the pairs of roles whose links are captured.
        counting: whether to count system calls (for the bench).

    Raises:
        TestbedError: the network did not become ready for measuring, or a Tor ended or the clock
            was set during it.
    """
    logs = directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    clock = Clock()
    with (
        Record(directory / "raw") as record,
        ready_network(plan, tor, state, logs, record, kept) as (lab, network, circuits),
    ):
        running = Running(lab, network, circuits, circuits.states())
        checks = asyncio.run(all_checks(running, "before"))
        circuits.let_policies_probe()
        with captured(lab, captures, directory, record):
            record_links(lab, "before", record)
            with playing_traffic(lab, tgen, state, logs, record) as generators:
                counted = _programs(network, generators) if counting else {}
                end_s = _measure(Measuring(running, record, clock, logs, counted))
                checks.append(_let_transfers_end(lab, logs, end_s, record, clock))
                checks.append(_check_alive(generators))
            record_links(lab, "after", record)
        record.step("checking the premise")
        checks += asyncio.run(all_checks(running, "after"))
        for check in checks:
            record.add(check)
        circuits.check()
        record.step("done")


@contextmanager
def ready_network(
    plan: Plan, tor: Path, state: Path, logs: Path, record: Record, kept: Path | None = None
) -> Iterator[tuple[Lab, TorNetwork, Circuits]]:
    """The plan's lab with its Tor network and each client's circuits, ready for measuring.

    Raises:
        TestbedError: it did not become ready.
    """
    with running_lab(plan) as lab, running_tors(lab, tor, state, logs, kept, record) as network:
        circuits = Circuits(network, plan, record)
        together = lab.meeting.exchange
        record.step("building circuits")
        rule, crossed = plan.tor.connection_rule, plan.crossed_pairs
        across = {pair: plan.circuits_across(pair) for pair in crossed}
        if crossed:
            # Circuits without traffic come first, so the measured ones find the relays' connections
            # as the variant keeps them in a network that is in use.
            circuits.build("first")
            together()
            circuits.close()
            together()
            _wait_for_connections(lab, {pair: rule.kept(across[pair]) for pair in crossed})
        together()
        with circuits.ticking():
            circuits.build("measured")
            together()
            # Tor may have built more circuits, whose connections end a moment later.
            with suppress(TestbedError):  # a check will report the connections that stay
                expected = {pair: rule.between(across[pair]).connections for pair in crossed}
                _wait_for_connections(lab, expected)
            together()
            yield lab, network, circuits
            together()  # other parts' circuits end with the Tors here


def _wait_for_connections(lab: Lab, expected: Mapping[Pair, int]) -> None:
    """Wait until pairs of relays have these numbers of connections; TestbedError after a minute.

    Each pair is seen at its first relay, if that is here.
    """
    expected = {pair: wanted for pair, wanted in expected.items() if lab.plan.is_here(pair[0])}

    def missing() -> list[str]:
        samples = [sample for table in pair_tables(lab, expected) for sample in table.samples()]
        counts = {pair: sum((one.node, one.peer) == pair for one in samples) for pair in expected}
        return [
            f"{wanted} connections from {' to '.join(pair)}, not {counts[pair]}"
            for pair, wanted in expected.items()
            if counts[pair] != wanted
        ]

    wait_until(missing, LINK_CLEAR_TIMEOUT_S, "waiting for closed circuits' connections to end")


def _measure(measuring: Measuring) -> float:
    """Warm up and measure, with relays' queues recorded all the time.

    What is sampled steadily begins with measuring, and the links are then counted once more.

    Returns:
        When measuring ended, as Unix time.
    """
    running = measuring.running
    plan = running.plan
    relays = [running.network[one] for one in plan.recorded_relays if plan.is_here(one)]
    with queues_recorded(relays, measuring.record):
        if plan.warm_up_s:
            asyncio.run(measuring.warm_up())
            record_links(running.lab, "measuring", measuring.record)
        return asyncio.run(measuring.measure())


def _check_alive(generators: dict[str, subprocess.Popen[bytes]]) -> Check:
    """Whether all generators still run: without one, the others would seem faster."""
    ended = [name for name, process in generators.items() if process.poll() is not None]
    return none_of("generators that ended", ended)


def _programs(
    network: TorNetwork, generators: dict[str, subprocess.Popen[bytes]]
) -> dict[str, int]:
    """The process numbers of the programs whose system calls the bench counts."""
    tors = {f"tor-{name}": tor.process.pid for name, tor in network.tors.items()}
    return tors | {name: process.pid for name, process in generators.items()}


def _let_transfers_end(lab: Lab, logs: Path, end_s: float, record: Record, clock: Clock) -> Check:
    """Let the traffic run on until every transfer that began before `end_s` has ended, everywhere.

    Without them, transfers would seem shorter than they are, as long ones are more likely to be
    under way at any moment. This takes at most as long again as measuring.
    """
    plan = lab.plan
    left = [client for client in plan.traffic_by_client if plan.is_here(client)]

    def has_ended(client: str) -> bool:
        at_once = MODELS[plan.traffic_by_client[client]].at_once
        return has_settled(generator_log(logs, client), client, end_s, at_once)

    def under_way() -> bool:
        left[:] = [client for client in left if not has_ended(client)]
        return bool(left)

    while under_way() and (over_s := time.time() - end_s) <= plan.duration_s:
        record.step("letting transfers end", over_s)
        time.sleep(STEP_INTERVAL_S)
        clock.check()
    lab.meeting.exchange()  # other parts' transfers may still be under way
    name = f"transfers that had not ended {plan.duration_s:g} s after measuring"
    return none_of(name, [f"{client}'s transfer" for client in left])


def main() -> None:
    """Run as `python -m testbed.inside.experiment` by a machine, with a plan in a file."""
    parser = arguments_of(__doc__)
    parser.add_argument("--capture", action="append", default=[])
    parser.add_argument("--counting", action="store_true")
    given = parser.parse_args()
    plan = Plan.model_validate_json(given.plan.read_text())
    with errors_reported(given.directory):
        run_experiment(
            plan,
            given.tor,
            given.tgen,
            given.directory,
            given.state,
            kept=given.network and given.network / NETWORK,
            captures=given.capture,
            counting=given.counting,
        )


if __name__ == "__main__":
    main()
