"""The summary of one run, from its values: means, deviations, percentiles, and relays' memory.

Checks say whether the figures count; `analysis` has the statistics of many runs.
"""

from collections.abc import Sequence
from typing import Any

import polars

from testbed.basics.check import Check
from testbed.inside.traffic.models import MODELS
from testbed.plan.connections import WATCHED_PAIR
from testbed.plan.model import Competing, Plan
from testbed.results import circuits_of_clients
from testbed.results.processors import processor_summaries
from testbed.results.recorded import Recorded
from testbed.results.streaming import judged_seconds
from testbed.results.summary import (
    CircuitsOfClients,
    CompetingSummary,
    Distribution,
    Fairness,
    MeanAndDeviation,
    RelaySummary,
    SharedLinkCounts,
    Streaming,
    Tail,
    TrafficSummary,
    TransferCounts,
    WithoutOutliers,
)
from testbed.results.tables import HasTables
from testbed.results.values import (
    between_fences,
    build_times_ms,
    circuit_round_trips_ms,
    clients_of,
    completed_transfers,
    load_times_s,
    measured_transfers,
    wire_bytes_per_byte,
)

_BY_TRAFFIC_ONLY = {
    *("traffic", "clients", "direction", "streaming"),
    *("throughput_without_outliers_mb_per_s", "load_s", "fairness"),
}
"""Keys that each traffic model in `by_traffic` has, but the run as a whole hasn't."""


def summary_parts(plan: Plan, recorded: Recorded) -> dict[str, Any]:
    """The parts of a `Summary` on traffic and network, by its keys.

    Only transfers that began while the run measured count, and only completed ones have a
    throughput and times.
    """
    tables = recorded.tables
    by_traffic = [
        traffic_summary(tables, model, clients_of(model, plan.traffic_by_client))
        for model in traffic_models(plan)
    ]
    under_test = by_traffic[0].model_dump(exclude=_BY_TRAFFIC_ONLY)
    return {
        **under_test,
        "circuit_build_time_ms": distribution(build_times_ms(tables, plan.clients)),
        "by_traffic": tuple(by_traffic),
        "competing": tuple(_competing(tables.competing, entry) for entry in plan.competing),
        "shared_link": _shared_link(plan, recorded.checks),
        "circuits_of_clients": _circuits_of_clients(plan, recorded),
        "relays": relay_summaries(tables.relays, tables.links),
        "processors": processor_summaries(tables.processors),
        "wire_bytes_per_byte": wire_bytes_per_byte(plan, tables),
    }


def traffic_models(plan: Plan) -> list[str]:
    """The models that clients run: the one under test, then the others as the clients come.

    A set of them would have another order in each process, and the summary other bytes.
    """
    models = dict.fromkeys(plan.traffic_by_client.values())
    return sorted(models, key=lambda model: model != plan.traffic)


def _circuits_of_clients(plan: Plan, recorded: Recorded) -> CircuitsOfClients | None:
    if not plan.policy.tor_chooses_paths:
        return None
    tables, traffic_start_s = recorded.tables, recorded.measuring_start_s - plan.warm_up_s
    build_times_ms = circuits_of_clients.build_times_ms(tables, traffic_start_s)
    probes = circuits_of_clients.probes(tables)
    return CircuitsOfClients(
        made=distribution(circuits_of_clients.made_by_client(plan, tables)),
        used=distribution(circuits_of_clients.used_by_client(plan, tables)),
        build_time_ms=distribution(build_times_ms),
        streams_by_rule=circuits_of_clients.streams_by_rule(tables),
        streams_by_liars=circuits_of_clients.streams_by_liars(plan, tables),
        probes=probes,
        probe_bytes=probes * circuits_of_clients.PROBE_BYTES,
    )


def traffic_summary(tables: HasTables, model: str, clients: Sequence[str]) -> TrafficSummary:
    """The figures of a model's clients; a model no longer known has one transfer at a time.

    Args:
        model: the name of a traffic model.
        clients: those that run it.
    """
    known = MODELS.get(model)
    transfers, completed = measured_transfers(tables, clients), completed_transfers(tables, clients)
    at_once = known.at_once if known else 1
    loads_s = load_times_s(tables, clients, at_once)
    return TrafficSummary(
        traffic=model,
        clients=tuple(clients),
        direction="upload" if known and known.upload else "download",
        transfers=TransferCounts(
            completed=completed.height, failed=transfers.height - completed.height
        ),
        throughput_mb_per_s=_mean_and_deviation(completed["throughput_mb_per_s"]),
        throughput_without_outliers_mb_per_s=_without_outliers(completed["throughput_mb_per_s"]),
        load_s=_tail(loads_s) if at_once > 1 else None,
        fairness=fairness(completed, clients),
        time_to_first_byte_s=_tail(completed["time_to_first_byte_s"]),
        time_to_last_byte_s=_tail(completed["time_to_last_byte_s"]),
        stream_round_trip_ms=distribution(completed["stream_round_trip_ms"]),
        circuit_round_trip_ms=distribution(circuit_round_trips_ms(tables, clients)),
        streaming=_streaming(tables, clients, known.rate_byte_per_s if known else None),
    )


