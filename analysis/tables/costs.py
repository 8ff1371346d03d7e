"""The costs of each variant: connections, memory, bytes on the wire, processor time."""

from analysis.cells import mean_cell, runs_cell, runs_heading, without_two_clients
from analysis.metrics.costs import COSTS
from analysis.metrics.transfers import CIRCUIT_BUILD_TIME
from analysis.runs import Found
from analysis.table import Table

ORDER = 30


def table(found: Found) -> Table:
    """A row for each variant and scenario that recorded costs."""
    groups = {
        group: runs
        for group, runs in without_two_clients(found).items()
        if any(metric.of(runs[0]) is not None for metric in COSTS[:-1])
    }
    shown = (CIRCUIT_BUILD_TIME, *COSTS)
    return Table(
        title="Costs",
        columns=(
            *("variant", "scenario", runs_heading(groups)),
            *(metric.label for metric in shown),
        ),
        rows=tuple(
            (
                *(group.variant, group.label, runs_cell(group, runs, groups)),
                *(mean_cell(metric.by_seed(runs).values(), metric.digits) for metric in shown),
            )
            for group, runs in groups.items()
        ),
        note=(
            "Mean over runs ± standard deviation over runs. Connections, sockets and memory are"
            " those of the relay with the most; the sockets' memory is the mean over the run."
            " On the wire: whole frames on a link between relays, both ways, for each byte of"
            " payload. Processor: the host's seconds for the whole run, which say nothing about a"
            " relay's own."
        ),
    )
