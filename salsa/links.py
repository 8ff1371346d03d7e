"""Counting links: how many there are between the relays of circuits, and how many are shared."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from salsa.drawing import DrawnCircuits

Counts = NDArray[np.int64]

MOST_PARTS = 200
"""Up to which distributions of parts over links are told; only tiny networks have more."""


@dataclass(frozen=True, eq=False)
class Links:
    """The links of circuits (section 4.1): each pair of relays that are neighbours in a circuit.

    A circuit has two parts, guard to middle and middle to last. A link with two parts or more is
    shared; these may be any, also both of the same circuit where a relay is in it twice.

    Attributes:
        by_parts: how many links carry 0 (always 0), 1, 2, … circuit parts.
        guard_middle, middle_exit: the same of circuits' first and of their second parts only.
        circuits_by_shared: how many circuits have 0, 1 and 2 parts that are on a shared link.
    """

    by_parts: Counts
    guard_middle: Counts
    middle_exit: Counts
    circuits_by_shared: Counts


def count_links(circuits: DrawnCircuits, relays: int, *, undirected: bool) -> Links:
    """Count the links of circuits.

    All parts are sorted once by their link, each with its place in the low bits: that is what a
    million circuits take the time for.

    Args:
        relays: how many there are; the circuits' relays are numbers below that.
        undirected: whether a link from a to b is the one from b to a.
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
    return Links(
        by_parts=np.bincount(parts),
        guard_middle=_without_none(parts - second),
        middle_exit=_without_none(second),
        circuits_by_shared=np.bincount(shared[:count] + shared[count:], minlength=3),
    )


def _without_none(parts: Counts) -> Counts:
    """How many links have 1, 2, … of these parts; those with none are no links."""
    counts = np.bincount(parts)
    counts[0] = 0
    return counts