def _without_outliers(values: polars.Series) -> WithoutOutliers:
    kept = between_fences(values)
    return WithoutOutliers(mean=_number(kept.mean()), outliers=len(values.drop_nulls()) - len(kept))


def fairness(throughput: polars.DataFrame, clients: Sequence[str]) -> Fairness | None:
    """How equally clients fared (Jain, Chiu, Hawe: A Quantitative Measure of Fairness, 1984).

    Args:
        throughput: of each completed transfer, in the columns `client` and `throughput_mb_per_s`.
            A client without any got nothing.

    Returns:
        None for a single client, or if no client got anything.
    """
    # Of many rows `group_by` adds up each thread's share first: other cores, other last digits.
    mean = polars.mean("throughput_mb_per_s").over("client")
    means = dict(throughput.select("client", mean).unique().iter_rows())
    got = [float(means.get(client) or 0.0) for client in clients]
    if len(got) < 2 or not any(got):
        return None
    return Fairness(
        jain_index=sum(got) ** 2 / (len(got) * sum(one**2 for one in got)),
        largest_difference=(max(got) - min(got)) / max(got),
    )


def _streaming(tables: HasTables, clients: Sequence[str], rate: int | None) -> Streaming | None:
    if rate is None:
        return None
    judged = [
        judged_seconds(tables.transfers, tables.delivered, client, rate) for client in clients
    ]
    rates = [each for seconds in judged for each in seconds.rates_byte_per_s]
    stalls = [each for seconds in judged for each in seconds.stalls_s]
    return Streaming(
        rate_mb_per_s=distribution(polars.Series(rates, dtype=polars.Float64) / 1e6),
        judged_s=len(rates),
        short_s=sum(stalls),
        stalls=len(stalls),
        stall_s=_tail(polars.Series(stalls, dtype=polars.Float64)),
    )


def _competing(samples: polars.DataFrame, entry: Competing) -> CompetingSummary:
    """The rate of each stream, between the first and the last sample of its receiver."""
    arrived = samples.filter(node=entry.receiver, port=entry.port).sort("time_s")
    rates = []
    for port in entry.stream_ports:
        stream = arrived.filter(peer_port=port)
        times, received = stream["time_s"].to_list(), stream["received_bytes"].to_list()
        enough = len(times) > 1
        rates.append((received[-1] - received[0]) / (times[-1] - times[0]) / 1e6 if enough else 0.0)
    return CompetingSummary(
        sender=entry.sender,
        receiver=entry.receiver,
        congestion_control=entry.congestion_control,
        stream_mb_per_s=tuple(rates),
    )


def relay_summaries(
    samples: polars.DataFrame, links: polars.DataFrame | None = None
) -> tuple[RelaySummary, ...]:
    """What each relay held and sent, and how often its scheduler ran, in the order of the samples.

    Args:
        links: the counts of links, of which what was sent is; None without counts.
    """
    lasted_s, runs = (
        polars.last(column) - polars.first(column) for column in ("time_s", "scheduler_runs")
    )
    held = samples.group_by("relay", maintain_order=True).agg(
        polars.max("connections", "sockets"),
        tor_memory_mb=polars.max("tor_memory_bytes") / 1e6,
        socket_memory_mb=polars.mean("socket_memory_bytes") / 1e6,
        scheduler_interval_ms=(1000 * lasted_s / polars.when(runs > 0).then(runs)),
    )
    sent_mb = _sent_mb(links) if links is not None else {}
    return tuple(
        RelaySummary(**row, sent_mb=sent_mb.get(row["relay"])) for row in held.iter_rows(named=True)
    )


def _sent_mb(links: polars.DataFrame) -> dict[str, float]:
    """What each node sent over its links while the run measured, in MB."""
    start = "measuring" if "measuring" in links["when"] else "before"
    sent = links.group_by("sender").agg(
        mb=(
            polars.col("sent_bytes").filter(when="after").sum()
            - polars.col("sent_bytes").filter(when=start).sum()
        )
        / 1e6
    )
    return dict(sent.iter_rows())


def _mean_and_deviation(values: polars.Series) -> MeanAndDeviation:
    numbers = values.drop_nulls()
    return MeanAndDeviation(mean=_number(numbers.mean()), sd=_number(numbers.std(ddof=1)))


def distribution(values: polars.Series) -> Distribution:
    """Mean, standard deviation and median."""
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
        p75=_number(numbers.quantile(0.75, interpolation="linear")),
        p95=_number(numbers.quantile(0.95, interpolation="linear")),
    )


def _number(value: object) -> float | None:
    """A statistic from polars, whose types also allow for dates."""
    return float(value) if isinstance(value, (int, float)) else None


def _shared_link(plan: Plan, checks: Sequence[Check]) -> SharedLinkCounts:
    """Connections and circuits between the relays that all circuits cross, before measuring."""
    of_pairs = (dict(one.value or {}) for one in checks if one.key == WATCHED_PAIR)
    seen = next(of_pairs, {}) if plan.shared_link else {}
    return SharedLinkCounts.model_validate({"connections": None, "circuits": None, **seen})
