"""Published numbers on shared links, with their sections in the paper; no measurements of ours.

The paper is "Examining the Hydra" (Pahl, Kaiser, Adamsky, Engel; PoPETs 2023(3)). All shares are in
percent of the links.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Span(NamedTuple):
    """A range from the least to the greatest value."""

    low: float
    high: float


SHADOW_BY_SCALE: Mapping[float, float] = {0.01: 54.82, 0.10: 20.56, 0.25: 12.51}
"""Figure 4: external circuits, directed links, in Shadow (section 4.1.2)."""

SALSA_BY_SCALE: Mapping[float, float] = {0.01: 53.85, 0.10: 21.19, 0.25: 12.03}
"""Figure 4 in SALSA: Shadow's shares less the differences in section 4.4."""

BY_EXIT_CLASS: Mapping[str, float] = {
    "web": 4.3,
    "mixture": 6.7,
    "bittorrent": 11.3,
    "bittorrent-extended": 11.2,
    "file-sharing": 11.2,
    "various": 16.2,
}
"""Figure 5 (section 4.1.3): averages of external circuits; the direction isn't stated."""

EXITS_BY_CLASS: Mapping[str, int] = {
    "web": 1348,
    "bittorrent": 200,
    "bittorrent-extended": 200,
    "file-sharing": 200,
    "various": 45,
}
"""The average number of exits of each class (section 4.1.3)."""

BY_PER_CLIENT: Mapping[int, float] = {1: 4.0, 64: 5.0}
"""Figure 6: shares by the number of circuits of a client (section 4.1.6)."""

LINKS_WITH_TWO, LINKS_WITH_MORE = 3.5, 0.3
"""Figure 7: the shares of links with two circuit parts, and with more (section 4.1.7)."""

NOVEMBER_2021 = Span(3.9, 6.4)
NOVEMBER_2021_GUARD_MIDDLE = Span(2.9, 3.7)
NOVEMBER_2021_MIDDLE_EXIT = Span(2.5, 5.0)
"""Ranges over external and internal circuits, directed and undirected links (section 4.1.7)."""

NOVEMBER_2021_MIXED = Span(3.70, 6.05)
"""Directed and undirected links, with internal circuits and exit classes as measured (4.1.7)."""

YEAR_2021 = Span(3.7, 6.9)
"""Figure 8: with today's number of circuits (section 4.2)."""

CAPACITY_CIRCUITS = 290_000
YEAR_2021_AT_CAPACITY = Span(8.0, 16.0)
"""Figure 8: with as many circuits as the network could carry (section 4.2)."""

CIRCUITS_WITH_ONE, CIRCUITS_WITH_TWO = 13_805, 1_006
"""The number of 96,876 circuits with one and with two shared links (section 4.1.7)."""

INTERNAL_SHARE = 0.9
"""The internal share in `NOVEMBER_2021_MIXED`: ten times as many circuits at entries as at exits
(section 4.1.7)."""
