"""The clients' circuits and streams: a policy's, a linked set's, or Tor's own, all recorded.

What crosses the circuits is traffic's and the probes'; what they did is recorded here.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from stem import CircStatus, ControllerError, InvalidArguments, StreamStatus
from stem.control import Controller, EventType
from stem.response.events import CircMinorEvent, CircuitEvent, StreamEvent

from testbed.errors import TestbedError
from testbed.network.model import HOPS
from testbed.plan_model import TOR, Plan
from testbed.policies.interface import PROBE_PORT, Circuit, Client, FixedPath, Policy, Relay, Stream
from testbed.policies.parallel import ParallelCircuits
from testbed.policies.reading import policy_class
from testbed.recording import Record
from testbed.seeds import derived_seed
from testbed.tor.network import RunningTor, TorNetwork, wait_until

BUILD_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 60.0

_ENDED = (CircStatus.FAILED, CircStatus.CLOSED)

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


@dataclass(frozen=True)
class StreamChange:
    """A row of streams.parquet: what became of a stream at its client.

    Attributes:
        time_s: Unix time at which the event came over the control port.
        stream: Tor's number.
        status: NEW, SENTCONNECT, SUCCEEDED, FAILED, DETACHED, CLOSED and so on (control-spec).
        circuit: the one that carries it; null where it has none.
        path: the names of that circuit's relays, joined by commas.
        target: address and port.
        source_port: of the generator's socket, in NEW, by which a transfer is known; else null.
    """

    time_s: float
    client: str
    stream: str
    status: str
    circuit: str | None
    path: str | None
    target: str
    source_port: int | None


STREAM_STATUSES = (StreamStatus.NEW, StreamStatus.SUCCEEDED, StreamStatus.FAILED)
"""Of which a row is kept: who waits, and what carried it."""


@dataclass
class _Known:
    """A circuit of which Tor has told.

    Attributes:
        round: see `CircuitChange`.
        at_s: when it was asked for, by the monotonic clock.
    """

    round: str
    at_s: float
    status: str = CircStatus.LAUNCHED
    hops: tuple[str, ...] = ()


class ClientCircuits:
    """A client's circuits and streams as its Tor decides on them; they are recorded, no more."""

    def __init__(self, tor: RunningTor, network: TorNetwork, plan: Plan, record: Record) -> None:
        self.client = tor.node.name
        self.strays: set[str] = set()
        """Circuits other than those of its policy on which a stream ran."""
        self.failure: str | None = None
        """Why its policy can't go on."""
        self._controller: Controller = tor.controller
        self._names = {fingerprint: name for name, fingerprint in network.fingerprints.items()}
        self._plan = plan
        self._record = record
        self._known: dict[str, _Known] = {}
        self._round = "other"
        self._lock = threading.RLock()
        self._controller.add_event_listener(self._on_circuit, EventType.CIRC)
        self._controller.add_event_listener(self._on_stream, EventType.STREAM)

    def build(self, round_name: str) -> None:
        """Let the circuits come to be that carry streams; returns at once."""
        self._round = round_name

    def close_all(self) -> None:
        """Close them."""

    def is_ready(self) -> bool:
        """Whether there is one; TestbedError if there can't be."""
        return any(
            one.status == CircStatus.BUILT and len(one.hops) == HOPS for one in self._known.values()
        )

    def is_closed(self) -> bool:
        """Whether those that were asked for are closed."""
        return True

    def state(self) -> str:
        """The open circuits that carry streams, for comparison with another moment."""
        return "Tor's own"

    def _is_right(self, _opened: StreamEvent) -> bool:
        """Whether a stream runs on a circuit on which it may."""
        return True

    def _round_of(self, _event: CircuitEvent) -> str:
        return "other"

    def _on_circuit(self, event: CircuitEvent) -> None:
        time_s, now_s = time.time(), time.monotonic()  # stem's own arrival times are whole seconds
        with self._lock:  # who asks for a circuit holds it until it knows the circuit's number
            known = self._known.get(event.id)
            if known is None:
                known = self._known[event.id] = _Known(self._round_of(event), float("nan"))
            known.status = event.status
            known.hops = tuple(fingerprint for fingerprint, _ in event.path)
            if event.status in _ENDED and known.round == "other":
                del self._known[event.id]
        self._record.circuits.add(
            asdict(
                CircuitChange(
                    time_s=time_s,
                    client=self.client,
                    circuit=event.id,
                    status=event.status,
                    round=known.round,
                    since_extend_s=now_s - known.at_s,
                    hops=",".join(known.hops),
                    reason=event.reason,
                )
            )
        )

    def _on_stream(self, event: StreamEvent) -> None:
        if event.purpose == "DIR_FETCH":
            return
        if event.status in STREAM_STATUSES:
            self._record_stream(event)
        if event.status == StreamStatus.NEW:
            self._attach(event)
        elif event.status == StreamStatus.SUCCEEDED and not self._is_right(event):
            self.strays.add(str(event.circ_id))

    def _record_stream(self, event: StreamEvent) -> None:
        with self._lock:
            known = self._known.get(event.circ_id)
        self._record.streams.add(
            asdict(
                StreamChange(
                    time_s=time.time(),
                    client=self.client,
                    stream=event.id,
                    status=event.status,
                    circuit=event.circ_id,
                    path=",".join(self._path(known)) if known else None,
                    target=event.target,
                    source_port=event.source_port,
                )
            )
        )

    def _path(self, known: _Known) -> tuple[str, ...]:
        return tuple(self._names.get(hop, hop) for hop in known.hops)

    def _attach(self, event: StreamEvent) -> None:
        """Tor attaches the streams itself."""


