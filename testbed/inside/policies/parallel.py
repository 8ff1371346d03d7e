"""Several circuits for each client on one path, over which its streams are spread (MCTor)."""

import hashlib
from itertools import count

from testbed.inside.policies.interface import Circuit, Client, Policy, Stream


class ParallelCircuits(Policy):
    """Several circuits along the topology's path, and a rule for the circuit of each stream.

    Probes take the circuits in turn, whatever the rule, so each circuit is probed. They have
    numbers of their own, so the traffic's streams go where they would without probes.
    """

    def __init__(self, client: Client, *, circuits: int, rule: str) -> None:
        super().__init__(client)
        self._circuits, self._rule = circuits, rule
        self._probes, self._others = count(), count()

    def prepare(self) -> None:
        """Ask for all circuits."""
        for _ in range(self._circuits):
            self.client.extend(self.client.path)

    def is_ready(self) -> bool:
        """Whether all circuits are open."""
        return len(self.client.circuits()) == self._circuits

    def choose(self, stream: Stream) -> Circuit:
        """The circuit by the rule."""
        circuits = self.client.circuits()
        if stream.is_probe:
            return circuits[uniform(next(self._probes), len(circuits))]
        if self._rule == "uniform":
            return circuits[uniform(next(self._others), len(circuits))]
        return circuits[hashing(stream.source, stream.target, len(circuits))]


def uniform(number: int, circuits: int) -> int:
    """The circuit of a stream by its number among a client's streams, both from 0 (MCTor)."""
    return number % circuits


def hashing(source: str, target: str, circuits: int) -> int:
    """The circuit of a stream by the MD5 of its two ends (MCTor).

    Args:
        source, target: address and port of each, such as "127.0.0.1:40000".
    """
    digest = hashlib.md5(f"{source} {target}".encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big") % circuits
