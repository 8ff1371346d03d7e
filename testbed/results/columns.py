"""The page docs/tables.md, which describes the columns of a run's tables."""

import inspect
from collections.abc import Iterator

from testbed.inside.rows import TABLES, Later
from testbed.results.tables import columns_of

_HEAD = """\
# The tables of a run

Each table is `NAME.parquet` in the run directory, and `run.NAME` [from Python](python.md). Times
are in seconds by the machine's clock. A column is null where its description says so, where there
is no value, and in runs made before it was recorded. `./run.py reference tables` prints this
page."""

_ABOUT = {str: "text", float: "number", int: "whole number", bool: "true or false"}


def columns_markdown() -> str:
    """The page as Markdown: for each table what a row is, and what each column means."""
    return "\n\n".join([_HEAD, *("\n".join(_lines(*one)) for one in TABLES.items())]) + "\n"


def _lines(table: str, row: type) -> Iterator[str]:
    yield f"## {table}"
    yield ""
    yield inspect.cleandoc(row.__doc__ or "")
    yield ""
    yield "| column | type | |"
    yield "|---|---|---|"
    for name, kind, notes in columns_of(row):
        text = "; ".join(note for note in notes if note != Later)
        yield f"| `{name}` | {_ABOUT[kind]} | {text} |"
