"""What relays of drawn networks gain that lie about round trips."""

from analysis.cells import mean_cell, of_drawn_networks
from analysis.liars import Compared, Share, by_seed, compared
from analysis.runs import Found
from analysis.statistics import change
from analysis.table import Table
from analysis.wording import change_text

ORDER = 61


def table(found: Found) -> Table:
    """A row for each variant of each drawn network's scenario with liars."""
    return Table(
        title="Drawn networks: relays that lie about round trips",
        columns=(
            *("scenario", "variant", "runs", "liars, % of the weight"),
            *("streams with a liar as guard, %", "as middle, %", "as exit, %"),
            *("as guard and exit, %", "anywhere, %", "the same relays without lies, anywhere, %"),
            "change",
        ),
        rows=tuple(
            (*names, f"{len(runs)}", *_cells(runs))
            for names, runs in compared(of_drawn_networks(found)).items()
        ),
        note=(
            "A liar hides the time that measured cells would have waited at it. Without lies: in"
            " the runs with the same seeds that differ only in paths.liars and paths.liars_hide;"
            ' "-" where there are none.'
        ),
    )


def _cells(runs: list[Compared]) -> tuple[str, ...]:
    """The cells of the columns after the number of runs."""
    shares = [share for one in runs if (share := one.with_lies)]

    def percent(position: str) -> str:
        return mean_cell((100 * float(getattr(share, position)) for share in shares), 1)

    with_lies = by_seed(runs, lambda one: one.with_lies)
    without = by_seed(runs, lambda one: one.without)
    return (
        mean_cell((100 * one.weight for one in runs), 1),
        *map(percent, Share.__dataclass_fields__),
        mean_cell((100 * share for share in without.values()), 1),
        change_text(change(without, with_lies)),
    )
