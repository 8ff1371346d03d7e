"""The published figures that runs are held against, as data with their source; no measurements.

Table 4 of "Examining the Hydra" (Pahl, Kaiser, Adamsky, Engel; PoPETs 2023(3)).
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One row of Table 4: mean and standard deviation, and the changes that the table prints.

    Attributes:
        throughput_mb_per_s: of a 5 MB transfer, 1 MB = 10^6 bytes.
        throughput_change, round_trip_change: against the same variant's NoDropping, as shares:
            -0.81 is the table's "degradation" of 81 % in throughput, 0.10 one of 10 % in latency.
    """

    throughput_mb_per_s: tuple[float, float]
    throughput_change: float
    circuit_round_trip_ms: tuple[float, float]
    round_trip_change: float


TABLE_4: Mapping[tuple[str, str], Published] = {
    ("pctls", "NoDropping"): Published((1.97, 0.04), 0.0, (75.0, 8.8), 0.0),
    ("pctls", "DroppingRemaining"): Published((1.79, 0.09), -0.09, (76.0, 8.2), 0.02),
    ("pctls", "SharedDropping"): Published((1.86, 0.08), -0.06, (76.0, 8.5), 0.01),
    ("vanilla", "NoDropping"): Published((2.00, 0.04), 0.0, (88.0, 13.7), 0.0),
    ("vanilla", "DroppingRemaining"): Published((1.37, 0.19), -0.31, (91.0, 14.9), 0.04),
    ("vanilla", "SharedDropping"): Published((0.37, 0.04), -0.81, (97.0, 15.1), 0.10),
}
"""By variant and scenario, for the traffic model `bulk`."""

TABLE_4_TRAFFIC = "bulk"
