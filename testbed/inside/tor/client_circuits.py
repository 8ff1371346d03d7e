"""One client's circuits and streams, recorded as its Tor reports them."""

import threading
import time
from dataclasses import dataclass

from stem import CircPurpose, CircStatus, StreamStatus
from stem.control import Controller, EventType
from stem.response.events import CircuitEvent, StreamEvent

from testbed.inside.recording import Record
from testbed.inside.rows import CircuitChange, StreamChange
from testbed.inside.tor.network import TorNetwork
from testbed.inside.tor.process import RunningTor
from testbed.plan.model import Plan
from testbed.plan.network import HOPS

ENDED = (CircStatus.FAILED, CircStatus.CLOSED)
STREAM_STATUSES = (StreamStatus.NEW, StreamStatus.SUCCEEDED, StreamStatus.FAILED)
"""The statuses that are recorded: a stream waits, is carried by a circuit, or failed."""


UNLINKED, LINKED = "CONFLUX_UNLINKED", "CONFLUX_LINKED"
"""The purposes of a linked set's circuits, before and after they are linked (control-spec)."""

FOR_STREAMS = (CircPurpose.GENERAL, LINKED, UNLINKED)
NOT_FOR_STREAMS = {"ONEHOP_TUNNEL", "IS_INTERNAL"}
"""Purposes of circuits for streams, and build flags of others (control-spec)."""


@dataclass
class Known:
    """A circuit that Tor has reported.

    Attributes:
        round: see `inside.rows.CircuitChange`.
        at_s: when it was requested, by the monotonic clock.
    """

    round: str
    at_s: float
    status: str = CircStatus.LAUNCHED
    hops: tuple[str, ...] = ()


class ClientCircuits:
    """A client's circuits and streams as its Tor decides on them; they are only recorded.

    Attributes:
        probed: whether round trips are probed. Not if Tor chooses: probes would be a user who is
            never idle, and keep circuits alive.
        steady: whether the circuits must be the same when measuring begins and when it ends.
        shown_by_probes: whether probes take every circuit.
        ticks: whether `tick` is to be called once a second.
        may_probe: whether a policy's own probes may begin.
    """

    probed = steady = shown_by_probes = ticks = may_probe = False

    def __init__(self, tor: RunningTor, network: TorNetwork, plan: Plan, record: Record) -> None:
        self.client = tor.node.name
        self.strays: set[str] = set()
        """Circuits on which a stream ran although its policy had not chosen them for it."""
        self.failure: str | None = None
        """The error of its policy, if it has failed."""
        self._controller: Controller = tor.controller
        self._names = {fingerprint: name for name, fingerprint in network.fingerprints.items()}
        self._plan = plan
        self._record = record
        self._known: dict[str, Known] = {}
        self._streams: set[str] = set()
        """The numbers of the clients' streams. Only a stream's first event says what it is for
        (control-spec, 4.1.2), and a directory's may have come before this began to listen."""
        self._round = "other"
        self._lock = threading.RLock()
        self._controller.add_event_listener(self._on_circuit, EventType.CIRC)
        self._controller.add_event_listener(self._on_stream, EventType.STREAM)

    def build(self, round_name: str) -> None:
        """Begin to build the circuits that carry streams; returns at once."""
        self._round = round_name

    def close_all(self) -> None:
        """Begin to close these circuits."""

    def is_ready(self) -> bool:
        """Whether a full circuit is open."""
        return any(
            one.status == CircStatus.BUILT and len(one.hops) == HOPS for one in self._known.values()
        )

    def is_closed(self) -> bool:
        """Whether these circuits are closed."""
        return True

    def tick(self) -> None:
        """Do what is done once a second: nothing."""

    def state(self) -> str:
        """The open circuits that carry streams, for comparison with another moment."""
        return "Tor's own"

    def _is_right(self, _opened: StreamEvent) -> bool:
        """Whether a stream runs on a circuit that it may use."""
        return True

    def _round_of(self, _event: CircuitEvent) -> str:
        return "other"

    def _on_circuit(self, event: CircuitEvent) -> None:
        time_s, now_s = time.time(), time.monotonic()  # stem's own arrival times are whole seconds
        with self._lock:  # a request for a circuit holds it until the number is known
            known = self._known.get(event.id)
            if known is None:
                known = self._known[event.id] = Known(self._round_of(event), float("nan"))
            known.status = event.status
            known.hops = tuple(fingerprint for fingerprint, _ in event.path)
            if event.status in ENDED and known.round == "other":
                del self._known[event.id]
        self._record.add(
            CircuitChange(
                time_s=time_s,
                client=self.client,
                circuit=event.id,
                status=event.status,
                round=known.round,
                since_extend_s=now_s - known.at_s,
                hops=",".join(known.hops),
                reason=event.reason,
                for_streams=is_for_streams(event),
            )
        )

    def _on_stream(self, event: StreamEvent) -> None:
        if event.status == StreamStatus.NEW and event.purpose != "DIR_FETCH":
            self._streams.add(event.id)
        if event.id not in self._streams:
            return
        if event.status in STREAM_STATUSES:
            self._record_stream(event)
        if event.status == StreamStatus.NEW:
            self._attach(event)
        elif event.status == StreamStatus.SUCCEEDED and not self._is_right(event):
            self.strays.add(str(event.circ_id))
        elif event.status == StreamStatus.CLOSED:
            self._streams.discard(event.id)

    def _record_stream(self, event: StreamEvent) -> None:
        with self._lock:
            known = self._known.get(event.circ_id)
        rule, circuits = self._rule_of(event)
        self._record.add(
            StreamChange(
                time_s=time.time(),
                client=self.client,
                stream=event.id,
                status=event.status,
                circuit=event.circ_id,
                path=",".join(self._path(known)) if known else None,
                target=event.target,
                source_port=event.source_port,
                rule=rule,
                circuits=circuits,
            )
        )

    def _rule_of(self, _event: StreamEvent) -> tuple[str | None, int | None]:
        """The rule by which a stream's circuit was chosen, and among how many open ones."""
        return None, None

    def _path(self, known: Known) -> tuple[str, ...]:
        return tuple(self._names.get(hop, hop) for hop in known.hops)

    def _attach(self, event: StreamEvent) -> None:
        """Do nothing: Tor attaches the streams itself."""


def is_for_streams(event: CircuitEvent) -> bool:
    """Whether a circuit is for streams, and not for the directory or onion services."""
    flags = set(event.build_flags or ())
    return event.purpose in FOR_STREAMS and not NOT_FOR_STREAMS & flags
