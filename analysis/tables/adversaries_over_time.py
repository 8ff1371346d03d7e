"""How many clients have had a stream that relays saw at both ends, over the length of a run."""

from analysis.adversaries import PARTS, clients_over_time
from analysis.cells import mean_cell, of_drawn_networks
from analysis.runs import Found
from analysis.table import Table

ORDER = 62


def table(found: Found) -> Table:
    """A row for each variant of each drawn network's scenario."""
    rows = []
    for group, runs in of_drawn_networks(found).items():
        by_part = zip(*(clients_over_time(run) for run in runs), strict=True)
        cells = (
            mean_cell((None if share is None else 100 * share for share in shares), 2)
            for shares in by_part
        )
        lasted_s = runs[0].plan.traffic_s
        rows.append((group.scenario, group.variant, f"{len(runs)}", f"{lasted_s:g}", *cells))
    ends = (f"after {number}/{PARTS}" for number in range(1, PARTS))
    return Table(
        title="Drawn networks: clients with a stream that is seen, over the run",
        columns=("scenario", "variant", "runs", "traffic, s", *ends, "in the end"),
        rows=tuple(rows),
        note=(
            "The expected share of clients, in %, with any stream whose guard and exit are both"
            " malicious, each with a chance of a tenth, from the traffic's start on."
        ),
    )
