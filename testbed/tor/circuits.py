"""One circuit per client with the plan's path, or a linked set, and the streams attached to it.

What crosses the circuits is traffic's and the probes'; what they did is recorded here.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count

from stem import CircStatus, ControllerError, InvalidArguments, StreamStatus
from stem.control import Controller, EventType
from stem.response.events import CircMinorEvent, CircuitEvent, StreamEvent

from testbed.errors import TestbedError
from testbed.plan import Plan
from testbed.probes.record import Record
from testbed.probes.round_trip import PROBE_PORT
from testbed.tor.network import RunningTor, TorNetwork, wait_until
from testbed.tor.policies import hashing, uniform

BUILD_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 60.0

LEGS = 2
"""Circuits in a linked set."""

UNLINKED, LINKED = "CONFLUX_UNLINKED", "CONFLUX_LINKED"
"""The purposes of a set's circuits, before and after they are linked (control-spec)."""


@dataclass(frozen=True)
class CircuitChange:
    """A row of circuits.parquet: one of Tor's circuit events.

    Attributes:
        time_s: Unix time at which the event came over the control port.
        since_extend_s: time since the testbed asked for the circuit (NaN: it did not ask), or
            since Tor launched it as a leg of a linked set, which nobody can ask for.
        status: LAUNCHED, EXTENDED, BUILT, FAILED, CLOSED.
        round: "first" for the circuits that only open the relays' connections, "measured" for
            those that carry the traffic, "other" for what Tor built by itself.
        hops: fingerprints of the relays so far, joined by commas.
        reason: why it failed or closed.
    """

    time_s: float
    client: str
    circuit: str
    status: str
    round: str
    since_extend_s: float
    hops: str
    reason: str | None


@dataclass
class _Asked:
    round: str
    at_s: float


class ClientCircuit:
    """A client's circuit of the moment: asks for it, follows it, attaches the streams to it."""

    def __init__(self, tor: RunningTor, hops: list[str], record: Record) -> None:
        self.client = tor.node.name
        self.circuit: str | None = None
        self.status = "NONE"
        self.strays: set[str] = set()
        """Circuits other than the client's own on which a stream ran."""
        self._controller: Controller = tor.controller
        self._hops = hops
        self._record = record
        self._asked: dict[str, _Asked] = {}
        """The circuits that carry the client's streams or are to, those of before too."""
        self._lock = threading.Lock()
        self._controller.add_event_listener(self._on_circuit, EventType.CIRC)
        self._controller.add_event_listener(self._on_stream, EventType.STREAM)

    def extend(self, round_name: str) -> None:
        """Ask for a circuit along the path; returns at once."""
        with self._lock:
            now_s = time.monotonic()
            self.status = "LAUNCHED"
            self.circuit = str(self._controller.new_circuit(self._hops, await_build=False))
            self._asked[self.circuit] = _Asked(round_name, now_s)

    def close(self) -> None:
        """Close the circuit of the moment."""
        if self.circuit:
            self._controller.close_circuit(self.circuit)

    def is_built(self) -> bool:
        """Whether the circuit is open; TestbedError if it failed or was closed."""
        if self.status in (CircStatus.FAILED, CircStatus.CLOSED):
            raise TestbedError(f"{self.client}: its circuit {self.circuit} is {self.status}")
        return bool(self.status == CircStatus.BUILT)

    def _is_own(self, circuit: str) -> bool:
        """Whether the client's streams may run on a circuit now."""
        return circuit == self.circuit

    def _on_circuit(self, event: CircuitEvent) -> None:
        time_s, now_s = time.time(), time.monotonic()  # stem's own arrival times are whole seconds
        with self._lock:  # extend() holds it until it knows the circuit's number
            asked = self._asked.get(event.id, _Asked("other", float("nan")))
            if self._is_own(event.id):
                self.status = event.status
        self._record.circuits.add(
            asdict(
                CircuitChange(
                    time_s=time_s,
                    client=self.client,
                    circuit=event.id,
                    status=event.status,
                    round=asked.round,
                    since_extend_s=now_s - asked.at_s,
                    hops=",".join(fingerprint for fingerprint, _ in event.path),
                    reason=event.reason,
                )
            )
        )

    def _on_stream(self, event: StreamEvent) -> None:
        if event.status == StreamStatus.NEW and event.purpose != "DIR_FETCH":
            self._attach(event)
        elif event.status == StreamStatus.SUCCEEDED and not self._is_own(event.circ_id):
            self.strays.add(str(event.circ_id))

    def _circuit_of(self, _event: StreamEvent) -> str | None:
        """The circuit that a new stream goes to."""
        return self.circuit

    def _attach(self, event: StreamEvent) -> None:
        try:
            self._controller.attach_stream(event.id, self._circuit_of(event))
        except ControllerError as error:
            # The stream may have ended meanwhile; if the circuit has, the run will say so.
            self._record.note(f"{self.client}: stream {event.id} not attached: {error}")


