"""Times, failures and goodput of the clients of drawn networks, by traffic model."""

from collections.abc import Callable, Sequence

from analysis.cells import mean_cell, of_drawn_networks
from analysis.runs import Found
from analysis.table import Table
from analysis.whole_networks import QUARTILES, ClientClass, client_class, models_of
from testbed.results import Run

ORDER = 40


def table(found: Found) -> Table:
    """A row for each scenario, variant and traffic model."""
    return Table(
        title="Drawn networks: what clients got, by class",
        columns=(
            *("scenario", "variant", "class", "clients", "runs"),
            *("first byte, s", "95 % within, s"),
            *("last byte, s", "middle half, s", "95 % within, s"),
            *("failed", "goodput, kB/s"),
        ),
        rows=tuple(
            (group.scenario, group.variant, *_class_cells(model, runs))
            for group, runs in of_drawn_networks(found).items()
            for model in models_of(runs[0])
        ),
        note=(
            "Mean over runs ± standard deviation over runs, each a network of its own. Times are a"
            " run's median, 95th percentile and quartiles (the middle half), of whole transfers."
            " Goodput is all payload that a client received while measuring, pauses included."
        ),
    )


def _class_cells(model: str, runs: Sequence[Run]) -> tuple[str, ...]:
    """The cells of one class of clients, over runs."""
    alike = [found for run in runs if (found := client_class(run, model))]

    def over_runs(of: Callable[[ClientClass], float | None], digits: int = 2) -> str:
        return mean_cell(map(of, alike), digits)

    quartiles = [mean_cell((one.last_byte_s[name] for one in alike), 2) for name in QUARTILES]
    failed = sum(one.failed for one in alike)
    transfers = sum(one.transfers for one in alike)
    return (
        *(model, over_runs(lambda one: one.clients, 0), f"{len(alike)}"),
        over_runs(lambda one: one.first_byte_s["median"]),
        over_runs(lambda one: one.first_byte_s["95 %"]),
        over_runs(lambda one: one.last_byte_s["median"]),
        " to ".join(quartiles),
        over_runs(lambda one: one.last_byte_s["95 %"]),
        f"{failed} of {transfers}",
        over_runs(lambda one: one.goodput_kb_per_s, 1),
    )
