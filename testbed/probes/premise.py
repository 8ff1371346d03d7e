"""The premise of a run: what the shared link carries, who runs, which way the streams went.

Each check says what was expected and what was seen; what follows from a failed one is the
results' to say.
"""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise

from stem.control import EventType
from stem.response.events import CellStatsEvent

from testbed.check import Check
from testbed.lab.links import LinkCounters
from testbed.lab.network import Direction, Lab
from testbed.plan_model import FIXED, Plan
from testbed.probes.round_trip import PROBE_TIMEOUT_S, probe_target, round_trip_ms_of
from testbed.probes.sockets import ConnectionTable
from testbed.recording import Record
from testbed.tor.circuits import Circuits, linked_legs
from testbed.tor.network import TorNetwork

MOST_NAMED = 20
"""Of what must not be, in a check's sentence."""

TELLING_S = 2.5
"""Tor tells of the last second's cells once a second."""


@dataclass(frozen=True)
class SharedLink:
    """What was seen on the shared link at one moment.

    Attributes:
        connections: established TCP connections between its two relays.
        circuits: circuits on which a cell crossed it.
        most_circuits_on_one_connection: of these.
    """

    connections: int
    circuits: int
    most_circuits_on_one_connection: int

    def __str__(self) -> str:
        return (
            f"{_counted(self.connections, 'connection')}, {_counted(self.circuits, 'circuit')},"
            f" at most {self.most_circuits_on_one_connection} on one connection"
        )


def expected_shared_link(plan: Plan) -> SharedLink:
    """What the variant promises for the clients whose circuits cross the shared link.

    Circuits are built twice (`experiment`), and connections that are shared by circuits' numbers go
    on where the first ones ended: with more connections than circuits some are new.
    """
    circuits = len(plan.clients) * plan.tor.parallel_circuits
    if most := plan.tor.connections_per_pair:
        return SharedLink(min(most, 2 * circuits), circuits, math.ceil(circuits / most))
    if most := plan.tor.per_circuit_up_to:
        return SharedLink(min(most, circuits), circuits, math.ceil(circuits / most))
    if plan.tor.premise == "one connection per circuit":
        return SharedLink(circuits, circuits, 1)
    return SharedLink(1, circuits, circuits)


def kept_connections(plan: Plan) -> int:
    """How many connections stay on the shared link when its first circuits are gone."""
    circuits = len(plan.clients) * plan.tor.parallel_circuits
    if most := plan.tor.connections_per_pair or plan.tor.per_circuit_up_to:
        return min(most, circuits)
    return 0 if plan.tor.premise == "one connection per circuit" else 1


async def seen_shared_link(lab: Lab, network: TorNetwork, table: ConnectionTable) -> SharedLink:
    """Count connections in the kernel, and circuits on each by Tor's own statistics or paths."""
    if lab.plan.tor.conflux:
        circuits = _legs_across_shared_link(lab.plan, network)
        connections = len(await table.samples_meanwhile())
        # Which leg is on which connection shows when both carry cells: `results.checks`.
        return SharedLink(connections, circuits, math.ceil(circuits / max(1, connections)))
    counts = await _circuits_by_connection(lab, network)
    connections = len(await table.samples_meanwhile())
    return SharedLink(connections, sum(counts), max(counts, default=0))


def _legs_across_shared_link(plan: Plan, network: TorNetwork) -> int:
    """How many legs have the shared link's relays on their path.

    A probe takes only one leg, so that the other would not show in the relay's statistics.
    """
    first, second = (network.fingerprints[relay] for relay in plan.shared_link or ())
    legs = [leg for client in plan.clients for leg in linked_legs(network[client])]
    return sum((first, second) in pairwise(leg.hops) for leg in legs)


async def _circuits_by_connection(lab: Lab, network: TorNetwork) -> list[int]:
    """How many circuits crossed the shared link, on each of its connections that carried one.

    Tor's cell statistics are switched on at the relay on the clients' side for a moment only: a
    relay keeps a record for each cell while they are on. Each client sends a probe through its
    circuit meanwhile, so that every circuit shows.
    """
    first, _ = lab.plan.shared_link or ("", "")
    relay = network[first].controller
    circuits_by_connection: dict[str, set[str]] = defaultdict(set)

    def on_cells(event: CellStatsEvent) -> None:
        if event.outbound_connection:
            circuits_by_connection[event.outbound_connection].add(event.outbound_queue)

    relay.set_conf("TestingEnableCellStatsEvent", "1")
    relay.add_event_listener(on_cells, EventType.CELL_STATS)
    await probe_all_circuits(lab, network)
    relay.remove_event_listener(on_cells)
    relay.set_conf("TestingEnableCellStatsEvent", "0")
    return [len(circuits) for circuits in circuits_by_connection.values()]


async def probe_all_circuits(lab: Lab, network: TorNetwork) -> None:
    """Send a probe through each circuit of each client, and wait for Tor to tell of its cells."""
    plan = lab.plan
    async with probe_target(lab):
        probes = [
            asyncio.wait_for(
                round_trip_ms_of(
                    network[client].files.probe_socket,
                    str(plan.node(plan.server_of(client)).address),
                ),
                PROBE_TIMEOUT_S,
            )
            for client in plan.clients
            for _ in range(plan.tor.parallel_circuits)
        ]
        await asyncio.gather(*probes, return_exceptions=True)  # who doesn't answer isn't seen
        await asyncio.sleep(TELLING_S)


def check_shared_link(plan: Plan, seen: SharedLink, when: str) -> Check:
    """Whether the shared link is what the variant promises."""
    expected = expected_shared_link(plan)
    return Check(
        name=f"shared link {when} measuring",
        expected=str(expected),
        observed=str(seen),
        ok=seen == expected,
        value=asdict(seen),
        bound=asdict(expected),
    )


def checks_after(
    plan: Plan, network: TorNetwork, circuits: Circuits, before: dict[str, str]
) -> Iterator[Check]:
    """Checks of the whole run: all Tors alive, circuits the same, no stream on another one.

    Args:
        before: each client's circuits when measuring began.
    """
    yield none_of("Tors that ended", network.ended())
    if plan.policy.name == FIXED:
        changed = [
            f"{client}: {state}"
            for client, state in circuits.states().items()
            if state != before[client]
        ]
        yield none_of("circuits that changed", changed)
    strays = [
        f"{circuit.client}: circuit {stray}" for circuit in circuits for stray in circuit.strays
    ]
    yield none_of("streams on other circuits", strays)


def record_links(lab: Lab, when: str, record: Record) -> None:
    """Write down what each direction of each link has counted so far.

    The sender's side is what its qdiscs counted, the receiver's what its interface counted. A row's
    time is that of its reading's begin. A way from site to site has no interface of its own at its
    end: there the receiver's side is null.
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
    record.links.add(
        {
            "time_s": time_s,
            "when": when,
            "sender": direction.sender,
            "receiver": direction.receiver,
            "sent_packets": sent.sent_packets,
            "sent_bytes": sent.sent_bytes,
            "dropped_packets": sent.dropped_packets,
            "overflowed_packets": sent.overflowed_packets,
            "bundled_segments": sent.bundled_segments,
            "received_packets": received_packets,
            "received_bytes": received_bytes,
        }
    )


def none_of(name: str, found: list[str]) -> Check:
    """A check that holds if nothing was found."""
    told = ", ".join(found[:MOST_NAMED]) + (" …" if len(found) > MOST_NAMED else "")
    return Check(
        name=name,
        expected="none",
        observed=told or "none",
        ok=not found,
        value={"count": len(found)},
        bound={"count": 0},
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
