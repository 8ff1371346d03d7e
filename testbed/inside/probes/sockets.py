"""The kernel's view of TCP connections between nodes, sampled at a steady interval.

Only Tor knows which circuit is on which connection; see `inside.checks.watched_pairs`.
"""

import asyncio
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Collection, Sequence, Set
from typing import Any, Generic, TypeVar

from pyroute2 import DiagSocket
from pyroute2.netlink import NLM_F_MATCH, NLM_F_REQUEST, NLM_F_ROOT
from pyroute2.netlink.diag import SOCK_DIAG_BY_FAMILY, inet_diag_req

from testbed.inside.lab.network import Lab
from testbed.inside.recording import Record
from testbed.inside.rows import CompetingSample, SocketSample
from testbed.inside.tor.configuration import OR_PORT
from testbed.plan.model import Pair

ESTABLISHED = 1 << 1
_INET_DIAG_INFO_BIT = 1 << 1

_JUMP, _PEER_IS = 1, 8
"""INET_DIAG_BC_JMP and INET_DIAG_BC_D_COND of linux/inet_diag.h."""
_OPERATION = struct.Struct("=BBH")
_HOST = struct.Struct("=BBxxi4s")
"""Family, length of the prefix, port (-1: any), address."""


class _Request(inet_diag_req):  # type: ignore[misc]  # pyroute2 has no types
    """A request of pyroute2, with the filter that the kernel knows and pyroute2 doesn't."""

    nla_map = (("INET_DIAG_REQ_NONE", "none"), ("INET_DIAG_REQ_BYTECODE", "cdata"))


def connections(
    netlink: DiagSocket, extensions: int, peers: Collection[str | None] | None = None
) -> tuple[Any, ...]:
    """The established TCP connections of a network namespace, as the kernel reports them.

    Args:
        netlink: a socket in it.
        extensions: what to report, a bit for each (linux/inet_diag.h).
        peers: addresses; only connections with one of these. The kernel selects them: a busy
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
    """A program by which the kernel selects the sockets whose peer has one of these addresses.

    For each address: if it is the peer's, jump to the program's end, which accepts the socket;
    otherwise go on. After the last one jump beyond the end, which rejects it (inet_diag_bc_run()).
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


Sample = TypeVar("Sample", bound=SocketSample)


class ConnectionTable(Generic[Sample]):
    """The established TCP connections of one node to others' addresses.

    Args:
        ports: only connections with one of these at either end.
        kind: the class of a sample's row.
    """

    def __init__(
        self,
        lab: Lab,
        node: str,
        peers: Collection[str],
        ports: Set[int],
        kind: type[Sample] = SocketSample,  # type: ignore[assignment]
    ) -> None:
        self.node = node
        self._kind = kind
        self._lab = lab
        self._ports = ports
        self._peers = {lab.plan.node(peer).address: peer for peer in peers}

    def samples(self) -> list[Sample]:
        """A sample of each connection at this moment."""
        return self._lab.answer(self.node, DiagSocket, self._read)

    async def samples_meanwhile(self) -> list[Sample]:
        """The same as `samples` without blocking the event loop."""
        return await self._lab.answer_meanwhile(self.node, DiagSocket, self._read)

    def _read(self, netlink: DiagSocket) -> list[Sample]:
        now_s = time.time()
        return [
            self._sample(now_s, one)
            for one in connections(netlink, _INET_DIAG_INFO_BIT, self._peers)
            if not self._ports.isdisjoint({one["idiag_sport"], one["idiag_dport"]})
        ]

    def _sample(self, now_s: float, one: Any) -> Sample:  # noqa: ANN401 - of pyroute2
        info = one.get_attr("INET_DIAG_INFO")
        return self._kind(
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


def pair_tables(lab: Lab, pairs: Collection[Pair]) -> list[ConnectionTable[SocketSample]]:
    """The connections between pairs of relays: a table for each relay here."""
    peers: dict[str, list[str]] = defaultdict(list)
    for first, second in pairs:
        peers[first].append(second)
        peers[second].append(first)
    return [
        ConnectionTable(lab, relay, its, {OR_PORT})
        for relay, its in peers.items()
        if lab.plan.is_here(relay)
    ]


def competing_tables(lab: Lab) -> list[ConnectionTable[CompetingSample]]:
    """Both ends' views of each entry of competing streams, if here, the sender's first."""
    return [
        ConnectionTable(lab, node, [peer], frozenset(entry.stream_ports), CompetingSample)
        for entry in lab.plan.competing
        for node, peer in ((entry.sender, entry.receiver), (entry.receiver, entry.sender))
        if lab.plan.is_here(node)
    ]


async def sample_steadily(
    tables: Sequence[ConnectionTable[Any]],
    start_s: float,
    end_s: float,
    record: Record,
    every_s: float,
) -> None:
    """Sample every table at each interval from `start_s` to `end_s` (Unix times)."""
    if not tables:
        return
    at_s = start_s
    while at_s < end_s:
        await asyncio.sleep(max(0.0, at_s - time.time()))
        for table in tables:
            for sample in await table.samples_meanwhile():
                record.add(sample)
        at_s += every_s