class ParallelCircuits(ClientCircuit):
    """A client's several circuits on one path, over which its streams are spread (MCTor).

    Probes take the circuits in turn, whatever the rule, so that they tell of each of them, and have
    numbers of their own, so that the traffic's streams go where they would without probes.

    Attributes:
        circuit: the numbers of all circuits, joined by commas.
        status: what all of them are, or "PARTLY" something.
        streams: how many of the traffic's streams were opened on each circuit.
    """

    def __init__(
        self, tor: RunningTor, hops: list[str], record: Record, *, circuits: int, rule: str
    ) -> None:
        self.streams: Counter[str] = Counter()
        self._number, self._rule = circuits, rule
        self._statuses: dict[str, str] = {}
        self._assigned: dict[str, str] = {}
        """The circuit of each of the traffic's streams that wasn't opened."""
        self._probes, self._others = count(), count()
        super().__init__(tor, hops, record)  # from here on there are events

    def extend(self, round_name: str) -> None:
        """Ask for all circuits along the path; returns at once."""
        with self._lock:
            now_s = time.monotonic()
            self.status, self._statuses = "LAUNCHED", {}
            for _ in range(self._number):
                circuit = str(self._controller.new_circuit(self._hops, await_build=False))
                self._asked[circuit] = _Asked(round_name, now_s)
                self._statuses[circuit] = self.status
            self.circuit = ",".join(self._statuses)

    def close(self) -> None:
        """Close all circuits."""
        for circuit in self._statuses:
            self._controller.close_circuit(circuit)

    @property
    def unopened(self) -> int:
        """How many of the traffic's streams have been attached and not been opened."""
        return len(self._assigned)

    def is_built(self) -> bool:
        """Whether all circuits are open; TestbedError if one failed or was closed."""
        for circuit, status in self._statuses.items():
            if status in (CircStatus.FAILED, CircStatus.CLOSED):
                raise TestbedError(f"{self.client}: its circuit {circuit} is {status}")
        return set(self._statuses.values()) == {CircStatus.BUILT}

    def _is_own(self, circuit: str) -> bool:
        return circuit in self._statuses

    def _on_circuit(self, event: CircuitEvent) -> None:
        super()._on_circuit(event)
        with self._lock:
            if self._is_own(event.id):
                self._statuses[event.id] = event.status
            statuses = set(self._statuses.values())
            self.status = statuses.pop() if len(statuses) == 1 else "PARTLY"

    def _circuit_of(self, event: StreamEvent) -> str:
        circuits = list(self._statuses)
        if event.target_port == PROBE_PORT:
            return circuits[uniform(next(self._probes), self._number)]
        if self._rule == "uniform":
            place = uniform(next(self._others), self._number)
        else:
            source = f"{event.source_address}:{event.source_port}"
            place = hashing(source, f"{event.target_address}:{event.target_port}", self._number)
        self._assigned[event.id] = circuits[place]
        return circuits[place]

    def _on_stream(self, event: StreamEvent) -> None:
        super()._on_stream(event)
        if event.status == StreamStatus.SUCCEEDED and event.id in self._assigned:
            if self._assigned.pop(event.id) == event.circ_id:
                self.streams[event.circ_id] += 1
            else:
                self.strays.add(str(event.circ_id))


