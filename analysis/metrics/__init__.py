"""The metrics that runs are compared by: one number for each run.

Statistics over runs are computed in `analysis.statistics`; the values behind a number are in
`analysis.run_values`.
"""

from collections.abc import Iterable

from analysis.metrics.costs import CONNECTIONS, COSTS, CPU, WIRE_BYTES
from analysis.metrics.metric import Metric
from analysis.metrics.networks import OF_NETWORKS, of_class
from analysis.metrics.transfers import (
    CIRCUIT_BUILD_TIME,
    CIRCUIT_ROUND_TRIP,
    LOAD_TIME,
    STREAM_ROUND_TRIP,
    THROUGHPUT,
    TIME_TO_FIRST_BYTE,
    TIME_TO_LAST_BYTE,
    TIME_TO_LAST_BYTE_MEDIAN,
    TIME_TO_LAST_BYTE_P95,
)
from analysis.whole_networks import is_drawn, models_of
from testbed.basics.errors import InputError
from testbed.basics.toml_file import suggestion
from testbed.results import Run

HEADLINES = (
    THROUGHPUT,
    STREAM_ROUND_TRIP,
    CIRCUIT_ROUND_TRIP,
    CIRCUIT_BUILD_TIME,
    CONNECTIONS,
    WIRE_BYTES,
    CPU,
)
"""The metrics that a reader of many variants looks at first."""

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
"""The metrics that `compare` shows: of a run's transfers, probes, circuits and relays."""


def all_metrics(runs: Iterable[Run]) -> list[Metric]:
    """`METRICS` and, for runs of drawn networks, the metrics of each class of clients."""
    models = dict.fromkeys(model for run in runs if is_drawn(run) for model in models_of(run))
    return [*METRICS, *(metric for model in models for metric in of_class(model))]


def check_key(key: str) -> None:
    """Refuse a name that no metric has, whatever the runs.

    Raises:
        InputError: it is neither a metric's nor one of a class of clients'.
    """
    model = key.split(".")[1] if key.startswith("by_class.") and key.count(".") > 1 else "MODEL"
    known = [metric.key for metric in (*METRICS, *of_class(model))]
    if key not in known:
        raise InputError(f"--metric {key}: no metric is called so: {suggestion(key, known)}")
