"""One direction of an emulated link: rate, delay, loss and queue on one interface, by netlink.

Which links there are and what they do is the plan's; nodes and addresses are `lab.network`'s.
"""

from dataclasses import dataclass
from socket import IPPROTO_ESP

from pyroute2 import IPRoute
from pyroute2.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, nla, nlmsg
from pyroute2.netlink.rtnl import RTM_NEWQDISC
from pyroute2.netlink.rtnl.tcmsg import sched_netem, tcmsg

HTB_HANDLE = 0x10000
HTB_CLASS = 0x10001
NETEM_HANDLE = 0x100000
NETEM_CLASS = 0x100001
QUEUE_HANDLE = 0x200000

BURST_BYTES = 15_000
"""What may pass back to back at the rate's expense: as on Mininet's own links (`burst 15k`)."""

LEAST_DELAY_NS = 1
"""Given to links without delay, so that netem takes packets off their sender's account.

It does so where there is a delay only. What has no delay would count as still in the sender.
"""

DELAY_LINE_PACKETS = 1_000_000
"""netem's limit: never met. A packet that it refuses, the sender's TCP would learn of at once."""

ETH_P_ALL = 3
"""Packets of any kind (linux/if_ether.h)."""
_PROTOCOL_OFFSET = 9
"""Of the byte in an IPv4 header that says what it carries (RFC 791)."""

HTB_QUANTUM_BYTES = 60_000
"""Only meaningful among several classes; set so that HTB does not warn of a derived one."""


_CREATE = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL


class _NetemMessage(nlmsg):  # type: ignore[misc]  # pyroute2 has no types
    """A request about netem (rtnetlink(7), struct tcmsg), with attributes that pyroute2's lacks.

    A class of our own and not one of tcmsg's: what options that knows, it looks up in a table of
    all its users', and what it inherits would be its own as soon as it has been used once.
    """

    fields = tcmsg.fields
    nla_map = ((1, "TCA_KIND", "asciiz"), (2, "TCA_OPTIONS", "options"))

    class options(nla):  # type: ignore[misc]
        """Numbers as in Linux's include/uapi/linux/pkt_sched.h."""

        fields = sched_netem.options.fields
        nla_map = ((10, "TCA_NETEM_LATENCY64", "int64"), (14, "TCA_NETEM_PRNG_SEED", "uint64"))


@dataclass(frozen=True)
class LinkCounters:
    """What one direction of a link has counted since the lab was built, in packets.

    Attributes:
        sent_packets, sent_bytes: what netem, or else the queue, let pass; of a bundle each segment.
        dropped_packets: losses, and packets that found the queue full.
        overflowed_packets: of these, the latter.
        bundled_segments: those that passed together with another one: the segments less the times
            at which HTB sent. There must be none unless the queue is in the sender.
    """

    sent_packets: int
    sent_bytes: int
    dropped_packets: int
    overflowed_packets: int
    bundled_segments: int


