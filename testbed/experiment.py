"""One run from the first node to the last byte: a plan is carried out and its raw rows recorded.

It runs inside the machine, and only records: files and figures for readers are `results`'s.
"""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.check import Check
from testbed.errors import TestbedError
from testbed.lab.network import Lab, running_lab
from testbed.machines.inside import arguments_of, errors_told
from testbed.plan_model import TOR, Plan
from testbed.probes.captures import captured
from testbed.probes.clock import Clock
from testbed.probes.esp import check_esp
from testbed.probes.in_effect import (
    check_linked_sets,
    check_spread,
    choices_in_effect,
    weights_in_effect,
)
from testbed.probes.premise import (
    check_shared_link,
    checks_after,
    expected_shared_link,
    kept_connections,
    none_of,
    record_links,
    seen_shared_link,
)
from testbed.probes.queues import queues_recorded
from testbed.probes.relays import sample_relays_steadily
from testbed.probes.round_trip import PROBE_INTERVAL_S, probe_steadily, probe_target
from testbed.probes.sockets import (
    ConnectionTable,
    interval_s,
    other_watched_tables,
    sample_steadily,
    shared_link_tables,
)
from testbed.probes.system_calls import count_system_calls
from testbed.recording import Record
from testbed.tor.bootstrap import NETWORK, running_tors
from testbed.tor.circuits import Circuits
from testbed.tor.configuration import socks_proxy
from testbed.tor.network import TorNetwork, wait_until
from testbed.traffic.competing import competing_servers, competing_streams
from testbed.traffic.models import MODELS, generator_seed, write_client, write_server
from testbed.traffic.tgen_log import generator_log, has_settled

