"""One client's circuits and streams, decided on by a policy."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from stem import CircStatus, ControllerError, InvalidArguments, StreamStatus
from stem.response.events import CircuitEvent, StreamEvent

from testbed.basics.errors import TestbedError
from testbed.basics.seeds import derived_seed
from testbed.inside.policies.interface import (
    PROBE_PORT,
    Circuit,
    Client,
    FixedPath,
    Place,
    Policy,
    Relay,
    RoundTrip,
    Stream,
    Wait,
)
from testbed.inside.policies.keeping import KeepCircuits
from testbed.inside.policies.parallel import ParallelCircuits
from testbed.inside.policies.reading import policy_class
from testbed.inside.recording import Record
from testbed.inside.tor.circuit_life import Life
from testbed.inside.tor.client_circuits import ENDED, ClientCircuits, Known
from testbed.inside.tor.liars import Liars
from testbed.inside.tor.network import TorNetwork
from testbed.inside.tor.process import RunningTor
from testbed.plan.model import Plan, PlannedNode


class PolicyCircuits(ClientCircuits):
    """A client's circuits as its policy asks for them, with streams attached as it chooses."""

    probed = shown_by_probes = True

    def __init__(self, tor: RunningTor, network: TorNetwork, plan: Plan, record: Record) -> None:
        super().__init__(tor, network, plan, record)
        self.name = self.client
        self.path: tuple[str, ...] = plan.paths.get(self.client, ())
        self.place = _place(plan, plan.node(self.client))
        self.relays: Mapping[str, Relay] = {
            node.name: Relay(node.name, node.flags, node.weight, node.site, _place(plan, node))
            for node in plan.of_kind("relay")
        }
        self._places = {node.address: _place(plan, node) for node in plan.of_kind("server")}
        self._fingerprints = network.fingerprints
        self._own: dict[str, None] = {}
        """The circuits that the policy has asked for, in that order, until they are closed."""
        self._closing: set[str] = set()
        """Circuits that the run itself closes: if the policy knew, it would replace them."""
        self._chosen: dict[str, str] = {}
        """The circuit chosen for each stream that isn't open yet, by the stream's number."""
        self._lives: dict[str, Life] = {}
        """The policy's circuits, by number."""
        self._sent_s: dict[str, float] = {}
        """When a circuit was sent the BEGIN cell of a stream that isn't open yet."""
        self._waiting: dict[str, StreamEvent] = {}
        """The streams that wait for another circuit, by their numbers."""
        self._among: dict[str, int] = {}
        """Among how many circuits the rule chose, for each stream that isn't open yet."""
        self.given: Counter[str] = Counter()
        self.opened: Counter[str] = Counter()
        """How many of the traffic's streams were given to each circuit, and opened on it."""
        self._liars = Liars(plan, self.client) if plan.policy.liars else None
        self.steady = plan.policy.text is None and plan.policy.rule is None
        self._policy = _policy_of(plan)(self)
        self._is_prepared = False
        self.ticks = type(self._policy).tick is not Policy.tick

    def build(self, round_name: str) -> None:
        """Let the policy ask for its circuits."""
        super().build(round_name)
        self._call(self._policy.prepare)
        self._is_prepared = True

    def close_all(self) -> None:
        """Close all circuits of the policy."""
        self._closing.update(self._own)
        for number in list(self._own):
            self._close(number)

    def close(self, circuit: Circuit) -> None:
        """Close a circuit; see `inside.policies.interface.Client`."""
        self._close(circuit.number)

    def is_ready(self) -> bool:
        """Whether the policy is ready; TestbedError if one of its circuits has failed."""
        with self._lock:
            for number in self._own:
                if (status := self._known[number].status) in ENDED:
                    raise TestbedError(f"{self.client}: its circuit {number} is {status}")
        return bool(self._call(self._policy.is_ready))

    def is_closed(self) -> bool:
        """Whether all circuits of the policy are closed."""
        with self._lock:
            return all(self._known[number].status in ENDED for number in self._own)

    def state(self) -> str:
        """The status and number of each circuit."""
        with self._lock:
            return ", ".join(f"{self._known[number].status} {number}" for number in self._own)

    def tick(self) -> None:
        """Let the policy look after its circuits, and ask it again about streams that wait."""
        if self._is_prepared:
            self._call(self._policy.tick)
            self._ask_again()

    def circuits(self) -> Sequence[Circuit]:
        """The open circuits of the policy; see `inside.policies.interface.Client`."""
        with self._lock:
            seen = [
                self._lives[number].seen(number, self._path(known))
                for number in self._own
                if (known := self._known[number]).status == CircStatus.BUILT
            ]
        return [self._liars.told(one) for one in seen] if self._liars else seen

    def building(self) -> int:
        """How many circuits are being built; see `inside.policies.interface.Client`."""
        with self._lock:
            ready = (CircStatus.BUILT, *ENDED)
            return sum(self._known[number].status not in ready for number in self._own)

    def now_s(self) -> float:
        """The time; see `inside.policies.interface.Client`."""
        return time.monotonic()

    def build_for(self, port: int) -> None:
        """Ask for a circuit by Tor's choice; see `inside.policies.interface.Client`.

        Tor expects streams to the ports that were used lately, and chooses the exit by them. The
        control port has no word for a port, and every exit in the lab takes all.
        """
        self._ask_for(None, f"for port {port}")

    def extend(self, path: Sequence[str]) -> None:
        """Ask for a circuit; see `inside.policies.interface.Client`.

        Raises:
            TestbedError: there is no such relay, or Tor refuses.
        """
        for relay in path:
            if relay not in self._fingerprints:
                raise TestbedError(f"{self.client}: there is no relay {relay}")
        hops = [self._fingerprints[relay] for relay in path]
        self._ask_for(hops, f"by {', '.join(path)}")

    def _ask_for(self, hops: list[str] | None, words: str) -> None:
        with self._lock:
            now_s = time.monotonic()
            try:
                number = str(self._controller.new_circuit(hops, await_build=False))
            except ControllerError as error:
                raise TestbedError(f"{self.client}: no circuit {words}: {error}") from error
            self._forget_ended()
            self._take_on(number, now_s)

    def _take_on(self, number: str, asked_s: float) -> None:
        """Make a circuit the policy's."""
        self._own[number] = None
        self._known[number] = Known(self._round, asked_s)
        self._lives[number] = Life(asked_s)

    def draw(self, purpose: str) -> float:
        """A random number by the run's seed; see `inside.policies.interface.Client`."""
        return derived_seed(self._plan.seed, "policy", self.client, purpose, bits=53) / 2**53

    def _close(self, circuit: str) -> None:
        with suppress(InvalidArguments):  # already closed, as a leg after the other one
            self._controller.close_circuit(circuit)

    def _forget_ended(self) -> None:
        for number in [one for one in self._own if self._known[one].status in ENDED]:
            del self._own[number], self._lives[number]

    def _is_right(self, opened: StreamEvent) -> bool:
        is_right = bool(opened.circ_id == self._chosen.pop(opened.id, None))
        if is_right and opened.target_port != PROBE_PORT:
            self.opened[opened.circ_id] += 1
        return is_right

    def _on_circuit(self, event: CircuitEvent) -> None:
        super()._on_circuit(event)
        with self._lock:
            if (life := self._lives.get(event.id)) is not None:
                if event.status == CircStatus.EXTENDED:
                    life.extended_s.append(time.monotonic())
                elif event.status == CircStatus.BUILT:
                    life.open(time.monotonic())
        if event.status == CircStatus.BUILT:
            self._ask_again()
        if event.status in ENDED and event.id in self._own and event.id not in self._closing:
            self._call(partial(self._policy.circuit_closed, event.id))

    def _on_stream(self, event: StreamEvent) -> None:
        if event.status == StreamStatus.SENTCONNECT:
            self._sent_s[event.id] = time.monotonic()
        elif event.status == StreamStatus.SUCCEEDED:
            self._answered(event)
        super()._on_stream(event)
        is_clients = event.id in self._streams
        if event.status == StreamStatus.DETACHED and is_clients and not self.steady:
            # Tor has given the stream up on this circuit, as no answer came in time.
            with self._lock:
                if life := self._lives.get(self._chosen.get(event.id, "")):
                    life.given_up = True
            self._attach(event)
        elif event.status in (StreamStatus.FAILED, StreamStatus.CLOSED):
            for of_stream in (self._sent_s, self._waiting, self._chosen, self._among):
                of_stream.pop(event.id, None)

    def _answered(self, event: StreamEvent) -> None:
        """Note a stream's round trip, once it is open; not that of a check before the traffic."""
        now_s = time.monotonic()
        sent_s = self._sent_s.pop(event.id, None)
        if event.target_port == PROBE_PORT:
            return
        with self._lock:
            if sent_s is not None and (life := self._lives.get(event.circ_id)) is not None:
                life.round_trips.append(RoundTrip(now_s, now_s - sent_s, "stream"))

    def _ask_again(self) -> None:
        """Ask the policy for the circuits of the streams that wait."""
        waiting, self._waiting = self._waiting, {}
        for event in waiting.values():
            self._attach(event)

    def _rule_of(self, event: StreamEvent) -> tuple[str | None, int | None]:
        if not self._policy.rule or event.id not in self._among:
            return super()._rule_of(event)
        return self._policy.rule, self._among[event.id]

    def _attach(self, event: StreamEvent) -> None:
        if self.steady and not self.circuits():
            # The circuits have ended, and the policy won't ask for others: a check will report it.
            self._record.note(f"{self.client}: stream {event.id} not attached: no open circuit")
            return
        stream = Stream(
            number=event.id,
            source=f"{event.source_address}:{event.source_port}",
            target=event.target,
            is_probe=event.target_port == PROBE_PORT,
            port=event.target_port,
            place=self._places.get(event.target.rpartition(":")[0]),
        )
        circuit = self._call(partial(self._policy.choose, stream))
        if isinstance(circuit, Wait):
            self._waiting[event.id] = event
            return
        if not isinstance(circuit, Circuit):
            self._fail(f"choose() returned {circuit!r}, which is not a circuit")
            return
        with self._lock:
            known, life = self._known.get(circuit.number), self._lives.get(circuit.number)
            if known is None or life is None or known.status != CircStatus.BUILT:
                self._fail(f"choose() returned the circuit {circuit.number}, which isn't open")
                return
            self._chosen[event.id] = circuit.number
            self._among[event.id] = len(self.circuits())
            self.given[circuit.number] += not stream.is_probe
            if not stream.is_probe:
                life.use(time.monotonic())
        self._attach_to(event, circuit.number)

    def _attach_to(self, event: StreamEvent, circuit: str) -> bool:
        """Tell Tor a stream's circuit; return whether it took that."""
        try:
            self._controller.attach_stream(event.id, circuit)
        except ControllerError as error:
            # The stream may have ended meanwhile; if the circuit has, a check will report it.
            self._record.note(f"{self.client}: stream {event.id} not attached: {error}")
            return False
        return True

    def _call(self, what: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Call a policy's method, which is the user's program and may raise anything."""
        try:
            return what()
        except Exception as error:
            self._fail(f"{error!r}")
            return None

    def _fail(self, what: str) -> None:
        self.failure = self.failure or f"{self.client}: policy {self._plan.policy.name}: {what}"


def _place(plan: Plan, node: PlannedNode) -> Place | None:
    return plan.coordinates.get(node.site or "")


def _policy_of(plan: Plan) -> Callable[[Client], Policy]:
    if (rule := plan.policy.rule) is not None:
        return partial(
            KeepCircuits,
            rule=rule,
            circuits=plan.policy.circuits,
            round_trips=plan.policy.round_trips,
            close_unused_s=plan.policy.close_unused_s,
        )
    if plan.policy.text is not None:
        return policy_class(plan.policy.text, f"{plan.policy.name}.py")
    if (circuits := plan.tor.parallel_circuits) > 1:
        return partial(ParallelCircuits, circuits=circuits, rule=plan.tor.stream_rule)
    return FixedPath
