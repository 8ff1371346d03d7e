"""The figures of one run, from its tables: means, deviations, percentiles, and what was delivered.

Whether they count is said by checks; figures over many runs are the analysis's.
"""

from collections.abc import Sequence
from typing import Any

import polars

from testbed.plan_model import Competing, Plan
from testbed.results.streaming import judged_seconds
from testbed.results.summary import (
    CompetingFigures,
    Distribution,
    Fairness,
    MeanAndDeviation,
    RelayFigures,
    SharedLinkCounts,
    Streaming,
    Tail,
    TrafficFigures,
    TransferCounts,
    WithoutOutliers,
)
from testbed.results.tables import Recorded, Tables, stream_round_trip_ms, throughput_mb_per_s
from testbed.traffic.models import MODELS

_BY_TRAFFIC_ONLY = {
    *("traffic", "clients", "direction", "streaming"),
    *("throughput_without_outliers_mb_per_s", "load_s", "fairness"),
}
"""Figures that the run as a whole has not: see `by_traffic`."""

TUKEY_K = 1.5
"""How many interquartile ranges Tukey's fences lie outside the quartiles (Exploratory Data
Analysis, 1977), as Liu and Lin have them."""

LINKS_BETWEEN_RELAYS = 2
"""That each byte crosses: guard to middle and middle to exit, or the other way."""

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
    under_test = by_traffic[0].model_dump(exclude=_BY_TRAFFIC_ONLY)
    return {
        **under_test,
        "circuit_build_time_ms": _distribution(measured_circuits["since_extend_s"] * 1000),
        "by_traffic": tuple(by_traffic),
        "competing": tuple(_competing(tables.competing, entry) for entry in plan.competing),
        "shared_link": _shared_link(recorded.checks),
        "relays": relay_figures(tables.relays),
        "wire_bytes_per_byte": wire_bytes_per_byte(
            plan, tables.links, tables.transfers, tables.delivered
        ),
    }


def _traffic_figures(plan: Plan, tables: Tables, model: str) -> TrafficFigures:
    clients = tuple(client for client, its in plan.traffic_by_client.items() if its == model)
    transfers = tables.transfers.filter("measured", polars.col("client").is_in(clients))
    whole = transfers.filter("ok")
    round_trips = tables.round_trips.filter(polars.col("client").is_in(clients))
    throughput = whole.select("client", throughput_mb_per_s())
    at_once = MODELS[model].at_once
    return TrafficFigures(
        traffic=model,
        clients=clients,
        direction="upload" if MODELS[model].upload else "download",
        transfers=TransferCounts(completed=whole.height, failed=transfers.height - whole.height),
        throughput_mb_per_s=_mean_and_deviation(throughput["throughput_mb_per_s"]),
        throughput_without_outliers_mb_per_s=_without_outliers(throughput["throughput_mb_per_s"]),
        load_s=_tail(loads_s(transfers, at_once)) if at_once > 1 else None,
        fairness=fairness(throughput, clients),
        time_to_first_byte_s=_tail(whole["time_to_first_byte_s"]),
        time_to_last_byte_s=_tail(whole["time_to_last_byte_s"]),
        stream_round_trip_ms=_distribution(whole.select(stream_round_trip_ms()).to_series()),
        circuit_round_trip_ms=_distribution(round_trips["round_trip_ms"]),
        streaming=_streaming(tables, clients, MODELS[model].rate_byte_per_s),
    )


def loads_s(transfers: polars.DataFrame, at_once: int) -> polars.Series:
    """How long each whole load took: from its transfers' begin to the last one's end, in seconds.

    A client's next load begins when all of one have ended, so that the order in which they began
    tells them apart. A load of which a transfer failed is none.

    Args:
        transfers: measured ones, of clients that run one model.
        at_once: how many make a load.
    """
    end_s = polars.col("start_s") + polars.col("time_to_last_byte_s")
    numbered = transfers.sort("client", "start_s", "stream_id").with_columns(
        load=polars.int_range(polars.len()).over("client") // at_once
    )
    loads = numbered.group_by("client", "load", maintain_order=True).agg(
        load_s=end_s.max() - polars.col("start_s").min(),
        whole=polars.col("ok").all() & (polars.len() == at_once),
    )
    return loads.filter("whole")["load_s"]


