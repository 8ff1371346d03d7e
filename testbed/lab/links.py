"""One direction of an emulated link: rate, delay, loss and queue on one interface, by netlink.

Which links there are and what they do is the plan's; nodes and addresses are `lab.network`'s.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from socket import IPPROTO_ESP
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink import nla, nlmsg
from pyroute2.netlink.rtnl.tcmsg import sched_htb, sched_netem, sched_sfq, tcmsg

from testbed.lab.requests import new_filter, new_htb_class, new_qdisc, set_link
from testbed.network.model import Shape
from testbed.queue_disciplines import CAKE_DIFFSERVS, CAKE_ISOLATIONS, FIFO

ETH_P_IP = 0x0800
TC_H_ROOT = 0xFFFF_FFFF

HTB_HANDLE = 0x10000
HTB_CLASS = 0x10001
NETEM_HANDLE = 0x100000
NETEM_CLASS = 0x100001
QUEUE_HANDLE = 0x200000

BURST_BYTES = 15_000
"""As on Mininet's own links (`burst 15k`), and as there it never counts: the ceiling is the rate,
and of the ceiling's credit HTB saves up 1600 bytes (`cburst` in tc-htb(8), the default of tc and
of pyroute2). So two full frames may pass back to back, and no more."""

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


UNLIMITED_BIT_PER_S = 32_000_000_000
"""Of a direction without a rate: the most that HTB takes as 32 bits of bytes a second."""

_TRUNK_HANDLE = 0x10000
"""The first qdisc of a trunk. Those below it have the numbers from 2 on, then come the ways'."""
_PRIO_BANDS = 16
_TRUNK_WAY_HANDLE = 0x1000


class _QdiscMessage(nlmsg):  # type: ignore[misc]  # pyroute2 has no types
    """A request to add a qdisc (rtnetlink(7), struct tcmsg), with options that tcmsg's lacks.

    A class of our own and not one of tcmsg's: what options that knows, it looks up in a table of
    all its users', and what it inherits would be its own as soon as it has been used once. Below
    it each kind of qdisc has a class, with numbers as in Linux's include/uapi/linux/pkt_sched.h.
    """

    fields = tcmsg.fields
    nla_map = ((1, "TCA_KIND", "asciiz"), (2, "TCA_OPTIONS", "options"))


class _NetemMessage(_QdiscMessage):
    class options(nla):  # type: ignore[misc]
        fields = sched_netem.options.fields
        nla_map = (
            (10, "TCA_NETEM_LATENCY64", "int64"),
            (11, "TCA_NETEM_JITTER64", "int64"),
            (14, "TCA_NETEM_PRNG_SEED", "uint64"),
        )


class _PrioMessage(_QdiscMessage):
    class options(nla):  # type: ignore[misc]
        fields = (("bands", "i"), ("priomap", "16s"))


class _SfqMessage(_QdiscMessage):
    class options(nla):  # type: ignore[misc]
        fields = sched_sfq.options_sfq_v1.fields


class _AttributesMessage(_QdiscMessage):
    """Of the kinds whose parameters are attributes of 32 bits, by their numbers."""

    class options(nla):  # type: ignore[misc]
        nla_map = tuple((number, f"TCA_{number}", "uint32") for number in range(1, 19))


_ATTRIBUTES = {
    "fq_codel": {
        "target_us": 1,
        "queue_packets": 2,
        "interval_us": 3,
        "ecn": 4,
        "flows": 5,
        "quantum_bytes": 6,
        "ce_threshold_us": 7,
        "drop_batch": 8,
        "memory_limit_bytes": 9,
    },
    "codel": {
        "target_us": 1,
        "queue_packets": 2,
        "interval_us": 3,
        "ecn": 4,
        "ce_threshold_us": 5,
    },
    "pie": {
        "target_us": 1,
        "queue_packets": 2,
        "tupdate_us": 3,
        "alpha": 4,
        "beta": 5,
        "ecn": 6,
        "bytemode": 7,
    },
    "cake": {
        "diffserv": 3,
        "isolation": 5,
        "rtt_us": 7,
        "memory_limit_bytes": 10,
        "ack_filter": 16,
        "split_gso": 17,
    },
}
"""The number of each parameter among a qdisc's attributes (TCA_FQ_CODEL_TARGET and so on)."""


@dataclass(frozen=True)
class LinkCounters:
    """What one direction of a link has counted since the lab was built, in packets.

    Attributes:
        sent_packets, sent_bytes: what netem, or else the queue, let pass; of a bundle each segment.
        dropped_packets: losses, and what the queue dropped; a bundle is one.
        overflowed_packets: of these, the latter: they found the queue full, or its discipline
            chose them.
        bundled_segments: those that passed together with another one: the segments less the times
            at which HTB sent. There must be none unless the queue is in the sender, or bundles
            cross as one.
        waiting_bytes: in the queue, now.
    """

    sent_packets: int
    sent_bytes: int
    dropped_packets: int
    overflowed_packets: int
    bundled_segments: int
    waiting_bytes: int

    @property
    def sent_bundles(self) -> int:
        """What passed, a bundle counted as one."""
        return self.sent_packets - self.bundled_segments


