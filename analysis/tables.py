"""Tables over many runs as data, and how they look: on the terminal, as Markdown, as CSV.

No run directory is looked for here, and no figure is drawn.
"""

import csv
import io
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace

from rich.console import Console
from rich.table import Table as RichTable

from analysis.metrics import (
    CIRCUIT_BUILD_TIME,
    CIRCUIT_ROUND_TRIP,
    COSTS,
    JAIN_INDEX,
    LARGEST_DIFFERENCE,
    LOAD_TIME,
    STREAM_ROUND_TRIP,
    THROUGHPUT,
    THROUGHPUT_WITHOUT_OUTLIERS,
    Metric,
    outliers_percent,
)
from analysis.order import BASELINE, TWO_CLIENTS
from analysis.runs import Found, Group
from analysis.statistics import MeanOverRuns
from analysis.whole_networks import (
    QUARTILES,
    ClientClass,
    client_class,
    is_drawn,
    models_of,
    network_use,
)
from analysis.wording import mean_text, percent
from testbed.results import Run

_SHORT = 24
"""Characters of a cell that is never broken."""

_MANY, _BREAKS = 2, (" ±", " (")
"""A table with more columns of numbers than that is narrow only if its cells are broken here."""


@dataclass(frozen=True)
class Table:
    """A table whose cells are what a reader sees.

    Attributes:
        columns: headings, with units.
        rows: as many cells each as there are columns.
        note: what the reader must know to read it; one paragraph, or nothing.
        made_by: what made its runs, if there are such tables of others too; see `Found.made_by`.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    made_by: str = ""

    @property
    def heading(self) -> str:
        """The title, and what made its runs if that must be said."""
        return f"{self.title} ({self.made_by})" if self.made_by else self.title

    def with_maker(self) -> "Table":
        """For where no title is shown: a first column says what made the runs, if it must."""
        if not self.made_by:
            return self
        rows = tuple((self.made_by, *row) for row in self.rows)
        return replace(self, columns=("made by", *self.columns), rows=rows)

    def column(self, number: int) -> tuple[str, ...]:
        """The cells of a column, counted from 0."""
        return tuple(row[number] for row in self.rows)


TableMaker = Callable[[Found], Table]
"""Makes a table of runs; it has no rows if there are no runs for it."""


def as_markdown(table: Table) -> str:
    """The table as Markdown, without title and note, and without a line's end at its end."""
    table = table.with_maker()
    rules = [
        "---:" if _has_numbers(table.column(number)) else "---"
        for number in range(len(table.columns))
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [table.columns, rules, *table.rows])


def as_csv(table: Table) -> str:
    """The columns' names and the rows as CSV (RFC 4180)."""
    table = table.with_maker()
    file = io.StringIO()
    csv.writer(file).writerows([table.columns, *table.rows])
    return file.getvalue()


def as_rich(table: Table) -> RichTable:
    """The table for a terminal, its note below it."""
    columns = [table.column(number) for number in range(len(table.columns))]
    numbers = [_has_numbers(cells) for cells in columns]
    breaks = _BREAKS if sum(numbers) > _MANY else ()
    shown = RichTable(
        title=table.heading,
        title_justify="left",
        caption=table.note or None,
        caption_justify="left",
        box=None,
        pad_edge=False,
        collapse_padding=bool(breaks),
    )
    for heading, cells, has_numbers in zip(table.columns, columns, numbers, strict=True):
        shown.add_column(
            heading.replace(", ", "\n").replace(" ", "\n") if has_numbers else heading,
            justify="right" if has_numbers else "left",
            overflow="fold",
            no_wrap=not has_numbers and max(map(len, cells), default=0) <= _SHORT,
        )
    for row in table.rows:
        shown.add_row(*(_broken(cell, breaks) for cell in row))
    return shown


def print_tables(console: Console, tables: Sequence[Table]) -> None:
    """Print tables one below the other, an empty line between two."""
    for number, table in enumerate(tables):
        if number:
            console.print()
        console.print(as_rich(table))


def run_tables(found: Found, of_papers: Sequence[TableMaker] = ()) -> list[Table]:
    """Every table that there are rows for, of runs that stand apart by themselves.

    Args:
        of_papers: what makes tables that hold runs against papers; they come first.
    """
    makers = (
        *of_papers,
        *(throughput_table, clients_table, costs_table, classes_table, shared_links_table),
    )
    return [
        replace(table, made_by=part.made_by)
        for part in found.parts
        for table in (make(part) for make in makers)
        if table.rows
    ]


def throughput_table(found: Found) -> Table:
    """Throughput, round trips and build time of every scenario but those of two clients."""
    groups = _of_eight_clients(found)
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


