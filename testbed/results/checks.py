"""Checks that are made of a run's tables: the links did what the plan says, every client got on.

The checks of the running network are made by `probes.premise`.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import polars

from testbed.check import Check
from testbed.errors import TestbedError
from testbed.network.model import FULL_SIZE_PACKET_BYTES, Shape
from testbed.plan_model import Competing, Plan
from testbed.results.invariants import invariants
from testbed.results.tables import Recorded, Tables
from testbed.traffic.models import first_pause_s, generator_seed

LOSS_CONFIDENCE = 0.9999
"""So that one sound check in 10 000 fails by chance: a batch has hundreds of them."""

LEAST_PACKETS = 1000
"""A direction with fewer packets says nothing of a loss of 0.1 %."""

READING_S = 0.005
"""How far apart the two ends of a direction may be read. Behind netem, packets take no time."""

LEGS = 2
"""Of a linked set, as in `tor.circuits`."""

BEGINNING_S = 1.0
"""A client that should begin so shortly before the end may begin after it."""

DURATION_TOLERANCE = 0.01
SAMPLE_INTERVAL_S = 0.5
"""As in `probes.sockets`, which needs the machine's own packages to be imported."""
HEARTBEAT_INTERVAL_S = 1.0
"""A generator's."""
MISSED = 1.9
"""So many intervals apart, two samples lack one between them; late by less than that it may be."""


