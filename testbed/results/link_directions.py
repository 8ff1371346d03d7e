"""The counts of each direction of a link while measuring, with the shape that it should have."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars

from testbed.basics.errors import TestbedError
from testbed.plan.model import Plan
from testbed.plan.network import Shape
from testbed.results.recorded import Recorded

Reading = tuple[str, str, str]
"""When it was, and the direction's sender and receiver."""


@dataclass(frozen=True)
class DirectionCounts:
    """The counts of one direction of a link while measuring.

    Attributes:
        roles: of the sender and the receiver.
        sent_packets, received_packets: a bundle that crosses as one counts once for each segment
            when sent, and once when received.
        lost_packets: lost by the link's loss; a bundle counts once.
        overflowed_packets: those that found the queue full, or that its discipline dropped.
        readings_apart_s: how far apart the readings of the two ends were at most, before and after
            measuring together.
    """

    shape: Shape
    sender: str
    receiver: str
    roles: tuple[str, str]
    sent_packets: int
    sent_bytes: int
    lost_packets: int
    overflowed_packets: int
    bundled_segments: int
    received_packets: int
    received_bytes: int
    readings_apart_s: float

    @property
    def name(self) -> str:
        """Both ends, the sender first."""
        return f"{self.sender} to {self.receiver}"

    @property
    def departures(self) -> int:
        """How many packets crossed, or bundles if they cross as one."""
        return self.sent_packets - (self.bundled_segments if self.shape.bundles else 0)

    @property
    def offered(self) -> int:
        """How many packets were sent to cross, lost ones too, or bundles if they cross as one."""
        return self.departures + self.lost_packets + self.overflowed_packets


def queue_drops(plan: Plan, recorded: Recorded) -> str:
    """A sentence on the packets that queues dropped, by the roles of the link; empty if none.

    It is no check: a queue may overflow, and most disciplines drop packets before that.
    """
    drops: dict[tuple[str, str], int] = defaultdict(int)
    for direction in directions(plan, recorded.tables.links):
        if direction.overflowed_packets:
            drops[direction.roles] += direction.overflowed_packets
    texts = [f"{count} from {first} to {second}" for (first, second), count in drops.items()]
    return f"packets dropped by queues: {', '.join(texts)}" if texts else ""


def directions(plan: Plan, links: polars.DataFrame) -> Iterator[DirectionCounts]:
    """Give the counts of both directions of each link.

    Raises:
        TestbedError: the record of the links lacks a reading.
    """
    readings = {
        (row["when"], row["sender"], row["receiver"]): row for row in links.iter_rows(named=True)
    }
    apart_s = _apart_s(plan, readings)
    for link in plan.links:
        for sender, receiver, shape in link.directions():
            ends = (sender, receiver)
            roles = link.roles if ends == link.ends else link.roles[::-1]
            try:
                before, after = readings["before", *ends], readings["after", *ends]
            except KeyError as missing:
                when = missing.args[0][0]
                raise TestbedError(
                    f"raw/links.jsonl: no reading of {ends[0]} to {ends[1]} {when} measuring"
                ) from None
            overflowed = after["overflowed_packets"] - before["overflowed_packets"]
            yield DirectionCounts(
                shape=shape,
                sender=ends[0],
                receiver=ends[1],
                roles=(roles[0], roles[1]),
                sent_packets=after["sent_packets"] - before["sent_packets"],
                sent_bytes=after["sent_bytes"] - before["sent_bytes"],
                lost_packets=after["dropped_packets"] - before["dropped_packets"] - overflowed,
                overflowed_packets=overflowed,
                bundled_segments=after["bundled_segments"] - before["bundled_segments"],
                received_packets=(after["received_packets"] or 0)
                - (before["received_packets"] or 0),
                received_bytes=(after["received_bytes"] or 0) - (before["received_bytes"] or 0),
                readings_apart_s=apart_s["before", *ends] + apart_s["after", *ends],
            )


def _apart_s(plan: Plan, readings: Mapping[Reading, Mapping[str, Any]]) -> dict[Reading, float]:
    """How far apart the readings of a direction's two ends were at most.

    What a node has sent on all of its links is read at once, then what has arrived over each of
    them, until the next node's turn. What arrives in another part of the network is counted as of
    the instant at which the parts began to read.
    """
    parts = {node: number for number, nodes in enumerate(plan.parts) for node in nodes}
    times_s: dict[tuple[str, int | None], list[float]] = defaultdict(list)
    for (when, sender, _), row in readings.items():
        times_s[when, parts.get(sender)].append(row["time_s"])
    turns_s = {key: sorted(times) for key, times in times_s.items()}
    apart_s = {}
    for (when, sender, receiver), row in readings.items():
        turns = turns_s[when, parts.get(sender)]
        until_s = turns[min(bisect_right(turns, row["time_s"]), len(turns) - 1)]
        in_one_part = parts.get(sender) == parts.get(receiver)
        apart_s[when, sender, receiver] = until_s - (row["time_s"] if in_one_part else turns[0])
    return apart_s
