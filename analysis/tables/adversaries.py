"""What adversaries at both ends of circuits see of drawn networks' streams."""

from collections.abc import Callable, Sequence

from analysis.adversaries import Seen, seen
from analysis.cells import mean_cell, of_drawn_networks
from analysis.runs import Found
from analysis.table import Table
from testbed.results import Run

ORDER = 60


def table(found: Found) -> Table:
    """A row for each variant of each drawn network's scenario."""
    return Table(
        title="Drawn networks: what is seen at both ends",
        columns=(
            *("scenario", "variant", "runs", "streams"),
            *("guard and exit malicious, expected, %", "deviation, %"),
            *("median of ten draws, %", "mean of ten draws, %"),
            *("clients with such a stream, expected, %", "one country at both ends, %"),
            *("guards, bit", "exits, bit", "a client's circuits, bit"),
        ),
        rows=tuple(
            (group.scenario, group.variant, f"{len(runs)}", *_cells(runs))
            for group, runs in of_drawn_networks(found).items()
        ),
        note=(
            "A tenth of the guards' weight and of the exits' is malicious. Expected: each guard and"
            " each exit is with a chance of a tenth, so that the share of streams is 1 % whatever"
            " chooses circuits; what differs is its deviation, and how many clients have any. A"
            " draw takes relays in random order up to a tenth of the weight or just above. A"
            " country is at both ends if it has client or guard, and exit or server. Bits are"
            " entropies over streams. Streams are the traffic's, with those of the warm-up."
        ),
    )


def _cells(runs: Sequence[Run]) -> tuple[str, ...]:
    """The cells of the columns after the number of runs."""
    alike = [found for run in runs if (found := seen(run))]

    def over_runs(of: Callable[[Seen], float | None], digits: int) -> str:
        return mean_cell(map(of, alike), digits)

    def percent(of: Callable[[Seen], float | None]) -> str:
        return over_runs(lambda one: None if (share := of(one)) is None else 100 * share, 2)

    return (
        over_runs(lambda one: one.streams, 0),
        percent(lambda one: one.expected),
        percent(lambda one: one.deviation),
        percent(lambda one: one.median_of_draws),
        percent(lambda one: one.mean_of_draws),
        percent(lambda one: one.clients),
        percent(lambda one: one.one_country),
        over_runs(lambda one: one.guards_bit, 2),
        over_runs(lambda one: one.exits_bit, 2),
        over_runs(lambda one: one.circuits_bit, 2),
    )
