"""What runs are compared by: the values of one run, and one number a run of each kind.

All are of the clients that run the model under test, from the run's tables. Statistics over runs
are made elsewhere.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import polars

from analysis.whole_networks import is_drawn, shared_percent
from testbed.errors import TestbedError
from testbed.results import Run, stream_round_trip_ms, throughput_mb_per_s
from testbed.results.streaming import judged_seconds
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


def median_window(run: Run) -> float | None:
    """The exit's congestion window on the shared link, in segments, over samples and connections.

    Raises:
        TestbedError: the manifest's plan doesn't name the link's ends.
    """
    ends = run.manifest["plan"].get("shared_link", ())
    if len(ends) != 2:
        raise TestbedError(f"{run.directory / 'manifest.json'}: plan.shared_link has no two ends")
    return _median(run.sockets.filter(node=ends[1])["cwnd_segments"])


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

SHARED_LINKS = Metric(
    key="shared_links_percent",
    name="shared links",
    unit="%",
    digits=1,
    less="less shared",
    more="more shared",
    of=lambda run: shared_percent(run) if is_drawn(run) else None,
)

METRICS = (
    THROUGHPUT,
    TIME_TO_FIRST_BYTE,
    TIME_TO_LAST_BYTE,
    TIME_TO_LAST_BYTE_MEDIAN,
    TIME_TO_LAST_BYTE_P95,
    STREAM_ROUND_TRIP,
    CIRCUIT_ROUND_TRIP,
    CIRCUIT_BUILD_TIME,
)
"""What `compare` compares variants by: statistics of a run's transfers, probes and circuits."""

NETWORK_METRICS = (SHARED_LINKS,)
"""And those of drawn networks, beside these."""
