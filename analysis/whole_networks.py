"""Results of a run of a drawn network: classes of clients, relays' use, shared links by second.

They have no meaning for runs of topologies, which have one shared link and one class under test.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import fmean

import polars

from testbed.inside.traffic.models import uploads
from testbed.results import Run
from testbed.results.active import (
    active_cells,
    circuits_by_second,
    reported_second,
    whole_seconds,
)
from testbed.results.values import clients_of, completed_transfers, measured_transfers

QUANTILES = {"25 %": 0.25, "median": 0.5, "75 %": 0.75, "95 %": 0.95}
QUARTILES = ("25 %", "75 %")

UNDIRECTED = "undirected_"
"""The prefix of columns that count both directions of a link together."""


def is_drawn(run: Run) -> bool:
    """Whether a run's network was drawn."""
    return bool(run.plan.of_kind("router"))


def watches_all_relays(run: Run) -> bool:
    """Whether the queues of all relays were recorded."""
    return len(run.plan.recorded_relays) == len(run.plan.of_kind("relay"))


@dataclass(frozen=True)
class ClientClass:
    """Times, failures and goodput of the clients of one traffic model.

    Attributes:
        model: the traffic model.
        first_byte_s, last_byte_s: quantiles of the whole transfers' times, by name.
        transfers, failed: the transfers that began while the run measured, and the failed ones.
        goodput_kb_per_s: what a client received, or sent if it uploads, in the whole seconds that
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
        active_circuits, active_links, undirected_links: means over the seconds; there are circuits
            only if all relays are watched.
        shared_percent, undirected_shared_percent: the shares of all active links in all seconds.
        mean_use_percent, busiest_use_percent: the shares of the relays' rates that were used.
    """

    active_circuits: float | None
    active_links: float | None
    shared_percent: float | None
    undirected_links: float | None
    undirected_shared_percent: float | None
    mean_use_percent: float | None
    busiest_use_percent: float | None


def of_class(run: Run, model: str) -> polars.DataFrame:
    """The completed transfers of a model's clients that began while the run measured."""
    return completed_transfers(run, clients_of(model, run.plan.traffic_by_client))


def models_of(run: Run) -> list[str]:
    """The traffic models of a run's clients, that of most clients first."""
    models = list(run.plan.traffic_by_client.values())
    return sorted(set(models), key=lambda model: (-models.count(model), model))


@cache
def client_class(run: Run, model: str) -> ClientClass | None:
    """The results of a model's clients; None if the run has none."""
    clients = clients_of(model, run.plan.traffic_by_client)
    if not clients:
        return None
    own, completed = measured_transfers(run, clients), completed_transfers(run, clients)
    return ClientClass(
        model=model,
        clients=len(clients),
        first_byte_s=_quantiles(completed["time_to_first_byte_s"]),
        last_byte_s=_quantiles(completed["time_to_last_byte_s"]),
        transfers=own.height,
        failed=own.height - completed.height,
        goodput_kb_per_s=_moved_byte_per_s(run, model) / 1e3 / len(clients),
    )


def relays_use(run: Run) -> polars.DataFrame:
    """The share of its rate that each relay used, from the start of measuring to the last transfer.

    Returns:
        A row for each relay: relay, relay_class, weight, rate_bit_per_s (upwards), sent_bit_per_s,
        use (the share of that rate).
    """
    sent = run.links.pivot(on="when", index=["sender", "receiver"], values=["time_s", "sent_bytes"])
    # Without a warm-up measuring begins with the traffic.
    began = "measuring" if "time_s_measuring" in sent.columns else "before"
    bits = 8 * (polars.col("sent_bytes_after") - polars.col(f"sent_bytes_{began}"))
    lasted_s = polars.col("time_s_after") - polars.col(f"time_s_{began}")
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


def processors_use(run: Run) -> polars.DataFrame:
    """The share of the time that each relay's processor was busy, of those that take time.

    Returns:
        A row for each of these relays: relay, relay_class, rate_bit_per_s (upwards), use.
    """
    busy = run.processors.group_by("node").agg(
        use=polars.col("busy_s").sum() / polars.col("lasted_s").sum()
    )
    by_relay = dict(busy.iter_rows())
    rows = [
        {
            "relay": relay.name,
            "relay_class": relay.relay_class,
            "rate_bit_per_s": relay.rate_up_bit_per_s,
            "use": by_relay[relay.name],
        }
        for relay in run.plan.of_kind("relay")
        if relay.rate_up_bit_per_s and relay.name in by_relay
    ]
    return polars.DataFrame(rows)


def links_by_second(run: Run) -> polars.DataFrame:
    """Active circuits and shared links, second by second.

    As in section 4.1 of *Examining the Hydra* (PoPETs 2023), a circuit is active in a second in
    which a cell crosses it; a link between two relays is active if a circuit on it is, and shared
    if several are. Only cells towards the clients count; they answer those towards the servers.

    If a scenario watches only some relays, the links are those between them, and the circuits are
    null, as a circuit may cross two of these relays or none.

    Returns:
        A row for each second that all relays have reported, so without the last one, in which
        recording ended: second (from 1 when measuring began), circuits, links and shared (directed,
        from the relay nearer to the client), undirected_links and undirected_shared.
    """
    # Both ends of a connection know a circuit by the same number.
    nearer = run.queues.select(
        polars.col("relay").alias("peer"), polars.col("next_queue").alias("queue")
    ).drop_nulls()
    active = active_cells(run.queues, run.measuring_start_s, run.plan.duration_s)
    crossed = active.join(nearer.unique(), on="queue").filter(
        polars.col("relay") != polars.col("peer")
    )
    ends = polars.concat_list("peer", "relay").list.sort().list.join("-")
    directed = _shared(crossed, ["peer", "relay"], "links", "shared")
    undirected = _shared(
        crossed.with_columns(ends.alias("ends")),
        ["ends"],
        "undirected_links",
        "undirected_shared",
    )
    seconds = whole_seconds(run.plan.duration_s)
    for counted in (circuits_by_second(active), directed, undirected):
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
    """The share of active links that are shared, over all seconds; None if none was active.

    Args:
        by_second: the rows of `links_by_second`.
        which: `UNDIRECTED`, or empty for directed links.
    """
    links = int(by_second[f"{which}links"].sum())
    return 100 * int(by_second[f"{which}shared"].sum()) / links if links else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _moved_byte_per_s(run: Run, model: str) -> float:
    """The bytes that a model's clients moved in each measured second, by their heartbeats.

    The payload of the transfers that began then wouldn't do, as those end later. There is a
    heartbeat each second, and the first may come some milliseconds after the first second of
    measuring; so whole seconds count, and not the time between two moments.
    """
    seconds = max(1, int(run.plan.duration_s))
    moved = run.delivered.filter(
        reported_second(run.measuring_start_s).is_between(1, seconds),
        polars.col("client").is_in(clients_of(model, run.plan.traffic_by_client)),
    )
    return float(moved["sent_bytes" if uploads(model) else "received_bytes"].sum()) / seconds


def _shared(
    crossed: polars.DataFrame, ends: list[str], links: str, shared: str
) -> polars.DataFrame:
    """How many links were crossed by a circuit, and how many by several, by second."""
    by_link = crossed.group_by("second", *ends).agg(polars.col("queue").n_unique())
    return by_link.group_by("second").agg(
        polars.len().alias(links), (polars.col("queue") > 1).sum().alias(shared)
    )


def _quantiles(values: polars.Series) -> dict[str, float | None]:
    return {name: values.quantile(share, "linear") for name, share in QUANTILES.items()}
