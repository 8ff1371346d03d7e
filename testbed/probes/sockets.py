"""The kernel's view of TCP connections between nodes, sampled at a steady interval.

Which circuit is on which connection is Tor's to say, see `probes.premise`.
"""

import asyncio
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Collection, Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any

from pyroute2 import DiagSocket
from pyroute2.netlink import NLM_F_MATCH, NLM_F_REQUEST, NLM_F_ROOT
from pyroute2.netlink.diag import SOCK_DIAG_BY_FAMILY, inet_diag_req

from testbed.lab.network import Lab
from testbed.recording import Rows
from testbed.tor.configuration import OR_PORT

SAMPLE_INTERVAL_S = 0.5
MOST_SAMPLES_PER_S = 16.0
"""Of all nodes together, but for the shared link: of many nodes, each is sampled less often."""

ESTABLISHED = 1 << 1
_INET_DIAG_INFO_BIT = 1 << 1

_JUMP, _PEER_IS = 1, 8
"""INET_DIAG_BC_JMP and INET_DIAG_BC_D_COND of linux/inet_diag.h."""
_OPERATION = struct.Struct("=BBH")
_HOST = struct.Struct("=BBxxi4s")
"""Family, length of the prefix, port (-1: any), address."""


@dataclass(frozen=True)
class SocketSample:
    """A row of sockets.parquet or competing.parquet: one end of a TCP connection.

    Attributes:
        time_s: Unix time.
        node: whose end it is; `peer` is the other node.
        port, peer_port: of the TCP connection; together they name it.
        cwnd_segments, ssthresh_segments: congestion window and slow-start threshold.
        rtt_ms, min_rtt_ms: smoothed, and the least the kernel has seen.
        retransmitted_segments, lost_segments: total so far; thought lost at the moment.
        acknowledged_bytes, received_bytes: totals so far.
        unsent_bytes: handed to the kernel and not yet sent.
    """

    time_s: float
    node: str
    peer: str
    port: int
    peer_port: int
    cwnd_segments: int
    ssthresh_segments: int
    rtt_ms: float
    min_rtt_ms: float
    retransmitted_segments: int
    lost_segments: int
    acknowledged_bytes: int
    received_bytes: int
    unsent_bytes: int


class _Request(inet_diag_req):  # type: ignore[misc]  # pyroute2 has no types
    """pyroute2's request, with the filter that the kernel knows and pyroute2 doesn't."""

    nla_map = (("INET_DIAG_REQ_NONE", "none"), ("INET_DIAG_REQ_BYTECODE", "cdata"))


def connections(
    netlink: DiagSocket, extensions: int, peers: Collection[str | None] | None = None
) -> tuple[Any, ...]:
    """The established TCP connections of a network namespace, as its kernel tells of them.

    Args:
        netlink: a socket there.
        extensions: what it tells, a bit for each (linux/inet_diag.h).
        peers: addresses; only connections with one of these. The kernel picks them out: a busy
            relay has hundreds of others.
    """
    request = _Request()
    request["sdiag_family"], request["sdiag_protocol"] = socket.AF_INET, socket.IPPROTO_TCP
    request["idiag_states"], request["idiag_ext"] = ESTABLISHED, extensions
    if peers is not None:
        addresses = [address for address in peers if address]
        request["attrs"] = [("INET_DIAG_REQ_BYTECODE", connected_with(addresses))]
    flags = NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
    return tuple(netlink.nlm_request(request, SOCK_DIAG_BY_FAMILY, flags))


def connected_with(addresses: Sequence[str]) -> bytes:
    """A program by which the kernel picks the sockets whose peer has one of these addresses.

    For each address: is it the peer's, then jump to the program's end, which takes the socket;
    otherwise go on. After the last one jump beyond the end, which doesn't (inet_diag_bc_run()).
    """
    condition = _OPERATION.size + _HOST.size
    step = condition + _OPERATION.size
    program = b""
    for number, address in enumerate(addresses):
        host = _HOST.pack(socket.AF_INET, 32, -1, socket.inet_aton(address))
        left = (len(addresses) - number) * step
        past = 4 if number == len(addresses) - 1 else 0
        program += _OPERATION.pack(_PEER_IS, condition, step + past) + host
        program += _OPERATION.pack(_JUMP, _OPERATION.size, left - condition)
    return program


