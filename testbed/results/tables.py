"""The tables of a run, whose columns follow from the recorded rows in `inside.rows`."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import polars

from testbed.inside.rows import TABLES, Later

Schema = Mapping[str, type[polars.DataType]]

_KINDS: Mapping[type, type[polars.DataType]] = {
    str: polars.String,
    float: polars.Float64,
    int: polars.Int64,
    bool: polars.Boolean,
}


def columns_of(row: type) -> Iterator[tuple[str, type, tuple[Any, ...]]]:
    """Name, type and annotations of each column of a table, by the class of its rows."""
    hints = get_type_hints(row, include_extras=True)
    for field in fields(row):
        hint, notes = hints[field.name], ()
        if get_origin(hint) is Annotated:
            notes = hint.__metadata__
            hint = get_args(hint)[0]
        if isinstance(hint, UnionType):
            (hint,) = (part for part in get_args(hint) if part is not NoneType)
        yield field.name, hint, tuple(notes)


SCHEMAS: Mapping[str, Schema] = {
    table: {name: _KINDS[kind] for name, kind, _ in columns_of(row)}
    for table, row in TABLES.items()
}
"""Columns by table; all times are Unix times of the machine's clock."""

LATER_COLUMNS: Mapping[str, frozenset[str]] = {
    table: frozenset(name for name, _, notes in columns_of(row) if Later in notes)
    for table, row in TABLES.items()
}
"""Columns that older runs lack, by table; they are read as nulls."""


class HasTables(ABC):
    """An object with an attribute for each table of a run."""

    @abstractmethod
    def table(self, name: str) -> polars.DataFrame:
        """Return the table of that name, one of `SCHEMAS`."""

    def __getattr__(self, name: str) -> polars.DataFrame:
        if name not in SCHEMAS:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return self.table(name)


class Tables(HasTables):
    """The tables of a run in memory."""

    def __init__(self, tables: Mapping[str, polars.DataFrame]) -> None:
        self._tables = tables

    def table(self, name: str) -> polars.DataFrame:
        """Return the table of that name."""
        return self._tables[name]

    def items(self) -> Iterator[tuple[str, polars.DataFrame]]:
        """The name and the table of each."""
        yield from self._tables.items()
