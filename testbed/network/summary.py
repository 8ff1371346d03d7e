"""A drawn network in numbers, and how close it is to its consensus."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import fmean, median, stdev
from typing import Any

import polars as pl

from testbed.network.drawn import Drawn
from testbed.network.positions import relay_classes
from testbed.plan.network import RELAY_CLASSES, Node, RelayClass


@dataclass(frozen=True)
class ClassSummary:
    """The relays of one class and their share of all weight, in the network and in the consensus.

    Rates are None if there is no such relay.
    """

    relay_class: RelayClass
    relays: int
    weight_percent: float
    consensus_relays: int
    consensus_weight_percent: float
    least_rate_mbit_per_s: float | None
    median_rate_mbit_per_s: float | None
    greatest_rate_mbit_per_s: float | None


@dataclass(frozen=True)
class CountrySummary:
    """The nodes in one country; `users_percent` is its share of Tor's users."""

    country: str
    relays: int
    weight_percent: float
    consensus_weight_percent: float
    clients: int
    servers: int
    users_percent: float


@dataclass(frozen=True)
class RoundTrips:
    """Round trips between nodes at two different sites, in ms, over all pairs of sites."""

    pairs: int
    least_ms: float
    least: tuple[str, str]
    median_ms: float
    greatest_ms: float
    greatest: tuple[str, str]


@dataclass(frozen=True)
class NetworkSummary:
    """A drawn network in numbers.

    Attributes:
        round_trips: None if all nodes are at one site.
        bandwidth_weights, consensus_bandwidth_weights: Wgg to Wed, in 1/10000.
    """

    scenario: str
    seed: int
    consensus: str
    nodes: Mapping[str, int]
    sites: int
    links: int
    classes: tuple[ClassSummary, ...]
    countries: tuple[CountrySummary, ...]
    round_trips: RoundTrips | None
    clients_by_traffic: Mapping[str, int]
    bandwidth_weights: Mapping[str, int]
    consensus_bandwidth_weights: Mapping[str, int]

    def record(self) -> dict[str, Any]:
        """The summary as plain data, for programs."""
        return asdict(self)


def summary(drawn: Drawn) -> NetworkSummary:
    """Summarise a drawn network."""
    network = drawn.network
    return NetworkSummary(
        scenario=drawn.scenario,
        seed=drawn.seed,
        consensus=drawn.consensus.name,
        nodes=dict(Counter(node.kind for node in network.nodes)),
        sites=len(network.sites),
        links=len(network.links),
        classes=tuple(_class_summary(drawn, one) for one in RELAY_CLASSES),
        countries=_countries(drawn),
        round_trips=_round_trips(drawn),
        clients_by_traffic=dict(Counter(drawn.traffic_by_client.values())),
        bandwidth_weights=drawn.bandwidth_weights,
        consensus_bandwidth_weights=drawn.consensus.bandwidth_weights,
    )


@dataclass(frozen=True)
class OverSeeds:
    """A number of the consensus, and its spread over the networks of several seeds."""

    figure: str
    consensus: float
    mean: float
    deviation: float
    least: float
    greatest: float


def over_seeds(summaries: Sequence[NetworkSummary]) -> list[OverSeeds]:
    """Shares of weight by class, and bandwidth weights, over at least two seeds of a scenario."""
    figures = [_figures(one) for one in summaries]
    found = []
    for figure, (_, consensus) in figures[0].items():
        values = [one[figure][0] for one in figures if figure in one]
        if len(values) == len(figures):
            spread = fmean(values), stdev(values), min(values), max(values)
            found.append(OverSeeds(figure, consensus, *spread))
    return found


def _figures(of: NetworkSummary) -> dict[str, tuple[float, float]]:
    """Numbers of the drawn network and of the consensus, by name."""
    shares = {
        f"{one.relay_class}, % of the weight": (one.weight_percent, one.consensus_weight_percent)
        for one in of.classes
    }
    weights = {
        name: (float(of.bandwidth_weights[name]), float(of.consensus_bandwidth_weights[name]))
        for name in SHOWN_WEIGHTS
        if name in of.bandwidth_weights and name in of.consensus_bandwidth_weights
    }
    return shares | weights


SHOWN_WEIGHTS = ("Wgg", "Wgd", "Wmg", "Wmd", "Wme", "Wee", "Wed")
"""The bandwidth weights that determine the others."""


def _class_summary(drawn: Drawn, relay_class: RelayClass) -> ClassSummary:
    relays = drawn.network.of_class(relay_class)
    rates = [(node.rate_up_bit_per_s or 0) / 1e6 for node in relays]
    number = {"middle": 0, "guard": 1, "exit": 2, "both": 3}[relay_class]
    weights = drawn.consensus.relays["weight"].to_numpy()
    of_class = relay_classes(drawn.consensus.relays) == number
    return ClassSummary(
        relay_class=relay_class,
        relays=len(relays),
        weight_percent=100 * _weight(relays) / _weight(drawn.network.of_kind("relay")),
        consensus_relays=int(of_class.sum()),
        consensus_weight_percent=float(100 * weights[of_class].sum() / weights.sum()),
        least_rate_mbit_per_s=min(rates, default=None),
        median_rate_mbit_per_s=median(rates) if rates else None,
        greatest_rate_mbit_per_s=max(rates, default=None),
    )


def _countries(drawn: Drawn) -> tuple[CountrySummary, ...]:
    """The countries, those with most nodes first."""
    network = drawn.network
    by_kind = {
        kind: Counter(node.country for node in network.of_kind(kind))
        for kind in ("relay", "client", "server")
    }
    relays = network.of_kind("relay")
    total = _weight(relays)
    by_country = drawn.consensus.relays.group_by("country").agg(pl.col("weight").sum())
    of_consensus = dict(by_country.iter_rows())
    all_weight = sum(of_consensus.values())
    found = [
        CountrySummary(
            country=site.country,
            relays=by_kind["relay"][site.country],
            weight_percent=100 * _weight([r for r in relays if r.country == site.country]) / total,
            consensus_weight_percent=100 * of_consensus.get(site.country, 0) / all_weight,
            clients=by_kind["client"][site.country],
            servers=by_kind["server"][site.country],
            users_percent=100 * drawn.places.countries[site.country].users_share,
        )
        for site in network.sites
    ]
    return tuple(sorted(found, key=lambda one: -(one.relays + one.clients + one.servers)))


def _round_trips(drawn: Drawn) -> RoundTrips | None:
    """The round trips between sites; any node stands for its site, as access delays are equal."""
    hosts = {node.country or "": node for node in drawn.network.nodes if node.kind != "router"}
    found = sorted(
        (drawn.routes.round_trip_ms(hosts[first].name, hosts[second].name), (first, second))
        for first, second in combinations(sorted(hosts), 2)
    )
    if not found:
        return None
    (least_ms, least), (greatest_ms, greatest) = found[0], found[-1]
    middle_ms = median(round_trip_ms for round_trip_ms, _ in found)
    return RoundTrips(len(found), least_ms, least, middle_ms, greatest_ms, greatest)


def _weight(relays: Sequence[Node]) -> int:
    return sum(node.weight or 0 for node in relays)
