"""What runs are compared by: the values of one run, and one number a run of each kind.

All are of the clients that run the model under test, from the run's tables. Statistics over runs
are made elsewhere.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import polars

from analysis.whole_networks import (
    QUANTILES,
    ClientClass,
    NetworkUse,
    client_class,
    is_drawn,
    models_of,
    network_use,
)
from testbed.errors import TestbedError
from testbed.results import Run, stream_round_trip_ms, throughput_mb_per_s
from testbed.results.figures import between_fences, fairness, loads_s, wire_bytes_per_byte
from testbed.results.streaming import judged_seconds
from testbed.results.summary import Fairness
from testbed.traffic.models import MODELS


@dataclass(frozen=True)
class Metric:
    """A number that every run has, or None if it has nothing to make it of.

    Attributes:
        key: for programs; `summary.json` has the like by the same names.
        name: as a reader sees it, without the unit.
        unit: of the number.
        digits: behind the point, for readers.
        less, more: what a variant with a smaller or greater value is.
        of: the number of a run.
    """

    key: str
    name: str
    unit: str
    digits: int
    less: str
    more: str
    of: Callable[[Run], float | None]

    @property
    def label(self) -> str:
        """Name and unit."""
        return f"{self.name}, {self.unit}"

    def by_seed(self, runs: Sequence[Run]) -> Mapping[int, float]:
        """The numbers of runs of one group, by their seeds; runs without one are left out."""
        values = {run.summary.seed: self.of(run) for run in runs}
        return {seed: value for seed, value in values.items() if value is not None}


@dataclass(frozen=True)
class Streamed:
    """What the clients of a run got of paced streams, over the seconds that can be judged.

    Attributes:
        rate_kb_per_s: of one client, on average; 1 kB = 10^3 bytes.
        stalls_a_minute: of one client; see `streaming.judged_seconds`.
        stalled_percent: of the time.
    """

    rate_kb_per_s: float
    stalls_a_minute: float
    stalled_percent: float


def clients_under_test(run: Run) -> list[str]:
    """The clients that run the model under test: of two bulk clients both, else the one.

    Raises:
        TestbedError: the manifest's plan doesn't say what each client ran.
    """
    traffic = run.manifest["plan"].get("traffic_by_client", {})
    clients = [client for client, model in traffic.items() if model == run.summary.traffic]
    if not clients:
        raise TestbedError(
            f"{run.directory / 'manifest.json'}: plan.traffic_by_client names no client that runs"
            f" {run.summary.traffic}"
        )
    return clients


def transfers(run: Run) -> polars.DataFrame:
    """The whole transfers that began before measuring ended, with their throughput in MB/s."""
    return _under_test(run, run.transfers.filter("measured", "ok")).with_columns(
        throughput_mb_per_s()
    )


def stream_round_trips_ms(run: Run) -> polars.Series:
    """The transfers' own round trips, request to answer; older runs have none."""
    return transfers(run).select(stream_round_trip_ms()).to_series().drop_nulls()


def circuit_round_trips_ms(run: Run) -> polars.Series:
    """The circuit round trips, of the answered probes."""
    return _under_test(run, run.round_trips)["round_trip_ms"].drop_nulls()


def build_times_ms(run: Run) -> polars.Series:
    """How long the circuits took to build that carried the traffic."""
    built = run.circuits.filter(round="measured", status="BUILT")
    return _under_test(run, built)["since_extend_s"].drop_nulls() * 1000


def load_times_s(run: Run) -> polars.Series:
    """How long the whole loads took, of a model with several transfers at once; else none."""
    model = MODELS.get(run.summary.traffic)
    if model is None or model.at_once == 1:
        return polars.Series([], dtype=polars.Float64)
    return loads_s(_under_test(run, run.transfers.filter("measured")), model.at_once)


def outliers_percent(run: Run) -> float:
    """How many of the transfers' throughputs lie outside Tukey's fences, in percent."""
    values = transfers(run)["throughput_mb_per_s"].drop_nulls()
    return 100 * (1 - len(between_fences(values)) / len(values)) if len(values) else 0.0