def shape(
    netlink: IPRoute,
    index: int,
    *,
    rate_bit_per_s: int,
    delay_ms: float,
    loss: float,
    queue_packets: int,
    queue_in_sender: bool,
    seed: int,
) -> None:
    """Give an interface's outgoing direction its rate, delay, loss and queue.

    HTB holds the rate, netem below it the delay and the loss, and a FIFO below that the queue. A
    packet goes from the delay line to the queue when its delay is over, and is dropped there if
    the queue is full: the sender learns of that as on a real network, by what does not arrive. (If
    the first qdisc refuses a packet, Linux tells the local TCP, which then reduces its congestion
    window without a loss: right for a host's own network card.) The interface is told
    never to be given a bundle of segments (`gso_max_segs 1`): netem drops socket buffers, and
    TCP would hand it 64 kB at a time, so that a loss of 0.1 % would hit bundles, not packets.

    With `queue_in_sender` the link is the sender's own network card, as Mininet's links without
    delay and loss are: HTB with a FIFO and nothing between. There Linux's TCP has about a
    millisecond's worth of a stream in the queue, at least two bundles of segments, whatever the
    queue's length (TCP small queues: net/ipv4/tcp_output.c, tcp_small_queue_check).

    Args:
        netlink: a socket in the interface's network namespace.
        index: the interface's.
        loss: a share, 0 to 1.
        queue_packets: room for packets that wait, beyond those in the delay line.
        queue_in_sender: only without delay and loss.
        seed: of netem's losses.
    """
    netlink.tc("add", "htb", index, HTB_HANDLE, default=HTB_CLASS & 0xFFFF)
    netlink.tc(
        "add-class",
        "htb",
        index,
        HTB_CLASS,
        parent=HTB_HANDLE,
        rate=rate_bit_per_s // 8,
        burst=BURST_BYTES,
        quantum=HTB_QUANTUM_BYTES,
    )
    if not queue_in_sender:
        netlink.link("set", index=index, gso_max_segs=1)
        delay_ns = max(LEAST_DELAY_NS, round(delay_ms * 1e6))
        netlink.nlm_request_batch([_netem(index, delay_ns, loss, seed)])
    above_queue = HTB_CLASS if queue_in_sender else NETEM_CLASS
    netlink.tc("add", "pfifo", index, QUEUE_HANDLE, parent=above_queue, limit=queue_packets)


def _netem(index: int, delay_ns: int, loss: float, seed: int) -> _NetemMessage:
    """A request to add netem below HTB's class."""
    options = sched_netem.get_parameters({"loss": loss * 100, "limit": DELAY_LINE_PACKETS})
    options["attrs"] += [("TCA_NETEM_LATENCY64", delay_ns), ("TCA_NETEM_PRNG_SEED", seed)]
    message = _NetemMessage()
    message["header"]["type"], message["header"]["flags"] = RTM_NEWQDISC, _CREATE
    message["index"], message["handle"], message["parent"] = index, NETEM_HANDLE, HTB_CLASS
    message["attrs"] = [("TCA_KIND", "netem"), ("TCA_OPTIONS", options)]
    return message


def count_esp(netlink: IPRoute, index: int) -> None:
    """Let an interface that `shape` has set up count its packets, and those of ESP among them.

    By a filter of HTB's that sends packets where they go anyway: it sees each packet of the link,
    and counts those that it looks at and those that match.
    """
    netlink.tc(
        "add-filter",
        "u32",
        index,
        parent=HTB_HANDLE,
        prio=1,
        protocol=ETH_P_ALL,
        target=HTB_CLASS,
        keys=[f"{IPPROTO_ESP:#x}/0xff+{_PROTOCOL_OFFSET}"],
    )


def esp_packets(netlink: IPRoute, index: int) -> tuple[int, int]:
    """What `count_esp` has counted: all packets, and those of ESP."""
    options = (one.get_attr("TCA_OPTIONS") for one in netlink.get_filters(index, parent=HTB_HANDLE))
    (counted,) = (
        found for each in options if each and (found := each.get_attr("TCA_U32_PCNT")) is not None
    )
    return int(counted["rcnt"]), int(counted["rhit"])


def counters(netlink: IPRoute, index: int) -> LinkCounters:
    """Read the counters of an interface that `shape` has set up."""
    qdiscs = {qdisc["handle"]: qdisc.get_attr("TCA_STATS") for qdisc in netlink.get_qdiscs(index)}
    queue = qdiscs[QUEUE_HANDLE]
    first = qdiscs.get(NETEM_HANDLE, queue)
    # Read after the first one's, HTB's count may be ahead by a packet under way, never behind.
    classes = {one["handle"]: one for one in netlink.get_classes(index)}
    bundled_segments = first["packets"] - classes[HTB_CLASS].get_attr("TCA_XSTATS")["lends"]
    return LinkCounters(
        sent_packets=first["packets"],
        sent_bytes=first["bytes"],
        dropped_packets=first["drop"],
        overflowed_packets=queue["drop"],
        bundled_segments=max(0, bundled_segments),
    )
