"""Checks that are made of a run's tables: the links did what the plan says, every client got on.

The checks of the running network are made by `probes.premise`.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import polars

from testbed.errors import TestbedError
from testbed.plan import FULL_SIZE_PACKET_BYTES, Competing, Link, Plan
from testbed.results.summary import Check
from testbed.results.tables import Recorded

LOSS_CONFIDENCE = 0.9999
"""So that one sound check in 10 000 fails by chance: a batch has hundreds of them."""

LEAST_PACKETS = 1000
"""A direction with fewer packets says nothing of a loss of 0.1 %."""

READING_S = 0.005
"""How far apart the two ends of a direction may be read. Behind netem, packets take no time."""

DURATION_TOLERANCE = 0.01
SAMPLE_INTERVAL_S = 0.5
"""As in `probes.sockets`, which needs the machine's own packages to be imported."""
MISSED_S = 1.9 * SAMPLE_INTERVAL_S
"""So far apart, two samples lack one between them; late by less than that it may be."""


@dataclass(frozen=True)
class DirectionCounts:
    """What one direction of a link counted while it was measured.

    Attributes:
        roles: of the sender and the receiver.
        lost_packets: by the link's loss.
        overflowed_packets: that found the queue full.
    """

    link: Link
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

    @property
    def name(self) -> str:
        """Both ends, the sender first."""
        return f"{self.sender} to {self.receiver}"


def computed_checks(plan: Plan, recorded: Recorded) -> list[Check]:
    """Every check that needs only the tables.

    Raises:
        TestbedError: the record of the links lacks a reading.
    """
    directions = list(_directions(plan, recorded.tables.links))
    return [
        *loss_checks(directions),
        *crossing_checks(directions),
        client_check(plan, recorded.tables.transfers),
        *(
            competing_check(
                entry, recorded.tables.competing, recorded.measuring_start_s, plan.duration_s
            )
            for entry in plan.competing
        ),
        clock_check(plan, recorded.tables.sockets),
    ]


def loss_checks(directions: Iterable[DirectionCounts]) -> Iterator[Check]:
    """Whether the links lost what they should, by the roles of their ends.

    Losses are independent of each other, so their number among n packets is binomial; expected
    is the interval that holds it with `LOSS_CONFIDENCE`, equal tails.
    """
    groups: dict[tuple[tuple[str, str], float], list[DirectionCounts]] = defaultdict(list)
    for direction in directions:
        if direction.link.loss > 0:
            groups[direction.roles, direction.link.loss].append(direction)
    for (roles, loss), group in groups.items():
        yield _loss_check(f"loss from {roles[0]} to {roles[1]}", loss, group)


def _loss_check(name: str, loss: float, group: list[DirectionCounts]) -> Check:
    offered = [
        direction.sent_packets + direction.lost_packets + direction.overflowed_packets
        for direction in group
    ]
    # Which directions are judged must not depend on their losses, beyond what sent and lost say.
    judged = [pair for pair in zip(offered, group, strict=True) if pair[0] >= LEAST_PACKETS]
    packets = sum(count for count, _ in judged)
    lost = sum(direction.lost_packets for _, direction in judged)
    if not packets:
        return Check(
            name=name,
            expected=f"{loss:.4%} of the packets",
            observed=f"no direction with {LEAST_PACKETS} packets",
            ok=None,
        )
    passed_over = len(group) - len(judged)
    beside = f"; {passed_over} with fewer than {LEAST_PACKETS} not judged" if passed_over else ""
    from scipy import stats  # takes longer to import than most commands take in all

    least, most = (int(bound) for bound in stats.binom.interval(LOSS_CONFIDENCE, packets, loss))
    return Check(
        name=name,
        expected=f"{least} to {most} of {packets} packets ({loss:.4%})",
        observed=f"{lost} of {packets} packets ({lost / packets:.4%}){beside}",
        ok=least <= lost <= most,
    )


def crossing_checks(directions: Iterable[DirectionCounts]) -> Iterator[Check]:
    """Whether packets crossed the links one by one, not in bundles of segments.

    The sender must have let each segment pass by itself; as many packets must arrive, except for
    those between the readings of the two ends, and none may be larger than a full frame. A link
    with the queue in its sender lets bundles pass.
    """
    all_directions = [one for one in directions if not one.link.queue_in_sender]
    if not all_directions:
        return
    bundled = [text for direction in all_directions if (text := _bundling(direction))]
    yield Check(
        name="packets crossed one by one",
        expected=f"on {len(all_directions)} directions as many arrivals as departures,"
        f" at most {FULL_SIZE_PACKET_BYTES} bytes each",
        observed="; ".join(bundled) or "so",
        ok=not bundled,
    )


def _bundling(direction: DirectionCounts) -> str | None:
    sent, received = direction.sent_packets, direction.received_packets
    bytes_a_packet = direction.received_bytes / received if received else 0.0
    if abs(sent - received) > _between_readings_packets(direction):
        return f"{direction.name}: {sent} sent, {received} arrived"
    if direction.bundled_segments:
        return f"{direction.name}: {direction.bundled_segments} segments in bundles"
    if bytes_a_packet > FULL_SIZE_PACKET_BYTES:
        return f"{direction.name}: {bytes_a_packet:.0f} bytes a packet"
    return None