def between_fences(values: polars.Series) -> polars.Series:
    """The values that are no outliers by Tukey's fences; quartiles are linear between ranks."""
    numbers = values.drop_nulls()
    low, high = (numbers.quantile(share, interpolation="linear") for share in (0.25, 0.75))
    if low is None or high is None:
        return numbers
    reach = TUKEY_K * (high - low)
    return numbers.filter(numbers.is_between(low - reach, high + reach))


def _without_outliers(values: polars.Series) -> WithoutOutliers:
    kept = between_fences(values)
    return WithoutOutliers(mean=_number(kept.mean()), outliers=len(values.drop_nulls()) - len(kept))


def fairness(throughput: polars.DataFrame, clients: Sequence[str]) -> Fairness | None:
    """How alike the clients fared (Jain, Chiu, Hawe: A Quantitative Measure of Fairness, 1984).

    Args:
        throughput: of each whole transfer, by `client`, as `throughput_mb_per_s`. A client without
            any got nothing.

    Returns:
        None of a single client, or if nobody got anything.
    """
    means = dict(throughput.group_by("client").agg(polars.mean("throughput_mb_per_s")).iter_rows())
    got = [float(means.get(client) or 0.0) for client in clients]
    if len(got) < 2 or not any(got):
        return None
    return Fairness(
        jain_index=sum(got) ** 2 / (len(got) * sum(one**2 for one in got)),
        largest_difference=(max(got) - min(got)) / max(got),
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


def relay_figures(samples: polars.DataFrame) -> tuple[RelayFigures, ...]:
    """What each relay held, in the order of the samples."""
    figures = samples.group_by("relay", maintain_order=True).agg(
        polars.max("connections", "sockets"),
        tor_memory_mb=polars.max("tor_memory_bytes") / 1e6,
        socket_memory_mb=polars.mean("socket_memory_bytes") / 1e6,
    )
    return tuple(RelayFigures(**row) for row in figures.iter_rows(named=True))


def wire_bytes_per_byte(
    plan: Plan, links: polars.DataFrame, transfers: polars.DataFrame, delivered: polars.DataFrame
) -> float | None:
    """Bytes on a link between two relays for each byte of payload that crosses it.

    All that these links sent in both directions while there was traffic, whole Ethernet frames with
    cells, TLS or IPsec, acknowledgements and what TCP sent again, by the payload that was delivered
    times the two such links on a circuit's way. None beside competing streams, whose bytes no
    counter tells apart, if nothing was delivered, and if the links weren't counted.
    """
    relays = {node.name for node in plan.of_kind("relay")}
    between = [link.ends for link in plan.links if set(link.ends) <= relays]
    directions = {ends for link in between for ends in (link, link[::-1])}
    ways = polars.DataFrame(
        list(directions), schema={"sender": polars.String, "receiver": polars.String}, orient="row"
    )
    counted = links.join(ways, on=["sender", "receiver"], how="semi")
    sent = {
        when: int(counted.filter(when=when)["sent_bytes"].sum()) for when in ("before", "after")
    }
    payload_bytes = 1e6 * delivered_mb(transfers, delivered)
    if plan.competing or not payload_bytes or counted.is_empty():
        return None
    return (sent["after"] - sent["before"]) / (LINKS_BETWEEN_RELAYS * payload_bytes)


def delivered_mb(transfers: polars.DataFrame, delivered: polars.DataFrame) -> float:
    """Payload that came to the clients, or from them, in the whole run, 1 MB = 10^6 bytes.

    Of each client, the greater of two figures, neither of which is more than what came: the
    payload of the streams in its generator's log, which lacks the one that was under way at the
    end, and the bytes of its heartbeats, which lack what came after the last one (heartbeats are
    a second apart) and contain the headers of TGen and SOCKS, some 100 bytes a stream. Of uploads
    the payload of the whole ones: what else a client has written may still lie in its Tor.
    """
    uploaded_bytes = int(transfers.filter("ok")["sent_bytes"].sum())
    payload = dict(transfers.group_by("client").agg(polars.sum("received_bytes")).iter_rows())
    moved = dict(delivered.group_by("client").agg(polars.sum("received_bytes")).iter_rows())
    delivered_bytes: int = sum(
        max(payload.get(client, 0), moved.get(client, 0)) for client in payload | moved
    )
    return (delivered_bytes + uploaded_bytes) / 1e6


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