def shape(index: int, link: Shape, seed: int) -> Iterator[nlmsg]:
    """The requests that give an interface's outgoing direction its rate, delay, loss and queue.

    HTB holds the rate, netem below it the delay and the loss, and below that is the queue. A
    packet goes from the delay line to the queue when its delay is over, and is dropped there if
    the queue is full: the sender learns of that as on a real network, by what does not arrive. (If
    the first qdisc refuses a packet, Linux tells the local TCP, which then reduces its congestion
    window without a loss: right for a host's own network card.)

    So the queue discipline sees no packet that is still under way. netem hands on all whose delay
    is over whenever HTB asks for one: at a full link, each time one has been sent. What comes
    meanwhile has its time in the queue counted from then, by less than one packet's time too late.

    Without `bundles` the interface is told never to be given a bundle of segments
    (`gso_max_segs 1`): netem drops socket buffers, and TCP would hand it 64 kB at a time, so that
    a loss of 0.1 % would hit bundles, not packets. That is what it does on Mininet's own links.
    A largest bundle is told in the same way.

    With `queue_in_sender` the link is the sender's own network card, as Mininet's links without
    delay and loss are: HTB with a queue and nothing between. There Linux's TCP has about a
    millisecond's worth of a stream in the queue, at least two bundles of segments, whatever the
    queue's length (TCP small queues: net/ipv4/tcp_output.c, tcp_small_queue_check).

    Args:
        index: the interface's.
        link: what the direction does.
        seed: of netem's losses.
    """
    options = sched_htb.get_parameters({"default": HTB_CLASS & 0xFFFF})
    yield new_qdisc(index, HTB_HANDLE, TC_H_ROOT, "htb", options)
    yield new_htb_class(
        index,
        HTB_CLASS,
        HTB_HANDLE,
        rate=(link.rate_bit_per_s or UNLIMITED_BIT_PER_S) // 8,
        burst=BURST_BYTES,
        quantum=HTB_QUANTUM_BYTES,
    )
    takes_bundles = link.bundles or link.queue_in_sender
    if largest_bundle := link.largest_bundle_segments if takes_bundles else 1:
        yield set_link(index, gso_max_segs=largest_bundle)
    if not link.queue_in_sender:
        yield _qdisc(index, NETEM_HANDLE, HTB_CLASS, "netem", _netem_options(link, seed))
    above_queue = HTB_CLASS if link.queue_in_sender else NETEM_CLASS
    if link.queue_discipline == FIFO:
        yield new_qdisc(index, QUEUE_HANDLE, above_queue, "pfifo", {"limit": link.queue_packets})
    else:
        yield _qdisc(index, QUEUE_HANDLE, above_queue, link.queue_discipline, _queue_options(link))


def trunk(index: int, ways: Mapping[int, tuple[Shape, int]]) -> Iterator[nlmsg]:
    """The requests that give an interface a delay line and losses for each destination.

    A site's router sends all that leaves the site by one interface. Below it are two levels of
    prio with sixteen bands each, which the second byte of the destination's address chooses, its
    upper half first: 256 delay lines, of which those are there that a way needs. They have no
    rate, so that none waits for another.

    Args:
        ways: the shape of the way and the seed of its losses, by the destination's block of
            addresses (`testbed.addresses`).
    """
    yield set_link(index, gso_max_segs=1)
    yield from _bands(index, _TRUNK_HANDLE, TC_H_ROOT, {block >> 4 for block in ways}, shift=4)
    for upper in sorted({block >> 4 for block in ways}):
        handle = (2 + upper) << 16
        lower = {block & 15 for block in ways if block >> 4 == upper}
        yield from _bands(index, handle, _TRUNK_HANDLE + upper + 1, lower, shift=0)
        for block in sorted(upper << 4 | one for one in lower):
            way, seed = ways[block]
            parent = handle + (block & 15) + 1
            yield _qdisc(
                index, _trunk_way_handle(block), parent, "netem", _netem_options(way, seed)
            )


def _bands(
    index: int, handle: int, parent: int, halves: Collection[int], shift: int
) -> Iterator[nlmsg]:
    """A prio whose bands half a byte of the destination chooses: the address's second."""
    options = {"bands": _PRIO_BANDS, "priomap": bytes(16)}
    yield _qdisc(index, handle, parent, "prio", options)
    for half in sorted(halves):
        value, mask = half << (16 + shift), 0xF << (16 + shift)
        key = f"{value:#010x}/{mask:#010x}+16"
        yield new_filter(index, handle, ETH_P_IP, handle + half + 1, key)


def _trunk_way_handle(block: int) -> int:
    return (_TRUNK_WAY_HANDLE + block) << 16


