"""Whether watched relays have the connections between them that the variant promises."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from itertools import chain, pairwise

from stem.control import EventType
from stem.response.events import CellStatsEvent

from testbed.basics.check import Check
from testbed.inside.checks import Running
from testbed.inside.probes.round_trip import probe_all_circuits
from testbed.inside.probes.sockets import pair_tables
from testbed.inside.tor.linked_sets import linked_legs
from testbed.inside.tor.network import TorNetwork
from testbed.plan.connections import WATCHED_PAIR, PairUse
from testbed.plan.model import Pair, Plan

Cells = dict[str, dict[str, set[str]]]
"""Circuit numbers by relay and connection."""


async def before(running: Running) -> list[Check]:
    """Compare each pair that a path crosses with the use that follows from the plan."""
    return await _checks(running, "before")


async def after(running: Running) -> list[Check]:
    """Compare each pair again."""
    return await _checks(running, "after")


async def _checks(running: Running, when: str) -> list[Check]:
    plan = running.plan
    seen = await _seen(running) if plan.crossed_pairs else {}
    return [check_pair(plan, pair, use, when) for pair, use in seen.items()]


def check_pair(plan: Plan, pair: Pair, seen: PairUse, when: str) -> Check:
    """Whether two relays have the connections and circuits that the variant promises."""
    expected = plan.tor.connection_rule.between(plan.circuits_across(pair))
    return Check(
        key=WATCHED_PAIR,
        name=f"{pair[0]} to {pair[1]} {when} measuring",
        expected=str(expected),
        observed=str(seen),
        ok=seen == expected,
        value=asdict(seen),
        bound=asdict(expected),
    )


async def _seen(running: Running) -> dict[Pair, PairUse]:
    """Count connections in the kernel, and circuits on each by Tor's own statistics or paths."""
    pairs = running.plan.crossed_pairs
    meeting = running.lab.meeting
    counted = await meeting.exchange_meanwhile(await _connections(running))
    connections = {pair: sum(part[number] for part in counted) for number, pair in enumerate(pairs)}
    if running.circuits.shown_by_probes:
        on_each = await _circuits_by_connection(running)
        return {
            pair: PairUse(connections[pair], sum(on_each[pair]), max(on_each[pair], default=0))
            for pair in pairs
        }
    # Which leg is on which connection shows once both carry cells: `results.checks.connections`.
    told = await meeting.exchange_meanwhile([_legs_across(running, pair) for pair in pairs])
    legs = {pair: sum(part[number] for part in told) for number, pair in enumerate(pairs)}
    return {
        pair: PairUse(
            connections[pair], legs[pair], math.ceil(legs[pair] / max(1, connections[pair]))
        )
        for pair in pairs
    }


async def _connections(running: Running) -> list[int]:
    """The connections of each pair whose first relay is here, and none of the others."""
    tables = pair_tables(running.lab, running.plan.crossed_pairs)
    samples = [sample for table in tables for sample in await table.samples_meanwhile()]
    found = Counter((sample.node, sample.peer) for sample in samples)
    return [found[pair] for pair in running.plan.crossed_pairs]


def _legs_across(running: Running, pair: Pair) -> int:
    """How many legs of linked sets have the pair on their paths."""
    first, second = (running.network.fingerprints[relay] for relay in pair)
    clients = [client.name for client in running.plan.here("client")]
    legs = [leg for client in clients for leg in linked_legs(running.network[client])]
    return sum((first, second) in pairwise(leg.hops) for leg in legs)


async def _circuits_by_connection(running: Running) -> dict[Pair, list[int]]:
    """The number of circuits on each connection of each pair, if it carries any.

    Each client sends a probe through each of its circuits, so every circuit shows in the cell
    statistics of both relays. A circuit has the same number at both ends of a connection, which
    shows which of the first relay's connections lead to the second.
    """
    plan = running.plan
    relays = dict.fromkeys(relay for pair in plan.crossed_pairs for relay in pair)
    here = list(filter(plan.is_here, relays))
    with _cells_counted(running.network, here) as found:
        await probe_all_circuits(running.lab, running.network)
    of_all = await running.lab.meeting.exchange_meanwhile([_as_lists(cells) for cells in found])
    towards_client, towards_server = (
        {relay: on_each for part in of_all for relay, on_each in part[way].items()}
        for way in range(2)
    )
    return {
        (first, second): [
            len(common)
            for circuits in towards_server[first]
            if (common := set(circuits) & set(chain.from_iterable(towards_client[second])))
        ]
        for first, second in plan.crossed_pairs
    }


def _as_lists(cells: Cells) -> dict[str, list[list[str]]]:
    """The circuits on each connection of each relay, as another part of the plan can hear them."""
    return {relay: list(map(sorted, found.values())) for relay, found in cells.items()}


@contextmanager
def _cells_counted(network: TorNetwork, relays: Collection[str]) -> Iterator[tuple[Cells, Cells]]:
    """Collect the circuits that have cells on relays' connections, towards client and server.

    Tor's cell statistics are on only within the context, as a relay keeps a record of each cell
    meanwhile.
    """
    towards_client: Cells = {relay: defaultdict(set) for relay in relays}
    towards_server: Cells = {relay: defaultdict(set) for relay in relays}

    def on_cells(relay: str, event: CellStatsEvent) -> None:
        if event.inbound_connection:
            towards_client[relay][event.inbound_connection].add(event.inbound_queue)
        if event.outbound_connection:
            towards_server[relay][event.outbound_connection].add(event.outbound_queue)

    with ExitStack() as stack:
        for relay in relays:
            controller, listener = network[relay].controller, partial(on_cells, relay)
            controller.set_conf("TestingEnableCellStatsEvent", "1")
            stack.callback(controller.set_conf, "TestingEnableCellStatsEvent", "0")
            controller.add_event_listener(listener, EventType.CELL_STATS)
            stack.callback(controller.remove_event_listener, listener)
        yield towards_client, towards_server
