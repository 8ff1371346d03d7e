"""One client's circuits as its Tor chooses them, with what checks of its choice need."""

from stem import CircStatus
from stem.control import EventType
from stem.response.events import BuildTimeoutSetEvent, CircuitEvent, GuardEvent

from testbed.inside.recording import Record
from testbed.inside.tor.client_circuits import ClientCircuits
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
    """

    def __init__(self, tor: RunningTor, network: TorNetwork, plan: Plan, record: Record) -> None:
        self.built: list[tuple[str, ...]] = []
        self.guards_down: set[str] = set()
        self.timeouts: list[BuildTimeoutSetEvent] = []
        super().__init__(tor, network, plan, record)
        if plan.policy.entry_guards:
            self._controller.add_event_listener(self._on_guard, EventType.GUARD)
        if plan.policy.learn_timeouts:
            self._controller.add_event_listener(self.timeouts.append, EventType.BUILDTIMEOUT_SET)

    def _on_circuit(self, event: CircuitEvent) -> None:
        super()._on_circuit(event)
        if event.status == CircStatus.BUILT and len(event.path) >= HOPS:
            self.built.append(tuple(fingerprint for fingerprint, _ in event.path))

    def _on_guard(self, event: GuardEvent) -> None:
        if event.status == "DOWN":
            self.guards_down.add(event.endpoint_fingerprint)
