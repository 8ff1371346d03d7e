"""Competing streams: TCP from one node to another beside the circuits, by iperf3.

Where they go is the plan's; what they got is sampled by `probes.sockets`.
"""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testbed.lab.network import Lab
from testbed.plan_model import Competing

LONGEST_S = 86_400
"""What iperf3 takes at most. Its streams are ended from outside when measuring ends: its own end
waits for the others' and reads the clock all the while."""


@contextmanager
def competing_servers(lab: Lab, logs: Path) -> Iterator[None]:
    """iperf3's receiving end of every entry, as long as the context lasts."""
    with ExitStack() as stack:
        for entry in lab.plan.competing:
            command = ["iperf3", "-s", "-1", "-p", str(entry.port)]
            stack.enter_context(_iperf(lab, entry.receiver, command, logs, entry))
            lab.wait_for_server(entry.receiver, entry.port)
        yield


@contextmanager
def competing_streams(lab: Lab, logs: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Every entry's streams, from now until the end of the context; the servers must listen.

    Yields:
        The program that sends them, by the name of its log.
    """
    senders = {}
    with ExitStack() as stack:
        for entry in lab.plan.competing:
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
