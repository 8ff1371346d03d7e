"""All circuits that measure at the same time: they are opened, and then filled together."""

import selectors
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from socket import AF_INET, SOCK_STREAM, socket

from testbed.basics.seeds import derived_seed
from testbed.inside.measurers.circuit import Circuit, MeasurementError, Second

OPENING_TIMEOUT_S = 60.0
_TICK_S = 0.005
"""How often circuits are looked after. Looking at once when something comes would take as many
system calls as there are packets."""
_BREATH_S = 1.0
"""How long measurers wait between opening and filling: handshakes are then over everywhere."""
LEAST_RATE = 500_000
"""The least that a connection is given, in bytes per second: a slow relay has fewer connections.
In a turn of its loop a Tor reads 32 cells from each connection that has them, and only then writes.
With 160 connections such a turn takes a relay of 10 Mbit/s two seconds, and what comes back comes
in bursts as long."""
_LATE_S = 3.0
"""How much longer they wait for a relay's last report, which comes behind echoed cells."""


@dataclass(frozen=True)
class Target:
    """A relay to be measured.

    Attributes:
        address, port: where it takes connections.
        identity: the digest of its identity key, 20 bytes.
        shares: what each measurer may send, in bytes per second.
    """

    relay: str
    address: str
    port: int
    identity: bytes
    shares: dict[str, float]


@dataclass
class Result:
    """What came out for a relay: lists have a value for each second.

    Attributes:
        echoed: the bytes that came back, by measurer.
        background: what the relay reports of its clients.
        background_before, background_after: the same of the seconds around the measurement.
        checked, forged: cells whose content was compared, and those that were wrong.
        problem: why it wasn't measured to the end; "" if it was.
    """

    relay: str
    echoed: dict[str, list[int]] = field(default_factory=dict)
    background: list[int] = field(default_factory=list)
    background_before: list[int] = field(default_factory=list)
    background_after: list[int] = field(default_factory=list)
    checked: int = 0
    forged: int = 0
    problem: str = ""


MakeSocket = Callable[[str], socket]
"""Makes a measurer's socket."""


def plain_socket(_measurer: str) -> socket:
    """Make a socket of this process's own network."""
    return socket(AF_INET, SOCK_STREAM)


def measure(
    targets: Sequence[Target],
    *,
    key: str,
    sockets: int,
    seconds: int,
    probability: float,
    seed: int,
    around_s: int = 0,
    make_socket: MakeSocket = plain_socket,
) -> list[Result]:
    """Measure some relays at once; one that fails has a problem, and the others go on.

    Args:
        key: what measurers must know.
        sockets: the most connections to each relay, spread evenly over its measurers; each has
            `LEAST_RATE` at least.
        seconds: how long.
        probability: that of a cell to be checked.
        seed: the source of everything random.
        around_s: how many seconds are reported before and after measuring, too.
    """
    circuits: dict[str, dict[str, list[Circuit]]] = {}
    results = {target.relay: Result(target.relay) for target in targets}
    with selectors.DefaultSelector() as selector:
        try:
            for target in targets:
                circuits[target.relay] = {}
                _connect(
                    target, circuits[target.relay], key, sockets, probability, seed, make_socket
                )
            fill = _Fill(selector, circuits, results)
            fill.open_all()
            fill.run(time.monotonic() + _BREATH_S + around_s, seconds, around_s)
        finally:
            for by_measurer in circuits.values():
                for some in by_measurer.values():
                    for circuit in some:
                        circuit.close()
    for target in targets:
        _summarise(results[target.relay], circuits[target.relay], seconds, around_s)
    return list(results.values())


