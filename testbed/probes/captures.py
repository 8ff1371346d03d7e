"""Captures of emulated links, by tcpdump: one file a direction, with what arrived over it.

Counting packets is `probes.premise`'s; a capture is for reading by hand.
"""

import re
import signal
import subprocess
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testbed.errors import InputError, TestbedError
from testbed.lab.network import Direction, Lab
from testbed.plan_model import Plan
from testbed.recording import Record
from testbed.toml_file import shown, suggestion

SNAP_LENGTH_BYTES = 94
"""What is kept of a packet: the longest headers of Ethernet, IPv4 and TCP."""

BUFFER_KIB = 4096
"""Of the kernel, for packets that tcpdump has not fetched yet. Its processor is infinitely fast
in virtual time, so that they are few: those of one instant."""

SETTLE_S = 2.0
"""tcpdump gets what the kernel has gathered for it once a second."""

START_TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.01

_LISTENING = "listening on"


def capture_pairs(plan: Plan, given: Collection[str]) -> tuple[str, ...]:
    """Pairs of roles as the user gave them, each once, in the order from the client's side.

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
    """Capture all links between some pairs of roles as long as the context lasts.

    Each direction is captured where it leaves its sender's queueing disciplines. So a packet has
    the time of its arrival, is by itself unless the link takes bundles, and is not there if the
    link has lost it.

    Args:
        pairs: as `capture_pairs` gives them.
        directory: gets `captures/SENDER-RECEIVER.pcap`, and tcpdump's own words in `logs/`.
        record: gets a note if packets are missing in a capture.

    Raises:
        TestbedError: a capture did not begin.
    """
    directions = [
        direction for direction in lab.directions if "-".join(direction.link.roles) in pairs
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
        # No filter for the direction in its place: it loses all packets of the first second.
        *("tcpdump", "-i", direction.interface, "-Q", "out", "-p", "-n", "-Z", "root"),
        *("-s", str(SNAP_LENGTH_BYTES), "-B", str(BUFFER_KIB)),
        # Its own files it would give to root, which an ordinary user of the host can't.
        *("-w", "-"),
    ]
    with (directory / "captures" / f"{name}.pcap").open("wb") as output, log.open("wb") as errors:
        process = lab.start(direction.sender, command, output=output, errors=errors)
    try:
        _wait_for_begin(process, log)
        yield
        process.send_signal(signal.SIGINT)
        process.wait()
    finally:
        process.kill()
        process.wait()
    if missing := dropped_packets(log.read_text(errors="replace")):
        record.note(f"the capture {name} lacks {missing} packets: its reader was too slow")


def _wait_for_begin(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while _LISTENING not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise TestbedError(f"no capture: {log.read_text(errors='replace').strip()}")
        time.sleep(POLL_INTERVAL_S)


def dropped_packets(words: str) -> int:
    """How many packets tcpdump has missed, by what it says at its end.

    Raises:
        TestbedError: it doesn't say.
    """
    found = re.search(r"(\d+) packets? dropped by kernel", words)
    if found is None:
        raise TestbedError(f"tcpdump ended before its time: {words.strip()}")
    return int(found[1])