class ConnectionTable:
    """The established TCP connections of one node to others' addresses.

    Args:
        ports: only connections with one of these at either end.
    """

    def __init__(self, lab: Lab, node: str, peers: Collection[str], ports: Set[int]) -> None:
        self.node = node
        self._lab = lab
        self._ports = ports
        self._peers = {lab.plan.node(peer).address: peer for peer in peers}

    def samples(self) -> list[SocketSample]:
        """A sample of each connection at this moment."""
        return self._lab.answer(self.node, DiagSocket, self._read)

    async def samples_meanwhile(self) -> list[SocketSample]:
        """The same from an event loop, which goes on."""
        return await self._lab.answer_meanwhile(self.node, DiagSocket, self._read)

    def _read(self, netlink: DiagSocket) -> list[SocketSample]:
        now_s = time.time()
        return [
            self._sample(now_s, one)
            for one in connections(netlink, _INET_DIAG_INFO_BIT, self._peers)
            if not self._ports.isdisjoint({one["idiag_sport"], one["idiag_dport"]})
        ]

    def _sample(self, now_s: float, one: Any) -> SocketSample:  # noqa: ANN401 - of pyroute2
        info = one.get_attr("INET_DIAG_INFO")
        return SocketSample(
            time_s=now_s,
            node=self.node,
            peer=self._peers[one["idiag_dst"]],
            port=one["idiag_sport"],
            peer_port=one["idiag_dport"],
            cwnd_segments=info["tcpi_snd_cwnd"],
            ssthresh_segments=info["tcpi_snd_ssthresh"],
            rtt_ms=info["tcpi_rtt"] / 1000,
            min_rtt_ms=info["tcpi_min_rtt"] / 1000,
            retransmitted_segments=info["tcpi_total_retrans"],
            lost_segments=info["tcpi_lost"],
            acknowledged_bytes=info["tcpi_bytes_acked"],
            received_bytes=info["tcpi_bytes_received"],
            unsent_bytes=info["tcpi_notsent_bytes"],
        )


def shared_link_tables(lab: Lab) -> list[ConnectionTable]:
    """Both ends' views of the shared link, the clients' side first; none if there is none."""
    return _tables_of(lab, [lab.plan.shared_link] if lab.plan.shared_link else [])


def other_watched_tables(lab: Lab) -> list[ConnectionTable]:
    """The views of all other pairs of relays that are watched, one for each relay."""
    return _tables_of(lab, [one for one in lab.plan.watched_pairs if one != lab.plan.shared_link])


def _tables_of(lab: Lab, pairs: Sequence[tuple[str, str]]) -> list[ConnectionTable]:
    peers: dict[str, list[str]] = defaultdict(list)
    for first, second in pairs:
        peers[first].append(second)
        peers[second].append(first)
    return [ConnectionTable(lab, node, its, {OR_PORT}) for node, its in peers.items()]


def interval_s(tables: Sequence[ConnectionTable]) -> float:
    """How often tables are sampled that aren't the shared link's."""
    return max(SAMPLE_INTERVAL_S, len(tables) / MOST_SAMPLES_PER_S)


async def sample_steadily(
    tables: Sequence[ConnectionTable],
    start_s: float,
    end_s: float,
    rows: Rows,
    every_s: float = SAMPLE_INTERVAL_S,
) -> None:
    """Sample every table at each interval from `start_s` to `end_s` (Unix times)."""
    if not tables:
        return
    at_s = start_s
    while at_s < end_s:
        await asyncio.sleep(max(0.0, at_s - time.time()))
        for table in tables:
            for sample in await table.samples_meanwhile():
                rows.add(asdict(sample))
        at_s += every_s