class PolicysCircuits(ClientCircuits):
    """A client's circuits as a policy asks for them, and the streams attached as it says."""

    def __init__(self, tor: RunningTor, network: TorNetwork, plan: Plan, record: Record) -> None:
        super().__init__(tor, network, plan, record)
        self.name = self.client
        self.path: tuple[str, ...] = plan.paths.get(self.client, ())
        self.relays: Mapping[str, Relay] = {
            node.name: Relay(node.name, node.flags, node.weight, node.site)
            for node in plan.of_kind("relay")
        }
        self._fingerprints = network.fingerprints
        self._own: dict[str, None] = {}
        """The circuits that the policy has asked for and that aren't closed, in that order."""
        self._closing: set[str] = set()
        """Those that the run itself closes: the policy isn't told, or it would replace them."""
        self._chosen: dict[str, str] = {}
        """The circuit of each stream that was given one and isn't open, by the stream's number."""
        self.given: Counter[str] = Counter()
        self.opened: Counter[str] = Counter()
        """How many of the traffic's streams were given to each circuit, and opened on it."""
        self._policy = _policy_of(plan)(self)

    def build(self, round_name: str) -> None:
        """Let the policy ask for its circuits."""
        super().build(round_name)
        self._asked_of_user(self._policy.prepare)

    def close_all(self) -> None:
        """Close them all."""
        self._closing.update(self._own)
        for number in list(self._own):
            self._close(number)

    def close(self, circuit: Circuit) -> None:
        """Close one; see `policies.interface.Client`."""
        self._close(circuit.number)

    def is_ready(self) -> bool:
        """Whether the policy says so; TestbedError if a circuit failed that it asked for."""
        with self._lock:
            for number in self._own:
                if (status := self._known[number].status) in _ENDED:
                    raise TestbedError(f"{self.client}: its circuit {number} is {status}")
        return bool(self._asked_of_user(self._policy.is_ready))

    def is_closed(self) -> bool:
        """Whether all of them are."""
        with self._lock:
            return all(self._known[number].status in _ENDED for number in self._own)

    def state(self) -> str:
        """Status and number of each."""
        with self._lock:
            return ", ".join(f"{self._known[number].status} {number}" for number in self._own)

    def circuits(self) -> Sequence[Circuit]:
        """Those that are open; see `policies.interface.Client`."""
        with self._lock:
            return [
                Circuit(number, self._path(known), self.given[number])
                for number in self._own
                if (known := self._known[number]).status == CircStatus.BUILT
            ]

    def extend(self, path: Sequence[str]) -> None:
        """Ask for a circuit; see `policies.interface.Client`.

        Raises:
            TestbedError: a relay isn't there, or Tor refuses.
        """
        for relay in path:
            if relay not in self._fingerprints:
                raise TestbedError(f"{self.client}: there is no relay {relay}")
        hops = [self._fingerprints[relay] for relay in path]
        with self._lock:
            now_s = time.monotonic()
            try:
                number = str(self._controller.new_circuit(hops, await_build=False))
            except ControllerError as error:
                raise TestbedError(
                    f"{self.client}: no circuit by {', '.join(path)}: {error}"
                ) from (error)
            self._forget_ended()
            self._own[number] = None
            self._known[number] = _Known(self._round, now_s)

    def draw(self, purpose: str) -> float:
        """A number by the run's seed; see `policies.interface.Client`."""
        return derived_seed(self._plan.seed, "policy", self.client, purpose, bits=53) / 2**53

    def _close(self, circuit: str) -> None:
        with suppress(InvalidArguments):  # it is closed already, as a leg after the other one
            self._controller.close_circuit(circuit)

    def _forget_ended(self) -> None:
        for number in [one for one in self._own if self._known[one].status in _ENDED]:
            del self._own[number]

    def _is_right(self, opened: StreamEvent) -> bool:
        is_right = bool(opened.circ_id == self._chosen.pop(opened.id, None))
        if is_right and opened.target_port != PROBE_PORT:
            self.opened[opened.circ_id] += 1
        return is_right

    def _on_circuit(self, event: CircuitEvent) -> None:
        super()._on_circuit(event)
        if event.status in _ENDED and event.id in self._own and event.id not in self._closing:
            self._asked_of_user(partial(self._policy.circuit_closed, event.id))

    def _attach(self, event: StreamEvent) -> None:
        if self._plan.policy.text is None and not self.circuits():
            # What had been asked for has ended, and nothing asks anew: the run will say so.
            self._record.note(f"{self.client}: stream {event.id} not attached: no open circuit")
            return
        stream = Stream(
            number=event.id,
            source=f"{event.source_address}:{event.source_port}",
            target=event.target,
            is_probe=event.target_port == PROBE_PORT,
        )
        circuit = self._asked_of_user(partial(self._policy.choose, stream))
        if not isinstance(circuit, Circuit):
            self._fail(f"choose() gave {circuit!r}, which is no circuit")
            return
        with self._lock:
            known = self._known.get(circuit.number)
            if known is None or known.status != CircStatus.BUILT:
                self._fail(f"choose() gave the circuit {circuit.number}, which isn't open")
                return
            self._chosen[event.id] = circuit.number
            self.given[circuit.number] += not stream.is_probe
        try:
            self._controller.attach_stream(event.id, circuit.number)
        except ControllerError as error:
            # The stream may have ended meanwhile; if the circuit has, the run will say so.
            self._record.note(f"{self.client}: stream {event.id} not attached: {error}")

    def _asked_of_user(self, what: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Call a policy's method: the user's program, out of which anything may come."""
        try:
            return what()
        except Exception as error:
            self._fail(f"{error!r}")
            return None

    def _fail(self, what: str) -> None:
        self.failure = self.failure or f"{self.client}: policy {self._plan.policy.name}: {what}"


class LinkedSet(PolicysCircuits):
    """A client's linked set of circuits, its legs; streams attached to one leg run on all.

    The control port has no word for a set: Tor builds one ahead of use, as it does with other
    circuits when it is allowed to. So it is allowed to until there is a set, and what else it has
    built by then is closed.
    """

    def __init__(self, tor: RunningTor, network: TorNetwork, plan: Plan, record: Record) -> None:
        super().__init__(tor, network, plan, record)
        self._controller.add_event_listener(self._on_change, EventType.CIRC_MINOR)

    def build(self, round_name: str) -> None:
        """Let Tor build a set, which it begins within a second; returns at once."""
        with self._lock:
            self._own, self._round = {}, round_name
        self._build_ahead(True)

    def is_ready(self) -> bool:
        """Whether the set is whole; TestbedError if a leg failed after that."""
        return len(self._own) == LEGS and super().is_ready()

    def _is_right(self, opened: StreamEvent) -> bool:
        return opened.circ_id in self._own  # on either leg

    def _build_ahead(self, allowed: bool) -> None:
        self._controller.set_conf("__DisablePredictedCircuits", "0" if allowed else "1")

    def _on_circuit(self, event: CircuitEvent) -> None:
        if event.status == CircStatus.LAUNCHED and event.purpose == UNLINKED:
            with self._lock:
                self._known[event.id] = _Known(self._round, time.monotonic())
        super()._on_circuit(event)

    def _on_change(self, event: CircMinorEvent) -> None:
        if event.purpose != LINKED or event.id in self._own:
            return
        with self._lock:
            self._own[event.id] = None
            self._known[event.id].status = CircStatus.BUILT
        if len(self._own) == LEGS:
            self._build_ahead(False)
            for circuit in self._controller.get_circuits():
                if circuit.id not in self._own:
                    self._close(circuit.id)


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


def _policy_of(plan: Plan) -> Callable[[Client], Policy]:
    if plan.policy.text is not None:
        return policy_class(plan.policy.text, f"{plan.policy.name}.py")
    if (circuits := plan.tor.parallel_circuits) > 1:
        return partial(ParallelCircuits, circuits=circuits, rule=plan.tor.stream_rule)
    return FixedPath


class Circuits:
    """The circuits of all clients, by the plan's policy."""

    def __init__(self, network: TorNetwork, plan: Plan, record: Record) -> None:
        kind: type[ClientCircuits] = PolicysCircuits
        if plan.policy.name == TOR:
            kind = ClientCircuits
        elif plan.tor.conflux:
            kind = LinkedSet
        self._network = network
        self._circuits = [kind(network[client], network, plan, record) for client in plan.clients]

    def __iter__(self) -> Iterator[ClientCircuits]:
        return iter(self._circuits)

    def build(self, round_name: str) -> None:
        """Let all clients build at the same instant, and wait until every one is ready.

        Raises:
            TestbedError: a circuit failed, or one was not built in time.
        """
        for circuits in self:
            circuits.build(round_name)

        def missing() -> Iterator[str]:
            return (f"{one.client}'s circuit" for one in self if not one.is_ready())

        self._wait(missing, BUILD_TIMEOUT_S, "building circuits")

    def close(self) -> None:
        """Close all circuits and wait until Tor says so."""
        for circuits in self:
            circuits.close_all()

        def missing() -> Iterator[str]:
            return (f"the end of {one.client}'s circuit" for one in self if not one.is_closed())

        self._wait(missing, CLOSE_TIMEOUT_S, "closing circuits")

    def states(self) -> dict[str, str]:
        """Each client's circuits that carry its streams, for comparison with another moment."""
        return {one.client: one.state() for one in self}

    def check(self) -> None:
        """TestbedError if a policy has failed, or the handling of an event."""
        self._network.check()
        if failure := next((one.failure for one in self if one.failure), None):
            raise TestbedError(failure)

    def _wait(self, missing: Callable[[], Iterator[str]], timeout_s: float, doing: str) -> None:
        def missing_or_failed() -> Iterator[str]:
            self.check()
            return missing()

        wait_until(missing_or_failed, timeout_s, doing, interval_s=0.05)
