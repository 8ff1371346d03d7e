"""What a run of a drawn network tells: classes of clients, relays' use, and shared links by second.

Of runs of topologies these have no meaning: there is one shared link, and one class under test.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars

from testbed.results import Run
from testbed.results.values import clients_of, measured_transfers, whole_transfers

QUANTILES = {"25 %": 0.25, "median": 0.5, "75 %": 0.75, "95 %": 0.95}
QUARTILES = ("25 %", "75 %")


def is_drawn(run: Run) -> bool:
    """Whether a run is of a drawn network."""
    return bool(run.plan.of_kind("router"))


@dataclass(frozen=True)
class ClientClass:
    """What the clients of one traffic model got.

    Attributes:
        model: which.
        first_byte_s, last_byte_s: the quantiles of the whole transfers' times, by their names.
        transfers, failed: that began before measuring ended.
        goodput_kb_per_s: payload of all of them by the clients and seconds; 1 kB = 10^3 bytes.
    """

    model: str
    clients: int
    first_byte_s: Mapping[str, float | None]
    last_byte_s: Mapping[str, float | None]
    transfers: int
    failed: int
    goodput_kb_per_s: float


def of_class(run: Run, model: str) -> polars.DataFrame:
    """The whole transfers that began before measuring ended, of the clients of a model."""
    return whole_transfers(run, clients_of(model, run.plan.traffic_by_client))


def client_classes(run: Run) -> Iterator[ClientClass]:
    """The classes of a run, the largest first."""
    models = run.plan.traffic_by_client
    by_size = sorted(set(models.values()), key=lambda one: -list(models.values()).count(one))
    for model in by_size:
        clients = clients_of(model, models)
        own, whole = measured_transfers(run, clients), whole_transfers(run, clients)
        client_s = len(clients) * run.plan.duration_s
        yield ClientClass(
            model=model,
            clients=len(clients),
            first_byte_s=_quantiles(whole["time_to_first_byte_s"]),
            last_byte_s=_quantiles(whole["time_to_last_byte_s"]),
            transfers=own.height,
            failed=own.height - whole.height,
            goodput_kb_per_s=float(own["received_bytes"].sum()) / 1e3 / client_s,
        )


def relays_use(run: Run) -> polars.DataFrame:
    """How much of its rate each relay used, over the time that was measured.

    Returns:
        A row for each: relay, relay_class, weight, rate_bit_per_s (the lesser of both ways),
        sent_bit_per_s, use (of the rate upwards).
    """
    sent = run.links.pivot(on="when", index=["sender", "receiver"], values=["time_s", "sent_bytes"])
    bits = 8 * (polars.col("sent_bytes_after") - polars.col("sent_bytes_before"))
    lasted_s = polars.col("time_s_after") - polars.col("time_s_before")
    by_relay = dict(sent.select("sender", bits / lasted_s).iter_rows())
    rows = [
        {
            "relay": relay.name,
            "relay_class": relay.relay_class,
            "weight": relay.weight,
            "rate_bit_per_s": relay.rate_up_bit_per_s,
            "sent_bit_per_s": by_relay[relay.name],
            "use": by_relay[relay.name] / relay.rate_up_bit_per_s,
        }
        for relay in run.plan.of_kind("relay")
        if relay.rate_up_bit_per_s and relay.name in by_relay
    ]
    return polars.DataFrame(rows)


def links_by_second(run: Run) -> polars.DataFrame:
    """Active circuits and shared links, second by second.

    As in section 4.1 of *Examining the Hydra* (PoPETs 2023): a circuit is active in a second in
    which a cell crosses it, a link between two relays is active if a circuit on it is, and shared
    if several are. Cells towards the clients are counted, which answer those towards the servers.

    Returns:
        A row for each second with any: second (since measuring began), circuits, and of directed
        links (from the relay nearer to the client) and of undirected ones: links,
        shared, undirected_links, undirected_shared.
    """
    # A circuit has one number on a connection, whichever end tells of it.
    nearer = run.queues.select(
        polars.col("relay").alias("peer"), polars.col("next_queue").alias("queue")
    ).drop_nulls()
    second = (polars.col("time_s") - run.measuring_start_s).floor().cast(polars.Int64)
    active = run.queues.filter(polars.col("removed_cells") > 0).with_columns(second.alias("second"))
    crossed = active.join(nearer.unique(), on="queue").filter(
        polars.col("relay") != polars.col("peer")
    )
    ends = polars.concat_list("peer", "relay").list.sort().list.join("-")
    by_second = (
        active.filter(polars.col("next_queue").is_null())
        .group_by("second")
        .agg(polars.struct("relay", "queue").n_unique().alias("circuits"))
    )
    directed = _shared(crossed, ["peer", "relay"], "links", "shared")
    undirected = _shared(
        crossed.with_columns(ends.alias("ends")),
        ["ends"],
        "undirected_links",
        "undirected_shared",
    )
    return (
        by_second.join(directed, on="second", how="left")
        .join(undirected, on="second", how="left")
        .fill_null(0)
        .sort("second")
    )


def shared_percent(run: Run, which: str = "") -> float | None:
    """The share of the active links that are shared, over all seconds; None if none was active.

    Args:
        which: "undirected_", or nothing for the directed ones.
    """
    by_second = links_by_second(run)
    links = int(by_second[f"{which}links"].sum())
    return 100 * int(by_second[f"{which}shared"].sum()) / links if links else None


def _shared(
    crossed: polars.DataFrame, ends: list[str], links: str, shared: str
) -> polars.DataFrame:
    """By second, how many links circuits have crossed, and how many several have."""
    by_link = crossed.group_by("second", *ends).agg(polars.col("queue").n_unique())
    return by_link.group_by("second").agg(
        polars.len().alias(links), (polars.col("queue") > 1).sum().alias(shared)
    )


def _quantiles(values: polars.Series) -> dict[str, float | None]:
    return {name: values.quantile(share, "linear") for name, share in QUANTILES.items()}
