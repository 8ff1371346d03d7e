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
from testbed.results import Run, values
from testbed.results.summarising import distribution


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
        by_seed = {run.summary.seed: self.of(run) for run in runs}
        return {seed: value for seed, value in by_seed.items() if value is not None}


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


def transfers(run: Run) -> polars.DataFrame:
    """The whole transfers, as `values.whole_transfers` has them."""
    return values.whole_transfers(run, run.clients_under_test)


def stream_round_trips_ms(run: Run) -> polars.Series:
    """The transfers' own round trips, request to answer; older runs have none."""
    return transfers(run)["stream_round_trip_ms"].drop_nulls()


def circuit_round_trips_ms(run: Run) -> polars.Series:
    """The circuit round trips, of the answered probes."""
    return values.circuit_round_trips_ms(run, run.clients_under_test)


def build_times_ms(run: Run) -> polars.Series:
    """How long the circuits took to build that carried the traffic."""
    return values.build_times_ms(run, run.clients_under_test)


def outliers_percent(run: Run) -> float:
    """How many of the completed transfers lie outside Tukey's fences by throughput, in percent."""
    fenced = run.under_test.throughput_without_outliers_mb_per_s
    completed = run.under_test.transfers.completed
    return 100 * fenced.outliers / completed if fenced and completed else 0.0


def median_window(run: Run) -> float | None:
    """The exit's congestion window on the shared link, in segments, over samples and connections.

    None of a run without its tables.

    Raises:
        TestbedError: the manifest's plan doesn't name the link's ends.
    """
    ends = run.manifest["plan"].get("shared_link", ())
    if len(ends) != 2:
        raise TestbedError(f"{run.directory / 'manifest.json'}: plan.shared_link has no two ends")
    if not run.is_whole:
        return None
    return distribution(run.sockets.filter(node=ends[1], peer=ends[0])["cwnd_segments"]).median


def streamed(run: Run) -> Streamed | None:
    """What arrived of the streams of a paced model; None of the others, and if none was judged."""
    streaming = run.under_test.streaming
    if streaming is None or not streaming.judged_s or streaming.rate_mb_per_s.mean is None:
        return None
    return Streamed(
        rate_kb_per_s=1e3 * streaming.rate_mb_per_s.mean,
        stalls_a_minute=60 * streaming.stalls / streaming.judged_s,
        stalled_percent=100 * streaming.short_s / streaming.judged_s,
    )


def _of_busiest_relay(name: str) -> Callable[[Run], float | None]:
    """What a relay held, of the relay that held most."""
    return lambda run: max(
        (float(getattr(relay, name)) for relay in run.held_by_relays), default=None
    )


THROUGHPUT = Metric(
    key="throughput_mb_per_s.mean",
    name="throughput",
    unit="MB/s",
    digits=2,
    less="slower",
    more="faster",
    of=lambda run: run.under_test.throughput_mb_per_s.mean,
)
TIME_TO_FIRST_BYTE = Metric(
    key="time_to_first_byte_s.mean",
    name="time to first byte",
    unit="s",
    digits=2,
    less="faster",
    more="slower",
    of=lambda run: run.under_test.time_to_first_byte_s.mean,
)
TIME_TO_LAST_BYTE = Metric(
    key="time_to_last_byte_s.mean",
    name="time to last byte",
    unit="s",
    digits=2,
    less="faster",
    more="slower",
    of=lambda run: run.under_test.time_to_last_byte_s.mean,
)
TIME_TO_LAST_BYTE_MEDIAN = replace(
    TIME_TO_LAST_BYTE,
    key="time_to_last_byte_s.median",
    name="its median",
    of=lambda run: run.under_test.time_to_last_byte_s.median,
)
TIME_TO_LAST_BYTE_P95 = replace(
    TIME_TO_LAST_BYTE,
    key="time_to_last_byte_s.p95",
    name="its 95th percentile",
    of=lambda run: run.under_test.time_to_last_byte_s.p95,
)
STREAM_ROUND_TRIP = Metric(
    key="stream_round_trip_ms.mean",
    name="stream round trip",
    unit="ms",
    digits=0,
    less="shorter",
    more="longer",
    of=lambda run: its.mean if (its := run.under_test.stream_round_trip_ms) else None,
)
CIRCUIT_ROUND_TRIP = Metric(
    key="circuit_round_trip_ms.mean",
    name="circuit round trip",
    unit="ms",
    digits=0,
    less="shorter",
    more="longer",
    of=lambda run: run.under_test.circuit_round_trip_ms.mean,
)
CIRCUIT_BUILD_TIME = Metric(
    key="circuit_build_time_ms.mean",
    name="circuit build time",
    unit="ms",
    digits=0,
    less="shorter",
    more="longer",
    of=lambda run: run.build_time_ms.mean,
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
    of=lambda run: load.mean if (load := run.under_test.load_s) else None,
)
THROUGHPUT_WITHOUT_OUTLIERS = replace(
    THROUGHPUT,
    key="throughput_without_outliers_mb_per_s.mean",
    name="without outliers",
    of=lambda run: (
        its.mean if (its := run.under_test.throughput_without_outliers_mb_per_s) else None
    ),
)
JAIN_INDEX = Metric(
    key="fairness.jain_index",
    name="Jain's index",
    unit="of clients",
    digits=3,
    less="less fair",
    more="fairer",
    of=lambda run: its.jain_index if (its := run.under_test.fairness) else None,
)
LARGEST_DIFFERENCE = Metric(
    key="fairness.largest_difference",
    name="largest difference",
    unit="%",
    digits=1,
    less="fairer",
    more="less fair",
    of=lambda run: 100 * its.largest_difference if (its := run.under_test.fairness) else None,
)

CONNECTIONS = Metric(
    key="relays.connections",
    name="connections of a relay",
    unit="at most",
    digits=0,
    less="cheaper",
    more="dearer",
    of=_of_busiest_relay("connections"),
)
SOCKETS = replace(
    CONNECTIONS,
    key="relays.sockets",
    name="sockets of a relay",
    of=_of_busiest_relay("sockets"),
)
TOR_MEMORY = Metric(
    key="relays.tor_memory_mb",
    name="memory of a relay's Tor",
    unit="MB",
    digits=1,
    less="cheaper",
    more="dearer",
    of=_of_busiest_relay("tor_memory_mb"),
)
SOCKET_MEMORY = replace(
    TOR_MEMORY,
    key="relays.socket_memory_mb",
    name="memory of a relay's sockets",
    of=_of_busiest_relay("socket_memory_mb"),
)
WIRE_BYTES = Metric(
    key="wire_bytes_per_byte",
    name="on the wire",
    unit="bytes a byte",
    digits=3,
    less="cheaper",
    more="dearer",
    of=lambda run: run.wire_bytes_per_byte,
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