def _between_readings_packets(direction: DirectionCounts) -> int:
    """What the link can carry, in packets of its mean size, between the ends' readings."""
    if not direction.sent_packets:
        return 0
    bytes_a_packet = direction.sent_bytes / direction.sent_packets
    readings_s = 2 * READING_S
    return math.ceil(direction.link.rate_bit_per_s * readings_s / 8 / bytes_a_packet)


def queue_drops(plan: Plan, recorded: Recorded) -> str:
    """How many packets found a queue full, by the roles of its link; empty if none did.

    A sentence and no check: a queue may overflow.
    """
    drops: dict[tuple[str, str], int] = defaultdict(int)
    for direction in _directions(plan, recorded.tables.links):
        if direction.overflowed_packets:
            drops[direction.roles] += direction.overflowed_packets
    texts = [f"{count} from {first} to {second}" for (first, second), count in drops.items()]
    return f"packets that found a queue full: {', '.join(texts)}" if texts else ""


def client_check(plan: Plan, transfers: polars.DataFrame) -> Check:
    """Whether every client completed a transfer that began before measuring ended."""
    done = set(transfers.filter("measured", "ok")["client"])
    without = [client for client in plan.traffic_by_client if client not in done]
    return Check(
        name="clients without a completed transfer",
        expected="none",
        observed=", ".join(without) or "none",
        ok=not without,
    )


def competing_check(
    entry: Competing, samples: polars.DataFrame, start_s: float, duration_s: float
) -> Check:
    """Whether all of an entry's streams were there from the first second to the last.

    By the sender's samples; those of the first second are left out, in which the streams begin.

    Args:
        start_s, duration_s: of measuring.
    """
    own = samples.filter(polars.col("port").is_in(entry.stream_ports), node=entry.sender)
    counts = own.group_by("time_s").len().filter(polars.col("time_s") >= start_s + 1.0)["len"]
    fewest = min(counts.to_list(), default=0)
    wanted = round((duration_s - 1.0) / SAMPLE_INTERVAL_S)
    return Check(
        name=f"competing streams from {entry.sender} to {entry.receiver}",
        expected=f"{entry.streams} in each of {wanted} samples",
        observed=f"at least {fewest} in each of {len(counts)} samples",
        ok=fewest == entry.streams and len(counts) >= wanted,
    )


def clock_check(plan: Plan, sockets: polars.DataFrame) -> Check:
    """Whether the samples of the shared link, taken by the machine's clock, cover the duration.

    A clock that jumped, a sampler that could not keep up, or a shared link that ended early
    show here. Of the link's two ends it is the one with less.
    """
    covered_s = min(
        _covered_s(sockets.filter(node=node)["time_s"].unique().sort().to_list())
        for node in plan.shared_link
    )
    # A duration need not be a multiple of the interval.
    tolerance_s = max(DURATION_TOLERANCE * plan.duration_s, SAMPLE_INTERVAL_S)
    return Check(
        name="duration by the machine's clock",
        expected=f"samples of {plan.duration_s:g} s, {tolerance_s:g} s more or less",
        observed=f"{covered_s:.2f} s",
        ok=abs(covered_s - plan.duration_s) <= tolerance_s,
    )


def _covered_s(times_s: list[float]) -> float:
    """How long there were samples: each stands for the time to the next one.

    A sample may be late. But where the next one is missing it stands for an interval only, so that
    a hole does not count, wherever it is.
    """
    steps_s = (later - earlier for earlier, later in pairwise(times_s))
    whole_s = sum(step if step < MISSED_S else SAMPLE_INTERVAL_S for step in steps_s)
    return whole_s + SAMPLE_INTERVAL_S if times_s else 0.0


def _directions(plan: Plan, links: polars.DataFrame) -> Iterator[DirectionCounts]:
    readings = {
        (row["when"], row["sender"], row["receiver"]): row for row in links.iter_rows(named=True)
    }
    for link in plan.links:
        for ends, roles in ((link.ends, link.roles), (link.ends[::-1], link.roles[::-1])):
            try:
                before, after = readings["before", *ends], readings["after", *ends]
            except KeyError as missing:
                when = missing.args[0][0]
                raise TestbedError(
                    f"raw/links.jsonl: no reading {when} measuring of {ends[0]} to {ends[1]}"
                ) from None
            overflowed = after["overflowed_packets"] - before["overflowed_packets"]
            yield DirectionCounts(
                link=link,
                sender=ends[0],
                receiver=ends[1],
                roles=(roles[0], roles[1]),
                sent_packets=after["sent_packets"] - before["sent_packets"],
                sent_bytes=after["sent_bytes"] - before["sent_bytes"],
                lost_packets=after["dropped_packets"] - before["dropped_packets"] - overflowed,
                overflowed_packets=overflowed,
                bundled_segments=after["bundled_segments"] - before["bundled_segments"],
                received_packets=after["received_packets"] - before["received_packets"],
                received_bytes=after["received_bytes"] - before["received_bytes"],
            )
