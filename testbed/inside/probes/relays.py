"""Samples of relays while a run measures: connections, sockets, memory of Tor and of sockets.

`inside.probes.link_counts` counts what crosses the links.
"""

import asyncio
import re
import struct
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from pyroute2 import DiagSocket

from testbed.inside.lab.network import Lab
from testbed.inside.probes import sockets
from testbed.inside.recording import Record
from testbed.inside.rows import RelaySample
from testbed.inside.tor.configuration import OR_PORT
from testbed.inside.tor.network import TorNetwork
from testbed.inside.tor.process import RunningTor

SAMPLE_INTERVAL_S = 2.0
COUNT_RUNS = "CountSchedulerRuns"
"""The torrc option of scheduler-runs.patch."""
MOST_SAMPLES_PER_S = 4.0
"""The most samples of all relays together: if there are many, each is sampled less often. Each
connection of a relay, up to one with every client, is a row of the kernel's answer."""

_MEMORY_BIT = 1 << 6
_MEMORY_FIELDS = struct.Struct("=9i")
"""The fields of INET_DIAG_SKMEMINFO (linux/sock_diag.h): received, its limit, being sent, its
limit, reserve (below zero for moments), written and not acknowledged, options, backlog, drops."""
_RECEIVED, _RESERVE, _WRITTEN, _OPTIONS = 0, 4, 5, 6

_ANONYMOUS = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)


class RelayProbe:
    """Asks the kernel, and the relay itself if it counts its scheduler's runs, about one relay."""

    def __init__(self, lab: Lab, relay: str, tor: RunningTor, counts_runs: bool) -> None:
        self._lab, self._relay, self._tor, self._counts_runs = lab, relay, tor, counts_runs
        self._process = Path("/proc") / str(tor.process.pid)

    async def sample(self) -> RelaySample:
        """A sample of the relay at this moment."""
        found = await self._lab.answer_meanwhile(self._relay, DiagSocket, self._read)
        if not self._counts_runs:
            return found
        # A thread waits: a relay whose processor is busy takes its time to answer.
        answer = await asyncio.to_thread(self._tor.controller.get_info, "scheduler/runs")
        return replace(found, time_s=time.time(), scheduler_runs=int(answer))

    def _read(self, netlink: DiagSocket) -> RelaySample:
        # All of Tor's protocol, whichever end opened them.
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
    """The memory of a socket in all, by pyroute2's text of SKMEMINFO, such as "60:90:01:…"."""
    fields = _MEMORY_FIELDS.unpack_from(bytes.fromhex(memory.replace(":", "")))
    return sum(fields[place] for place in (_RECEIVED, _RESERVE, _WRITTEN, _OPTIONS))


def _is_socket(file: Path) -> bool:
    try:
        return str(file.readlink()).startswith("socket:")
    except FileNotFoundError:  # closed meanwhile
        return False


async def sample_relays_steadily(
    lab: Lab, network: TorNetwork, start_s: float, end_s: float, record: Record
) -> None:
    """Sample every recorded relay at each interval from `start_s` to `end_s` (Unix times).

    The interval is `SAMPLE_INTERVAL_S`, or more if there are many relays.
    """
    relays = [one for one in lab.plan.recorded_relays if lab.plan.is_here(one)]
    counts_runs = lab.plan.tor.torrc_relay.get(COUNT_RUNS) == ["1"] and network.knows(COUNT_RUNS)
    probes = [RelayProbe(lab, relay, network[relay], counts_runs) for relay in relays]
    interval_s = max(SAMPLE_INTERVAL_S, len(probes) / MOST_SAMPLES_PER_S)
    at_s = start_s
    while at_s < end_s:
        await asyncio.sleep(max(0.0, at_s - time.time()))
        for probe in probes:
            record.add(await probe.sample())
        at_s += interval_s
