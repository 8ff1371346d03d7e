"""One client's circuits as its Tor builds them, among which a rule chooses for each stream."""

import socket
import time
from collections import deque

from stem import CircStatus, StreamStatus
from stem.response.events import CircuitEvent, StreamEvent

from testbed.inside.policies.interface import PROBE_PORT, REFUSED_ADDRESS, RoundTrip
from testbed.inside.recording import Record
from testbed.inside.tor import socks
from testbed.inside.tor.client_circuits import ENDED, is_for_streams
from testbed.inside.tor.network import TorNetwork
from testbed.inside.tor.own_choice import OwnChoice
from testbed.inside.tor.policy_circuits import PolicyCircuits
from testbed.inside.tor.process import RunningTor
from testbed.plan.model import Plan

REFUSED = (StreamStatus.FAILED, StreamStatus.DETACHED)
"""The statuses of a stream that its exit refuses, one of them if Tor would try another circuit."""


class SelectedCircuits(PolicyCircuits, OwnChoice):
    """The circuits of a client whose Tor chooses paths, and whose policy gives streams circuits.

    All that Tor builds for streams are the policy's, whoever asked for them. One that fails is no
    failure: the policy asks for another. The testbed's own probes would keep circuits in use, so
    there are none; the policy's own go to each circuit in turn.

    A probe is a stream to an address that the exits' policy refuses, at once, so that it costs a
    BEGIN and an END cell, and no connection. Tor would try another circuit, but leaves that to the
    policy. As the summary of an exit's policy has no single addresses, the client's Tor doesn't
    doubt the rest of it. There are none before the traffic, when checks count cells.
    """

    probed = shown_by_probes = False

    def __init__(self, tor: RunningTor, network: TorNetwork, plan: Plan, record: Record) -> None:
        super().__init__(tor, network, plan, record)
        self._socks_path = str(tor.files.probe_socket)
        self._due_s: dict[str, float] = {}
        """When each circuit's next probe is due; before that it has none under way."""
        self._asked: deque[tuple[str, socket.socket]] = deque()
        """The circuits whose probes' streams Tor has yet to announce."""
        self._probes: dict[str, tuple[str, socket.socket]] = {}
        """The circuit of each probe under way, by the number of its stream."""

    def close_all(self) -> None:
        """Do nothing: as where Tor chooses all, circuits stay."""

    def is_closed(self) -> bool:
        """Whether nothing is to be closed any more."""
        return True

    def is_ready(self) -> bool:
        """Whether the policy is ready."""
        return bool(self._call(self._policy.is_ready))

    def tick(self) -> None:
        """Probe circuits that are due, besides what each policy does."""
        with self._lock:
            self._forget_ended()
        interval_s = self._plan.policy.probe_interval_s
        if self.may_probe and interval_s is not None:
            self._probe(interval_s)
        super().tick()

    def _probe(self, interval_s: float) -> None:
        now_s = time.monotonic()
        open_now = [circuit.number for circuit in self.circuits()]
        under_way = {number for number, _ in (*self._asked, *self._probes.values())}
        for number in open_now:
            if number in under_way or now_s < self._due_s.get(number, now_s):
                continue
            self._due_s[number] = now_s + interval_s
            self._asked.append((number, self._ask_for_stream()))

    def _ask_for_stream(self) -> socket.socket:
        """Ask Tor for a probe's stream (RFC 1928), without waiting for its answers."""
        asking = socket.socket(socket.AF_UNIX)
        asking.connect(self._socks_path)
        asking.sendall(socks.GREETING + socks.request(REFUSED_ADDRESS, PROBE_PORT))
        return asking

    def _on_stream(self, event: StreamEvent) -> None:
        if event.status in REFUSED and event.id in self._probes:
            self._refused(event)
        super()._on_stream(event)
        if event.status in (*REFUSED, StreamStatus.CLOSED):
            self._end_probe(event)

    def _end_probe(self, event: StreamEvent) -> None:
        _, asking = self._probes.pop(event.id, ("", None))
        if asking is not None:
            asking.close()

    def _attach(self, event: StreamEvent) -> None:
        if not event.target.startswith(f"{REFUSED_ADDRESS}:"):
            super()._attach(event)
            return
        if event.status != StreamStatus.NEW or not self._asked:
            return  # it is refused, and will be closed
        number, asking = self._asked.popleft()
        self._probes[event.id] = number, asking
        if not self._attach_to(event, number):
            self._end_probe(event)

    def _refused(self, event: StreamEvent) -> None:
        """Note the round trip of a probe, if it was the exit that refused it."""
        now_s, sent_s = time.monotonic(), self._sent_s.get(event.id)
        number, _ = self._probes.get(event.id, ("", None))
        with self._lock:
            life = self._lives.get(number)
            if life is not None and sent_s is not None and event.reason == "END":
                life.round_trips.append(RoundTrip(now_s, now_s - sent_s, "probe"))

    def _on_circuit(self, event: CircuitEvent) -> None:
        if event.status == CircStatus.LAUNCHED and is_for_streams(event):
            with self._lock:  # a request for a circuit holds it until the number is known
                if event.id not in self._known:
                    self._take_on(event.id, time.monotonic())
        with self._lock:
            if event.id in self._own and not is_for_streams(event):
                # Tor keeps one that was too slow only to learn how slow it was.
                del self._own[event.id], self._lives[event.id]
        super()._on_circuit(event)
        if event.status in ENDED:
            self._due_s.pop(event.id, None)
