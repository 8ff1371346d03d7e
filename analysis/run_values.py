"""Values of one run, for tables and figures, of the clients that run the model under test.

Single numbers that runs are compared by are in `analysis.metrics`.
"""

from dataclasses import dataclass

import polars

from testbed.results import Run, values


@dataclass(frozen=True)
class Streamed:
    """How well paced streams arrived at a run's clients, over the seconds that can be judged.

    Attributes:
        rate_kb_per_s: a client's mean rate; 1 kB = 10^3 bytes.
        stalls_a_minute: a client's stalls; see `streaming.judged_seconds`.
        stalled_percent: the share of the time that was stalled.
    """

    rate_kb_per_s: float
    stalls_a_minute: float
    stalled_percent: float


def transfers(run: Run) -> polars.DataFrame:
    """The completed transfers; see `values.completed_transfers`."""
    return values.completed_transfers(run, run.clients_under_test)


def stream_round_trips_ms(run: Run) -> polars.Series:
    """The transfers' own round trips, from request to answer; older runs have none."""
    return transfers(run)["stream_round_trip_ms"].drop_nulls()


def circuit_round_trips_ms(run: Run) -> polars.Series:
    """The circuit round trips of the answered probes."""
    return values.circuit_round_trips_ms(run, run.clients_under_test)


def build_times_ms(run: Run) -> polars.Series:
    """The build times of the circuits that carried the traffic."""
    return values.build_times_ms(run, run.clients_under_test)


def outliers_percent(run: Run) -> float:
    """The share of completed transfers whose throughput is outside Tukey's fences, in percent."""
    fenced = run.under_test.throughput_without_outliers_mb_per_s
    completed = run.under_test.transfers.completed
    return 100 * fenced.outliers / completed if fenced and completed else 0.0


def streamed(run: Run) -> Streamed | None:
    """How well the streams of a paced model arrived; None for other models and unjudged runs."""
    streaming = run.under_test.streaming
    if streaming is None or not streaming.judged_s or streaming.rate_mb_per_s.mean is None:
        return None
    return Streamed(
        rate_kb_per_s=1e3 * streaming.rate_mb_per_s.mean,
        stalls_a_minute=60 * streaming.stalls / streaming.judged_s,
        stalled_percent=100 * streaming.short_s / streaming.judged_s,
    )
