"""Tables over many runs as data, and how they look: on the terminal, as Markdown, as CSV.

No run directory is looked for here, and no figure is drawn.
"""

import csv
import io
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import add
from statistics import fmean

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
    TIME_TO_LAST_BYTE,
    TIME_TO_LAST_BYTE_MEDIAN,
    TIME_TO_LAST_BYTE_P95,
    Metric,
    outliers_percent,
    streamed,
    transfers,
)
from analysis.published import (
    BASELINE,
    TABLE_4,
    TABLE_4_TRAFFIC,
    TWO_CLIENTS,
    WAYS,
    Published,
)
from analysis.runs import SCENARIO_ORDER, Found, Group
from analysis.statements import judged_statements
from analysis.statistics import MeanOverRuns
from analysis.whole_networks import (
    QUARTILES,
    ClientClass,
    client_classes,
    is_drawn,
    links_by_second,
    relays_use,
    shared_percent,
)
from analysis.wording import NOTHING, mean_text, percent
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


def run_tables(found: Found) -> list[Table]:
    """Every table that there are rows for, of runs that stand apart by themselves."""
    return [
        replace(table, made_by=part.made_by)
        for part in found.parts
        for table in (
            table_4(part),
            throughput_table(part),
            clients_table(part),
            costs_table(part),
            two_clients_table(part),
            statements_table(part),
            classes_table(part),
            shared_links_table(part),
        )
        if table.rows
    ]


def throughput_table(found: Found) -> Table:
    """Throughput, round trips and build time of every scenario but those of two clients."""
    groups = _of_eight_clients(found)
    metrics = (THROUGHPUT, STREAM_ROUND_TRIP, CIRCUIT_ROUND_TRIP, CIRCUIT_BUILD_TIME)
    return Table(
        title="Throughput and round trips",
        columns=(
            *("variant", "scenario", _runs_heading(groups)),
            *(metric.label for metric in metrics),
        ),
        rows=tuple(
            (
                *(group.variant, group.label, _runs(group, runs, groups)),
                *(_against(metric, runs, _baseline(found, group)) for metric in metrics),
            )
            for group, runs in groups.items()
        ),
        note=(
            "Mean over runs ± standard deviation over runs; in brackets the change against the same"
            f" variant's {BASELINE}. The stream's round trip is from a transfer's request to the"
            " server's answer, before data. The circuit's is that of a probe beside the load, once"
            " a second."
        ),
    )


def table_4(found: Found) -> Table:
    """Each figure of the paper's Table 4 beside the ways in which it is measured here."""
    return Table(
        title="Table 4 of Examining the Hydra",
        columns=("variant", "scenario", "unit", "paper", "2009 study", *WAYS),
        rows=tuple(
            (*names, metric.unit, *_published(figure, metric), *ours)
            for names, row in TABLE_4.items()
            for metric, figure in (
                (THROUGHPUT, row.throughput_mb_per_s),
                (STREAM_ROUND_TRIP, row.stream_round_trip_ms),
            )
            if set(ours := _in_each_way(found, names, metric, figure)) != {NOTHING}
        ),
        note=(
            f"MB/s is the {THROUGHPUT.name} of a 5 MB transfer, ms the {STREAM_ROUND_TRIP.name}."
            " Mean ± standard deviation, ours over runs; in brackets the change against the same"
            f" variant's {BASELINE}. With a star, ours lies within the paper's ±. The 2009 study is"
            " that of Reardon and Goldberg, which the paper repeats."
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
            *("variant", "scenario", _runs_heading(groups)),
            *(metric.label for metric in shown),
            "outliers, %",
            *(metric.label for metric in fair),
        ),
        rows=tuple(
            (
                *(group.variant, group.label, _runs(group, runs, groups)),
                *(_over_runs(metric.by_seed(runs).values(), metric.digits) for metric in shown),
                _over_runs(map(outliers_percent, runs), 1),
                *(_over_runs(metric.by_seed(runs).values(), metric.digits) for metric in fair),
            )
            for group, runs in groups.items()
        ),
        note=(
            "Mean over runs ± standard deviation over runs. A load is what begins together, until"
            " the last of it has ended. Outliers are transfers whose throughput is outside Tukey's"
            " fences, 1.5 interquartile ranges beyond the quartiles of their run; all other columns"
            " contain them. Jain's index is 1 if all clients get as much, by the mean throughput of"
            " each; the largest difference is between two clients, in percent of the faster one."
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
            *("variant", "scenario", _runs_heading(groups)),
            *(metric.label for metric in shown),
        ),
        rows=tuple(
            (
                *(group.variant, group.label, _runs(group, runs, groups)),
                *(_over_runs(metric.by_seed(runs).values(), metric.digits) for metric in shown),
            )
            for group, runs in groups.items()
        ),
        note=(
            "Mean over runs ± standard deviation over runs. Connections, sockets and memory are of"
            " the relay that has most; of the sockets' memory it is the mean over the run. On the"
            " wire: whole frames on a link between relays, both ways, for each byte of payload."
            " Processor: seconds of the host for the whole run, which says nothing of relays' own."
        ),
    )


