"""What relays hold while a run measures: connections, sockets, memory of Tor and of sockets.

What crosses the links is `probes.premise`'s.
"""

import asyncio
import re
import struct
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from pyroute2 import DiagSocket

from testbed.lab.network import Lab
from testbed.probes import sockets
from testbed.recording import Rows
from testbed.tor.configuration import OR_PORT
from testbed.tor.network import TorNetwork

SAMPLE_INTERVAL_S = 2.0
MOST_SAMPLES_PER_S = 4.0
"""Of all relays together: of many relays, each is sampled less often. Each of its connections, with
every client of a network, is a row of the kernel's answer."""

_MEMORY_BIT = 1 << 6
_MEMORY_FIELDS = struct.Struct("=9i")
"""Of INET_DIAG_SKMEMINFO (linux/sock_diag.h): received, room for that, being sent, room for that,
kept in reserve (below zero for moments), written and not acknowledged, options, backlog, drops."""
_RECEIVED, _RESERVE, _WRITTEN, _OPTIONS = 0, 4, 5, 6

_ANONYMOUS = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True)
class RelaySample:
    """A row of relays.parquet.

    Attributes:
        time_s: Unix time.
        connections: established TCP connections with other Tors, on the emulated links and beside.
        most_opened_to_one: of these, how many it opened itself to one other relay, at most.
        sockets: that Tor has open, of all kinds.
        tor_memory_bytes: anonymous memory that is resident, without the program and its libraries.
        socket_memory_bytes: what the kernel holds for these connections: data received and not
            read, or written and not acknowledged, with their headers, and what it keeps in reserve.
    """

    time_s: float
    relay: str
    connections: int
    most_opened_to_one: int
    sockets: int
    tor_memory_bytes: int
    socket_memory_bytes: int


class RelayProbe:
    """Asks the kernel about one relay."""

    def __init__(self, lab: Lab, relay: str, process: int) -> None:
        self._lab, self._relay, self._process = lab, relay, Path("/proc") / str(process)

    async def sample(self) -> RelaySample:
        """The relay at this moment."""
        return await self._lab.answer_meanwhile(self._relay, DiagSocket, self._read)

    def _read(self, netlink: DiagSocket) -> RelaySample:
        # Each of Tor's protocol, whichever end opened it.
        connections = [
            one
            for one in sockets.connections(netlink, _MEMORY_BIT)
            if OR_PORT in (one["idiag_sport"], one["idiag_dport"])
        ]
        opened = Counter(one["idiag_dst"] for one in connections if one["idiag_dport"] == OR_PORT)
        status = (self._process / "status").read_text()
        anonymous = _ANONYMOUS.search(status)
        return RelaySample(
            time_s=time.time(),
            relay=self._relay,
            connections=len(connections),
            most_opened_to_one=max(opened.values(), default=0),
            sockets=sum(_is_socket(file) for file in (self._process / "fd").iterdir()),
            tor_memory_bytes=1024 * int(anonymous[1]) if anonymous else 0,
            socket_memory_bytes=sum(
                held_bytes(one.get_attr("INET_DIAG_SKMEMINFO")) for one in connections
            ),
        )


def held_bytes(memory: str) -> int:
    """What a socket's memory adds up to, by pyroute2's text of SKMEMINFO, such as "60:90:01:…"."""
    fields = _MEMORY_FIELDS.unpack_from(bytes.fromhex(memory.replace(":", "")))
    return sum(fields[place] for place in (_RECEIVED, _RESERVE, _WRITTEN, _OPTIONS))


def _is_socket(file: Path) -> bool:
    try:
        return str(file.readlink()).startswith("socket:")
    except FileNotFoundError:  # closed meanwhile
        return False


async def sample_relays_steadily(
    lab: Lab, network: TorNetwork, start_s: float, end_s: float, rows: Rows
) -> None:
    """Sample every relay that is watched at each interval from `start_s` to `end_s` (Unix times).

    The interval is `SAMPLE_INTERVAL_S`, or more where there are many relays.
    """
    relays = lab.plan.watched_relays
    probes = [RelayProbe(lab, relay, network[relay].process.pid) for relay in relays]
    interval_s = max(SAMPLE_INTERVAL_S, len(probes) / MOST_SAMPLES_PER_S)
    at_s = start_s
    while at_s < end_s:
        await asyncio.sleep(max(0.0, at_s - time.time()))
        for probe in probes:
            rows.add(asdict(await probe.sample()))
        at_s += interval_s
