"""Throughput, round trips and build times, with the changes against the runs without loss."""

from analysis.cells import against, baseline_of, runs_cell, runs_heading, without_two_clients
from analysis.metrics.transfers import (
    CIRCUIT_BUILD_TIME,
    CIRCUIT_ROUND_TRIP,
    STREAM_ROUND_TRIP,
    THROUGHPUT,
)
from analysis.order import BASELINE
from analysis.runs import Found
from analysis.table import Table

ORDER = 10


def table(found: Found) -> Table:
    """A row for each variant and scenario, without those of two clients."""
    groups = without_two_clients(found)
    metrics = (THROUGHPUT, STREAM_ROUND_TRIP, CIRCUIT_ROUND_TRIP, CIRCUIT_BUILD_TIME)
    changed = any(group != group.baseline and baseline_of(found, group) for group in groups)
    brackets = f"; in brackets the change against the same variant's {BASELINE}" if changed else ""
    return Table(
        title="Throughput and round trips",
        columns=(
            *("variant", "scenario", runs_heading(groups)),
            *(metric.label for metric in metrics),
        ),
        rows=tuple(
            (
                *(group.variant, group.label, runs_cell(group, runs, groups)),
                *(against(metric, runs, baseline_of(found, group)) for metric in metrics),
            )
            for group, runs in groups.items()
        ),
        note=(
            f"Mean over runs ± standard deviation over runs{brackets}. The stream's round trip is"
            " from a transfer's request to the server's answer, before data. The circuit's is that"
            " of a probe beside the load, once a second."
        ),
    )