TGEN_PORT = 8888
STEP_INTERVAL_S = 1.0
LINK_CLEAR_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0


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
        tor: the program; `tor-gencert` lies beside it.
        tgen: the command that plays a TGen configuration, without its argument.
        directory: gets `raw/` (rows as JSON lines), `logs/` and, if need be, `captures/`.
        state: a private directory, on a file system with UNIX sockets, for what the Tors keep.
        kept: the archive of the network as it was bootstrapped; otherwise it is bootstrapped now.
        captures: the pairs of roles whose links are captured meanwhile.
        counting: count system calls meanwhile (the bench's).

    Raises:
        TestbedError: the network did not come to the point where measuring can begin, or a Tor
            ended or somebody set the clock while it was measured.
    """
    logs = directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    clock = Clock()
    with (
        Record(directory / "raw") as record,
        ready_network(plan, tor, state, logs, record, kept) as (lab, network, circuits),
    ):
        shared_link, competing = shared_link_tables(lab), _competing_tables(lab)
        others = other_watched_tables(lab)
        before = circuits.states()
        checks = [*_shared_link_checks(lab, network, shared_link, "before")]
        checks += asyncio.run(choices_in_effect(lab, network))
        checks += weights_in_effect(plan, network)
        with captured(lab, captures, directory, record):
            record_links(lab, "before", record)
            with playing_traffic(lab, tgen, state, logs, record) as generators:
                counted = _programs(network, generators) if counting else {}
                with_queues = [network[relay] for relay in plan.relays_with_queues]
                with queues_recorded(with_queues, record.queues):
                    measuring = _Measuring(lab, network, circuits, record, clock, logs)
                    end_s = asyncio.run(
                        measuring.carried_out(shared_link, others, competing, counted)
                    )
                checks.append(_let_transfers_end(plan, logs, end_s, record, clock))
                checks.append(_check_alive(generators))
            record_links(lab, "after", record)
        record.step("checking the premise")
        checks += _shared_link_checks(lab, network, shared_link, "after")
        if plan.tor.conflux and plan.paths:
            checks.append(check_linked_sets(plan, network, "after"))
        if plan.tor.ipsec:
            checks += check_esp(lab)
        if plan.tor.parallel_circuits > 1:
            checks.append(check_spread(plan, circuits))
        checks += checks_after(plan, network, circuits, before)
        for check in checks:
            record.checks.add(check.model_dump())
        circuits.check()
        record.step("done")


@contextmanager
def ready_network(
    plan: Plan, tor: Path, state: Path, logs: Path, record: Record, kept: Path | None = None
) -> Iterator[tuple[Lab, TorNetwork, Circuits]]:
    """The plan's lab with Tor ready in it and each client's circuit built.

    Raises:
        TestbedError: it did not come to that.
    """
    with running_lab(plan) as lab, running_tors(lab, tor, state, logs, kept, record) as network:
        circuits = Circuits(network, plan, record)
        record.step("building circuits")
        shared_link = next(iter(shared_link_tables(lab)), None)
        if shared_link:
            _use_shared_link(plan, circuits, shared_link)
        circuits.build("measured")
        if shared_link and plan.tor.conflux:
            # Tor builds more than a set. What of that was closed ends a moment later on the link.
            with suppress(TestbedError):  # the check will tell of what stays there
                _wait_for_connections(shared_link, expected_shared_link(plan).connections)
        yield lab, network, circuits


def _use_shared_link(plan: Plan, circuits: Circuits, shared_link: ConnectionTable) -> None:
    """Build circuits that carry nothing, before those that do.

    They find the relays' connections as the variant keeps them in a network that is in use.
    """
    circuits.build("first")
    circuits.close()
    _wait_for_connections(shared_link, kept_connections(plan))


def _wait_for_connections(shared_link: ConnectionTable, expected: int) -> None:
    """TestbedError if the shared link has others than so many for a minute."""

    def missing() -> list[str]:
        count = len(shared_link.samples())
        if count == expected:
            return []
        return [f"{expected} connections on the shared link, not {count}"]

    wait_until(missing, LINK_CLEAR_TIMEOUT_S, "waiting for closed circuits' connections to end")


def _shared_link_checks(
    lab: Lab, network: TorNetwork, tables: list[ConnectionTable], when: str
) -> Iterator[Check]:
    if tables:
        seen = asyncio.run(seen_shared_link(lab, network, tables[0]))
        yield check_shared_link(lab.plan, seen, when)


def _competing_tables(lab: Lab) -> list[ConnectionTable]:
    """Both ends' views of each entry of competing streams, the sender's first."""
    tables = []
    for entry in lab.plan.competing:
        ports = frozenset(entry.stream_ports)
        tables.append(ConnectionTable(lab, entry.sender, [entry.receiver], ports))
        tables.append(ConnectionTable(lab, entry.receiver, [entry.sender], ports))
    return tables


@contextmanager
def playing_traffic(
    lab: Lab, tgen: Sequence[str], state: Path, logs: Path, record: Record
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Every server's and client's generator and the competing streams, ended in reverse order.

    Yields:
        The program of each, by the name of its log, such as "tgen-client1"; or of all servers and
        of all clients, such as "tgen-clients".
    """
    plan = lab.plan
    players = _OneEach if plan.tgen else _Together
    with ExitStack() as stack:

        def play(group: str, configurations: Mapping[str, Path]) -> dict[str, _Program]:
            programs = players(lab, tgen, state, logs, stack).play(group, configurations)
            for name, process in programs.items():
                stack.callback(_stop, process, name, record)
            return programs

        servers = [server.name for server in plan.of_kind("server")]
        programs = play("servers", {one: write_server(state, one, TGEN_PORT) for one in servers})
        for server in servers:
            lab.wait_for_server(server, TGEN_PORT)
        stack.enter_context(competing_servers(lab, logs))
        programs |= play(
            "clients",
            {
                client: write_client(
                    state,
                    client,
                    model,
                    server=(str(plan.node(plan.server_of(client)).address), TGEN_PORT),
                    socks_proxy=socks_proxy(plan.node(client)),
                    seed=generator_seed(plan.seed, client),
                )
                for client, model in plan.traffic_by_client.items()
            },
        )
        yield programs | stack.enter_context(competing_streams(lab, logs))


_Program = subprocess.Popen[bytes]


@dataclass(frozen=True)
class _OneEach:
    """Generators of which each node has a process of its own, as with any that isn't ours."""

    lab: Lab
    tgen: Sequence[str]
    state: Path
    logs: Path
    stack: ExitStack

    def play(self, _group: str, configurations: Mapping[str, Path]) -> dict[str, _Program]:
        """Start a group's; by the names of their logs."""
        return {f"tgen-{node}": self._start(node, path) for node, path in configurations.items()}

    def _start(self, node: str, configuration: Path) -> _Program:
        log = self.stack.enter_context(generator_log(self.logs, node).open("wb"))
        # The name in its log, by which tgentools tells logs apart.
        environment = {**os.environ, "TGENHOSTNAME": node}
        return self.lab.start(
            node, [*self.tgen, configuration], output=log, environment=environment
        )


class _Together(_OneEach):
    """The generators of a group in one process: a Python each would be most of a run's memory."""

    def play(self, group: str, configurations: Mapping[str, Path]) -> dict[str, _Program]:
        """Start a group's; a node's log is there before its generator has begun it."""
        for node in configurations:
            generator_log(self.logs, node).touch()
        nodes = [
            {
                "name": node,
                "configuration": str(configuration),
                "log": str(generator_log(self.logs, node)),
                "network": self.lab.namespace(node),
            }
            for node, configuration in configurations.items()
        ]
        file = self.state / f"{group}.tgen.json"
        file.write_text(json.dumps(nodes))
        log = self.stack.enter_context(generator_log(self.logs, group).open("wb"))
        first = next(iter(configurations))
        return {f"tgen-{group}": self.lab.start(first, [*self.tgen, "--nodes", file], output=log)}


def _stop(process: _Program, name: str, record: Record) -> None:
    if process.poll() is not None:
        record.note(f"{name} ended by itself with status {process.returncode}")
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _check_alive(generators: dict[str, subprocess.Popen[bytes]]) -> Check:
    """Whether all that makes traffic still does: without it the others would look the faster."""
    ended = [name for name, process in generators.items() if process.poll() is not None]
    return none_of("generators that ended", ended)


def _programs(
    network: TorNetwork, generators: dict[str, subprocess.Popen[bytes]]
) -> dict[str, int]:
    """The process numbers of all that the bench counts."""
    tors = {f"tor-{name}": tor.process.pid for name, tor in network.tors.items()}
    return tors | {name: process.pid for name, process in generators.items()}


@dataclass(frozen=True)
class _Measuring:
    """The time in which the traffic runs, and what is watched meanwhile."""

    lab: Lab
    network: TorNetwork
    circuits: Circuits
    record: Record
    clock: Clock
    logs: Path

    async def carried_out(
        self,
        shared_link: list[ConnectionTable],
        others: list[ConnectionTable],
        competing: list[ConnectionTable],
        counted: dict[str, int],
    ) -> float:
        """Let the traffic run for the plan's duration, probing and sampling all the while.

        Returns:
            When measuring ended, as Unix time.
        """
        record = self.record
        start_s = time.time()
        end_s = start_s + self.lab.plan.duration_s
        record.note(f"measuring began at {start_s:.6f}")
        async with probe_target(self.lab), asyncio.TaskGroup() as tasks:
            for probe in self._probes(start_s, end_s):
                tasks.create_task(probe)
            tasks.create_task(sample_steadily(shared_link, start_s, end_s, record.sockets))
            tasks.create_task(
                sample_steadily(others, start_s, end_s, record.sockets, interval_s(others))
            )
            tasks.create_task(sample_steadily(competing, start_s, end_s, record.competing))
            tasks.create_task(
                sample_relays_steadily(self.lab, self.network, start_s, end_s, record.relays)
            )
            tasks.create_task(self._tell_progress(start_s, end_s))
            if counted:
                tasks.create_task(count_system_calls(self.lab, counted, self.logs))
        return end_s

    def _probes(self, start_s: float, end_s: float) -> Iterator[Coroutine[Any, Any, None]]:
        """Each client's, spread over the interval, so that the probes of two never meet.

        None where Tor chooses: a probe would be a user who is never idle, and keep circuits alive.
        """
        plan = self.lab.plan
        if plan.policy.name == TOR:
            return
        for number, client in enumerate(plan.clients):
            yield probe_steadily(
                client,
                self.network[client].files.probe_socket,
                str(plan.node(plan.server_of(client)).address),
                start_s + PROBE_INTERVAL_S * number / len(plan.clients),
                end_s,
                self.record,
            )

    async def _tell_progress(self, start_s: float, end_s: float) -> None:
        """A step a second; what can't go on ends the run at once.

        That is a Tor that ends, a policy that fails, a clock that is set.
        """
        while (now_s := time.time()) < end_s:
            self.record.step("measuring", now_s - start_s, end_s - start_s)
            self.clock.check()
            self.circuits.check()
            if ended := self.network.ended():
                raise TestbedError(f"{', '.join(ended)} ended while measuring: see logs/")
            await asyncio.sleep(min(STEP_INTERVAL_S, end_s - now_s))
        self.clock.check()


def _let_transfers_end(plan: Plan, logs: Path, end_s: float, record: Record, clock: Clock) -> Check:
    """Let the traffic run on until every transfer that began before `end_s` has ended.

    Left out, they would make the measured ones seem shorter than they are: at any moment the long
    ones are more likely to be under way. It takes as long again as measuring at the most.
    """
    left = list(plan.traffic_by_client)

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
    name = f"transfers that had not ended {plan.duration_s:g} s after measuring"
    return none_of(name, [f"{client}'s transfer" for client in left])


def main() -> None:
    """Run as `python -m testbed.experiment` by a machine, with a plan in a file."""
    parser = arguments_of(__doc__)
    parser.add_argument("--capture", action="append", default=[])
    parser.add_argument("--counting", action="store_true")
    given = parser.parse_args()
    plan = Plan.model_validate_json(given.plan.read_text())
    with errors_told(given.directory):
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
