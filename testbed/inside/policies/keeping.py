"""Circuits that Tor builds, kept open at a number, and a rule for the circuit of each stream."""

from collections.abc import Sequence

from testbed.inside.policies.interface import Circuit, Client, Policy, RoundTripKind, Stream, Wait
from testbed.inside.policies.selection import RULES, Candidate

DIRTINESS_S = 600.0
"""How long after its first stream a circuit may have new ones (Tor's MaxCircuitDirtiness)."""
RECENT_S = 3600.0
"""How long a port that was used may be used again (Tor's PredictedPortsRelevanceTime)."""
FIRST_PORT = 80
"""The port for which Tor builds circuits before it has seen a stream."""


class KeepCircuits(Policy):
    """At least so many open circuits for each recently used port, checked every second.

    Every exit in the lab takes every port, so that a circuit counts for all of them.
    """

    def __init__(
        self,
        client: Client,
        *,
        rule: str,
        circuits: int | None,
        round_trips: RoundTripKind,
        close_unused_s: float,
    ) -> None:
        """Keep circuits for a client.

        Args:
            circuits: the least number; None: as many as Tor keeps, so that this policy asks for
                one only where none may have a new stream.
            round_trips: those that count.
            close_unused_s: how long after it was opened a circuit without a stream is closed.
        """
        super().__init__(client)
        self.rule = rule
        self._rule = RULES[rule]
        self._least = circuits or 1
        self._round_trips, self._close_unused_s = round_trips, close_unused_s
        self._last_used_s = {FIRST_PORT: client.now_s()}
        self._streams = 0

    def prepare(self) -> None:
        """Ask for the first circuits."""
        self._fill()

    def is_ready(self) -> bool:
        """Whether they are open."""
        return len(self._usable()) >= self._least

    def tick(self) -> None:
        """Close circuits that went unused, and replace what is missing."""
        for circuit in self.client.circuits():
            if self._is_overdue(circuit):
                self.client.close(circuit)
        self._fill()

    def circuit_closed(self, number: str) -> None:
        """Nothing: the next tick replaces it."""

    def choose(self, stream: Stream) -> Circuit | Wait:
        """The circuit by the rule, among those that may have new streams."""
        self._last_used_s[stream.port] = self.client.now_s()
        self._streams += 1
        candidates = self._usable(stream)
        if not candidates:
            self._fill()
            return Wait()
        return self._rule.pick(candidates).circuit

    def _usable(self, stream: Stream | None = None) -> Sequence[Candidate]:
        """The open circuits that may have new streams, the oldest first."""
        now_s = self.client.now_s()
        fresh = (
            circuit
            for circuit in self.client.circuits()
            if not circuit.given_up
            and not self._is_overdue(circuit)
            and (circuit.first_used_s is None or now_s - circuit.first_used_s < DIRTINESS_S)
        )
        candidates = [self._candidate(circuit, stream) for circuit in fresh]
        return [one for one in candidates if self._rule.accepts(one)]

    def _is_overdue(self, circuit: Circuit) -> bool:
        age_s = self.client.now_s() - circuit.opened_s
        return circuit.first_used_s is None and age_s >= self._close_unused_s

    def _candidate(self, circuit: Circuit, stream: Stream | None) -> Candidate:
        counted = [one.took_s for one in circuit.round_trips if one.of == self._round_trips]
        relays = [self.client.relays[name].place for name in circuit.path]
        places = [self.client.place, *relays, stream.place if stream else None]
        known = [place for place in places if place is not None]
        lot = 0.0  # each second there are candidates without a stream
        if stream is not None:
            lot = self.client.draw(f"stream {self._streams}, circuit {circuit.number}")
        return Candidate(circuit, counted, known, lot)

    def _fill(self) -> None:
        now_s = self.client.now_s()
        for port, used_s in self._last_used_s.items():
            missing = self._least - len(self._usable()) - self.client.building()
            if now_s - used_s < RECENT_S:
                for _ in range(missing):
                    self.client.build_for(port)
