"""Published numbers that runs are compared with, and their sources; no measurements of ours.

Table 4 of "Examining the Hydra" (Pahl, Kaiser, Adamsky, Engel; PoPETs 2023(3)) also has the changes
that Reardon and Goldberg found in 2009 ("Improving Tor using a TCP-over-DTLS tunnel").
"""

from collections.abc import Mapping
from dataclasses import dataclass

from analysis.order import FIRST_VARIANTS, IN_BUNDLES, OF_2021

COMPARED = FIRST_VARIANTS
"""The paper's variants."""


@dataclass(frozen=True)
class Published:
    """A number of Table 4 as printed there.

    Changes are shares against the same variant's NoDropping: -0.81 is the table's "degradation" of
    81 % in throughput, 0.10 one of 10 % in latency.

    Attributes:
        mean, deviation: in MB/s of a 5 MB transfer (1 MB = 10^6 bytes), or in ms.
        change_2009: the change in the 2009 study.
    """

    mean: float
    deviation: float
    change: float
    change_2009: float


@dataclass(frozen=True)
class Table4Row:
    """A row of Table 4; its latency is TGen's own round trip (`STREAM_ROUND_TRIP`)."""

    throughput_mb_per_s: Published
    stream_round_trip_ms: Published


TABLE_4: Mapping[tuple[str, str], Table4Row] = {
    ("vanilla", "NoDropping"): Table4Row(
        Published(2.00, 0.04, 0.0, 0.0), Published(88.0, 13.7, 0.0, 0.0)
    ),
    ("vanilla", "DroppingRemaining"): Table4Row(
        Published(1.37, 0.19, -0.31, -0.06), Published(91.0, 14.9, 0.04, 0.054)
    ),
    ("vanilla", "SharedDropping"): Table4Row(
        Published(0.37, 0.04, -0.81, -0.17), Published(97.0, 15.1, 0.10, 0.129)
    ),
    ("pctls", "NoDropping"): Table4Row(
        Published(1.97, 0.04, 0.0, 0.0), Published(75.0, 8.8, 0.0, 0.0)
    ),
    ("pctls", "DroppingRemaining"): Table4Row(
        Published(1.79, 0.09, -0.09, -0.08), Published(76.0, 8.2, 0.02, 0.20)
    ),
    ("pctls", "SharedDropping"): Table4Row(
        Published(1.86, 0.08, -0.06, -0.04), Published(76.0, 8.5, 0.01, 0.07)
    ),
}
"""Rows by variant and scenario, for the traffic model `bulk`."""

WAYS: Mapping[str, tuple[str, str]] = {
    "packets, Tor today": ("", ""),
    "packets, Tor of 2021": (OF_2021, ""),
    "bundles, Tor today": ("", IN_BUNDLES),
    "bundles, Tor of 2021": (OF_2021, IN_BUNDLES),
}
"""The ways in which a row of Table 4 is measured here: the ends of variant and scenario names."""

TABLE_4_TRAFFIC = "bulk"

TWO_CLIENTS: Mapping[str, tuple[str, ...]] = {
    "One": ("bulk", "audio", "video", "web"),
    "Two": ("bulk", "audio", "video", "web"),
    "Three": ("bulk", "audio", "video"),
}
"""The two-client scenarios (section 4.5) and the traffic models that figure 14 shows of each.

The measurement of web in Three was aborted.
"""