@dataclass(frozen=True)
class DirectionCounts:
    """What one direction of a link counted while it was measured.

    Attributes:
        roles: of the sender and the receiver.
        sent_packets, received_packets: of a bundle that crosses as one, the link sends each
            segment, and one packet is received.
        lost_packets: by the link's loss; a bundle is one.
        overflowed_packets: that found the queue full, or that its discipline chose to drop.
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

    @property
    def name(self) -> str:
        """Both ends, the sender first."""
        return f"{self.sender} to {self.receiver}"

    @property
    def departures(self) -> int:
        """What crossed: packets, or bundles where they cross as one."""
        return self.sent_packets - (self.bundled_segments if self.shape.bundles else 0)

    @property
    def offered(self) -> int:
        """What was to cross: packets, or bundles where they cross as one."""
        return self.departures + self.lost_packets + self.overflowed_packets


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
        *leg_checks(plan, recorded.tables.queues),
        *(
            competing_check(
                entry, recorded.tables.competing, recorded.measuring_start_s, plan.duration_s
            )
            for entry in plan.competing
        ),
        *invariants(plan, recorded.tables),
        clock_check(plan, recorded.tables),
    ]


def loss_checks(directions: Iterable[DirectionCounts]) -> Iterator[Check]:
    """Whether the links lost what they should, by the roles of their ends.

    Losses are independent of each other, so their number among n packets is binomial; expected
    is the interval that holds it with `LOSS_CONFIDENCE`, equal tails. Where bundles cross as one
    they are lost as one, and the same holds of them.
    """
    groups: dict[tuple[tuple[str, str], float], list[DirectionCounts]] = defaultdict(list)
    for direction in directions:
        if direction.shape.loss > 0:
            groups[direction.roles, direction.shape.loss].append(direction)
    for (roles, loss), group in groups.items():
        yield _loss_check(f"loss from {roles[0]} to {roles[1]}", loss, group)


def _loss_check(name: str, loss: float, group: list[DirectionCounts]) -> Check:
    in_bundles = group[0].shape.bundles
    things = "bundles" if in_bundles else "packets"
    # Which directions are judged must not depend on their losses, beyond what sent and lost say.
    judged = [direction for direction in group if direction.offered >= LEAST_PACKETS]
    offered = sum(direction.offered for direction in judged)
    lost = sum(direction.lost_packets for direction in judged)
    if not offered:
        return Check(
            name=name,
            expected=f"{loss:.4%} of the {things}",
            observed=f"no direction with {LEAST_PACKETS} {things}",
            ok=None,
        )
    passed_over = len(group) - len(judged)
    beside = f"; {passed_over} with fewer than {LEAST_PACKETS} not judged" if passed_over else ""
    if in_bundles:
        segments = sum(direction.sent_packets for direction in judged) / sum(
            direction.departures for direction in judged
        )
        beside = (
            f"; {segments:.2f} segments a bundle, so {lost / offered / segments:.4%} losses a"
            f" segment{beside}"
        )
    from scipy import stats  # takes longer to import than most commands take in all

    least, most = (int(bound) for bound in stats.binom.interval(LOSS_CONFIDENCE, offered, loss))
    return Check(
        name=name,
        expected=f"{least} to {most} of {offered} {things} ({loss:.4%})",
        observed=f"{lost} of {offered} {things} ({lost / offered:.4%}){beside}",
        ok=least <= lost <= most,
    )


def crossing_checks(directions: Iterable[DirectionCounts]) -> Iterator[Check]:
    """Whether packets crossed the links one by one, or bundles as one, as the scenario says.

    One by one, the sender must have let each segment pass by itself; as many packets must arrive,
    except for those between the readings of the two ends, and none may be larger than a full
    frame. A link with the queue in its sender lets bundles pass, which are taken apart behind it.
    Where bundles cross as one, as many of them must arrive as have passed.
    """
    # Ways from site to site are one interface's for all that come in: nobody counts theirs.
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
    if abs(sent - received) > _between_readings(direction):
        return f"{direction.name}: {sent} sent, {received} arrived"
    return None


def _between_readings(direction: DirectionCounts) -> int:
    """What the link can carry, in packets or bundles of their mean size, between its readings."""
    if not direction.departures:
        return 0
    mean_bytes = direction.sent_bytes / direction.departures
    readings_s = 2 * READING_S
    rate_bit_per_s = direction.shape.rate_bit_per_s or math.inf
    return math.ceil(rate_bit_per_s * readings_s / 8 / mean_bytes)


def queue_drops(plan: Plan, recorded: Recorded) -> str:
    """How many packets the queues dropped, by the roles of their link; empty if none did.

    A sentence and no check: a queue may overflow, and most disciplines drop before that.
    """
    drops: dict[tuple[str, str], int] = defaultdict(int)
    for direction in _directions(plan, recorded.tables.links):
        if direction.overflowed_packets:
            drops[direction.roles] += direction.overflowed_packets
    texts = [f"{count} from {first} to {second}" for (first, second), count in drops.items()]
    return f"packets that a queue dropped: {', '.join(texts)}" if texts else ""


def client_check(plan: Plan, transfers: polars.DataFrame) -> Check:
    """Whether every client completed a transfer that began before measuring ended.

    A client whose first pause lasts until then has none to complete.
    """
    done = set(transfers.filter("measured", "ok")["client"])
    without = [
        client
        for client, model in plan.traffic_by_client.items()
        if client not in done
        and first_pause_s(model, generator_seed(plan.seed, client)) < plan.duration_s - BEGINNING_S
    ]
    return Check(
        name="clients without a completed transfer",
        expected="none",
        observed=", ".join(without) or "none",
        ok=not without,
    )


def leg_checks(plan: Plan, queues: polars.DataFrame) -> Iterator[Check]:
    """Whether each leg of a linked set had a connection of its own, where a variant promises that.

    By the cells that left the exit towards the clients: before and after measuring a probe takes
    one leg only, so that the other wouldn't show.
    """
    if not (
        plan.shared_link and plan.tor.conflux and plan.tor.premise == "one connection per circuit"
    ):
        return
    exit_relay = plan.shared_link[1]
    circuits = queues.filter(relay=exit_relay).group_by("connection").agg(polars.n_unique("queue"))
    legs = LEGS * len(plan.paths)
    most = max(circuits["queue"].to_list(), default=0)
    yield Check(
        name=f"connections of {exit_relay} that carried legs",
        expected=f"{legs}, each with one",
        observed=f"{len(circuits)}, with at most {most} on one",
        ok=len(circuits) == legs and most == 1,
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


def clock_check(plan: Plan, tables: Tables) -> Check:
    """Whether what was told steadily, by the machine's clock, covers the duration.

    That is the samples of the shared link, of its two ends that with less; where there is none, the
    generators' heartbeats, one a second of each client. A clock that jumped, a sampler that could
    not keep up, or a link that ended early show here.
    """
    if plan.shared_link:
        what, interval_s = "samples", SAMPLE_INTERVAL_S
        ends = (plan.shared_link, plan.shared_link[::-1])
        steady = [tables.sockets.filter(node=node, peer=peer) for node, peer in ends]
    else:
        what, interval_s = "heartbeats", HEARTBEAT_INTERVAL_S
        steady = [tables.delivered.filter(client=client) for client in plan.clients]
    covered_s = min(
        _covered_s(table["time_s"].unique().sort().to_list(), interval_s) for table in steady
    )
    # A duration need not be a multiple of the interval.
    tolerance_s = max(DURATION_TOLERANCE * plan.duration_s, interval_s)
    lasted_on = not plan.shared_link and covered_s > plan.duration_s  # until all transfers ended
    return Check(
        name="duration by the machine's clock",
        expected=f"{what} of {plan.duration_s:g} s, {tolerance_s:g} s more or less",
        observed=f"{covered_s:.2f} s",
        ok=lasted_on or abs(covered_s - plan.duration_s) <= tolerance_s,
    )


def _covered_s(times_s: list[float], interval_s: float = SAMPLE_INTERVAL_S) -> float:
    """How long there were samples: each stands for the time to the next one.

    A sample may be late. But where the next one is missing it stands for an interval only, so that
    a hole does not count, wherever it is.
    """
    steps_s = (later - earlier for earlier, later in pairwise(times_s))
    whole_s = sum(step if step < MISSED * interval_s else interval_s for step in steps_s)
    return whole_s + interval_s if times_s else 0.0


def _directions(plan: Plan, links: polars.DataFrame) -> Iterator[DirectionCounts]:
    readings = {
        (row["when"], row["sender"], row["receiver"]): row for row in links.iter_rows(named=True)
    }
    for link in plan.links:
        for sender, receiver, shape in link.directions():
            ends = (sender, receiver)
            roles = link.roles if ends == link.ends else link.roles[::-1]
            try:
                before, after = readings["before", *ends], readings["after", *ends]
            except KeyError as missing:
                when = missing.args[0][0]
                raise TestbedError(
                    f"raw/links.jsonl: no reading {when} measuring of {ends[0]} to {ends[1]}"
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
            )