def two_clients_table(found: Found) -> Table:
    """What the client under test saw in scenarios One, Two and Three, by traffic model."""
    groups = sorted(
        (group for group in found.valid if group.scenario in TWO_CLIENTS),
        key=lambda group: (SCENARIO_ORDER.index(group.scenario), *group.place[1:3]),
    )
    return Table(
        title="Two clients, by traffic model of the one under test",
        columns=(
            *("scenario", "traffic", "variant", _runs_heading(groups)),
            *("time to last byte, s", "95 % within, s"),
            *(STREAM_ROUND_TRIP.label, CIRCUIT_ROUND_TRIP.label, "transfers"),
            *("delivered, kB/s", "stalls a minute", "time stalled, %"),
        ),
        rows=tuple(
            (
                *(group.scenario, group.traffic, group.variant),
                _runs(group, found.valid[group], groups),
                *_two_clients_figures(found.valid[group]),
            )
            for group in groups
        ),
        note=(
            "Mean over runs ± standard deviation over runs, of the client that runs the traffic"
            " model; the other one always runs bulk, and where it is bulk too, both count. Times to"
            " last byte are a run's median and 95th percentile. Delivered and stalls are of the"
            " seconds that lie wholly between first and last byte of a transfer; a stall is one or"
            " more of them in a row with less than 95 % of the model's rate."
        ),
    )


def statements_table(found: Found) -> Table:
    """The paper's statements on two clients, and whether these runs bear them out."""
    return Table(
        title="What the paper says of two clients",
        columns=("statement", "verdict", "in these runs"),
        rows=tuple(
            (statement.text, statement.verdict, statement.numbers)
            for statement in judged_statements(found)
        ),
        note=(
            "pctls against vanilla, with the 95 % confidence interval of the change in brackets."
            " A statement on several models holds if it holds for each."
        ),
    )


def classes_table(found: Found) -> Table:
    """What the clients of drawn networks got, by traffic model."""
    return Table(
        title="Drawn networks: what clients got, by class",
        columns=(
            *("scenario", "variant", "class", "clients", "runs"),
            *("first byte, s", "95 % within, s"),
            *("last byte, s", "half of them, s", "95 % within, s"),
            *("failed", "goodput, kB/s"),
        ),
        rows=tuple(
            (group.scenario, group.variant, *cells)
            for group, runs in _of_drawn_networks(found).items()
            for alike in zip(*map(client_classes, runs), strict=True)
            for cells in [_class_cells(alike)]
        ),
        note=(
            "Mean over runs ± standard deviation over runs, each a network of its own. Times are a"
            " run's median, 95th percentile and quartiles, of whole transfers. Goodput is a"
            " client's payload by the time that was measured, pauses included."
        ),
    )


def _class_cells(alike: Sequence[ClientClass]) -> tuple[str, ...]:
    """Of one class in several runs."""

    def over_runs(of: Callable[[ClientClass], float | None], digits: int = 2) -> str:
        return _over_runs(map(of, alike), digits)

    quartiles = [_over_runs((one.last_byte_s[name] for one in alike), 2) for name in QUARTILES]
    failed = sum(one.failed for one in alike)
    transfers = sum(one.transfers for one in alike)
    return (
        *(alike[0].model, over_runs(lambda one: one.clients, 0), f"{len(alike)}"),
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
            " shares are of all links and seconds. Use is of a relay's own rate upwards."
        ),
    )


def _links_cells(runs: Sequence[Run]) -> list[str]:
    seconds = [links_by_second(run) for run in runs]
    uses = [relays_use(run)["use"] for run in runs]
    shares = {which: [shared_percent(run, which) for run in runs] for which in ("", "undirected_")}
    columns: list[Sequence[float | None]] = [
        [_mean_of(one["circuits"]) for one in seconds],
        [_mean_of(one["links"]) for one in seconds],
        shares[""],
        [_mean_of(one["undirected_links"]) for one in seconds],
        shares["undirected_"],
        [100 * _mean_of(use) for use in uses],
        [100 * max(use, default=0.0) for use in uses],
    ]
    return [mean_text(MeanOverRuns.of(values), 1) for values in columns]


def _mean_of(values: Iterable[float]) -> float:
    known = list(values)
    return fmean(known) if known else 0.0


