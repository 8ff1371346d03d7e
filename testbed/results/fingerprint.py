"""A run's fingerprint, one hash over its tables and its summary, and where two runs first differ.

It covers their contents and not their files' bytes: another version of polars writes the same rows
as other bytes. It leaves out the manifest, which says who made a run, when and with what.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import polars

from testbed.results.differences import leaves
from testbed.results.summary import SUMMARY

COST = "cost"
"""The summary's key for what depends on the speed of the host."""

_encoded = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode


@dataclass(frozen=True)
class Contents:
    """A run's contents: its tables by name, and `summary.json`."""

    tables: Mapping[str, polars.DataFrame]
    summary: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of `lines`, each followed by a newline."""
        total = hashlib.sha256()
        for line in self.lines():
            total.update(f"{line}\n".encode())
        return total.hexdigest()

    def lines(self) -> Iterator[str]:
        """The contents as JSON without spaces, in ASCII.

        For each table, sorted by name: its name, its columns, and its rows in their order. Then
        the summary's file name and the summary without `cost`, its keys sorted. A floating-point
        number has the fewest digits that tell it from its neighbours, as usual in Python and JSON.
        """
        for name, table in sorted(self.tables.items()):
            yield name
            yield _encoded(table.columns)
            yield from map(_encoded, table.iter_rows())
        yield SUMMARY
        yield _encoded(_without_cost(self.summary))


@dataclass(frozen=True)
class Difference:
    """A place at which two runs differ.

    Attributes:
        table: its name, or that of the summary's file.
        row: counted from 1; None in the summary, and for a column that one of the runs lacks.
        column: or the summary's key, such as "checks.3.observed"; None for a row that one lacks.
        one, other: the runs' values as JSON; `MISSING` if one has none.
    """

    table: str
    row: int | None
    column: str | None
    one: str
    other: str

    @property
    def place(self) -> str:
        """The place in words."""
        row = f"row {self.row}" if self.row else None
        return ", ".join(part for part in (self.table, row, self.column) if part)


MISSING = "missing"


def differing(one: Contents, other: Contents) -> Iterator[Difference]:
    """The first difference in each table, sorted by name, and then in the summary."""
    for name in sorted({*one.tables, *other.tables}):
        nothing = polars.DataFrame()
        tables = (one.tables.get(name, nothing), other.tables.get(name, nothing))
        if (found := next(_of_tables(name, *tables), None)) is not None:
            yield found
    if (found := next(_of_summaries(one.summary, other.summary), None)) is not None:
        yield found


def _of_tables(name: str, one: polars.DataFrame, other: polars.DataFrame) -> Iterator[Difference]:
    for column in dict.fromkeys([*one.columns, *other.columns]):
        there = ["there" if column in table.columns else MISSING for table in (one, other)]
        if MISSING in there:
            yield Difference(name, None, column, *there)
    for number, (row, other_row) in enumerate(zip_longest(one.iter_rows(), other.iter_rows()), 1):
        if row is None or other_row is None:
            yield Difference(name, number, None, _or_missing(row), _or_missing(other_row))
            return
        for column, value, other_value in zip(one.columns, row, other_row, strict=True):
            if _encoded(value) != _encoded(other_value):  # not by ==, for which 0.0 is -0.0
                yield Difference(name, number, column, _encoded(value), _encoded(other_value))


def _or_missing(row: tuple[Any, ...] | None) -> str:
    return MISSING if row is None else _encoded(row)


def _of_summaries(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Difference]:
    ones, others = (dict(leaves(_without_cost(each))) for each in (one, other))
    for key in dict.fromkeys([*ones, *others]):
        value, other_value = (each.get(key, MISSING) for each in (ones, others))
        if value != other_value:
            yield Difference(SUMMARY, None, key, value, other_value)


def _without_cost(summary: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in summary.items() if key != COST}
