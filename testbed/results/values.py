"""The values that a run's numbers are of, from its tables: of each transfer, probe, circuit, load.

Whatever is told of a run, by its summary or by the analysis, is made of these.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

import polars

from testbed.plan_model import Plan

TUKEY_K = 1.5
"""How many interquartile ranges Tukey's fences lie outside the quartiles (Exploratory Data
Analysis, 1977), as Liu and Lin have them."""

LINKS_BETWEEN_RELAYS = 2
"""That each byte crosses: guard to middle and middle to exit, or the other way."""


class HasTables(Protocol):
    """A run's tables, as `Tables` has them at its end and `Run` once it is read back."""

    @property
    def transfers(self) -> polars.DataFrame:
        """TGen's streams."""

    @property
    def circuits(self) -> polars.DataFrame:
        """Tor's circuit events."""

    @property
    def round_trips(self) -> polars.DataFrame:
        """Probes of the circuits."""

    @property
    def delivered(self) -> polars.DataFrame:
        """What each client's generator moved, second by second."""

    @property
    def links(self) -> polars.DataFrame:
        """What each direction of each link had counted before and after measuring."""


def clients_of(model: str, traffic_by_client: Mapping[str, str]) -> tuple[str, ...]:
    """The clients that run a traffic model, in the plan's order."""
    return tuple(client for client, its in traffic_by_client.items() if its == model)


def measured_transfers(tables: HasTables, clients: Collection[str]) -> polars.DataFrame:
    """The clients' transfers that began before measuring ended."""
    return _of(clients, tables.transfers.filter("measured"))


def whole_transfers(tables: HasTables, clients: Collection[str]) -> polars.DataFrame:
    """Those of them that came to their end, with throughput (MB/s) and stream round trip (ms)."""
    return (
        measured_transfers(tables, clients)
        .filter("ok")
        .with_columns(throughput_mb_per_s(), stream_round_trip_ms())
    )


def circuit_round_trips_ms(tables: HasTables, clients: Collection[str]) -> polars.Series:
    """The circuit round trips, of the answered probes."""
    return _of(clients, tables.round_trips)["round_trip_ms"].drop_nulls()


def build_times_ms(tables: HasTables, clients: Collection[str]) -> polars.Series:
    """How long the circuits took to build that carried the traffic."""
    built = tables.circuits.filter(round="measured", status="BUILT")
    return _of(clients, built)["since_extend_s"].drop_nulls() * 1000


def load_times_s(tables: HasTables, clients: Collection[str], at_once: int) -> polars.Series:
    """How long each whole load took, of a model with several transfers at once; else none."""
    if at_once == 1:
        return polars.Series([], dtype=polars.Float64)
    return loads_s(measured_transfers(tables, clients), at_once)


def throughput_mb_per_s() -> polars.Expr:
    """A transfer's payload by its time to last byte, whichever way it goes, 1 MB = 10^6 bytes.

    Null where that time is zero: the machine's clock stands still while its programs compute.
    """
    time_s = polars.col("time_to_last_byte_s")
    payload_bytes = polars.col("received_bytes") + polars.col("sent_bytes").fill_null(0)
    rate = payload_bytes / 1e6 / time_s
    return polars.when(time_s > 0).then(rate).alias("throughput_mb_per_s")


def stream_round_trip_ms() -> polars.Expr:
    """How long a transfer's request and the server's answer took through the stream.

    From the command sent to the response read: tgentools' `round_trip_time`, as tornettools plots
    it. Null where a step was not reached, and of older runs, which lack the steps.
    """
    between_s = polars.col("time_to_response_s") - polars.col("time_to_command_s")
    return (between_s * 1000).alias("stream_round_trip_ms")


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


def wire_bytes_per_byte(plan: Plan, tables: HasTables) -> float | None:
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
    counted = tables.links.join(ways, on=["sender", "receiver"], how="semi")
    sent = {
        when: int(counted.filter(when=when)["sent_bytes"].sum()) for when in ("before", "after")
    }
    payload_bytes = 1e6 * delivered_mb(tables)
    if plan.competing or not payload_bytes or counted.is_empty():
        return None
    return (sent["after"] - sent["before"]) / (LINKS_BETWEEN_RELAYS * payload_bytes)


def delivered_mb(tables: HasTables) -> float:
    """Payload that came to the clients, or from them, in the whole run, 1 MB = 10^6 bytes.

    Of each client, the greater of two figures, neither of which is more than what came: the
    payload of the streams in its generator's log, which lacks the one that was under way at the
    end, and the bytes of its heartbeats, which lack what came after the last one (heartbeats are
    a second apart) and contain the headers of TGen and SOCKS, some 100 bytes a stream. Of uploads
    the payload of the whole ones: what else a client has written may still lie in its Tor.
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
