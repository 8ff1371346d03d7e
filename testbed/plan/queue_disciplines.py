"""The queue disciplines of links, which are Linux's: their keys and default lengths.

`asked.scenario_links` parses the keys; `inside.lab.links` passes them to the kernel.
"""

from collections.abc import Mapping
from dataclasses import dataclass

FIFO = "fifo"


@dataclass(frozen=True)
class Discipline:
    """One of Linux's queue disciplines.

    Attributes:
        queue_packets: default limit of waiting packets: Linux's own, except for `fifo`.
        keys: the link's keys that configure it, by their names in `asked.scenario_links.LinkKeys`,
            and the kernel's number of each (TCA_FQ_CODEL_TARGET and so on, linux/pkt_sched.h);
            `IN_STRUCT` if the kernel takes it in a struct. Linux has defaults for those that a
            scenario leaves out.
    """

    queue_packets: int
    keys: Mapping[str, int]


IN_STRUCT = 0

SFQ_DEFAULTS = {"queue_packets": 127, "flows": 127, "depth": 127, "divisor": 1024}
"""Defaults of sfq's parameters that limit each other: it queues at most `depth` packets of each
flow, and distinguishes at most `divisor` flows."""

DISCIPLINES = {
    # The queue of Mininet's own links, which the paper must have used (it states none).
    FIFO: Discipline(1000, {"queue_packets": IN_STRUCT}),
    # tc-fq_codel(8), RFC 8290
    "fq_codel": Discipline(
        10_240,
        {
            "queue_packets": 2,
            "target_us": 1,
            "interval_us": 3,
            "ecn": 4,
            "ce_threshold_us": 7,
            "flows": 5,
            "quantum_bytes": 6,
            "memory_limit_bytes": 9,
            "drop_batch": 8,
        },
    ),
    # tc-codel(8), RFC 8289
    "codel": Discipline(
        1000,
        {"queue_packets": 2, "target_us": 1, "interval_us": 3, "ecn": 4, "ce_threshold_us": 5},
    ),
    # tc-pie(8), RFC 8033
    "pie": Discipline(
        1000,
        {
            "queue_packets": 2,
            "target_us": 1,
            "tupdate_us": 3,
            "alpha": 4,
            "beta": 5,
            "ecn": 6,
            "bytemode": 7,
        },
    ),
    # tc-cake(8). Its limit is in memory; this many full frames are its limit without a rate.
    "cake": Discipline(
        10_240,
        {"rtt_us": 7, "isolation": 5, "diffserv": 3, "ack_filter": 16, "memory_limit_bytes": 10},
    ),
    # tc-sfq(8), without its variant with RED
    "sfq": Discipline(
        SFQ_DEFAULTS["queue_packets"],
        dict.fromkeys(
            (
                *("queue_packets", "flows", "depth", "divisor"),
                *("quantum_bytes", "perturb_s", "headdrop"),
            ),
            IN_STRUCT,
        ),
    ),
}

OWN_KEYS = tuple(dict.fromkeys(key for each in DISCIPLINES.values() for key in each.keys))
"""The keys of all disciplines."""

CAKE_ISOLATIONS = (
    *("flowblind", "srchost", "dsthost", "hosts"),
    *("flows", "dual-srchost", "dual-dsthost", "triple-isolate"),
)
CAKE_DIFFSERVS = ("diffserv3", "diffserv4", "diffserv8", "besteffort", "precedence")
"""cake's keywords in the order of the kernel's numbers (include/uapi/linux/pkt_sched.h)."""
