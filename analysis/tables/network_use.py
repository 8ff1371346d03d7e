"""How busy the relays of drawn networks and the links between them were."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple

from analysis.cells import mean_cell, of_drawn_networks
from analysis.runs import Found
from analysis.table import Table
from analysis.whole_networks import network_use
from testbed.results import Run

ORDER = 50


def table(found: Found) -> Table:
    """A row for each variant of each drawn network's scenario."""
    return Table(
        title="Drawn networks: links and relays",
        columns=(
            *("scenario", "variant", "runs", "active circuits", "active links"),
            *("of these shared, %", "undirected links", "of these shared, %"),
            *("relays' mean use, %", "busiest relay's, %"),
        ),
        rows=tuple(
            (group.scenario, group.variant, f"{len(runs)}", *_links_cells(runs))
            for group, runs in of_drawn_networks(found).items()
        ),
        note=(
            "A circuit is active in a second in which a cell crosses it, a link between two relays"
            " if a circuit on it is; it is shared if several are. Means over the seconds; the"
            " shares are of all links and seconds. Use is what a relay sent, as a share of its own"
            " rate."
        ),
    )


def _links_cells(runs: Sequence[Run]) -> Iterator[str]:
    """A cell for each attribute of `NetworkUse`, in order."""
    for values in zip(*(astuple(network_use(run)) for run in runs), strict=True):
        yield mean_cell(values, 1)
