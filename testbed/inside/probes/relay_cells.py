"""Which relay cells the clients' circuits have, by what a known answer takes on each of them.

A relay cell of version 0 carries 498 bytes of a stream's data. One of version 1, which belongs to
Counter Galois Onion (proposals 340 and 359), carries 488. Tor tells neither in its log nor on its
control port, but counts each circuit's cells and their payload (CIRC_BW in the control-spec). So an
answer of 498 bytes comes in one cell or in two.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Self

from stem.control import EventType
from stem.response.events import CircuitBandwidthEvent

from testbed.inside.lab.network import Lab
from testbed.inside.probes.round_trip import REPORTING_S, probe_all_circuits
from testbed.inside.tor.linked_sets import linked_legs
from testbed.inside.tor.network import TorNetwork

DATA_BYTES = (498, 488)
"""The most data in a relay cell, by its version (RELAY_PAYLOAD_SIZE_MAX and _MIN in Tor's or.h)."""

ANSWER = bytes(DATA_BYTES[0])
"""What the server says to each probe: it fills one cell of version 0."""

_MOST_ROUNDS = 3

_CELL_BYTES = 509
"""What a cell counts in CIRC_BW's READ (CELL_PAYLOAD_SIZE in Tor's or.h)."""
_CONNECTED_BYTES, _SWITCH_BYTES = 8, 4
"""The payload of a CONNECTED cell for an IPv4 address, and of conflux's SWITCH cell (tor-spec)."""


@dataclass(frozen=True)
class Seen:
    """What came on a circuit, or on both legs of a linked set, while it was probed.

    Attributes:
        circuits: Tor's numbers.
        has_window: whether Tor told its congestion window.
    """

    client: str
    circuits: tuple[str, ...]
    cells: int
    payload_bytes: int
    has_window: bool

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Self:
        """One that another part of the plan has said."""
        return cls(**{**said, "circuits": tuple(said["circuits"])})

    @property
    def version(self) -> int | None:
        """The version of its relay cells; None if it carried no probes, or something else too.

        Each probe is a CONNECTED cell and the answer. On a linked set there may be SWITCH cells,
        whose number follows from the payload.
        """
        probes, rest_bytes = divmod(self.payload_bytes, _CONNECTED_BYTES + len(ANSWER))
        switches, rest_bytes = divmod(rest_bytes, _SWITCH_BYTES)
        if rest_bytes or not probes:
            return None
        data_cells = self.cells - probes - switches
        return {probes: 0, 2 * probes: 1}.get(data_cells)

    def __str__(self) -> str:
        return f"{self.client} circuit {' and '.join(self.circuits)}"


async def seen_on_circuits(lab: Lab, network: TorNetwork) -> list[Seen]:
    """Probe the clients' circuits with an answer, and count what comes on each.

    Where Tor chooses, a probe's stream may wait for a new circuit, which then has the cells of its
    extending, too. So clients without a circuit whose version is known are given another chance.
    """
    for _ in range(_MOST_ROUNDS):
        here = await _seen_in_a_round(lab, network)
        of_all = await lab.meeting.exchange_meanwhile([asdict(one) for one in here])
        seen = [Seen.of(one) for part in of_all for one in part]
        known = {one.client for one in seen if one.version is not None}
        if known.issuperset(lab.plan.clients):
            break
    return seen


async def _seen_in_a_round(lab: Lab, network: TorNetwork) -> list[Seen]:
    cells: Counter[tuple[str, str]] = Counter()
    payload_bytes: Counter[tuple[str, str]] = Counter()
    with_window: set[tuple[str, str]] = set()

    def on_bandwidth(client: str, event: CircuitBandwidthEvent) -> None:
        circuit = (client, str(event.id))
        cells[circuit] += event.read // _CELL_BYTES
        payload_bytes[circuit] += event.delivered_read
        if "CWND" in event.keyword_args:
            with_window.add(circuit)

    clients = [node.name for node in lab.plan.here("client")]
    listeners = {client: partial(on_bandwidth, client) for client in clients}
    for client, listener in listeners.items():
        network[client].controller.add_event_listener(listener, EventType.CIRC_BW)
    await asyncio.sleep(REPORTING_S)
    cells.clear()  # what came before, such as the answers to the circuits' extending
    payload_bytes.clear()
    await probe_all_circuits(lab, network, ANSWER)
    for client, listener in listeners.items():
        network[client].controller.remove_event_listener(listener)
    return [
        Seen(
            client=client,
            circuits=tuple(circuits),
            cells=sum(cells[client, circuit] for circuit in circuits),
            payload_bytes=sum(payload_bytes[client, circuit] for circuit in circuits),
            has_window=any((client, circuit) in with_window for circuit in circuits),
        )
        for client in clients
        for circuits in _together(network, client, cells).values()
    ]


def _together(
    network: TorNetwork, client: str, cells: Mapping[tuple[str, str], int]
) -> Mapping[str, list[str]]:
    """A client's circuits on which cells came, with those of a linked set together."""
    sets = {leg.circuit: leg.set_id for leg in linked_legs(network[client])}
    together = defaultdict(list)
    for one, circuit in cells:
        if one == client:
            together[sets.get(circuit, circuit)].append(circuit)
    return together