def _connect(
    target: Target,
    circuits: dict[str, list[Circuit]],
    key: str,
    sockets: int,
    probability: float,
    seed: int,
    make_socket: MakeSocket,
) -> None:
    """Connect each measurer with a share; the first connection gets the relay's reports."""
    for measurer, share in target.shares.items():
        each = max(min(sockets // len(target.shares), int(share / LEAST_RATE)), 1)
        circuits[measurer] = []
        for number in range(each):
            drawn = derived_seed(seed, "measurement", target.relay, measurer, str(number))
            sock = make_socket(measurer)
            circuit = Circuit(
                sock=sock,
                relay=target.relay,
                identity=target.identity,
                key=key,
                rate=share / each,
                random=Random(drawn),
                probability=probability,
                wants_reports=not number and measurer == next(iter(target.shares)),
            )
            circuits[measurer].append(circuit)
            circuit.connect(target.address, target.port)


class _Fill:
    """The loop in which circuits are opened and filled."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        circuits: dict[str, dict[str, list[Circuit]]],
        results: dict[str, Result],
    ) -> None:
        self._selector = selector
        self._results = results
        self._circuits = [
            one
            for by_measurer in circuits.values()
            for some in by_measurer.values()
            for one in some
        ]
        for circuit in self._circuits:
            selector.register(circuit, selectors.EVENT_READ, circuit)

    def open_all(self) -> None:
        """Open the circuits; a relay of which one isn't open in time has a problem."""
        end = time.monotonic() + OPENING_TIMEOUT_S
        while time.monotonic() < end and not all(one.is_open for one in self._living()):
            self._turn()
        for circuit in self._living():
            if not circuit.is_open:
                self._give_up(circuit.relay, f"{circuit.relay}: not all circuits opened in time")

    def run(self, begin: float, seconds: int, around_s: int) -> None:
        """Fill the circuits from a moment on, and wait for the reports of what comes after."""
        # The report of the last second comes within a second after it, or later if it must wait.
        end = begin + seconds + 1
        for circuit in self._living():
            circuit.begin, circuit.end = begin, end
        last, until = (seconds + 1 + around_s, end + around_s + 1) if around_s else (seconds, end)
        while time.monotonic() < until + (0 if self._have_reported(last) else _LATE_S):
            self._turn()

    def _have_reported(self, second: int) -> bool:
        """Whether the reports that come in a second are there, of all relays that are measured."""
        return all(
            second in one.seconds and one.seconds[second].background is not None
            for one in self._living()
            if one.wants_reports
        )

    def _living(self) -> list[Circuit]:
        return [one for one in self._circuits if not self._results[one.relay].problem]

    def _turn(self) -> None:
        time.sleep(_TICK_S)
        readable = {id(key.data) for key, _ in self._selector.select(0)}
        now = time.monotonic()
        for circuit in self._living():
            try:
                circuit.pump(now, id(circuit) in readable)
            except MeasurementError as error:
                self._give_up(circuit.relay, str(error))

    def _give_up(self, relay: str, problem: str) -> None:
        self._results[relay].problem = problem
        for circuit in self._circuits:
            if circuit.relay == relay:
                with suppress(KeyError, ValueError):
                    self._selector.unregister(circuit)


def _summarise(
    result: Result, circuits: dict[str, list[Circuit]], seconds: int, around_s: int
) -> None:
    """Put a relay's circuits together, second by second."""
    for measurer, some in circuits.items():
        result.echoed[measurer] = [
            sum(one.seconds[second].echoed for one in some if second in one.seconds)
            for second in range(seconds)
        ]
        result.checked += sum(one.checked for one in some)
        result.forged += sum(one.forged for one in some)
    reporting = [one for some in circuits.values() for one in some if one.wants_reports]
    told = reporting[0].seconds if reporting else {}

    def reported(first: int, end: int) -> list[int]:
        # A report comes in the second after the one that it is of.
        found = [told.get(second + 1, Second()).background for second in range(first, end)]
        return [report or 0 for report in found]

    result.background = reported(0, seconds)
    # In the first second after measuring cells are still sent.
    result.background_before = reported(-around_s, 0)
    result.background_after = reported(seconds + 1, seconds + 1 + around_s)
    if result.forged:
        result.problem = (
            f"{result.relay}: {result.forged} of {result.checked} checked cells came back wrong"
        )
