"""The queue disciplines that a link can have, as Linux has them: their keys and their lengths.

What a key may say is `testbed.scenario`'s; how the kernel is told is `testbed.lab.links`'s.
"""

from dataclasses import dataclass

FIFO = "fifo"


@dataclass(frozen=True)
class Discipline:
    """A discipline of Linux.

    Attributes:
        queue_packets: the most packets that wait, unless a scenario says otherwise: Linux's own
            default, but for `fifo`.
        keys: those of a link that belong to it, by their names in `testbed.scenario.LinkKeys`.
            What none of them says, Linux's default says.
    """

    queue_packets: int
    keys: tuple[str, ...]


SFQ_DEFAULTS = {"queue_packets": 127, "flows": 127, "depth": 127, "divisor": 1024}
"""Of those that limit each other: sfq holds depth packets of each flow, and has divisor flows."""

DISCIPLINES = {
    # The queue of Mininet's own links, which is what the paper must have had (it states none).
    FIFO: Discipline(1000, ("queue_packets",)),
    # tc-fq_codel(8), RFC 8290
    "fq_codel": Discipline(
        10_240,
        (
            *("queue_packets", "target_us", "interval_us", "ecn", "ce_threshold_us"),
            *("flows", "quantum_bytes", "memory_limit_bytes", "drop_batch"),
        ),
    ),
    # tc-codel(8), RFC 8289
    "codel": Discipline(
        1000, ("queue_packets", "target_us", "interval_us", "ecn", "ce_threshold_us")
    ),
    # tc-pie(8), RFC 8033
    "pie": Discipline(
        1000, ("queue_packets", "target_us", "tupdate_us", "alpha", "beta", "ecn", "bytemode")
    ),
    # tc-cake(8). Its length is counted in memory; so many full frames are its limit without a rate.
    "cake": Discipline(
        10_240, ("rtt_us", "isolation", "diffserv", "ack_filter", "memory_limit_bytes")
    ),
    # tc-sfq(8), without its variant with RED
    "sfq": Discipline(
        SFQ_DEFAULTS["queue_packets"],
        ("queue_packets", "flows", "depth", "divisor", "quantum_bytes", "perturb_s", "headdrop"),
    ),
}

OWN_KEYS = tuple(dict.fromkeys(key for each in DISCIPLINES.values() for key in each.keys))
"""The keys of all disciplines together."""

CAKE_ISOLATIONS = (
    *("flowblind", "srchost", "dsthost", "hosts"),
    *("flows", "dual-srchost", "dual-dsthost", "triple-isolate"),
)
CAKE_DIFFSERVS = ("diffserv3", "diffserv4", "diffserv8", "besteffort", "precedence")
"""cake's words, in the order of the kernel's numbers (include/uapi/linux/pkt_sched.h)."""