def client_fairness(run: Run) -> Fairness | None:
    """How alike the clients under test fared; None of a single one."""
    return fairness(transfers(run), clients_under_test(run))


def median_window(run: Run) -> float | None:
    """The exit's congestion window on the shared link, in segments, over samples and connections.

    Raises:
        TestbedError: the manifest's plan doesn't name the link's ends.
    """
    ends = run.manifest["plan"].get("shared_link", ())
    if len(ends) != 2:
        raise TestbedError(f"{run.directory / 'manifest.json'}: plan.shared_link has no two ends")
    return _median(run.sockets.filter(node=ends[1], peer=ends[0])["cwnd_segments"])


def streamed(run: Run) -> Streamed | None:
    """What arrived of the streams of a paced model; None of the others, and if none was judged."""
    model = MODELS.get(run.summary.traffic)
    if model is None or model.rate_byte_per_s is None:
        return None
    clients = [
        judged_seconds(run.transfers, run.delivered, client, model.rate_byte_per_s)
        for client in clients_under_test(run)
    ]
    judged_s = sum(len(client.rates_byte_per_s) for client in clients)
    if not judged_s:
        return None
    return Streamed(
        rate_kb_per_s=sum(sum(client.rates_byte_per_s) for client in clients) / judged_s / 1e3,
        stalls_a_minute=60 * sum(len(client.stalls_s) for client in clients) / judged_s,
        stalled_percent=100 * sum(client.short_s for client in clients) / judged_s,
    )


def _under_test(run: Run, table: polars.DataFrame) -> polars.DataFrame:
    return table.filter(polars.col("client").is_in(clients_under_test(run)))


def _of_busiest_relay(samples: polars.DataFrame, statistic: polars.Expr) -> float | None:
    """A statistic over each relay's samples, of the relay of which it is greatest."""
    return _number(samples.group_by("relay").agg(value=statistic)["value"].max())


def _of_transfers(
    column: str, statistic: Callable[[polars.Series], float | None]
) -> Callable[[Run], float | None]:
    return lambda run: statistic(transfers(run)[column].drop_nulls())


def _mean(values: polars.Series) -> float | None:
    return _number(values.mean())


def _median(values: polars.Series) -> float | None:
    return _number(values.median())


def _p95(values: polars.Series) -> float | None:
    return values.quantile(0.95, interpolation="linear")


def _number(value: object) -> float | None:
    """A statistic as polars gives it, whose types allow for dates."""
    return float(value) if isinstance(value, (int, float)) else None


THROUGHPUT = Metric(
    key="throughput_mb_per_s.mean",
    name="throughput",
    unit="MB/s",
    digits=2,
    less="slower",
    more="faster",
    of=_of_transfers("throughput_mb_per_s", _mean),
)
TIME_TO_FIRST_BYTE = Metric(
    key="time_to_first_byte_s.mean",
    name="time to first byte",
    unit="s",
    digits=2,
    less="faster",
    more="slower",
    of=_of_transfers("time_to_first_byte_s", _mean),
)
TIME_TO_LAST_BYTE = Metric(
    key="time_to_last_byte_s.mean",
    name="time to last byte",
    unit="s",
    digits=2,
    less="faster",
    more="slower",
    of=_of_transfers("time_to_last_byte_s", _mean),
)
TIME_TO_LAST_BYTE_MEDIAN = replace(
    TIME_TO_LAST_BYTE,
    key="time_to_last_byte_s.median",
    name="its median",
    of=_of_transfers("time_to_last_byte_s", _median),
)
TIME_TO_LAST_BYTE_P95 = replace(
    TIME_TO_LAST_BYTE,
    key="time_to_last_byte_s.p95",
    name="its 95th percentile",
    of=_of_transfers("time_to_last_byte_s", _p95),
)
STREAM_ROUND_TRIP = Metric(
    key="stream_round_trip_ms.mean",
    name="stream round trip",
    unit="ms",
    digits=0,
    less="shorter",
    more="longer",
    of=lambda run: _mean(stream_round_trips_ms(run)),
)
CIRCUIT_ROUND_TRIP = Metric(
    key="circuit_round_trip_ms.mean",
    name="circuit round trip",
    unit="ms",
    digits=0,
    less="shorter",
    more="longer",
    of=lambda run: _mean(circuit_round_trips_ms(run)),
)
CIRCUIT_BUILD_TIME = Metric(
    key="circuit_build_time_ms.mean",
    name="circuit build time",
    unit="ms",
    digits=0,
    less="shorter",
    more="longer",
    of=lambda run: _mean(build_times_ms(run)),
)


