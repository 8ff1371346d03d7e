"""A table as data, and its forms: for the terminal, as Markdown, as CSV.

The tables themselves are in `analysis.tables`.
"""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table as RichTable

from analysis.runs import Found

_SHORT = 24
"""The most characters of a cell that is never broken."""

_MANY, _BREAKS = 2, (" ±", " (")
"""Tables with more than `_MANY` columns of numbers stay narrow by breaking cells at `_BREAKS`."""


@dataclass(frozen=True)
class Table:
    """A table whose cells are the text that readers see.

    Attributes:
        columns: headings, with units.
        rows: a cell for each column.
        note: a paragraph that explains the table, or nothing.
        made_by: what made its runs, if other runs have the same table; see `Found.made_by`.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    made_by: str = ""

    @property
    def heading(self) -> str:
        """The title, with what made the runs if there is need."""
        return f"{self.title} ({self.made_by})" if self.made_by else self.title

    def with_maker(self) -> "Table":
        """The table with a first column for what made its runs, for formats without titles."""
        if not self.made_by:
            return self
        rows = tuple((self.made_by, *row) for row in self.rows)
        return replace(self, columns=("made by", *self.columns), rows=rows)

    def column(self, number: int) -> tuple[str, ...]:
        """The cells of a column, counted from 0."""
        return tuple(row[number] for row in self.rows)


TableMaker = Callable[[Found], Table]
"""Makes a table of runs; it has no rows if no runs fit it."""


def as_markdown(table: Table) -> str:
    """The table as Markdown, without title, note and final line break."""
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
    """The table for a terminal, with its note below."""
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
    """Print tables, separated by empty lines."""
    for number, table in enumerate(tables):
        if number:
            console.print()
        console.print(as_rich(table))


def _broken(cell: str, breaks: Sequence[str]) -> str:
    for place in breaks:
        cell = cell.replace(place, f"\n{place.lstrip()}")
    return cell


def _has_numbers(cells: Sequence[str]) -> bool:
    return all(cell[:1].isdigit() or cell[:1] in ("+", "-") for cell in cells)
