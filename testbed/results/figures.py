"""The figures of one run, from its tables: means, deviations, percentiles, and what was delivered.

Whether they count is said by checks; figures over many runs are the analysis's.
"""

from typing import Any

import polars

from testbed.plan_model import Competing, Plan
from testbed.results.streaming import judged_seconds
from testbed.results.summary import (
    CompetingFigures,
    Distribution,
    MeanAndDeviation,
    SharedLinkCounts,
    Streaming,
    Tail,
    TrafficFigures,
    TransferCounts,
)
from testbed.results.tables import Recorded, Tables, stream_round_trip_ms, throughput_mb_per_s
from testbed.traffic.models import MODELS

_SHARED_LINK = "shared link before measuring"


def figures(plan: Plan, recorded: Recorded) -> dict[str, Any]:
    """The figures of `Summary`, by its keys.

    Only transfers that began before measuring ended count, and only whole ones have a throughput
    and times.
    """
    tables = recorded.tables
    measured_circuits = tables.circuits.filter(round="measured", status="BUILT")
    models = sorted(set(plan.traffic_by_client.values()), key=lambda model: model != plan.traffic)
    by_traffic = [_traffic_figures(plan, tables, model) for model in models]
    under_test = by_traffic[0].model_dump(exclude={"traffic", "clients", "streaming"})
    return {
        **under_test,
        "circuit_build_time_ms": _distribution(measured_circuits["since_extend_s"] * 1000),
        "by_traffic": tuple(by_traffic),
        "competing": tuple(_competing(tables.competing, entry) for entry in plan.competing),
        "shared_link": _shared_link(recorded.checks),
    }


def _traffic_figures(plan: Plan, tables: Tables, model: str) -> TrafficFigures:
    clients = tuple(client for client, its in plan.traffic_by_client.items() if its == model)
    transfers = tables.transfers.filter("measured", polars.col("client").is_in(clients))
    whole = transfers.filter("ok")
    round_trips = tables.round_trips.filter(polars.col("client").is_in(clients))
    return TrafficFigures(
        traffic=model,
        clients=clients,
        transfers=TransferCounts(completed=whole.height, failed=transfers.height - whole.height),
        throughput_mb_per_s=_mean_and_deviation(whole.select(throughput_mb_per_s()).to_series()),
        time_to_first_byte_s=_tail(whole["time_to_first_byte_s"]),
        time_to_last_byte_s=_tail(whole["time_to_last_byte_s"]),
        stream_round_trip_ms=_distribution(whole.select(stream_round_trip_ms()).to_series()),
        circuit_round_trip_ms=_distribution(round_trips["round_trip_ms"]),
        streaming=_streaming(tables, clients, MODELS[model].rate_byte_per_s),
    )


def _streaming(tables: Tables, clients: tuple[str, ...], rate: int | None) -> Streaming | None:
    if rate is None:
        return None
    judged = [
        judged_seconds(tables.transfers, tables.delivered, client, rate) for client in clients
    ]
    rates = [each for seconds in judged for each in seconds.rates_byte_per_s]
    stalls = [each for seconds in judged for each in seconds.stalls_s]
    return Streaming(
        rate_mb_per_s=_distribution(polars.Series(rates, dtype=polars.Float64) / 1e6),
        judged_s=len(rates),
        short_s=sum(stalls),
        stalls=len(stalls),
        stall_s=_tail(polars.Series(stalls, dtype=polars.Float64)),
    )


def _competing(samples: polars.DataFrame, entry: Competing) -> CompetingFigures:
    """What arrived of each stream between the first and the last sample of its receiver."""
    arrived = samples.filter(node=entry.receiver, port=entry.port).sort("time_s")
    rates = []
    for port in entry.stream_ports:
        stream = arrived.filter(peer_port=port)
        times, received = stream["time_s"].to_list(), stream["received_bytes"].to_list()
        enough = len(times) > 1
        rates.append((received[-1] - received[0]) / (times[-1] - times[0]) / 1e6 if enough else 0.0)
    return CompetingFigures(
        sender=entry.sender,
        receiver=entry.receiver,
        congestion_control=entry.congestion_control,
        stream_mb_per_s=tuple(rates),
    )


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
    moved = dict(
        recorded.tables.delivered.group_by("client").agg(polars.sum("received_bytes")).iter_rows()
    )
    delivered_bytes: int = sum(
        max(payload.get(client, 0), moved.get(client, 0)) for client in payload | moved
    )
    return delivered_bytes / 1e6


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
    seen = next((one["value"] for one in checks if one["name"] == _SHARED_LINK), None) or {}
    return SharedLinkCounts(connections=seen.get("connections"), circuits=seen.get("circuits"))