def trunk_counters(netlink: IPRoute, index: int) -> Mapping[int, "LinkCounters"]:
    """Read the counters of all ways of an interface that `trunk` has set up, by block."""
    found = {}
    for qdisc in netlink.get_qdiscs(index):
        block = (qdisc["handle"] >> 16) - _TRUNK_WAY_HANDLE
        if 0 <= block < 256:
            statistics = qdisc.get_attr("TCA_STATS")
            found[block] = LinkCounters(
                sent_packets=statistics["packets"],
                sent_bytes=statistics["bytes"],
                dropped_packets=statistics["drop"],
                overflowed_packets=0,
                bundled_segments=0,
                waiting_bytes=0,
            )
    return found


def _netem_options(link: Shape, seed: int) -> dict[str, Any]:
    delay_ns = max(LEAST_DELAY_NS, round(link.delay_ms * 1e6))
    options: dict[str, Any] = sched_netem.get_parameters(
        {"loss": link.loss * 100, "limit": DELAY_LINE_PACKETS}
    )
    options["attrs"] += [("TCA_NETEM_LATENCY64", delay_ns), ("TCA_NETEM_PRNG_SEED", seed)]
    if link.jitter_ms:
        # Without a table netem draws evenly from as much before and after the delay.
        options["attrs"].append(("TCA_NETEM_JITTER64", round(link.jitter_ms * 1e6 * math.sqrt(3))))
    return options


def _queue_options(link: Shape) -> dict[str, Any]:
    """A queue discipline's parameters as its qdisc takes them; what isn't said, Linux decides."""
    said: dict[str, Any] = {"queue_packets": link.queue_packets, **link.queue_parameters}
    match link.queue_discipline:
        case "sfq":
            return {
                "limit_v0": said["queue_packets"],
                "quantum": said.get("quantum_bytes", 0),
                "perturb_period": said.get("perturb_s", 0),
                "divisor": said.get("divisor", 0),
                "flows": said.get("flows", 0),
                "depth": said.get("depth", 0),
                "headdrop": int(said.get("headdrop", False)),
            }
        case "cake":
            del said["queue_packets"]
            said["split_gso"] = not link.bundles
            if "isolation" in said:
                said["isolation"] = CAKE_ISOLATIONS.index(said["isolation"])
            if "diffserv" in said:
                said["diffserv"] = CAKE_DIFFSERVS.index(said["diffserv"])
    numbers = _ATTRIBUTES[link.queue_discipline]
    return {"attrs": [(f"TCA_{numbers[name]}", int(value)) for name, value in said.items()]}


_MESSAGES = {"netem": _NetemMessage, "prio": _PrioMessage, "sfq": _SfqMessage}


def _qdisc(index: int, handle: int, parent: int, kind: str, options: dict[str, Any]) -> nlmsg:
    """A request for a qdisc with options that pyroute2 doesn't know, below another one."""
    message = _MESSAGES.get(kind, _AttributesMessage)()
    return new_qdisc(index, handle, parent, kind, options, message)


def count_esp(index: int) -> nlmsg:
    """The request that lets an interface that `shape` has set up count packets, and ESP among them.

    By a filter of HTB's that sends packets where they go anyway: it sees each packet of the link,
    and counts those that it looks at and those that match.
    """
    key = f"{IPPROTO_ESP:#x}/0xff+{_PROTOCOL_OFFSET}"
    return new_filter(index, HTB_HANDLE, ETH_P_ALL, HTB_CLASS, key)


def esp_packets(netlink: IPRoute, index: int) -> tuple[int, int]:
    """What `count_esp` has counted: all packets, and those of ESP."""
    options = (one.get_attr("TCA_OPTIONS") for one in netlink.get_filters(index, parent=HTB_HANDLE))
    (counted,) = (
        found for each in options if each and (found := each.get_attr("TCA_U32_PCNT")) is not None
    )
    return int(counted["rcnt"]), int(counted["rhit"])


def counters(netlink: IPRoute, indexes: Collection[int]) -> dict[int, LinkCounters]:
    """Read the counters of interfaces that `shape` has set up, by their indexes."""
    qdiscs: dict[int, dict[int, Any]] = {index: {} for index in indexes}
    # Read after the qdiscs, HTB's count may be ahead by a packet under way, never behind.
    for qdisc in netlink.get_qdiscs():
        if qdisc["index"] in qdiscs:
            qdiscs[qdisc["index"]][qdisc["handle"]] = qdisc.get_attr("TCA_STATS")
    return {index: _counted(found, netlink.get_classes(index)) for index, found in qdiscs.items()}


def _counted(qdiscs: Mapping[int, Any], htb_classes: Iterable[Any]) -> LinkCounters:
    queue = qdiscs[QUEUE_HANDLE]
    first = qdiscs.get(NETEM_HANDLE, queue)
    classes = {one["handle"]: one for one in htb_classes}
    bundled_segments = first["packets"] - classes[HTB_CLASS].get_attr("TCA_XSTATS")["lends"]
    return LinkCounters(
        sent_packets=first["packets"],
        sent_bytes=first["bytes"],
        dropped_packets=first["drop"],
        overflowed_packets=queue["drop"],
        bundled_segments=max(0, bundled_segments),
        waiting_bytes=queue["backlog"],
    )
