"""What a policy is: a class of which each client has an object. For users' own files, too.

Nothing here knows the control port; whatever a policy sees is plain data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

PROBE_PORT = 9
"""The server's port that takes connections and says nothing: the discard service's (RFC 863)."""


@dataclass(frozen=True)
class Relay:
    """A relay of the network.

    Attributes:
        name: such as "relay7".
        flags: "guard" and "exit", as the consensus has them.
        weight: in the consensus; None where the network says none.
        site: the place where it is; None where the network has no places.
    """

    name: str
    flags: tuple[str, ...]
    weight: int | None
    site: str | None


@dataclass(frozen=True)
class Circuit:
    """A circuit that is open.

    Attributes:
        number: Tor's, at this client.
        path: the names of its relays, the guard first.
        streams: how many of the traffic's it has been given so far; probes aren't counted.
    """

    number: str
    path: tuple[str, ...]
    streams: int


@dataclass(frozen=True)
class Stream:
    """A stream that waits for its circuit.

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
    """What a policy can see of its client, and ask for.

    Attributes:
        name: such as "client7".
        relays: all of the network, by name.
        path: guard, middle and exit as the topology says them; empty where it says none.
    """

    name: str
    relays: Mapping[str, Relay]
    path: tuple[str, ...]

    def circuits(self) -> Sequence[Circuit]:
        """Those of the policy that are open now, the oldest first."""
        ...

    def extend(self, path: Sequence[str]) -> None:
        """Ask for a circuit by these relays; `is_ready` is asked until it is open."""
        ...

    def close(self, circuit: Circuit) -> None:
        """Close a circuit."""
        ...

    def draw(self, purpose: str) -> float:
        """A number in [0, 1) for a purpose, by the run's seed: the same in every run of it."""
        ...


class Policy:
    """One client's policy; a user's file defines one subclass of it.

    A run asks `prepare` once, then `is_ready` until it says so. From then on `choose` is asked for
    every stream, and `circuit_closed` is told what is lost.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def prepare(self) -> None:
        """Ask for the circuits that the client needs before anything is measured."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether they are open; unless overridden, whether there is one."""
        return bool(self.client.circuits())

    def choose(self, stream: Stream) -> Circuit:
        """The circuit that carries a stream: one of `self.client.circuits()`."""
        raise NotImplementedError

    def circuit_closed(self, number: str) -> None:
        """A circuit of the policy is open no more, by whoever's doing but the run's own end."""


class FixedPath(Policy):
    """One circuit by the topology's path, which carries everything."""

    def prepare(self) -> None:
        """Ask for it."""
        self.client.extend(self.client.path)

    def choose(self, stream: Stream) -> Circuit:
        """There is no choice."""
        return self.client.circuits()[-1]
