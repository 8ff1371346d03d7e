"""Rules for the number of TCP connections between two relays, given the circuits between them.

Each way in which variants use connections is a class here; `plan.programs.Tor` says which one a
variant has.
"""

import math
from dataclasses import dataclass
from typing import Protocol

WATCHED_PAIR = "watched pair"
"""The key of the checks that compare a `PairUse` with a rule."""


@dataclass(frozen=True)
class PairUse:
    """The connections and circuits between two relays at one moment.

    Attributes:
        connections: established TCP connections.
        circuits: circuits that cross.
        most_circuits_on_one_connection: on the connection that has most of them.
    """

    connections: int
    circuits: int
    most_circuits_on_one_connection: int

    def __str__(self) -> str:
        return (
            f"{_counted(self.connections, 'connection')}, {_counted(self.circuits, 'circuit')},"
            f" at most {self.most_circuits_on_one_connection} on one connection"
        )


class ConnectionRule(Protocol):
    """How circuits share connections."""

    @property
    def words(self) -> str:
        """The rule, as reports print it."""
        ...

    @property
    def most(self) -> int | None:
        """The most connections that a relay opens to another; None: one for each circuit."""
        ...

    def between(self, circuits: int) -> PairUse:
        """The use of a pair of relays by this many circuits, which are built for the second time.

        Before them, as many were built and closed (`inside.experiment.ready_network`).
        """
        ...

    def kept(self, circuits: int) -> int:
        """How many connections stay open when this many circuits have closed."""
        ...


@dataclass(frozen=True)
class OneConnection:
    """Tor as it is: all circuits share one connection."""

    words: str = "one connection"
    most: int | None = 1

    def between(self, circuits: int) -> PairUse:
        """All circuits on one connection."""
        return PairUse(1, circuits, circuits)

    def kept(self, _circuits: int) -> int:
        """The connection stays."""
        return 1


@dataclass(frozen=True)
class OnePerCircuit:
    """A connection for each circuit (PCTLS, PCTCP)."""

    words: str = "one connection per circuit"
    most: int | None = None

    def between(self, circuits: int) -> PairUse:
        """One circuit on each connection."""
        return PairUse(circuits, circuits, 1)

    def kept(self, _circuits: int) -> int:
        """A connection closes with its circuit."""
        return 0


@dataclass(frozen=True)
class OwnUpTo:
    """A connection for each circuit up to a number, then shared ones (PCTCP's threshold)."""

    most: int

    @property
    def words(self) -> str:
        """The rule with its number."""
        return f"one connection per circuit up to {self.most}, then shared"

    def between(self, circuits: int) -> PairUse:
        """Circuits beyond the number share its connections."""
        return PairUse(min(self.most, circuits), circuits, math.ceil(circuits / self.most))

    def kept(self, circuits: int) -> int:
        """All connections stay."""
        return min(self.most, circuits)


@dataclass(frozen=True)
class SharedByNumber:
    """A fixed number of connections, which circuits share by their own numbers (MCTor).

    The numbers continue after those of the closed circuits: with more connections than circuits,
    some connections are new.
    """

    most: int

    @property
    def words(self) -> str:
        """The rule with its number."""
        return f"up to {self.most} connections, shared by circuits' numbers"

    def between(self, circuits: int) -> PairUse:
        """Connections of both rounds, as far as the number allows."""
        return PairUse(min(self.most, 2 * circuits), circuits, math.ceil(circuits / self.most))

    def kept(self, circuits: int) -> int:
        """All connections stay."""
        return min(self.most, circuits)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
