"""Conflux: one client's linked set of circuits, which share its streams' cells (proposal 329)."""

import time
from dataclasses import dataclass

from stem import CircStatus
from stem.control import EventType
from stem.response.events import CircMinorEvent, CircuitEvent, StreamEvent

from testbed.inside.recording import Record
from testbed.inside.tor.circuit_life import Life
from testbed.inside.tor.client_circuits import LINKED, UNLINKED, Known
from testbed.inside.tor.network import TorNetwork
from testbed.inside.tor.policy_circuits import PolicyCircuits
from testbed.inside.tor.process import RunningTor
from testbed.plan.choices import LEGS
from testbed.plan.model import Plan


class LinkedSet(PolicyCircuits):
    """A client's linked set of circuits, its legs; streams attached to one leg run on all.

    The control port can't ask for a set: Tor builds one ahead of use, like other circuits, if it
    may. So it may until there is a set, and whatever else it has built by then is closed.

    A probe takes one leg, so it doesn't show the other.
    """

    shown_by_probes = False

    def __init__(self, tor: RunningTor, network: TorNetwork, plan: Plan, record: Record) -> None:
        super().__init__(tor, network, plan, record)
        self._controller.add_event_listener(self._on_change, EventType.CIRC_MINOR)

    def build(self, round_name: str) -> None:
        """Let Tor build a set, which it begins to do within a second; returns at once."""
        with self._lock:
            self._own, self._round = {}, round_name
        self._build_ahead(True)

    def is_ready(self) -> bool:
        """Whether the set is complete; TestbedError if a leg has failed since."""
        return len(self._own) == LEGS and super().is_ready()

    def _is_right(self, opened: StreamEvent) -> bool:
        return opened.circ_id in self._own  # on either leg

    def _build_ahead(self, allowed: bool) -> None:
        self._controller.set_conf("__DisablePredictedCircuits", "0" if allowed else "1")

    def _on_circuit(self, event: CircuitEvent) -> None:
        if event.status == CircStatus.LAUNCHED and event.purpose == UNLINKED:
            with self._lock:
                self._known[event.id] = Known(self._round, time.monotonic())
        super()._on_circuit(event)

    def _on_change(self, event: CircMinorEvent) -> None:
        if event.purpose != LINKED or event.id in self._own:
            return
        with self._lock:
            known = self._known[event.id]
            self._own[event.id], self._lives[event.id] = None, Life(known.at_s)
            self._lives[event.id].open(time.monotonic())
            known.status = CircStatus.BUILT
        if len(self._own) == LEGS:
            self._build_ahead(False)
            for circuit in self._controller.get_circuits():
                if circuit.id not in self._own:
                    self._close(circuit.id)


@dataclass(frozen=True)
class Leg:
    """A linked circuit: its number at its client, its set's name, and its relays."""

    circuit: str
    set_id: str
    hops: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.circuit} of {self.set_id[:8]} by {', '.join(hop[:8] for hop in self.hops)}"


def linked_legs(tor: RunningTor) -> list[Leg]:
    """The legs of all linked sets that a client has at this moment."""
    return [
        Leg(
            circuit=circuit.id,
            set_id=circuit.keyword_args["CONFLUX_ID"],
            hops=tuple(fingerprint for fingerprint, _ in circuit.path),
        )
        for circuit in tor.controller.get_circuits()
        if circuit.purpose == LINKED
    ]
