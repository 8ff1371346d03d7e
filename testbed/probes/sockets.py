"""The kernel's view of TCP connections between two nodes, sampled at a steady interval.

Which circuit is on which connection is Tor's to say, see `probes.premise`.
"""

import asyncio
import socket
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pyroute2 import DiagSocket
from pyroute2.netlink import NETLINK_SOCK_DIAG
from pyroute2.netlink.diag import MarshalDiag
from pyroute2.netlink.nlsocket import NetlinkSocket

from testbed.lab.network import Lab
from testbed.recording import Rows

SAMPLE_INTERVAL_S = 0.5

ESTABLISHED = 1 << 1
_INET_DIAG_INFO_BIT = 1 << 1


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


class NodeDiagSocket(DiagSocket):  # type: ignore[misc]  # pyroute2 has no types
    """pyroute2's DiagSocket in a network namespace, which its own constructor can't say."""

    def __init__(self, namespace: str) -> None:
        NetlinkSocket.__init__(self, NETLINK_SOCK_DIAG, netns=namespace)
        self.set_marshal(MarshalDiag())


class ConnectionTable:
    """The established TCP connections of one node to another's address.

    Args:
        ports: only connections with one of these at either end.
    """

    def __init__(self, lab: Lab, node: str, peer: str, ports: Collection[int]) -> None:
        self.node, self.peer = node, peer
        self._ports = ports
        self._peer_address = lab.plan.node(peer).address
        self._netlink = NodeDiagSocket(lab.namespace(node))

    def samples(self) -> Iterator[SocketSample]:
        """A sample of each connection at this moment."""
        now_s = time.time()
        answer: tuple[Any, ...] = self._netlink.get_sock_stats(
            family=socket.AF_INET, states=ESTABLISHED, extensions=_INET_DIAG_INFO_BIT
        )
        for one in answer:
            ends = {one["idiag_sport"], one["idiag_dport"]}
            if one["idiag_dst"] != self._peer_address or ends.isdisjoint(self._ports):
                continue
            info = one.get_attr("INET_DIAG_INFO")
            yield SocketSample(
                time_s=now_s,
                node=self.node,
                peer=self.peer,
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

    async def samples_meanwhile(self) -> list[SocketSample]:
        """The same from an event loop: pyroute2 runs one of its own and can't inside another."""
        return await asyncio.to_thread(lambda: list(self.samples()))


async def sample_steadily(
    tables: list[ConnectionTable], start_s: float, end_s: float, rows: Rows
) -> None:
    """Sample every table at each `SAMPLE_INTERVAL_S` from `start_s` to `end_s` (Unix times)."""
    at_s = start_s
    while at_s < end_s:
        await asyncio.sleep(max(0.0, at_s - time.time()))
        for table in tables:
            for sample in await table.samples_meanwhile():
                rows.add(asdict(sample))
        at_s += SAMPLE_INTERVAL_S
