"""Results as tables on the terminal and as CSV."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from salsa.simulation import Estimate, Result

if TYPE_CHECKING:  # importing it also imports everything that reads runs
    from salsa.observed import Agreement, Second

_MOST_PARTS_SHOWN = 8
_NOTHING = "-"


def print_results(console: Console, results: Sequence[Result]) -> None:
    """Print results: in full for one network and number of circuits, else in a row each."""
    networks = dict.fromkeys((one.network.consensus, one.case.circuits) for one in results)
    if len(networks) == 1:
        _print(console, _full_title(results[0]), _full(results))
        console.print()
        _print(console, "Links by the circuits that they carry, %", _distribution(results))
    else:
        settings = _settings(results[0])
        shares = _compared(results, lambda one: _with_interval(one.links.percent))
        _print(console, f"Shared links, %{settings}", shares)
        console.print()
        by_part = _compared(results, _by_part)
        _print(console, f"Of guard-middle and of middle-exit, %{settings}", by_part)
    console.print(_note(results), highlight=False)


def print_seconds(console: Console, seconds: Sequence["Second"], whole: "Agreement | None") -> None:
    """Print a run's shared links beside the simulated ones, second by second."""
    table = _table()
    for name in ("second", "circuits", "links", "shared, %", "simulated, %", "deviations"):
        table.add_column(name, justify="right")
    for one in seconds:
        off = _NOTHING if one.deviations is None else f"{one.deviations:+.1f}"
        cells = (one.second, one.circuits, one.links, f"{one.seen_percent:.1f}")
        table.add_row(*map(str, cells), _number(one.simulated_percent, 1), off)
    console.print(table)
    circuits = fmean(one.circuits for one in seconds)
    links = fmean(one.links for one in seconds)
    seen = fmean(one.seen_percent for one in seconds)
    simulated = fmean(one.simulated_percent.mean for one in seconds)
    console.print(
        f"Mean over {len(seconds)} seconds: {circuits:.0f} active circuits with {links:.0f} links;"
        f" {seen:.1f} % of the links were shared, {simulated:.1f} % in the simulation.",
        highlight=False,
    )
    if whole:
        console.print(whole.sentence, highlight=False)


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV (RFC 4180); the values of a list are separated by blanks."""
    file = io.StringIO()
    writer = csv.DictWriter(file, fieldnames=list(rows[0]))
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return file.getvalue()


def _print(console: Console, title: str, table: Table) -> None:
    """Print a table below its title, which may be wider than the table."""
    console.print(title, style="italic", markup=False, highlight=False)
    console.print(table)


def _full_title(result: Result) -> str:
    size = f"{result.network.relays} relays, {result.case.scaled_circuits} circuits"
    return f"{result.network.consensus}: {size}{_settings(result)}"


def _full(results: Sequence[Result]) -> Table:
    shown = _table()
    shown.add_column("")
    for one in results:
        shown.add_column(f"{one.case.kind}\n{one.case.direction}", justify="right")
    for label, cells in (
        ("shared links, %", [_with_interval(one.links.percent) for one in results]),
        ("  guard-middle, %", [_number(one.guard_middle.percent, 2) for one in results]),
        ("  middle-exit, %", [_number(one.middle_exit.percent, 2) for one in results]),
        ("shared links", [_number(one.links.shared) for one in results]),
        ("links", [_number(one.links.links) for one in results]),
        ("circuits with one\n  shared link", [_number(one.circuits_with_one) for one in results]),
        ("circuits with two", [_number(one.circuits_with_two) for one in results]),
    ):
        shown.add_row(label, *cells)
    return shown


def _distribution(results: Sequence[Result]) -> Table:
    shown = _table()
    shown.add_column("circuits", justify="right")
    for one in results:
        shown.add_column(f"{one.case.kind}\n{one.case.direction}", justify="right")
    for parts in range(1, _MOST_PARTS_SHOWN + 1):
        cells = [_share_of_links(one, parts) for one in results]
        shown.add_row(str(parts) if parts < _MOST_PARTS_SHOWN else f"{parts} or more", *cells)
    return shown


def _share_of_links(result: Result, parts: int) -> str:
    if not result.by_parts:
        return _NOTHING
    last = len(result.by_parts) if parts == _MOST_PARTS_SHOWN else parts
    links = sum(one.mean for one in result.by_parts[parts - 1 : last])
    return f"{100 * links / result.links.links.mean:.4f}"


def _compared(results: Sequence[Result], cell: Callable[[Result], str]) -> Table:
    """A row for each network and number of circuits, a column for each kind and direction."""
    shown = _table()
    shown.add_column("consensus", overflow="fold")
    shown.add_column("relays", justify="right")
    shown.add_column("circuits", justify="right")
    headings = dict.fromkeys(f"{one.case.kind}\n{one.case.direction}" for one in results)
    for heading in headings:
        shown.add_column(heading, justify="right")
    for _, of_row in groupby(results, lambda one: (one.network.consensus, one.case.circuits)):
        row = list(of_row)
        first = row[0]
        circuits = str(first.case.scaled_circuits)
        shown.add_row(first.network.consensus, str(first.network.relays), circuits, *map(cell, row))
    return shown


def _by_part(result: Result) -> str:
    return f"{result.guard_middle.percent.mean:.2f} | {result.middle_exit.percent.mean:.2f}"


def _table() -> Table:
    return Table(box=None, pad_edge=False)


def _settings(result: Result) -> str:
    """The settings that differ from the paper's plain case, for a title."""
    case = result.case
    settings = [
        f"scale {case.scale:g}" if case.scale < 1 else "",
        f"{result.network.exits} exits for {case.exit_class}" if case.exit_class else "",
        f"{case.per_client} circuits a client" if case.per_client > 1 else "",
        f"{case.guards} guards a client" if case.guards > 1 else "",
        f"rules: {', '.join(sorted(case.rules))}" if case.rules else "",
    ]
    return "".join(f"; {words}" for words in settings if words)


def _note(results: Sequence[Result]) -> str:
    seeds = results[0].seeds
    if seeds == 0:
        return "Expected values in closed form."
    if seeds == 1:
        return "One simulation."
    return f"Mean ± standard deviation of {seeds} simulations; 95 % interval of the mean."


def _with_interval(estimate: Estimate) -> str:
    text = _number(estimate, 2)
    if estimate.low is None:
        return text
    return f"{text}\n{estimate.low:.2f} to {estimate.high:.2f}"


def _number(estimate: Estimate | None, digits: int = 0) -> str:
    if estimate is None:
        return _NOTHING
    text = f"{estimate.mean:.{digits}f}"
    return text if estimate.deviation is None else f"{text} ± {estimate.deviation:.{digits}f}"


def _cell(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, list) else value
