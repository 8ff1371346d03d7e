"""Metrics of transfers, round trips and circuits, of the clients that run the model under test."""

from dataclasses import replace

from analysis.metrics.metric import Metric

THROUGHPUT = Metric(
    key="throughput_mb_per_s.mean",
    name="throughput",
    unit="MB/s",
    digits=2,
    better="more",
    of=lambda run: run.under_test.throughput_mb_per_s.mean,
)
TIME_TO_FIRST_BYTE = Metric(
    key="time_to_first_byte_s.mean",
    name="time to first byte",
    unit="s",
    digits=2,
    better="less",
    of=lambda run: run.under_test.time_to_first_byte_s.mean,
)
TIME_TO_LAST_BYTE = Metric(
    key="time_to_last_byte_s.mean",
    name="time to last byte",
    unit="s",
    digits=2,
    better="less",
    of=lambda run: run.under_test.time_to_last_byte_s.mean,
)
TIME_TO_LAST_BYTE_MEDIAN = replace(
    TIME_TO_LAST_BYTE,
    key="time_to_last_byte_s.median",
    name="time to last byte, median",
    of=lambda run: run.under_test.time_to_last_byte_s.median,
)
TIME_TO_LAST_BYTE_P95 = replace(
    TIME_TO_LAST_BYTE,
    key="time_to_last_byte_s.p95",
    name="time to last byte, 95th percentile",
    of=lambda run: run.under_test.time_to_last_byte_s.p95,
)
STREAM_ROUND_TRIP = Metric(
    key="stream_round_trip_ms.mean",
    name="stream round trip",
    unit="ms",
    digits=0,
    better="less",
    of=lambda run: its.mean if (its := run.under_test.stream_round_trip_ms) else None,
)
CIRCUIT_ROUND_TRIP = Metric(
    key="circuit_round_trip_ms.mean",
    name="circuit round trip",
    unit="ms",
    digits=0,
    better="less",
    of=lambda run: run.under_test.circuit_round_trip_ms.mean,
)
CIRCUIT_BUILD_TIME = Metric(
    key="circuit_build_time_ms.mean",
    name="circuit build time",
    unit="ms",
    digits=0,
    better="less",
    of=lambda run: run.build_time_ms.mean,
)

LOAD_TIME = Metric(
    key="load_s.mean",
    name="time of a load",
    unit="s",
    digits=1,
    better="less",
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
    better="more",
    of=lambda run: its.jain_index if (its := run.under_test.fairness) else None,
)
LARGEST_DIFFERENCE = Metric(
    key="fairness.largest_difference",
    name="largest difference",
    unit="%",
    digits=1,
    better="less",
    of=lambda run: 100 * its.largest_difference if (its := run.under_test.fairness) else None,
)
