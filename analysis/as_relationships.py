"""Autonomous systems (AS): their relationships as CAIDA publishes them, and routes that follow.

Which AS a run's nodes are in is in `analysis.as_numbers`.
"""

import bz2
import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from testbed.basics.errors import InputError

_PROVIDER, _PEER = "-1", "0"
_COLUMNS = (3, 4)
"""In serial-1; and in serial-2, which also says what a relationship was inferred from."""
_MOST_NUMBER = 2**32 - 1


class Route(NamedTuple):
    """An AS's route to a destination; routes compare as BGP's usual policies prefer them.

    Attributes:
        kind: 0 from a customer (or its own), 1 from a peer, 2 from a provider.
        hops: how many there are to the destination.
        next: the AS of the next one.
    """

    kind: int
    hops: int
    next: int


_CUSTOMER, _FROM_PEER, _FROM_PROVIDER = range(3)


@dataclass(frozen=True, eq=False)
class Relationships:
    """Who is whose provider, customer and peer, by AS number."""

    providers: Mapping[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    customers: Mapping[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    peers: Mapping[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    def __contains__(self, number: int) -> bool:
        return any(number in of for of in (self.providers, self.customers, self.peers))

    def path(self, source: int, destination: int) -> tuple[int, ...] | None:
        """The ASes that packets cross, with both ends; None if no valley-free path leads there."""
        following = _next_of(self, destination)
        if source not in following:
            return None
        path = [source]
        while path[-1] != destination:
            path.append(following[path[-1]])
        return tuple(path)

    def routes(self, destination: int) -> Mapping[int, Route]:
        """Each AS's route to a destination, of those that have one.

        An AS prefers a route from a customer to one from a peer, that to one from a provider; then
        the shorter one, then the lower number of the next AS. It tells customers all its routes,
        others only those from customers (L. Gao and J. Rexford, Stable Internet Routing Without
        Global Coordination; IEEE/ACM Transactions on Networking 9(6), 2001).
        """
        routes = {destination: Route(_CUSTOMER, 0, destination)}
        level = [destination]
        while level:  # upwards: each provider hears of it from a customer
            heard: dict[int, Route] = {}
            for one in level:
                for provider in self.providers.get(one, ()):
                    if provider not in routes:
                        route = Route(_CUSTOMER, routes[one].hops + 1, one)
                        heard[provider] = min(route, heard.get(provider, route))
            routes |= heard
            level = list(heard)
        aside: dict[int, Route] = {}
        for one, known in routes.items():
            for peer in self.peers.get(one, ()):
                if peer not in routes:
                    route = Route(_FROM_PEER, known.hops + 1, one)
                    aside[peer] = min(route, aside.get(peer, route))
        routes |= aside
        waiting = [(of.hops, one) for one, of in routes.items()]
        heapq.heapify(waiting)
        while waiting:  # downwards: nearest first, so that the first that is heard is shortest
            hops, one = heapq.heappop(waiting)
            for customer in self.customers.get(one, ()):
                route = Route(_FROM_PROVIDER, hops + 1, one)
                if customer not in routes:
                    heapq.heappush(waiting, (hops + 1, customer))
                routes[customer] = min(route, routes.get(customer, route))
        return routes


@lru_cache(maxsize=64)
def _next_of(known: Relationships, destination: int) -> Mapping[int, int]:
    """The next AS on the way to a destination, by AS; of the whole Internet some 5 MB."""
    return {one: route.next for one, route in known.routes(destination).items()}


def read_relationships(file: Path) -> Relationships:
    """Read AS relationships in CAIDA's formats serial-1 or serial-2, as text or as .bz2.

    A line is "provider|customer|-1" or "peer|peer|0", in serial-2 with a fourth column; comments
    begin with "#".

    Raises:
        InputError: it can't be read, or a line is damaged.
    """
    try:
        content = file.read_bytes()
        text = (bz2.decompress(content) if file.suffix == ".bz2" else content).decode("utf-8")
    except (OSError, ValueError, EOFError) as error:
        raise InputError(
            f"{file}: no AS relationships can be read from it ({error}): give a file of CAIDA's,"
            " serial-1 or serial-2, as text or .bz2"
        ) from error
    return relationships_of(text.splitlines(), str(file))


def relationships_of(lines: Iterable[str], name: str) -> Relationships:
    """The relationships in lines; InputError with the file's name and the line's number."""
    found = Relationships()
    kinds: dict[frozenset[int], tuple[int, str]] = {}
    for number, line in enumerate(lines, 1):
        if line.startswith("#") or not line.strip():
            continue
        where = f"{name}:{number}: {line[:60]!r}"
        parts = line.strip().split("|")
        if len(parts) not in _COLUMNS or parts[2] not in (_PROVIDER, _PEER):
            raise InputError(
                f'{where}: is no AS relationship: write "provider|customer|-1" or "peer|peer|0"'
            )
        first, second = (as_number(part, where) for part in parts[:2])
        kind = f"{first} {_PROVIDER}" if parts[2] == _PROVIDER else _PEER
        line_before, before = kinds.setdefault(frozenset((first, second)), (number, kind))
        if before != kind or first == second:
            of = "an AS has none with itself" if first == second else f"line {line_before} differs"
            raise InputError(f"{where}: contradicts what is known: {of}")
        if parts[2] == _PROVIDER:
            found.customers[first].add(second)
            found.providers[second].add(first)
        else:
            found.peers[first].add(second)
            found.peers[second].add(first)
    if not kinds:
        raise InputError(f"{name}: has no AS relationship: give a file of CAIDA's")
    return found


def as_number(text: str, where: str) -> int:
    """A number of an AS; InputError if it is none."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _MOST_NUMBER):
        raise InputError(f"{where}: {text!r} is no AS number: write 1 to {_MOST_NUMBER}")
    return int(text)
