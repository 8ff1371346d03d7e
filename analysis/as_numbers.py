"""Which autonomous system (AS) each node of a run is in, and what one AS sees of its streams."""

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from analysis.adversaries import Stream
from analysis.as_relationships import Relationships, as_number
from testbed.basics.errors import InputError
from testbed.plan.model import Plan

HEAD = ["node", "as"]


@dataclass(frozen=True)
class Numbers:
    """AS numbers as a file says them: of nodes by name, and of prefixes of lab addresses."""

    file: Path
    nodes: Mapping[str, int]
    prefixes: Mapping[IPv4Network, int]

    def of(self, plan: Plan, known: Relationships) -> dict[str, int]:
        """The AS of each client, relay and server of a plan.

        A node's own line counts before those of prefixes, of which the longest does.

        Raises:
            InputError: a node has no line, or its AS has no relationships.
        """
        found: dict[str, int] = {}
        for node in plan.of_kind("client", "relay", "server"):
            number = self._of(node.name, node.address)
            if number is None:
                raise InputError(
                    f"{self.file}: no line for {node.name} ({node.address}): write its AS, such as"
                    f' "{node.name},64500", or that of a prefix'
                )
            if number not in known:
                raise InputError(
                    f"{self.file}: AS {number} of {node.name} is not in the file of relationships:"
                    " take one that is"
                )
            found[node.name] = number
        return found

    def _of(self, name: str, address: str | None) -> int | None:
        if name in self.nodes or address is None:
            return self.nodes.get(name)
        inside = [one for one in self.prefixes if IPv4Address(address) in one]
        longest = max(inside, key=lambda one: one.prefixlen, default=None)
        return None if longest is None else self.prefixes[longest]


def read_numbers(file: Path) -> Numbers:
    """Read AS numbers: CSV with the columns node and as; a node is a name or an IPv4 prefix.

    Raises:
        InputError: it can't be read, or a line is damaged.
    """
    try:
        rows = list(csv.reader(file.read_text(encoding="utf-8").splitlines(), strict=True))
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{file}: no AS numbers can be read from it: {error}") from error
    if not rows or rows[0] != HEAD:
        raise InputError(f'{file}:1: begin with the line "{",".join(HEAD)}"')
    nodes: dict[str, int] = {}
    prefixes: dict[IPv4Network, int] = {}
    for number, row in enumerate(rows[1:], 2):
        where = f"{file}:{number}: {','.join(row)[:60]!r}"
        if len(row) != len(HEAD) or not row[0]:
            raise InputError(f'{where}: is not a node and an AS: write for example "relay7,64500"')
        value = as_number(row[1], where)
        if "/" not in row[0]:
            nodes[row[0]] = value
            continue
        try:
            prefixes[IPv4Network(row[0])] = value
        except ValueError as error:
            raise InputError(
                f'{where}: is no prefix ({error}): write for example "10.24.0.0/16,64500"'
            ) from error
    return Numbers(file, nodes, prefixes)


@dataclass(frozen=True)
class SeenByAs:
    """The shares of streams of which one AS sees both ends.

    Attributes:
        one_way: on the ways towards the server, from client to guard and from exit to server.
        both_ways: on those and the ways back, which may be others: the AS is on one of the two at
            each end.
        most: of which the single AS sees both ends that sees most.
        without_path: with an end between whose nodes no valley-free path leads; of that end only
            the nodes' own ASes are known.
    """

    one_way: float
    both_ways: float
    most: float
    without_path: float


def seen_by_as(
    streams: Iterable[Stream], numbers: Mapping[str, int], known: Relationships
) -> SeenByAs | None:
    """What one AS sees of streams; None without streams.

    Args:
        numbers: the AS of each node.
    """
    pairs = Counter((one.client, one.ends, one.server) for one in streams)
    count = sum(pairs.values())
    if not count:
        return None
    one_way = both_ways = without = 0
    by_as: Counter[int] = Counter()
    for (client, (guard, last), server), streams_alike in pairs.items():
        first = _Way(numbers[client], numbers[guard], known.path)
        second = _Way(numbers[last], numbers[server], known.path)
        common = first.both & second.both
        one_way += streams_alike * bool(first.there & second.there)
        both_ways += streams_alike * bool(common)
        without += streams_alike * (first.is_unknown or second.is_unknown)
        by_as.update(dict.fromkeys(common, streams_alike))
    most = max(by_as.values(), default=0)
    return SeenByAs(one_way / count, both_ways / count, most / count, without / count)


class _Way:
    """The ASes between two nodes, there and back."""

    def __init__(
        self, one: int, other: int, path: Callable[[int, int], tuple[int, ...] | None]
    ) -> None:
        there, back = path(one, other), path(other, one)
        self.is_unknown = there is None or back is None
        self.there = frozenset(there or (one, other))
        self.both = self.there | frozenset(back or (one, other))
