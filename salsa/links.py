"""Counts of the links between the relays of circuits, and of the shared ones."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from salsa.drawing import DrawnCircuits

Counts = NDArray[np.int64]

MOST_PARTS = 200
"""The most parts of a link in a distribution; only tiny networks have more."""


@dataclass(frozen=True, eq=False)
class LinkCounts:
    """Counts of circuits' links (section 4.1): pairs of relays that are neighbours in a circuit.

    A circuit has two parts, guard to middle and middle to last. A link with at least two parts is
    shared, even if both belong to one circuit in which a relay occurs twice.

    Attributes:
        by_parts: the numbers of links with 0 (none), 1, 2, … circuit parts.
        guard_middle, middle_exit: the same for only the first and only the second parts.
        circuits_by_shared: the numbers of circuits with 0, 1 and 2 parts on shared links.
    """

    by_parts: Counts
    guard_middle: Counts
    middle_exit: Counts
    circuits_by_shared: Counts


def count_links(circuits: DrawnCircuits, relays: int, *, undirected: bool) -> LinkCounts:
    """Count the links of circuits.

    It sorts all parts once by their link, with their index in the low bits; for a million circuits
    this takes most of the time.

    Args:
        relays: the number of relays; circuits have relays with numbers below it.
        undirected: count the links from a to b and from b to a as one.
    """
    count = len(circuits.guards)
    begins = np.concatenate([circuits.guards, circuits.middles])
    ends = np.concatenate([circuits.middles, circuits.lasts])
    if undirected:
        begins, ends = np.minimum(begins, ends), np.maximum(begins, ends)
    place_bits = np.uint64((2 * count - 1).bit_length())
    packed = begins.astype(np.uint64)
    packed *= np.uint64(relays)
    packed += ends.view(np.uint32)
    del begins, ends
    packed <<= place_bits
    packed |= np.arange(2 * count, dtype=np.uint64)
    packed.sort()

    link_of_part = packed >> place_bits
    is_first = np.concatenate([[True], link_of_part[1:] != link_of_part[:-1]])
    del link_of_part
    packed &= (np.uint64(1) << place_bits) - np.uint64(1)
    places = packed.view(np.int64)

    first_of_link = np.flatnonzero(is_first)
    parts = np.diff(first_of_link, append=2 * count)
    second = np.add.reduceat(places >= count, first_of_link, dtype=np.int64)
    shared = np.empty(2 * count, dtype=np.int8)
    shared[places] = np.repeat(parts > 1, parts)
    return LinkCounts(
        by_parts=np.bincount(parts),
        guard_middle=_without_none(parts - second),
        middle_exit=_without_none(second),
        circuits_by_shared=np.bincount(shared[:count] + shared[count:], minlength=3),
    )


def _without_none(parts: Counts) -> Counts:
    """The numbers of links with 1, 2, … of these parts; without any it is no link."""
    counts = np.bincount(parts)
    counts[0] = 0
    return counts
