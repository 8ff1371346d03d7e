"""One direction of an emulated link: rate, delay, loss and queue on one interface, by netlink.

The plan says which links there are and what they do; `lab.builder` adds nodes and addresses.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from socket import IPPROTO_ESP
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink import nla, nlmsg
from pyroute2.netlink.rtnl.tcmsg import sched_htb, sched_netem, sched_sfq, tcmsg

from testbed.inside.lab.requests import new_filter, new_htb_class, new_qdisc, set_link
from testbed.plan.network import Shape
from testbed.plan.parts import LEAST_DELAY_NS
from testbed.plan.queue_disciplines import CAKE_DIFFSERVS, CAKE_ISOLATIONS, DISCIPLINES, FIFO

ETH_P_IP = 0x0800
TC_H_ROOT = 0xFFFF_FFFF

HTB_HANDLE = 0x10000
HTB_CLASS = 0x10001
NETEM_HANDLE = 0x100000
NETEM_CLASS = 0x100001
QUEUE_HANDLE = 0x200000

BURST_BYTES = 15_000
"""Mininet's value (`burst 15k`). It never matters, as the ceiling is the rate.

Of the ceiling's credit HTB saves up 1600 bytes (`cburst` in tc-htb(8), the default of tc and of
pyroute2). So at most two full frames pass back to back.
"""

DELAY_LINE_PACKETS = 1_000_000
"""netem's limit, never reached: the sender's TCP would learn at once of a packet it refuses."""

ETH_P_ALL = 3
"""Packets of any kind (linux/if_ether.h)."""
_PROTOCOL_OFFSET = 9
"""Offset of the protocol's number in an IPv4 header (RFC 791)."""

HTB_QUANTUM_BYTES = 60_000
"""Only meaningful among several classes; set because HTB warns of the value it would derive."""

UNLIMITED_BIT_PER_S = 32_000_000_000
"""Rate of a direction without one: the most that HTB takes in 32 bits, as bytes per second."""

_TRUNK_HANDLE = 0x10000
"""Handle of a trunk's first qdisc. Qdiscs below it are numbered from 2; the ways' follow."""
_PRIO_BANDS = 16
_TRUNK_WAY_HANDLE = 0x1000


class _QdiscMessage(nlmsg):  # type: ignore[misc]  # pyroute2 has no types
    """A request to add a qdisc (rtnetlink(7), struct tcmsg), with options that pyroute2 lacks.

    It is not derived from pyroute2's tcmsg, which keeps its options in one table for all users, and
    whose subclasses change that table once they are used. Each kind of qdisc has a class below,
    with the numbers of Linux's include/uapi/linux/pkt_sched.h.
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
    """Request for a qdisc whose parameters are numbered attributes of 32 bits."""

    class options(nla):  # type: ignore[misc]
        nla_map = tuple((number, f"TCA_{number}", "uint32") for number in range(1, 19))


_CAKE_SPLIT_GSO = 17
"""Number of the attribute by which cake splits TCP's bundles (TCA_CAKE_SPLIT_GSO)."""


@dataclass(frozen=True)
class LinkCounters:
    """Packets that one direction of a link has counted since the lab was built.

    Attributes:
        sent_packets, sent_bytes: passed by netem, or by the queue if there is no netem; each
            segment of a bundle counts.
        dropped_packets: lost, or dropped by the queue; a bundle counts once.
        overflowed_packets: those dropped by the queue, because it was full or by its discipline.
        bundled_segments: segments that passed together with another one: all segments less HTB's
            number of sends. It must be 0 unless the queue is in the sender or bundles cross as one.
        waiting_bytes: in the queue now.
    """

    sent_packets: int
    sent_bytes: int
    dropped_packets: int
    overflowed_packets: int
    bundled_segments: int
    waiting_bytes: int

    @property
    def sent_bundles(self) -> int:
        """Packets that passed; a bundle counts once."""
        return self.sent_packets - self.bundled_segments


