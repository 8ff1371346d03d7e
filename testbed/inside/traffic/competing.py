"""Competing streams: TCP from one node to another beside the circuits, by iperf3.

The plan says where they go; `probes.sockets` samples their throughput.
"""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testbed.inside.lab.network import Lab
from testbed.plan.model import Competing

LONGEST_S = 86_400
"""iperf3's maximum. The streams are ended from outside when measuring ends, as an iperf3 that ends
by itself waits for its peer and keeps reading the clock."""


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

    Yields:
        The sending programs, by the names of their logs.
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
        yield senders


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