def _of_drawn_networks(found: Found) -> dict[Group, Sequence[Run]]:
    return {group: runs for group, runs in found.valid.items() if is_drawn(runs[0])}


def left_out_table(found: Found) -> Table:
    """Which runs don't count, and why."""
    rows = tuple((line,) for line in found.left_out)
    return Table(title="Left out", columns=("run and reason",), rows=rows)


def _of_eight_clients(found: Found) -> dict[Group, Sequence[Run]]:
    """The runs of all scenarios but those of two clients."""
    return {group: runs for group, runs in found.valid.items() if group.scenario not in TWO_CLIENTS}


def _runs_heading(groups: Collection[Group]) -> str:
    """The heading of the numbers of runs; it has the runs' duration if all have the same."""
    durations_s = {group.duration_s for group in groups}
    return f"runs of {durations_s.pop():g} s" if len(durations_s) == 1 else "runs"


def _runs(group: Group, runs: Sequence[Run], groups: Collection[Group]) -> str:
    alike = len({group.duration_s for group in groups}) == 1
    return f"{len(runs)}" if alike else f"{len(runs)} of {group.duration_s:g} s"


def _two_clients_figures(runs: Sequence[Run]) -> tuple[str, ...]:
    streams = [one for one in map(streamed, runs) if one]
    return (
        _over_runs(TIME_TO_LAST_BYTE_MEDIAN.by_seed(runs).values(), TIME_TO_LAST_BYTE.digits),
        _over_runs(TIME_TO_LAST_BYTE_P95.by_seed(runs).values(), TIME_TO_LAST_BYTE.digits),
        _over_runs(STREAM_ROUND_TRIP.by_seed(runs).values(), STREAM_ROUND_TRIP.digits),
        _over_runs(CIRCUIT_ROUND_TRIP.by_seed(runs).values(), CIRCUIT_ROUND_TRIP.digits),
        _over_runs([transfers(run).height for run in runs], 0),
        _over_runs([one.rate_kb_per_s for one in streams], 1),
        _over_runs([one.stalls_a_minute for one in streams], 1),
        _over_runs([one.stalled_percent for one in streams], 1),
    )


def _over_runs(values: Iterable[float | None], digits: int) -> str:
    return mean_text(MeanOverRuns.of(values), digits)


def _baseline(found: Found, group: Group) -> Sequence[Run]:
    return found.valid.get(group.baseline, ())


def _in_each_way(
    found: Found, names: tuple[str, str], metric: Metric, published: Published
) -> list[str]:
    """What was measured for a figure of Table 4 in each of `WAYS`; of the longest runs."""
    cells = []
    for ends in WAYS.values():
        wanted = (*map(add, names, ends), TABLE_4_TRAFFIC)
        groups = [one for one in found.valid if (one.variant, one.scenario, one.traffic) == wanted]
        group = max(groups, key=lambda one: one.duration_s, default=None)
        cells.append(_beside_published(found, group, metric, published) if group else NOTHING)
    return cells


def _beside_published(found: Found, group: Group, metric: Metric, published: Published) -> str:
    """Ours, with a star if its mean lies within the paper's ±."""
    runs = found.valid[group]
    figure = MeanOverRuns.of(metric.by_seed(runs).values())
    within = figure is not None and abs(figure.mean - published.mean) <= published.deviation
    mean, space, rest = _against(metric, runs, _baseline(found, group)).partition(" ")
    return f"{mean}{'*' if within else ''}{space}{rest}"


def _against(metric: Metric, runs: Sequence[Run], baseline: Sequence[Run]) -> str:
    """The figure of runs, and in brackets the change against the baseline's mean."""
    figure, base = (MeanOverRuns.of(metric.by_seed(each).values()) for each in (runs, baseline))
    text = mean_text(figure, metric.digits)
    if figure is None or base is None or runs is baseline:
        return text
    return f"{text} ({percent(figure.mean / base.mean - 1)})"


def _published(figure: Published, metric: Metric) -> tuple[str, str]:
    """The paper's figure with its change in brackets, and the 2009 study's change."""
    text = mean_text(MeanOverRuns(figure.mean, figure.deviation), metric.digits)
    change = f" ({_printed(figure.change)})" if figure.change else ""
    return f"{text}{change}", _printed(figure.change_2009)


def _printed(change: float) -> str:
    """A published change with the digits that it was published with."""
    return f"{round(100 * change, 1):+g} %" if change else "0 %"


def _broken(cell: str, breaks: Sequence[str]) -> str:
    for place in breaks:
        cell = cell.replace(place, f"\n{place.lstrip()}")
    return cell


def _has_numbers(cells: Sequence[str]) -> bool:
    return all(cell[:1].isdigit() or cell[:1] in ("+", "-") for cell in cells)
