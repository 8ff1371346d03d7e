"""The interface of a policy: a class of which each client has an object. Users' files import it.

It hides the control port: everything that a policy sees is plain data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

PROBE_PORT = 9
"""The server's port that accepts connections and never answers: the discard service's (RFC 863)."""


@dataclass(frozen=True)
class Relay:
    """A relay of the network.

    Attributes:
        name: such as "relay7".
        flags: "guard" and "exit", as the consensus has them.
        weight: in the consensus; None if the network sets none.
        site: the name of its site; None if the network has no sites.
    """

    name: str
    flags: tuple[str, ...]
    weight: int | None
    site: str | None


@dataclass(frozen=True)
class Circuit:
    """An open circuit.

    Attributes:
        number: Tor's, at this client.
        path: the names of its relays, the guard first.
        streams: how many of the traffic's streams it has been given so far, without probes.
    """

    number: str
    path: tuple[str, ...]
    streams: int


@dataclass(frozen=True)
class Stream:
    """A stream that waits for a circuit.

    Attributes:
        number: Tor's, at this client.
        source: address and port of the program that asked for it, such as "127.0.0.1:40000".
        target: address and port, such as "10.4.3.1:8888".
        is_probe: whether it is the testbed's own measurement of the round trip.
    """

    number: str
    source: str
    target: str
    is_probe: bool


class Client(Protocol):
    """The client of a policy: what it can see, and ask for.

    Attributes:
        name: such as "client7".
        relays: all relays of the network, by name.
        path: guard, middle and exit as the topology defines them; empty if it defines none.
    """

    name: str
    relays: Mapping[str, Relay]
    path: tuple[str, ...]

    def circuits(self) -> Sequence[Circuit]:
        """The policy's circuits that are open now, the oldest first."""
        ...

    def extend(self, path: Sequence[str]) -> None:
        """Ask for a circuit through these relays; the run calls `is_ready` until it is open."""
        ...

    def close(self, circuit: Circuit) -> None:
        """Close a circuit."""
        ...

    def draw(self, purpose: str) -> float:
        """A random number in [0, 1) for a purpose, the same in every run with the same seed."""
        ...


class Policy:
    """One client's policy; a user's file defines one subclass of it.

    A run calls `prepare` once, then `is_ready` until it is true. From then on it calls `choose` for
    every stream, and `circuit_closed` for every circuit that closes early.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def prepare(self) -> None:
        """Ask for the circuits that the client needs before measuring begins."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether these circuits are open; unless overridden, whether any circuit is."""
        return bool(self.client.circuits())

    def choose(self, stream: Stream) -> Circuit:
        """The circuit that carries a stream: one of `self.client.circuits()`."""
        raise NotImplementedError

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
