"""Loads of several transfers, outliers, and how fairly the clients fared."""

from analysis.cells import mean_cell, runs_cell, runs_heading, without_two_clients
from analysis.metrics.transfers import (
    JAIN_INDEX,
    LARGEST_DIFFERENCE,
    LOAD_TIME,
    THROUGHPUT,
    THROUGHPUT_WITHOUT_OUTLIERS,
)
from analysis.run_values import outliers_percent
from analysis.runs import Found
from analysis.table import Table

ORDER = 20


def table(found: Found) -> Table:
    """A row for each variant and scenario with several clients or loads."""
    groups = {
        group: runs
        for group, runs in without_two_clients(found).items()
        if len(runs[0].clients_under_test) > 1 or runs[0].under_test.load_s
    }
    shown = (LOAD_TIME, THROUGHPUT, THROUGHPUT_WITHOUT_OUTLIERS)
    fair = (JAIN_INDEX, LARGEST_DIFFERENCE)
    return Table(
        title="Loads, outliers and fairness",
        columns=(
            *("variant", "scenario", runs_heading(groups)),
            *(metric.label for metric in shown),
            "outliers, %",
            *(metric.label for metric in fair),
        ),
        rows=tuple(
            (
                *(group.variant, group.label, runs_cell(group, runs, groups)),
                *(mean_cell(metric.by_seed(runs).values(), metric.digits) for metric in shown),
                mean_cell(map(outliers_percent, runs), 1),
                *(mean_cell(metric.by_seed(runs).values(), metric.digits) for metric in fair),
            )
            for group, runs in groups.items()
        ),
        note=(
            "Mean over runs ± standard deviation over runs. Transfers that begin together are a"
            " load, which ends with the last of them. Outliers are transfers whose throughput is"
            " outside Tukey's fences, 1.5 interquartile ranges beyond the quartiles of their run;"
            " all other columns contain them. Jain's index, over the clients' mean throughputs, is"
            " 1 if all are equal; the largest difference is between two clients, in percent of the"
            " faster one."
        ),
    )
