"""What a variant may say of connections and circuits side by side, and how streams are spread.

Options that a patch adds to Tor are Tor's affair; which patch has which is said here.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

MOST_SIDE_BY_SIDE = 32
"""Circuits of a client, or connections between two relays, side by side: as many circuits as a Tor
lets be under construction at a time (MaxClientCircuitsPending), on a connection each."""

STREAM_RULES = ("uniform", "hashing")


@dataclass(frozen=True)
class Policy:
    """A key of a variant whose value is a number of connections or circuits.

    Attributes:
        patch: without which it means nothing.
        options: of each relay's torrc, with `$number` for the key's value, by which the relays get
            to know it; none of a client's own.
    """

    patch: str
    options: Mapping[str, str] = field(default_factory=dict)


POLICIES = {
    "connections_per_pair": Policy(
        "connections-per-pair.patch",
        {"ConnectionsPerPair": "$number", "PerCircuitConnections": "0"},
    ),
    "per_circuit_up_to": Policy(
        "connections-per-pair.patch",
        {"ConnectionsPerPair": "$number", "PerCircuitConnections": "1"},
    ),
    "parallel_circuits": Policy("per-circuit-connections.patch"),
}
"""By the variant's key."""


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
