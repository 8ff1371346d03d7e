"""The interface of a policy: a class of which each client has an object. Users' files import it.

It hides the control port: everything that a policy sees is plain data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

PROBE_PORT = 9
"""The server's port that accepts connections and never answers: the discard service's (RFC 863)."""

REFUSED_ADDRESS = "192.0.2.1"
"""The target of a policy's own probes, which exits refuse: for documentation (RFC 5737)."""

Place = tuple[float, float]
"""Latitude and longitude in degrees; north and east are positive."""
RoundTripKind = Literal["build", "stream", "probe"]


@dataclass(frozen=True)
class Relay:
    """A relay of the network.

    Attributes:
        name: such as "relay7".
        flags: "guard" and "exit", as the consensus has them.
        weight: in the consensus; None if the network sets none.
        site: the name of its site; None if the network has no sites.
        place: latitude and longitude of its site in degrees; None if the network has no sites.
    """

    name: str
    flags: tuple[str, ...]
    weight: int | None
    site: str | None
    place: Place | None = None


@dataclass(frozen=True)
class RoundTrip:
    """The time that something took along a whole circuit and back.

    Attributes:
        at_s: when the answer came, by the client's clock (`Client.now_s`).
        of: "build": the handshake with the last relay; "stream": a stream's BEGIN cell and its
            answer, with the exit's connection to the server; "probe": a stream that the exit
            refuses at once.
    """

    at_s: float
    took_s: float
    of: RoundTripKind


@dataclass(frozen=True)
class Circuit:
    """An open circuit. Times are by the client's clock (`Client.now_s`).

    Attributes:
        number: Tor's, at this client.
        path: the names of its relays, the guard first.
        streams: how many of the traffic's streams it has been given so far, without probes.
        opened_s: when it was open.
        build_s: how long it took to build; None if that isn't known.
        first_used_s, last_used_s: when it was given a stream; None if it never was.
        given_up: whether Tor has given up a stream on it, because no answer came in time.
        round_trips: all of them, the oldest first.
    """

    number: str
    path: tuple[str, ...]
    streams: int
    opened_s: float = 0.0
    build_s: float | None = None
    first_used_s: float | None = None
    last_used_s: float | None = None
    given_up: bool = False
    round_trips: tuple[RoundTrip, ...] = ()


@dataclass(frozen=True)
class Stream:
    """A stream that waits for a circuit.

    Attributes:
        number: Tor's, at this client.
        source: address and port of the program that asked for it, such as "127.0.0.1:40000".
        target: address and port, such as "10.4.3.1:8888".
        is_probe: whether it is the testbed's own measurement of the round trip.
        port: the target's.
        place: the target's; None if the network has no sites.
    """

    number: str
    source: str
    target: str
    is_probe: bool
    port: int = 0
    place: Place | None = None


class Wait:
    """What `choose` returns instead of a circuit: the stream waits until another one is open."""


class Client(Protocol):
    """The client of a policy: what it can see, and ask for.

    Attributes:
        name: such as "client7".
        relays: all relays of the network, by name.
        path: guard, middle and exit as the topology defines them; empty if it defines none.
        place: the client's; None if the network has no sites.
    """

    name: str
    relays: Mapping[str, Relay]
    path: tuple[str, ...]
    place: Place | None

    def circuits(self) -> Sequence[Circuit]:
        """The policy's circuits that are open now, the oldest first."""
        ...

    def extend(self, path: Sequence[str]) -> None:
        """Ask for a circuit through these relays; the run calls `is_ready` until it is open."""
        ...

    def build_for(self, port: int) -> None:
        """Ask for a circuit whose relays Tor chooses, with an exit that takes the port."""
        ...

    def building(self) -> int:
        """How many circuits have been asked for and are not open yet."""
        ...

    def close(self, circuit: Circuit) -> None:
        """Close a circuit."""
        ...

    def now_s(self) -> float:
        """The time in seconds since some moment before the run."""
        ...

    def draw(self, purpose: str) -> float:
        """A random number in [0, 1) for a purpose, the same in every run with the same seed."""
        ...


class Policy:
    """One client's policy; a user's file defines one subclass of it.

    A run calls `prepare` once, then `is_ready` until it is true. From then on it calls `choose` for
    every stream, and `circuit_closed` for every circuit that closes early. A policy that has a
    `tick` is called once a second, from the moment after `prepare` to the end.

    Attributes:
        rule: the rule by which it chooses, for the record; "" if it is not recorded.
    """

    rule = ""

    def __init__(self, client: Client) -> None:
        self.client = client

    def prepare(self) -> None:
        """Ask for the circuits that the client needs before measuring begins."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether these circuits are open; unless overridden, whether any circuit is."""
        return bool(self.client.circuits())

    def choose(self, stream: Stream) -> Circuit | Wait:
        """The circuit that carries a stream: one of `self.client.circuits()`; or `Wait()`.

        A stream that waits is asked about again when a circuit opens, and once a second if the
        policy has a `tick`.
        """
        raise NotImplementedError

    def tick(self) -> None:
        """Called once a second if a subclass defines it."""

    def circuit_closed(self, number: str) -> None:
        """Called when a circuit of the policy closes early: before the end of the run."""


class FixedPath(Policy):
    """One circuit along the topology's path, which carries everything."""

    def prepare(self) -> None:
        """Ask for the circuit."""
        self.client.extend(self.client.path)

    def choose(self, stream: Stream) -> Circuit:
        """The only circuit."""
        return self.client.circuits()[-1]
