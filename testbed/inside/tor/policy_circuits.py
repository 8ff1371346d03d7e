"""One client's circuits and streams, decided on by a policy."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from stem import CircStatus, ControllerError, InvalidArguments
from stem.response.events import CircuitEvent, StreamEvent

from testbed.basics.errors import TestbedError
from testbed.basics.seeds import derived_seed
from testbed.inside.policies.interface import (
    PROBE_PORT,
    Circuit,
    Client,
    FixedPath,
    Policy,
    Relay,
    Stream,
)
from testbed.inside.policies.parallel import ParallelCircuits
from testbed.inside.policies.reading import policy_class
from testbed.inside.recording import Record
from testbed.inside.tor.client_circuits import ENDED, ClientCircuits, Known
from testbed.inside.tor.network import TorNetwork
from testbed.inside.tor.process import RunningTor
from testbed.plan.model import Plan


class PolicyCircuits(ClientCircuits):
    """A client's circuits as its policy asks for them, with streams attached as it chooses."""

    probed = shown_by_probes = True

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
        """The circuits that the policy has asked for, in that order, until they are closed."""
        self._closing: set[str] = set()
        """Circuits that the run itself closes: if the policy knew, it would replace them."""
        self._chosen: dict[str, str] = {}
        """The circuit chosen for each stream that isn't open yet, by the stream's number."""
        self.given: Counter[str] = Counter()
        self.opened: Counter[str] = Counter()
        """How many of the traffic's streams were given to each circuit, and opened on it."""
        self.steady = plan.policy.text is None
        self._policy = _policy_of(plan)(self)

    def build(self, round_name: str) -> None:
        """Let the policy ask for its circuits."""
        super().build(round_name)
        self._call(self._policy.prepare)

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

    def circuits(self) -> Sequence[Circuit]:
        """The open circuits of the policy; see `inside.policies.interface.Client`."""
        with self._lock:
            return [
                Circuit(number, self._path(known), self.given[number])
                for number in self._own
                if (known := self._known[number]).status == CircStatus.BUILT
            ]

    def extend(self, path: Sequence[str]) -> None:
        """Ask for a circuit; see `inside.policies.interface.Client`.

        Raises:
            TestbedError: there is no such relay, or Tor refuses.
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
                relays = ", ".join(path)
                raise TestbedError(f"{self.client}: no circuit by {relays}: {error}") from error
            self._forget_ended()
            self._own[number] = None
            self._known[number] = Known(self._round, now_s)

    def draw(self, purpose: str) -> float:
        """A random number by the run's seed; see `inside.policies.interface.Client`."""
        return derived_seed(self._plan.seed, "policy", self.client, purpose, bits=53) / 2**53

    def _close(self, circuit: str) -> None:
        with suppress(InvalidArguments):  # already closed, as a leg after the other one
            self._controller.close_circuit(circuit)

    def _forget_ended(self) -> None:
        for number in [one for one in self._own if self._known[one].status in ENDED]:
            del self._own[number]

    def _is_right(self, opened: StreamEvent) -> bool:
        is_right = bool(opened.circ_id == self._chosen.pop(opened.id, None))
        if is_right and opened.target_port != PROBE_PORT:
            self.opened[opened.circ_id] += 1
        return is_right

    def _on_circuit(self, event: CircuitEvent) -> None:
        super()._on_circuit(event)
        if event.status in ENDED and event.id in self._own and event.id not in self._closing:
            self._call(partial(self._policy.circuit_closed, event.id))

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
        )
        circuit = self._call(partial(self._policy.choose, stream))
        if not isinstance(circuit, Circuit):
            self._fail(f"choose() returned {circuit!r}, which is not a circuit")
            return
        with self._lock:
            known = self._known.get(circuit.number)
            if known is None or known.status != CircStatus.BUILT:
                self._fail(f"choose() returned the circuit {circuit.number}, which isn't open")
                return
            self._chosen[event.id] = circuit.number
            self.given[circuit.number] += not stream.is_probe
        try:
            self._controller.attach_stream(event.id, circuit.number)
        except ControllerError as error:
            # The stream may have ended meanwhile; if the circuit has, a check will report it.
            self._record.note(f"{self.client}: stream {event.id} not attached: {error}")

    def _call(self, what: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Call a policy's method, which is the user's program and may raise anything."""
        try:
            return what()
        except Exception as error:
            self._fail(f"{error!r}")
            return None

    def _fail(self, what: str) -> None:
        self.failure = self.failure or f"{self.client}: policy {self._plan.policy.name}: {what}"


def _policy_of(plan: Plan) -> Callable[[Client], Policy]:
    if plan.policy.text is not None:
        return policy_class(plan.policy.text, f"{plan.policy.name}.py")
    if (circuits := plan.tor.parallel_circuits) > 1:
        return partial(ParallelCircuits, circuits=circuits, rule=plan.tor.stream_rule)
    return FixedPath
