"""Whether packets crossed the links one by one, or bundles as one, as the scenario says."""

import math
from collections.abc import Iterable, Iterator

from testbed.basics.check import Check
from testbed.plan.model import Plan
from testbed.plan.network import FULL_SIZE_PACKET_BYTES
from testbed.results.link_directions import DirectionCounts, directions
from testbed.results.recorded import Recorded

LEAST_APART_S = 0.01
"""How far apart the readings of a direction's ends may be, before and after measuring together.

After netem packets take no time. Where hundreds of links end at a router its reading takes longer.
"""

ETHERNET_BYTES = 14
"""A frame's header, which some interfaces have taken off a packet when they count it."""

SMALLEST_FRAME_BYTES = 54
"""An acknowledgement: the headers of Ethernet, IPv4 and TCP (14 + 20 + 20)."""


def checks(plan: Plan, recorded: Recorded) -> Iterator[Check]:
    """Check the links of either kind."""
    yield from crossing_checks(list(directions(plan, recorded.tables.links)))


def crossing_checks(directions: Iterable[DirectionCounts]) -> Iterator[Check]:
    """Whether packets crossed the links one by one, or bundles as one, as the scenario says.

    Packets cross one by one if the sender let each segment pass by itself, if as many arrived
    (except those between the readings of the two ends, which the bytes may show to be small), and
    if none was larger than a full frame.
    A link with the queue in its sender lets bundles pass, which are taken apart after it. If
    bundles cross as one, as many must arrive as have departed.
    """
    # All ways into a site share one interface, so nothing counts the arrivals of each.
    all_directions = [one for one in directions if one.roles != ("router", "router")]
    whole = [one for one in all_directions if one.shape.bundles]
    apart = [one for one in all_directions if not (one.shape.bundles or one.shape.queue_in_sender)]
    if apart:
        bundled = [text for direction in apart if (text := _bundling(direction))]
        yield Check(
            name="packets crossed one by one",
            expected=f"on {len(apart)} directions as many arrivals as departures,"
            f" at most {FULL_SIZE_PACKET_BYTES} bytes each",
            observed="; ".join(bundled) or "yes",
            ok=not bundled,
        )
    if whole:
        taken_apart = [text for direction in whole if (text := _lacking(direction))]
        segments = sum(direction.sent_packets for direction in whole)
        bundles = sum(direction.departures for direction in whole)
        yield Check(
            name="bundles crossed as one",
            expected=f"on {len(whole)} directions as many arrivals as departures",
            observed="; ".join(taken_apart)
            or f"yes; {segments / max(1, bundles):.2f} segments a bundle",
            ok=not taken_apart,
        )


def _bundling(direction: DirectionCounts) -> str | None:
    received = direction.received_packets
    bytes_a_packet = direction.received_bytes / received if received else 0.0
    if lacking := _lacking(direction):
        return lacking
    if direction.bundled_segments:
        return f"{direction.name}: {direction.bundled_segments} segments in bundles"
    if bytes_a_packet > FULL_SIZE_PACKET_BYTES:
        return f"{direction.name}: {bytes_a_packet:.0f} bytes a packet"
    return None


def _lacking(direction: DirectionCounts) -> str | None:
    sent, received = direction.departures, direction.received_packets
    if abs(sent - received) > _of_mean_size(direction) and not _are_small(direction):
        return f"{direction.name}: {sent} sent, {received} arrived"
    return None


def _of_mean_size(direction: DirectionCounts) -> int:
    """How many packets or bundles of mean size the link can carry between its readings."""
    if not direction.departures:
        return 0
    mean_bytes = direction.sent_bytes / direction.departures
    return math.ceil(_carried_bytes(direction) / mean_bytes)


def _are_small(direction: DirectionCounts) -> bool:
    """Whether the bytes of the arrivals beyond the departures fit between the readings."""
    received = direction.received_packets
    least_bytes = SMALLEST_FRAME_BYTES * (received - direction.departures)
    whole_bytes = (direction.received_bytes + taken * received for taken in (0, ETHERNET_BYTES))
    return any(
        0 < least_bytes <= whole - direction.sent_bytes <= _carried_bytes(direction)
        for whole in whole_bytes
    )


def _carried_bytes(direction: DirectionCounts) -> float:
    """What the link can carry between its readings."""
    readings_s = max(LEAST_APART_S, direction.readings_apart_s)
    return (direction.shape.rate_bit_per_s or math.inf) * readings_s / 8