def _of_network(of: Callable[[NetworkUse], float | None]) -> Callable[[Run], float | None]:
    return lambda run: of(network_use(run)) if is_drawn(run) else None


SHARED_LINKS = Metric(
    key="shared_links_percent",
    name="shared links",
    unit="%",
    digits=1,
    less="less shared",
    more="more shared",
    of=_of_network(lambda use: use.shared_percent),
)
SHARED_UNDIRECTED_LINKS = replace(
    SHARED_LINKS,
    key="shared_undirected_links_percent",
    name="shared undirected links",
    of=_of_network(lambda use: use.undirected_shared_percent),
)
ACTIVE_CIRCUITS = Metric(
    key="active_circuits",
    name="active circuits",
    unit="in a second",
    digits=1,
    less="less active",
    more="more active",
    of=_of_network(lambda use: use.active_circuits),
)
ACTIVE_LINKS = replace(
    ACTIVE_CIRCUITS,
    key="active_links",
    name="active links",
    of=_of_network(lambda use: use.active_links),
)
RELAYS_USE = Metric(
    key="relays_use_percent.mean",
    name="relays' use of their rates",
    unit="%",
    digits=1,
    less="less used",
    more="more used",
    of=_of_network(lambda use: use.mean_use_percent),
)
BUSIEST_RELAYS_USE = replace(
    RELAYS_USE,
    key="relays_use_percent.max",
    name="busiest relay's use",
    of=_of_network(lambda use: use.busiest_use_percent),
)

OF_NETWORKS = (
    SHARED_LINKS,
    SHARED_UNDIRECTED_LINKS,
    ACTIVE_CIRCUITS,
    ACTIVE_LINKS,
    RELAYS_USE,
    BUSIEST_RELAYS_USE,
)
"""How busy relays and the links between them were; of drawn networks only."""

LOAD_TIME = Metric(
    key="load_s.mean",
    name="time of a load",
    unit="s",
    digits=1,
    less="faster",
    more="slower",
    of=lambda run: _mean(load_times_s(run)),
)
THROUGHPUT_WITHOUT_OUTLIERS = replace(
    THROUGHPUT,
    key="throughput_without_outliers_mb_per_s.mean",
    name="without outliers",
    of=_of_transfers("throughput_mb_per_s", lambda values: _mean(between_fences(values))),
)
JAIN_INDEX = Metric(
    key="fairness.jain_index",
    name="Jain's index",
    unit="of clients",
    digits=3,
    less="less fair",
    more="fairer",
    of=lambda run: found.jain_index if (found := client_fairness(run)) else None,
)
LARGEST_DIFFERENCE = Metric(
    key="fairness.largest_difference",
    name="largest difference",
    unit="%",
    digits=1,
    less="fairer",
    more="less fair",
    of=lambda run: 100 * found.largest_difference if (found := client_fairness(run)) else None,
)

