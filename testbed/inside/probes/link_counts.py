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
    began_s = lab.meeting.meet()
    elsewhere = []
    time_s = time.time()
    for directions, counted in lab.sent():
        for direction, sent in zip(directions, counted, strict=True):
            if lab.plan.is_here(direction.receiver):
                _add_link(record, time_s, when, direction, sent, lab.arrivals(direction))
            else:
                elsewhere.append((time_s, direction, sent))
        time_s = time.time()
    if began_s is not None:
        arrived = _arrivals_between_parts(lab, began_s)
        for time_s, direction, sent in elsewhere:
            packets, size = arrived[_name(direction)]
            _add_link(record, time_s, when, direction, sent, (packets, size))
    for way, sent in lab.way_counters():
        _add_link(record, time_s, when, way, sent, (None, None))


def _arrivals_between_parts(lab: Lab, began_s: float) -> dict[str, tuple[int, int]]:
    """What has arrived over links between parts of all that was sent until an instant."""
    here = {}
    coming = [one for one in lab.directions if lab.comes_from_elsewhere(one)]
    for direction in sorted(coming, key=lambda one: one.shape.delay_ms):
        time.sleep(max(0.0, began_s + direction.shape.delay_ms / 1000 - time.time()))
        here[_name(direction)] = lab.arrivals(direction)
    return {name: tuple(one) for part in lab.meeting.exchange(here) for name, one in part.items()}


def _name(direction: Direction) -> str:
    return f"{direction.sender} to {direction.receiver}"


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
