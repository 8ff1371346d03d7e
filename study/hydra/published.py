"""Published numbers that runs are compared with; no measurements of ours.

They are read from `studies/hydra/published.toml`, which says where each stands in the paper.
"""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from analysis.order import FIRST_VARIANTS, IN_BUNDLES, OF_2021
from testbed.basics.toml_file import PROJECT, read_model

COMPARED = FIRST_VARIANTS
"""The paper's variants."""


class _Keys(BaseModel):
    """A table of the file: unknown keys are errors, nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Published(_Keys):
    """A number of Table 4 as printed there.

    Changes are shares against the same variant's NoDropping.

    Attributes:
        mean, deviation: in MB/s of a 5 MB transfer (1 MB = 10^6 bytes), or in ms.
        change_2009: the change in the 2009 study.
    """

    mean: float
    deviation: float
    change: float
    change_2009: float


class Table4Row(_Keys):
    """A row of Table 4; its latency is TGen's own round trip (`STREAM_ROUND_TRIP`)."""

    variant: str
    scenario: str
    throughput_mb_per_s: Published
    stream_round_trip_ms: Published


class _File(_Keys):
    paper: str
    table_4: tuple[Table4Row, ...]
    two_clients: dict[str, tuple[str, ...]]
    networks: dict[str, dict[str, float]]


_FILE = read_model(PROJECT / "studies" / "hydra" / "published.toml", _File)

TABLE_4: Mapping[tuple[str, str], Table4Row] = {
    (row.variant, row.scenario): row for row in _FILE.table_4
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

TWO_CLIENTS: Mapping[str, tuple[str, ...]] = _FILE.two_clients
"""The two-client scenarios (section 4.5) and the traffic models that figure 14 shows of each."""

NETWORKS: Mapping[str, Mapping[str, float]] = _FILE.networks
"""Of whole networks (section 4.3): pctls less vanilla in ms, "lossless" and "lossy", by what is
measured; and "memory_gb" of a simulation, by variant."""
