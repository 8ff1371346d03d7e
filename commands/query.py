r"""Answer a question about runs' tables, asked in SQL.

Reads the tables of one run or several; prints the answer and changes nothing.

```sh
./run.py query results/SharedDropping/vanilla/seed-1 "SELECT node, AVG(cwnd_segments) AS window, \
    AVG(rtt_ms) AS rtt FROM sockets GROUP BY node"
```

Tables have the names of [their files](tables.md); the dialect is that of
[polars](https://docs.pola.rs/api/python/stable/reference/sql/index.html). With several runs the
column `run` says which one a row is from.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import polars
from rich.console import Console

from analysis.table import Table, print_tables
from commands import _options
from testbed.basics.ending import VALID
from testbed.basics.errors import InputError
from testbed.results import read_run
from testbed.results.tables import SCHEMAS

EPILOG = "tables and their columns: docs/tables.md"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of `query`."""
    parser.add_argument(
        "runs",
        metavar="RUN",
        type=Path,
        nargs="+",
        help="a run's directory; with several, the column run says which one a row is from",
    )
    parser.add_argument(
        "question",
        metavar="SQL",
        help="such as 'SELECT node, AVG(rtt_ms) FROM sockets GROUP BY node'",
    )
    _options.add_formats(parser)


def run(given: argparse.Namespace, _messages: Console) -> int:
    """Print the rows of the answer."""
    rows = answer(given.runs, given.question)
    if given.json:
        print(json.dumps(rows.to_dicts(), indent=1, default=str))
    elif given.csv:
        print(_as_csv(rows), end="")
    else:
        cells = tuple(tuple(map(_cell, row)) for row in rows.rows())
        print_tables(Console(), [Table("", tuple(rows.columns), cells)])
    return VALID


def answer(runs: Sequence[Path], question: str) -> polars.DataFrame:
    """The rows that answer a question in SQL, in the dialect of `polars.SQLContext`.

    Args:
        runs: directories; each table has the rows of all, with the directory in the column `run`.

    Raises:
        InputError: it is no SELECT, or names a table or column that isn't there.
        TestbedError: a run can't be read.
    """
    if question.split(maxsplit=1)[:1] not in (["SELECT"], ["select"], ["WITH"], ["with"]):
        raise InputError(f'query "{question}": a question begins with SELECT')
    read = {str(folder): read_run(folder) for folder in runs}
    tables = {
        name: polars.concat(
            one.table(name).lazy().with_columns(polars.lit(folder).alias("run"))
            for folder, one in read.items()
        )
        for name in SCHEMAS
        if name in question
    }
    try:
        found: polars.DataFrame = polars.SQLContext(tables, eager=True).execute(question)
    except polars.exceptions.PolarsError as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f'query "{question}": {reason} (tables: {", ".join(SCHEMAS)};'
            " their columns: ./run.py reference tables)"
        ) from None
    return found


def _as_csv(rows: polars.DataFrame) -> str:
    if lists := [name for name, kind in rows.schema.items() if kind.is_nested()]:
        raise InputError(f"--csv: {lists[0]} has lists, which CSV can't have: take --json")
    return rows.write_csv()


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