def shape(index: int, link: Shape, seed: int) -> Iterator[nlmsg]:
    """Requests that give an interface's outgoing direction its rate, delay, loss and queue.

    HTB enforces the rate; below it netem adds delay and loss; below netem is the queue. A packet
    moves from the delay line to the queue when its delay is over, and is dropped there if the queue
    is full. The sender learns of the drop as on a real network: the packet does not arrive. (If the
    first qdisc refused a packet, Linux would tell the local TCP, which would reduce its congestion
    window without a loss. That is right only for a host's own network card.)

    So the queue discipline sees no packet whose delay isn't over. netem passes on all packets that
    are due whenever HTB asks for one, which at a full link is each time a packet has been sent. A
    packet that becomes due in between enters the queue then, late by less than one packet's time.

    Without `bundles` TCP must not give the interface bundles of segments (`gso_max_segs 1`). netem
    drops socket buffers, and TCP would fill them with up to 64 kB, so a loss of 0.1 % would apply
    to bundles and not to packets, as it does on Mininet's own links. A largest bundle is set in the
    same way.

    With `queue_in_sender` the link is the sender's own network card, as Mininet's links without
    delay and loss are: HTB with a queue and no netem. There Linux's TCP keeps about a millisecond's
    worth of a stream in the queue, and at least two bundles of segments, whatever the queue's
    length (TCP small queues: net/ipv4/tcp_output.c, tcp_small_queue_check).

    Args:
        index: index of the interface.
        link: shape of the direction.
        seed: seed of netem's losses.
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
    """Requests that give an interface a delay line and losses for each destination.

    A site's router sends all packets that leave the site by one interface. Two levels of prio with
    sixteen bands each choose among 256 delay lines by the second byte of the destination's address,
    its upper half first. Only the delay lines that a way needs are made. They have no rate, so none
    waits for another.

    Args:
        index: index of the interface.
        ways: shape of the way and seed of its losses, by the destination's block of addresses
            (`testbed.plan.addresses`).
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
    """Requests for a prio whose bands are chosen by half of the destination's second byte."""
    options = {"bands": _PRIO_BANDS, "priomap": bytes(16)}
    yield _qdisc(index, handle, parent, "prio", options)
    for half in sorted(halves):
        value, mask = half << (16 + shift), 0xF << (16 + shift)
        key = f"{value:#010x}/{mask:#010x}+16"
        yield new_filter(index, handle, ETH_P_IP, handle + half + 1, key)


def _trunk_way_handle(block: int) -> int:
    return (_TRUNK_WAY_HANDLE + block) << 16


def trunk_counters(netlink: IPRoute, index: int) -> Mapping[int, "LinkCounters"]:
    """Read the counters of all ways of an interface set up by `trunk`, by block."""
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
    # netem detaches packets from the sending socket only if it delays them (entirely: kernel patch
    # 0010). Without a delay they would count as still in the sender, whose TCP sends nothing again
    # that waits there.
    delay_ns = max(LEAST_DELAY_NS, round(link.delay_ms * 1e6))
    options: dict[str, Any] = sched_netem.get_parameters(
        {"loss": link.loss * 100, "limit": DELAY_LINE_PACKETS}
    )
    options["attrs"] += [("TCA_NETEM_LATENCY64", delay_ns), ("TCA_NETEM_PRNG_SEED", seed)]
    if link.jitter_ms:
        # Without a table netem draws evenly from an interval around the delay.
        options["attrs"].append(("TCA_NETEM_JITTER64", round(link.jitter_ms * 1e6 * math.sqrt(3))))
    return options


def _queue_options(link: Shape) -> dict[str, Any]:
    """A queue discipline's parameters as its qdisc takes them; Linux has defaults for the rest."""
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
            if "isolation" in said:
                said["isolation"] = CAKE_ISOLATIONS.index(said["isolation"])
            if "diffserv" in said:
                said["diffserv"] = CAKE_DIFFSERVS.index(said["diffserv"])
    keys = DISCIPLINES[link.queue_discipline].keys
    numbered = {keys[name]: int(value) for name, value in said.items()}
    if link.queue_discipline == "cake":
        numbered[_CAKE_SPLIT_GSO] = int(not link.bundles)
    return {"attrs": [(f"TCA_{number}", value) for number, value in numbered.items()]}


_MESSAGES = {"netem": _NetemMessage, "prio": _PrioMessage, "sfq": _SfqMessage}


def _qdisc(index: int, handle: int, parent: int, kind: str, options: dict[str, Any]) -> nlmsg:
    """Request for a qdisc below another one, with options that pyroute2 doesn't know."""
    message = _MESSAGES.get(kind, _AttributesMessage)()
    return new_qdisc(index, handle, parent, kind, options, message)


def count_esp(index: int) -> nlmsg:
    """Request that makes an interface set up by `shape` count packets, and ESP among them.

    It adds a filter to HTB that sends packets where they go anyway. The filter sees each packet of
    the link, and counts all packets and those that match.
    """
    key = f"{IPPROTO_ESP:#x}/0xff+{_PROTOCOL_OFFSET}"
    return new_filter(index, HTB_HANDLE, ETH_P_ALL, HTB_CLASS, key)


def esp_packets(netlink: IPRoute, index: int) -> tuple[int, int]:
    """Read what `count_esp` has counted: all packets, and ESP packets."""
    options = (one.get_attr("TCA_OPTIONS") for one in netlink.get_filters(index, parent=HTB_HANDLE))
    (counted,) = (
        found for each in options if each and (found := each.get_attr("TCA_U32_PCNT")) is not None
    )
    return int(counted["rcnt"]), int(counted["rhit"])


def counters(netlink: IPRoute, indexes: Collection[int]) -> dict[int, LinkCounters]:
    """Read the counters of interfaces set up by `shape`, by index."""
    qdiscs: dict[int, dict[int, Any]] = {index: {} for index in indexes}
    # HTB is read after the qdiscs: its count may be ahead by a packet under way, but never behind.
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
