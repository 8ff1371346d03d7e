"""The figures of one run, from its tables: means, deviations, percentiles, and what was delivered.

Whether they count is said by checks; figures over many runs are the analysis's.
"""

import re
from typing import Any

import polars

from testbed.results.summary import (
    Distribution,
    MeanAndDeviation,
    SharedLinkCounts,
    Tail,
    TransferCounts,
)
from testbed.results.tables import Recorded, Tables, throughput_mb_per_s

_SHARED_LINK = re.compile(r"(\d+) connections?, (\d+) circuits?\b")


def figures(recorded: Recorded) -> dict[str, Any]:
    """The figures of `Summary`, by its keys.

    Only transfers that began before measuring ended count, and only whole ones have a throughput
    and times. A transfer that was still under way when the generators were ended is in neither:
    the shorter a run, the more it prefers short transfers.
    """
    tables = recorded.tables
    whole = completed(tables)
    measured_circuits = tables.circuits.filter(round="measured", status="BUILT")
    return {
        "transfers": _transfer_counts(tables),
        "throughput_mb_per_s": _mean_and_deviation(whole.select(throughput_mb_per_s()).to_series()),
        "time_to_first_byte_s": _tail(whole["time_to_first_byte_s"]),
        "time_to_last_byte_s": _tail(whole["time_to_last_byte_s"]),
        "circuit_round_trip_ms": _distribution(tables.round_trips["round_trip_ms"]),
        "circuit_build_time_ms": _distribution(measured_circuits["since_extend_s"] * 1000),
        "shared_link": _shared_link(recorded.checks),
    }


def completed(tables: Tables) -> polars.DataFrame:
    """The whole transfers that began before measuring ended."""
    return tables.transfers.filter("measured", "ok")


def delivered_mb(recorded: Recorded) -> float:
    """Payload that came to the clients in the whole run, 1 MB = 10^6 bytes.

    Of each client, the greater of two figures, neither of which is more than what came: the
    payload of the streams in its generator's log, which lacks the one that was under way at the
    end, and the bytes of its heartbeats, which lack what came after the last one (heartbeats are
    a second apart) and contain the headers of TGen and SOCKS, some 100 bytes a stream.
    """
    payload = dict(
        recorded.tables.transfers.group_by("client").agg(polars.sum("received_bytes")).iter_rows()
    )
    delivered_bytes: int = sum(
        max(payload.get(client, 0), moved) for client, moved in recorded.moved_bytes.items()
    )
    return delivered_bytes / 1e6


def _transfer_counts(tables: Tables) -> TransferCounts:
    whole = completed(tables).height
    return TransferCounts(
        completed=whole, failed=tables.transfers.filter("measured").height - whole
    )


def _mean_and_deviation(values: polars.Series) -> MeanAndDeviation:
    numbers = values.drop_nulls()
    return MeanAndDeviation(mean=_number(numbers.mean()), sd=_number(numbers.std(ddof=1)))


def _distribution(values: polars.Series) -> Distribution:
    numbers = values.drop_nulls()
    return Distribution(
        mean=_number(numbers.mean()),
        sd=_number(numbers.std(ddof=1)),
        median=_number(numbers.median()),
    )


def _tail(values: polars.Series) -> Tail:
    numbers = values.drop_nulls()
    return Tail(
        mean=_number(numbers.mean()),
        median=_number(numbers.median()),
        p95=_number(numbers.quantile(0.95, interpolation="linear")),
    )


def _number(value: object) -> float | None:
    """A statistic as polars gives it, whose types allow for dates."""
    return float(value) if isinstance(value, (int, float)) else None


def _shared_link(checks: list[dict[str, Any]]) -> SharedLinkCounts:
    for check in checks:
        if check["name"] == "shared link before measuring":
            if found := _SHARED_LINK.match(check["observed"]):
                return SharedLinkCounts(
                    connections=int(found.group(1)), circuits=int(found.group(2))
                )
            break
    return SharedLinkCounts(connections=None, circuits=None)
