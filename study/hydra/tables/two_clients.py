"""Results of the client under test in scenarios One, Two and Three, by traffic model."""

from collections.abc import Sequence

from analysis.cells import mean_cell, runs_cell, runs_heading
from analysis.metrics.transfers import (
    CIRCUIT_ROUND_TRIP,
    STREAM_ROUND_TRIP,
    TIME_TO_LAST_BYTE,
    TIME_TO_LAST_BYTE_MEDIAN,
    TIME_TO_LAST_BYTE_P95,
)
from analysis.order import SCENARIO_ORDER
from analysis.run_values import streamed
from analysis.runs import Found
from analysis.table import Table
from study.hydra.published import TWO_CLIENTS
from testbed.results import Run

ORDER = 20


def table(found: Found) -> Table:
    """A row for each scenario, traffic model and variant."""
    groups = sorted(
        (group for group in found.valid if group.scenario in TWO_CLIENTS),
        key=lambda group: (SCENARIO_ORDER.index(group.scenario), *group.sort_key[1:3]),
    )
    return Table(
        title="Two clients, by traffic model of the one under test",
        columns=(
            *("scenario", "traffic", "variant", runs_heading(groups)),
            *("time to last byte, median, s", "95 % within, s"),
            *(STREAM_ROUND_TRIP.label, CIRCUIT_ROUND_TRIP.label, "transfers"),
            *("delivered, kB/s", "stalls a minute", "time stalled, %"),
        ),
        rows=tuple(
            (
                *(group.scenario, group.traffic, group.variant),
                runs_cell(group, found.valid[group], groups),
                *_two_clients_cells(found.valid[group]),
            )
            for group in groups
        ),
        note=(
            "Mean over runs ± standard deviation over runs, of the client that runs the traffic"
            " model; the other one always runs bulk, and if both do, both count. Median and 95th"
            " percentile are a run's. Delivered and stalls are of the seconds that"
            " lie wholly between first and last byte of a transfer; a stall is one or more of these"
            " in a row with less than 95 % of the model's rate."
        ),
    )


def _two_clients_cells(runs: Sequence[Run]) -> tuple[str, ...]:
    streams = [one for one in map(streamed, runs) if one]
    return (
        mean_cell(TIME_TO_LAST_BYTE_MEDIAN.by_seed(runs).values(), TIME_TO_LAST_BYTE.digits),
        mean_cell(TIME_TO_LAST_BYTE_P95.by_seed(runs).values(), TIME_TO_LAST_BYTE.digits),
        mean_cell(STREAM_ROUND_TRIP.by_seed(runs).values(), STREAM_ROUND_TRIP.digits),
        mean_cell(CIRCUIT_ROUND_TRIP.by_seed(runs).values(), CIRCUIT_ROUND_TRIP.digits),
        mean_cell([run.under_test.transfers.completed for run in runs], 0),
        mean_cell([one.rate_kb_per_s for one in streams], 1),
        mean_cell([one.stalls_a_minute for one in streams], 1),
        mean_cell([one.stalled_percent for one in streams], 1),
    )
