"""Several circuits for each client on one path, over which its streams are spread (MCTor)."""

import hashlib
from itertools import count

from testbed.policies.interface import Circuit, Client, Policy, Stream


class ParallelCircuits(Policy):
    """So many circuits by the topology's path, and a rule that says which of them a stream takes.

    Probes take the circuits in turn, whatever the rule, so that they tell of each of them, and have
    numbers of their own, so that the traffic's streams go where they would without probes.
    """

    def __init__(self, client: Client, *, circuits: int, rule: str) -> None:
        super().__init__(client)
        self._circuits, self._rule = circuits, rule
        self._probes, self._others = count(), count()

    def prepare(self) -> None:
        """Ask for all of them."""
        for _ in range(self._circuits):
            self.client.extend(self.client.path)

    def is_ready(self) -> bool:
        """Whether all of them are open."""
        return len(self.client.circuits()) == self._circuits

    def choose(self, stream: Stream) -> Circuit:
        """As the rule says."""
        circuits = self.client.circuits()
        if stream.is_probe:
            return circuits[uniform(next(self._probes), len(circuits))]
        if self._rule == "uniform":
            return circuits[uniform(next(self._others), len(circuits))]
        return circuits[hashing(stream.source, stream.target, len(circuits))]


def uniform(number: int, circuits: int) -> int:
    """Which circuit a stream takes by its number among a client's streams, both from 0 (MCTor)."""
    return number % circuits


def hashing(source: str, target: str, circuits: int) -> int:
    """Which circuit a stream takes by the MD5 of its two ends (MCTor).

    Args:
        source, target: address and port of each, such as "127.0.0.1:40000".
    """
    digest = hashlib.md5(f"{source} {target}".encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big") % circuits
