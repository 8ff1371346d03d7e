"""One client's circuits as its Tor chooses them, with what checks of its choice need."""

from stem import CircStatus, StreamStatus
from stem.control import EventType
from stem.response.events import (
    BuildTimeoutSetEvent,
    CircMinorEvent,
    CircuitEvent,
    GuardEvent,
    StreamEvent,
)

from testbed.inside.policies.interface import PROBE_PORT
from testbed.inside.recording import Record
from testbed.inside.tor.client_circuits import LINKED, ClientCircuits
from testbed.inside.tor.network import TorNetwork
from testbed.inside.tor.process import RunningTor
from testbed.plan.model import Plan
from testbed.plan.network import HOPS


class OwnChoice(ClientCircuits):
    """The circuits of a client whose Tor chooses paths.

    Attributes:
        built: the relays of each whole circuit that was built, as fingerprints.
        guards_down: the guards that Tor has found unreachable, as fingerprints.
        timeouts: each build timeout that Tor has set (BUILDTIMEOUT_SET in the control-spec).
        streams_on_sets, streams_on_others: how many of the traffic's streams ran on linked sets
            (conflux), and on other circuits.
    """

    def __init__(self, tor: RunningTor, network: TorNetwork, plan: Plan, record: Record) -> None:
        self.built: list[tuple[str, ...]] = []
        self.guards_down: set[str] = set()
        self.timeouts: list[BuildTimeoutSetEvent] = []
        self.streams_on_sets = self.streams_on_others = 0
        self._linked: set[str] = set()
        super().__init__(tor, network, plan, record)
        if plan.policy.entry_guards:
            self._controller.add_event_listener(self._on_guard, EventType.GUARD)
        if plan.policy.learn_timeouts:
            self._controller.add_event_listener(self.timeouts.append, EventType.BUILDTIMEOUT_SET)
        if plan.tor.conflux:
            self._controller.add_event_listener(self._on_change, EventType.CIRC_MINOR)

    def _on_circuit(self, event: CircuitEvent) -> None:
        super()._on_circuit(event)
        if event.status == CircStatus.BUILT and len(event.path) >= HOPS:
            self.built.append(tuple(fingerprint for fingerprint, _ in event.path))

    def _on_change(self, event: CircMinorEvent) -> None:
        if event.purpose == LINKED:
            self._linked.add(event.id)

    def _record_stream(self, event: StreamEvent) -> None:
        super()._record_stream(event)
        if event.status == StreamStatus.SUCCEEDED and event.target_port != PROBE_PORT:
            if event.circ_id in self._linked:
                self.streams_on_sets += 1
            else:
                self.streams_on_others += 1

    def _on_guard(self, event: GuardEvent) -> None:
        if event.status == "DOWN":
            self.guards_down.add(event.endpoint_fingerprint)
