"""Competing streams: TCP from one node to another beside the circuits, by iperf3.

The plan says where they go; `probes.sockets` samples their throughput.
"""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testbed.inside.lab.network import Lab
from testbed.inside.probes.sockets import competing_tables
from testbed.inside.waiting import wait_until
from testbed.plan.model import Competing

LONGEST_S = 86_400
"""iperf3's maximum. The streams are ended from outside when measuring ends, as an iperf3 that ends
by itself waits for its peer and keeps reading the clock."""

OPEN_TIMEOUT_S = 60.0
OPEN_INTERVAL_S = 0.1


@contextmanager
def competing_servers(lab: Lab, logs: Path) -> Iterator[None]:
    """Run iperf3's receiving end for every entry while the context lasts."""
    with ExitStack() as stack:
        for entry in lab.plan.competing:
            if not lab.plan.is_here(entry.receiver):
                continue
            command = ["iperf3", "-s", "-1", "-p", str(entry.port)]
            stack.enter_context(_iperf(lab, entry.receiver, command, logs, entry))
            lab.wait_for_server(entry.receiver, entry.port)
        yield


@contextmanager
def competing_streams(lab: Lab, logs: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Run every entry's streams while the context lasts; the servers must be listening.

    The context begins when all streams are open: iperf3 opens them one after another, each of which
    takes a round trip.

    Yields:
        The sending programs, by the names of their logs.

    Raises:
        TestbedError: a stream isn't open after a minute.
    """
    senders = {}
    with ExitStack() as stack:
        for entry in lab.plan.competing:
            if not lab.plan.is_here(entry.sender):
                continue
            command = [
                *("iperf3", "-c", str(lab.plan.node(entry.receiver).address)),
                *("-p", str(entry.port)),
                *("--cport", str(entry.stream_ports[0])),
                *("-P", str(entry.streams)),
                *("-C", entry.congestion_control),
                *("-t", str(LONGEST_S)),
                "--forceflush",
            ]
            if entry.rate_bit_per_s:
                command += ["-b", str(entry.rate_bit_per_s)]
            process = stack.enter_context(_iperf(lab, entry.sender, command, logs, entry))
            senders[f"iperf3-{entry.sender}-{entry.port}"] = process
        _wait_until_open(lab)
        yield senders


def _wait_until_open(lab: Lab) -> None:
    """Wait until the streams of all senders here are open."""
    wanted = {
        port: entry
        for entry in lab.plan.competing
        if lab.plan.is_here(entry.sender)
        for port in entry.stream_ports
    }

    def missing() -> Iterator[str]:
        tables = competing_tables(lab) if wanted else ()
        own = {sample.port for table in tables for sample in table.samples()}
        for port, entry in wanted.items():
            if port not in own:
                yield f"the stream from {entry.sender}, port {port}, to {entry.receiver}"

    doing = "waiting for competing streams to open"
    wait_until(missing, OPEN_TIMEOUT_S, doing, OPEN_INTERVAL_S)


@contextmanager
def _iperf(
    lab: Lab, node: str, command: list[str], logs: Path, entry: Competing
) -> Iterator[subprocess.Popen[bytes]]:
    with (logs / f"iperf3-{node}-{entry.port}.log").open("wb") as log:
        process = lab.start(node, command, output=log)
        try:
            yield process
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