def clients_table(found: Found) -> Table:
    """Loads of several transfers, outliers, and how alike the clients fared."""
    groups = {
        group: runs
        for group, runs in _of_eight_clients(found).items()
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


def costs_table(found: Found) -> Table:
    """What each variant takes for what it gives."""
    groups = {
        group: runs
        for group, runs in _of_eight_clients(found).items()
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


def classes_table(found: Found) -> Table:
    """What the clients of drawn networks got, by traffic model."""
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
            for group, runs in _of_drawn_networks(found).items()
            for model in models_of(runs[0])
        ),
        note=(
            "Mean over runs ± standard deviation over runs, each a network of its own. Times are a"
            " run's median, 95th percentile and quartiles (the middle half), of whole transfers."
            " Goodput is all payload that a client received while measuring, pauses included."
        ),
    )


def _class_cells(model: str, runs: Sequence[Run]) -> tuple[str, ...]:
    """Of one class in several runs."""
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


def shared_links_table(found: Found) -> Table:
    """How busy the relays of drawn networks and the links between them were."""
    return Table(
        title="Drawn networks: links and relays",
        columns=(
            *("scenario", "variant", "runs", "active circuits", "active links"),
            *("of these shared, %", "undirected links", "of these shared, %"),
            *("relays' mean use, %", "busiest relay's, %"),
        ),
        rows=tuple(
            (group.scenario, group.variant, f"{len(runs)}", *_links_cells(runs))
            for group, runs in _of_drawn_networks(found).items()
        ),
        note=(
            "A circuit is active in a second in which a cell crosses it, a link between two relays"
            " if a circuit on it is; it is shared if several are. Means over the seconds; the"
            " shares are of all links and seconds. Use is what a relay sent, by its own rate."
        ),
    )


def _links_cells(runs: Sequence[Run]) -> Iterator[str]:
    """A cell for each of the figures of `NetworkUse`, in their order."""
    for values in zip(*(astuple(network_use(run)) for run in runs), strict=True):
        yield mean_cell(values, 1)


def _of_drawn_networks(found: Found) -> dict[Group, Sequence[Run]]:
    """The runs of drawn networks, whose figures need the runs' tables."""
    drawn = {
        group: [run for run in runs if run.is_whole]
        for group, runs in found.valid.items()
        if is_drawn(runs[0])
    }
    return {group: runs for group, runs in drawn.items() if runs}


def left_out_table(found: Found) -> Table:
    """Which runs don't count, and why."""
    rows = tuple((line,) for line in found.left_out)
    return Table(title="Left out", columns=("run and reason",), rows=rows)


def _of_eight_clients(found: Found) -> dict[Group, Sequence[Run]]:
    """The runs of all scenarios but those of two clients."""
    return {group: runs for group, runs in found.valid.items() if group.scenario not in TWO_CLIENTS}


def runs_heading(groups: Collection[Group]) -> str:
    """The heading of the numbers of runs; it has the runs' duration if all have the same."""
    durations_s = {group.duration_s for group in groups}
    return f"runs of {durations_s.pop():g} s" if len(durations_s) == 1 else "runs"


def runs_cell(group: Group, runs: Sequence[Run], groups: Collection[Group]) -> str:
    """The cell with the number of a group's runs; with their duration if the heading lacks it."""
    alike = len({group.duration_s for group in groups}) == 1
    return f"{len(runs)}" if alike else f"{len(runs)} of {group.duration_s:g} s"


def mean_cell(values: Iterable[float | None], digits: int) -> str:
    """A cell with mean and deviation over runs."""
    return mean_text(MeanOverRuns.of(values), digits)


def baseline_of(found: Found, group: Group) -> Sequence[Run]:
    """The runs that a group's change is against; none if there are none."""
    return found.valid.get(group.baseline, ())


def against(metric: Metric, runs: Sequence[Run], baseline: Sequence[Run]) -> str:
    """The mean of runs, and in brackets the change against the baseline's mean."""
    figure, base = (MeanOverRuns.of(metric.by_seed(each).values()) for each in (runs, baseline))
    text = mean_text(figure, metric.digits)
    if figure is None or base is None or runs is baseline:
        return text
    return f"{text} ({percent(figure.mean / base.mean - 1)})"


def _broken(cell: str, breaks: Sequence[str]) -> str:
    for place in breaks:
        cell = cell.replace(place, f"\n{place.lstrip()}")
    return cell


def _has_numbers(cells: Sequence[str]) -> bool:
    return all(cell[:1].isdigit() or cell[:1] in ("+", "-") for cell in cells)