class LinkedSet(ClientCircuit):
    """A client's linked set of circuits, its legs; streams attached to one leg run on all.

    The control port has no word for a set: Tor builds one ahead of use, as it does with other
    circuits when it is allowed to. So it is allowed to until there is a set, and what else it has
    built by then is closed.
    """

    def __init__(self, tor: RunningTor, hops: list[str], record: Record) -> None:
        super().__init__(tor, hops, record)
        self._legs: list[str] = []
        self._round = "other"
        self._controller.add_event_listener(self._on_change, EventType.CIRC_MINOR)

    def extend(self, round_name: str) -> None:
        """Let Tor build a set, which it begins within a second; returns at once."""
        with self._lock:
            self.status, self._legs, self._round = "LAUNCHED", [], round_name
        self._build_ahead(True)

    def close(self) -> None:
        """Close all legs."""
        for leg in self._legs:
            self._close(leg)

    def _close(self, circuit: str) -> None:
        with suppress(InvalidArguments):  # it is closed already, as a leg after the other one
            self._controller.close_circuit(circuit)

    def _build_ahead(self, allowed: bool) -> None:
        self._controller.set_conf("__DisablePredictedCircuits", "0" if allowed else "1")

    def _is_own(self, circuit: str) -> bool:
        return circuit in self._legs

    def _on_circuit(self, event: CircuitEvent) -> None:
        if event.status == CircStatus.LAUNCHED and event.purpose == UNLINKED:
            self._asked[event.id] = _Asked(self._round, time.monotonic())
        super()._on_circuit(event)

    def _on_change(self, event: CircMinorEvent) -> None:
        if event.purpose != LINKED or event.id in self._legs:
            return
        self._legs.append(event.id)
        if len(self._legs) == LEGS:
            self._build_ahead(False)
            for circuit in self._controller.get_circuits():
                if circuit.id not in self._legs:
                    self._close(circuit.id)
            self.circuit, self.status = self._legs[0], CircStatus.BUILT


@dataclass(frozen=True)
class Leg:
    """A circuit that is linked: its number at its client, its set's name, and its relays."""

    circuit: str
    set_id: str
    hops: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.circuit} of {self.set_id[:8]} by {', '.join(hop[:8] for hop in self.hops)}"


def linked_legs(tor: RunningTor) -> list[Leg]:
    """The legs of all linked sets that a client has, as its Tor tells at this moment."""
    return [
        Leg(
            circuit=circuit.id,
            set_id=circuit.keyword_args["CONFLUX_ID"],
            hops=tuple(fingerprint for fingerprint, _ in circuit.path),
        )
        for circuit in tor.controller.get_circuits()
        if circuit.purpose == LINKED
    ]


class Circuits:
    """The circuits of all clients, or their linked sets."""

    def __init__(self, network: TorNetwork, plan: Plan, record: Record) -> None:
        kind: Callable[[RunningTor, list[str], Record], ClientCircuit] = ClientCircuit
        if plan.tor.conflux:
            kind = LinkedSet
        elif plan.tor.parallel_circuits > 1:
            kind = partial(
                ParallelCircuits,
                circuits=plan.tor.parallel_circuits,
                rule=plan.tor.stream_rule,
            )
        self._circuits = [
            kind(network[client], [network.fingerprints[relay] for relay in path], record)
            for client, path in plan.paths.items()
        ]

    def __iter__(self) -> Iterator[ClientCircuit]:
        return iter(self._circuits)

    def build(self, round_name: str) -> None:
        """Let all clients extend at the same instant, and wait until every circuit is built.

        Raises:
            TestbedError: a circuit failed, or one was not built in time.
        """
        for circuit in self:
            circuit.extend(round_name)

        def missing() -> list[str]:
            return [f"{circuit.client}'s circuit" for circuit in self if not circuit.is_built()]

        wait_until(missing, BUILD_TIMEOUT_S, "building circuits", interval_s=0.05)

    def close(self) -> None:
        """Close all circuits and wait until Tor says so."""
        for circuit in self:
            circuit.close()

        def missing() -> list[str]:
            return [
                f"the end of {circuit.client}'s circuit"
                for circuit in self
                if circuit.status != CircStatus.CLOSED
            ]

        wait_until(missing, CLOSE_TIMEOUT_S, "closing circuits")
