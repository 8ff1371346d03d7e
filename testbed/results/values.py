"""The values behind a run's figures, from its tables: of each transfer, probe, circuit, load.

All figures of a run, in its summary and in the analysis, are computed from these.
"""

from collections.abc import Collection, Mapping

import polars

from testbed.plan.model import Plan
from testbed.results.tables import HasTables

TUKEY_K = 1.5
"""How many interquartile ranges Tukey's fences lie outside the quartiles (Exploratory Data
Analysis, 1977), as Liu and Lin use them."""

LINKS_BETWEEN_RELAYS = 2
"""The links between relays that each byte crosses: guard to middle, middle to exit, or back."""


def clients_of(model: str, traffic_by_client: Mapping[str, str]) -> tuple[str, ...]:
    """The clients that run a traffic model, in the plan's order."""
    return tuple(client for client, its in traffic_by_client.items() if its == model)


def measured_transfers(tables: HasTables, clients: Collection[str]) -> polars.DataFrame:
    """The clients' transfers that began while the run measured."""
    return _of(clients, tables.transfers.filter("measured"))


def completed_transfers(tables: HasTables, clients: Collection[str]) -> polars.DataFrame:
    """The measured transfers that completed, with throughput (MB/s) and stream round trip (ms)."""
    return (
        measured_transfers(tables, clients)
        .filter("ok")
        .with_columns(throughput_mb_per_s(), stream_round_trip_ms())
    )


def circuit_round_trips_ms(tables: HasTables, clients: Collection[str]) -> polars.Series:
    """The circuit round trips of the answered probes."""
    return _of(clients, tables.round_trips)["round_trip_ms"].drop_nulls()


def build_times_ms(tables: HasTables, clients: Collection[str]) -> polars.Series:
    """The build times of the circuits that carried the traffic, without those given up."""
    given_up = ~polars.col("for_streams").fill_null(value=True)
    built = tables.circuits.filter(~given_up, round="measured", status="BUILT")
    return _of(clients, built)["since_extend_s"].drop_nulls() * 1000


def load_times_s(tables: HasTables, clients: Collection[str], at_once: int) -> polars.Series:
    """The duration of each completed load; empty for a model with one transfer at a time."""
    if at_once == 1:
        return polars.Series([], dtype=polars.Float64)
    return loads_s(_of(clients, tables.transfers), at_once)


def throughput_mb_per_s() -> polars.Expr:
    """A transfer's payload, in either direction, by its time to last byte; 1 MB = 10^6 bytes.

    Null if that time is zero: the machine's clock stands still while its programs compute.
    """
    time_s = polars.col("time_to_last_byte_s")
    payload_bytes = polars.col("received_bytes") + polars.col("sent_bytes").fill_null(0)
    rate = payload_bytes / 1e6 / time_s
    return polars.when(time_s > 0).then(rate).alias("throughput_mb_per_s")


def stream_round_trip_ms() -> polars.Expr:
    """The time that a transfer's request and the server's answer took through the stream.

    From sending the command to reading the response: tgentools' `round_trip_time`, as tornettools
    plots it. Null if a step was not reached, and for older runs, which lack the steps.
    """
    between_s = polars.col("time_to_response_s") - polars.col("time_to_command_s")
    return (between_s * 1000).alias("stream_round_trip_ms")


def loads_s(transfers: polars.DataFrame, at_once: int) -> polars.Series:
    """The duration of each completed load: from the first start to the last end, in seconds.

    A client's next load begins when all transfers of the last one have ended, so the order of
    their starts separates the loads. A load with a failed transfer doesn't count.

    Args:
        transfers: all of clients that run one model; a load counts if all of its own are measured.
        at_once: the number of transfers in a load.
    """
    end_s = polars.col("start_s") + polars.col("time_to_last_byte_s")
    numbered = transfers.sort("client", "start_s", "stream_id").with_columns(
        load=polars.int_range(polars.len()).over("client") // at_once
    )
    loads = numbered.group_by("client", "load", maintain_order=True).agg(
        load_s=end_s.max() - polars.col("start_s").min(),
        completed=(polars.col("ok") & polars.col("measured")).all() & (polars.len() == at_once),
    )
    return loads.filter("completed")["load_s"]


def between_fences(values: polars.Series) -> polars.Series:
    """The values between Tukey's fences; quartiles are linear between ranks."""
    numbers = values.drop_nulls()
    low, high = (numbers.quantile(share, interpolation="linear") for share in (0.25, 0.75))
    if low is None or high is None:
        return numbers
    reach = TUKEY_K * (high - low)
    return numbers.filter(numbers.is_between(low - reach, high + reach))


def wire_bytes_per_byte(plan: Plan, tables: HasTables) -> float | None:
    """Bytes on a link between two relays for each byte of payload that crosses it.

    Everything that these links sent in both directions while there was traffic (whole Ethernet
    frames with cells, TLS or IPsec, acknowledgements and retransmissions), divided by the delivered
    payload times the two such links on a circuit's path. None with competing streams, whose bytes
    no counter separates, if nothing was delivered, or if the links weren't counted.
    """
    relays = {node.name for node in plan.of_kind("relay")}
    between = [link.ends for link in plan.links if set(link.ends) <= relays]
    directions = {ends for link in between for ends in (link, link[::-1])}
    ways = polars.DataFrame(
        list(directions), schema={"sender": polars.String, "receiver": polars.String}, orient="row"
    )
    counted = tables.links.join(ways, on=["sender", "receiver"], how="semi")
    sent = {
        when: int(counted.filter(when=when)["sent_bytes"].sum()) for when in ("before", "after")
    }
    payload_bytes = 1e6 * delivered_mb(tables)
    if plan.competing or not payload_bytes or counted.is_empty():
        return None
    return (sent["after"] - sent["before"]) / (LINKS_BETWEEN_RELAYS * payload_bytes)


def delivered_mb(tables: HasTables) -> float:
    """Payload that the clients received or sent in the whole run, 1 MB = 10^6 bytes.

    For each client, the larger of two figures, neither of which is more than what arrived: the
    payload of the streams in its generator's log, which lacks the one under way at the end, and
    the bytes of its heartbeats, which lack what came after the last one (heartbeats are a second
    apart) and contain the headers of TGen and SOCKS, some 100 bytes a stream. For uploads, the
    payload of the completed ones: whatever else a client has written may still be in its Tor.
    """
    transfers, delivered = tables.transfers, tables.delivered
    uploaded_bytes = int(transfers.filter("ok")["sent_bytes"].sum())
    payload = dict(transfers.group_by("client").agg(polars.sum("received_bytes")).iter_rows())
    moved = dict(delivered.group_by("client").agg(polars.sum("received_bytes")).iter_rows())
    delivered_bytes: int = sum(
        max(payload.get(client, 0), moved.get(client, 0)) for client in payload | moved
    )
    return (delivered_bytes + uploaded_bytes) / 1e6


def _of(clients: Collection[str], table: polars.DataFrame) -> polars.DataFrame:
    return table.filter(polars.col("client").is_in(clients))
