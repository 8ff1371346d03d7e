"""The counts of each direction of each link."""

import time

from testbed.inside.lab.links import LinkCounters
from testbed.inside.lab.network import Direction, Lab
from testbed.inside.recording import Record
from testbed.inside.rows import LinkCount


def record_links(lab: Lab, when: str, record: Record) -> None:
    """Record the counts of each direction of each link so far.

    The sender's are those of its qdiscs, the receiver's those of its interface. A row's time is
    that at which its reading began. A way from site to site has no interface of its own at its
    end, so the receiver's counts are null.
    """
    time_s = time.time()
    for directions, counted in lab.sent():
        for direction, sent in zip(directions, counted, strict=True):
            _add_link(record, time_s, when, direction, sent, lab.arrivals(direction))
        time_s = time.time()
    for way, sent in lab.way_counters():
        _add_link(record, time_s, when, way, sent, (None, None))


def _add_link(
    record: Record,
    time_s: float,
    when: str,
    direction: Direction,
    sent: LinkCounters,
    arrived: tuple[int, int] | tuple[None, None],
) -> None:
    received_packets, received_bytes = arrived
    record.add(
        LinkCount(
            time_s=time_s,
            when=when,
            sender=direction.sender,
            receiver=direction.receiver,
            sent_packets=sent.sent_packets,
            sent_bytes=sent.sent_bytes,
            dropped_packets=sent.dropped_packets,
            overflowed_packets=sent.overflowed_packets,
            bundled_segments=sent.bundled_segments,
            received_packets=received_packets,
            received_bytes=received_bytes,
        )
    )
