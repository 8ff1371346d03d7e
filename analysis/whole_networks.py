"""What a run of a drawn network tells: classes of clients, relays' use, and shared links by second.

Of runs of topologies these have no meaning: there is one shared link, and one class under test.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import fmean

import polars

from testbed.results import Run
from testbed.results.values import clients_of, measured_transfers, whole_transfers
from testbed.traffic.models import uploads

QUANTILES = {"25 %": 0.25, "median": 0.5, "75 %": 0.75, "95 %": 0.95}
QUARTILES = ("25 %", "75 %")

UNDIRECTED = "undirected_"
"""What names of columns begin with that are of both ways of a link together."""


def is_drawn(run: Run) -> bool:
    """Whether a run is of a drawn network."""
    return bool(run.plan.of_kind("router"))


def watches_all_relays(run: Run) -> bool:
    """Whether the queues of all relays were recorded."""
    return len(run.plan.relays_with_queues) == len(run.plan.of_kind("relay"))


@dataclass(frozen=True)
class ClientClass:
    """What the clients of one traffic model got.

    Attributes:
        model: which.
        first_byte_s, last_byte_s: the quantiles of the whole transfers' times, by their names.
        transfers, failed: that began before measuring ended.
        goodput_kb_per_s: what a client got, or sent where it uploads, in the whole seconds that
            were measured; 1 kB = 10^3 bytes.
    """

    model: str
    clients: int
    first_byte_s: Mapping[str, float | None]
    last_byte_s: Mapping[str, float | None]
    transfers: int
    failed: int
    goodput_kb_per_s: float

    @property
    def failed_percent(self) -> float | None:
        """The share of the transfers that failed."""
        return 100 * self.failed / self.transfers if self.transfers else None


@dataclass(frozen=True)
class NetworkUse:
    """How busy the relays of a run and the links between them were.

    Attributes:
        active_circuits, active_links, undirected_links: by the second, on average; circuits only
            where all relays are watched.
        shared_percent, undirected_shared_percent: of all active links, over all seconds.
        mean_use_percent, busiest_use_percent: of the relays' rates.
    """

    active_circuits: float | None
    active_links: float | None
    shared_percent: float | None
    undirected_links: float | None
    undirected_shared_percent: float | None
    mean_use_percent: float | None
    busiest_use_percent: float | None


def of_class(run: Run, model: str) -> polars.DataFrame:
    """The whole transfers that began before measuring ended, of the clients of a model."""
    return whole_transfers(run, clients_of(model, run.plan.traffic_by_client))


def models_of(run: Run) -> list[str]:
    """The traffic models of a run's clients, that of most clients first."""
    models = list(run.plan.traffic_by_client.values())
    return sorted(set(models), key=lambda model: (-models.count(model), model))


@cache
def client_class(run: Run, model: str) -> ClientClass | None:
    """What the clients of a model got; None if the run has none."""
    clients = clients_of(model, run.plan.traffic_by_client)
    if not clients:
        return None
    own, whole = measured_transfers(run, clients), whole_transfers(run, clients)
    return ClientClass(
        model=model,
        clients=len(clients),
        first_byte_s=_quantiles(whole["time_to_first_byte_s"]),
        last_byte_s=_quantiles(whole["time_to_last_byte_s"]),
        transfers=own.height,
        failed=own.height - whole.height,
        goodput_kb_per_s=_moved_byte_per_s(run, model) / 1e3 / len(clients),
    )


def relays_use(run: Run) -> polars.DataFrame:
    """How much of its rate each relay used, from measuring's begin to the end of its last transfer.

    Returns:
        A row for each: relay, relay_class, weight, rate_bit_per_s (upwards), sent_bit_per_s, use
        (of that rate).
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

    Where a scenario has only some relays watched, the links are those between them, and the
    circuits are null: one may cross two of these relays or none.

    Returns:
        A row for each second of which all relays have told, so without the last one, in which
        recording ended: second (counted from 1 since measuring began), circuits, and of directed
        links (from the relay nearer to the client) and of undirected ones: links,
        shared, undirected_links, undirected_shared.
    """
    # A circuit has one number on a connection, whichever end tells of it.
    nearer = run.queues.select(
        polars.col("relay").alias("peer"), polars.col("next_queue").alias("queue")
    ).drop_nulls()
    told = (
        polars.int_range(1, math.ceil(run.plan.duration_s), eager=True).alias("second").to_frame()
    )
    active = (
        run.queues.filter(polars.col("removed_cells") > 0)
        .with_columns(_second_that_was_over(run).alias("second"))
        .join(told, on="second", how="semi")
    )
    crossed = active.join(nearer.unique(), on="queue").filter(
        polars.col("relay") != polars.col("peer")
    )
    ends = polars.concat_list("peer", "relay").list.sort().list.join("-")
    at_exit = polars.col("next_queue").is_null()
    circuits = polars.struct("relay", "queue").filter(at_exit).n_unique()
    by_second = active.group_by("second").agg(circuits=circuits)
    directed = _shared(crossed, ["peer", "relay"], "links", "shared")
    undirected = _shared(
        crossed.with_columns(ends.alias("ends")),
        ["ends"],
        "undirected_links",
        "undirected_shared",
    )
    seconds = told
    for counted in (by_second, directed, undirected):
        seconds = seconds.join(counted, on="second", how="left", maintain_order="left")
    known = polars.col("circuits") if watches_all_relays(run) else polars.lit(None, polars.UInt32)
    return seconds.fill_null(0).with_columns(circuits=known)


@cache
def network_use(run: Run) -> NetworkUse:
    """How busy a drawn network was."""
    seconds = links_by_second(run)
    uses = [100 * use for use in relays_use(run)["use"]]
    return NetworkUse(
        active_circuits=_mean(seconds["circuits"]),
        active_links=_mean(seconds["links"]),
        shared_percent=shared_percent(seconds),
        undirected_links=_mean(seconds[f"{UNDIRECTED}links"]),
        undirected_shared_percent=shared_percent(seconds, UNDIRECTED),
        mean_use_percent=_mean(uses),
        busiest_use_percent=max(uses, default=None),
    )


def shared_percent(by_second: polars.DataFrame, which: str = "") -> float | None:
    """The share of the active links that are shared, over all seconds; None if none was active.

    Args:
        by_second: of `links_by_second`.
        which: `UNDIRECTED`, or nothing for the directed ones.
    """
    links = int(by_second[f"{which}links"].sum())
    return 100 * int(by_second[f"{which}shared"].sum()) / links if links else None


def _second_that_was_over(run: Run) -> polars.Expr:
    """Of which second of measuring, counted from 1, a row tells that is written once it is over.

    Relays and generators count seconds of their own, which begin some milliseconds before measuring
    does or after it, and a relay's event may be as late.
    """
    return (polars.col("time_s") - run.measuring_start_s).round().cast(polars.Int64)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _moved_byte_per_s(run: Run, model: str) -> float:
    """What the clients of a model moved by their heartbeats in a second that was measured.

    Not the payload of the transfers that began then: those end later, whatever the variant. A
    heartbeat a second, and the first one may come some milliseconds later than a second after
    measuring began: so whole seconds count, and not what lies between two times.
    """
    seconds = max(1, int(run.plan.duration_s))
    moved = run.delivered.filter(
        _second_that_was_over(run).is_between(1, seconds),
        polars.col("client").is_in(clients_of(model, run.plan.traffic_by_client)),
    )
    return float(moved["sent_bytes" if uploads(model) else "received_bytes"].sum()) / seconds


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