CONNECTIONS = Metric(
    key="relays.connections",
    name="connections of a relay",
    unit="at most",
    digits=0,
    less="cheaper",
    more="dearer",
    of=lambda run: _of_busiest_relay(run.relays, polars.max("connections")),
)
SOCKETS = replace(
    CONNECTIONS,
    key="relays.sockets",
    name="sockets of a relay",
    of=lambda run: _of_busiest_relay(run.relays, polars.max("sockets")),
)
TOR_MEMORY = Metric(
    key="relays.tor_memory_mb",
    name="memory of a relay's Tor",
    unit="MB",
    digits=1,
    less="cheaper",
    more="dearer",
    of=lambda run: _of_busiest_relay(run.relays, polars.max("tor_memory_bytes") / 1e6),
)
SOCKET_MEMORY = replace(
    TOR_MEMORY,
    key="relays.socket_memory_mb",
    name="memory of a relay's sockets",
    of=lambda run: _of_busiest_relay(run.relays, polars.mean("socket_memory_bytes") / 1e6),
)
WIRE_BYTES = Metric(
    key="wire_bytes_per_byte",
    name="on the wire",
    unit="bytes a byte",
    digits=3,
    less="cheaper",
    more="dearer",
    of=lambda run: wire_bytes_per_byte(run.plan, run.links, run.transfers, run.delivered),
)
CPU = Metric(
    key="cost.cpu_s_per_mb",
    name="processor",
    unit="s a MB",
    digits=3,
    less="cheaper",
    more="dearer",
    of=lambda run: run.summary.cost.cpu_s / (run.summary.cost.delivered_mb or math.nan),
)

COSTS = (CONNECTIONS, SOCKETS, TOR_MEMORY, SOCKET_MEMORY, WIRE_BYTES, CPU)
"""What a variant costs; of relays, that of the relay which has most. CPU seconds are the host's, of
the whole run: they are no figure of the network."""

HEADLINES = (
    THROUGHPUT,
    STREAM_ROUND_TRIP,
    CIRCUIT_ROUND_TRIP,
    CIRCUIT_BUILD_TIME,
    CONNECTIONS,
    WIRE_BYTES,
    CPU,
)
"""Of many variants, what a reader looks at first."""

METRICS = (
    THROUGHPUT,
    TIME_TO_FIRST_BYTE,
    TIME_TO_LAST_BYTE,
    TIME_TO_LAST_BYTE_MEDIAN,
    TIME_TO_LAST_BYTE_P95,
    LOAD_TIME,
    STREAM_ROUND_TRIP,
    CIRCUIT_ROUND_TRIP,
    CIRCUIT_BUILD_TIME,
    *OF_NETWORKS,
    *COSTS,
)
"""What `compare` compares variants by: of a run's transfers, probes, circuits and relays."""


def all_metrics(runs: Iterable[Run]) -> list[Metric]:
    """`METRICS`, and for runs of drawn networks those of each class of their clients."""
    models = dict.fromkeys(model for run in runs if is_drawn(run) for model in models_of(run))
    return [*METRICS, *(metric for model in models for metric in _of_class(model))]


def _of_class(model: str) -> Iterator[Metric]:
    """What the clients of a traffic model got."""
    for like, attribute in (
        (TIME_TO_FIRST_BYTE, "first_byte_s"),
        (TIME_TO_LAST_BYTE, "last_byte_s"),
    ):
        for quantile, share in QUANTILES.items():
            yield replace(
                like,
                key=f"by_class.{model}.{like.key.partition('.')[0]}.p{100 * share:g}",
                name=f"{model}: {like.name}, {quantile}",
                of=partial(_figure_of_class, model, partial(_quantile_of, attribute, quantile)),
            )
    yield Metric(
        key=f"by_class.{model}.failed_percent",
        name=f"{model}: failed transfers",
        unit="%",
        digits=1,
        less="less often failing",
        more="more often failing",
        of=partial(_figure_of_class, model, lambda found: found.failed_percent),
    )
    yield Metric(
        key=f"by_class.{model}.goodput_kb_per_s",
        name=f"{model}: goodput",
        unit="kB/s",
        digits=1,
        less="slower",
        more="faster",
        of=partial(_figure_of_class, model, lambda found: found.goodput_kb_per_s),
    )


def _figure_of_class(
    model: str, figure: Callable[[ClientClass], float | None], run: Run
) -> float | None:
    found = client_class(run, model) if is_drawn(run) else None
    return figure(found) if found else None


def _quantile_of(attribute: str, quantile: str, found: ClientClass) -> float | None:
    times_s: Mapping[str, float | None] = getattr(found, attribute)
    return times_s[quantile]
