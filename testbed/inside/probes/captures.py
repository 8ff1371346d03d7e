"""Captures of emulated links, by tcpdump: a file for each direction, with the packets that arrived.

Captures are for reading by hand; `inside.probes.link_counts` counts packets.
"""

import re
import signal
import struct
import subprocess
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testbed.basics.errors import InputError, TestbedError
from testbed.basics.toml_file import shown, suggestion
from testbed.inside.lab.network import Direction, Lab
from testbed.inside.recording import Record
from testbed.plan.model import Plan

SNAP_LENGTH_BYTES = 94
"""The part of a packet that is kept: the longest headers of Ethernet, IPv4 and TCP."""

BUFFER_KIB = 4096
"""The kernel's buffer for packets that tcpdump has not fetched yet. They are few, those of one
instant, as the processor is infinitely fast in virtual time."""

SETTLE_S = 2.0
"""Enough for the last packets: the kernel hands them to tcpdump once a second."""

START_TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.01

_LISTENING = "listening on"

_FILE_HEADER_BYTES = 24
_PACKET_HEADER = struct.Struct("=IIII")
"""Seconds, microseconds, kept bytes and length (pcap-savefile(5))."""


def capture_pairs(plan: Plan, given: Collection[str]) -> tuple[str, ...]:
    """The user's pairs of roles, each once, with the role on the client's side first.

    Raises:
        InputError: the plan's topology has no such link, or one without interfaces of its own.
    """
    known = {
        tuple(sorted(link.roles)): "-".join(link.roles) for link in plan.links if not link.is_way
    }
    pairs: dict[str, None] = {}
    for pair in given:
        roles = tuple(sorted(pair.split("-")))
        if roles not in known:
            raise InputError(
                f"--pcap {shown(pair)} names no link of {plan.topology}:"
                f" {suggestion(pair, known.values())}"
            )
        pairs[known[roles]] = None
    return tuple(pairs)


@contextmanager
def captured(lab: Lab, pairs: Collection[str], directory: Path, record: Record) -> Iterator[None]:
    """Capture all links between some pairs of roles within the context.

    Each direction is captured where it leaves its sender's queueing disciplines. So a packet has
    the time of its arrival, is single unless the link takes bundles, and is missing if the link
    has lost it. On a link to another part of the plan most of the delay comes after that, and is
    added to the times.

    Args:
        pairs: as `capture_pairs` returns them.
        directory: gets `captures/SENDER-RECEIVER.pcap`, and tcpdump's messages in `logs/`.
        record: gets a note if packets are missing in a capture.

    Raises:
        TestbedError: a capture did not begin.
    """
    directions = [
        direction
        for direction in lab.directions
        if "-".join(direction.link.roles) in pairs and lab.plan.is_here(direction.sender)
    ]
    if not directions:
        yield
        return
    (directory / "captures").mkdir()
    with ExitStack() as stack:
        for direction in directions:
            stack.enter_context(_captured_direction(lab, direction, directory, record))
        yield
        time.sleep(SETTLE_S)


@contextmanager
def _captured_direction(
    lab: Lab, direction: Direction, directory: Path, record: Record
) -> Iterator[None]:
    name = f"{direction.sender}-{direction.receiver}"
    log = directory / "logs" / f"tcpdump-{name}.log"
    command = [
        # -Q, because a filter for the direction loses all packets of the first second.
        *("tcpdump", "-i", direction.interface, "-Q", "out", "-p", "-n", "-Z", "root"),
        *("-s", str(SNAP_LENGTH_BYTES), "-B", str(BUFFER_KIB)),
        # Into a pipe: it would give a file to root, which an ordinary user of the host can't.
        *("-w", "-"),
    ]
    file = directory / "captures" / f"{name}.pcap"
    with file.open("wb") as output, log.open("wb") as errors:
        process = lab.start(direction.sender, command, output=output, errors=errors)
    try:
        _wait_for_begin(process, log)
        yield
        process.send_signal(signal.SIGINT)
        process.wait()
    finally:
        process.kill()
        process.wait()
    if between_ns := lab.between_ns(direction):
        delay(file, round(between_ns / 1000))
    if missing := dropped_packets(log.read_text(errors="replace")):
        record.note(f"the capture {name} lacks {missing} packets: its reader was too slow")


def _wait_for_begin(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while _LISTENING not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise TestbedError(f"no capture: {log.read_text(errors='replace').strip()}")
        time.sleep(POLL_INTERVAL_S)


def delay(file: Path, by_us: int) -> None:
    """Add a time to that of each packet in a pcap file of this machine's byte order."""
    packets = bytearray(file.read_bytes())
    at = _FILE_HEADER_BYTES
    while at < len(packets):
        seconds, microseconds, kept, length = _PACKET_HEADER.unpack_from(packets, at)
        later = divmod(seconds * 10**6 + microseconds + by_us, 10**6)
        _PACKET_HEADER.pack_into(packets, at, *later, kept, length)
        at += _PACKET_HEADER.size + kept
    file.write_bytes(packets)


def dropped_packets(words: str) -> int:
    """How many packets tcpdump has missed, by its last messages.

    Raises:
        TestbedError: it doesn't say.
    """
    found = re.search(r"(\d+) packets? dropped by kernel", words)
    if found is None:
        raise TestbedError(f"tcpdump ended early: {words.strip()}")
    return int(found[1])
