r"""Print of how many streams one autonomous system sees both ends.

```sh
./run.py adversaries results/ --as-numbers docs/examples/as-numbers.csv \
    --as-relationships docs/examples/as-relationships.txt
```

It needs runs of drawn networks with their tables, the AS of each node, and the relationships of
ASes as [CAIDA publishes them](adversaries.md#one-autonomous-system). What other adversaries learn
is among the [tables](#tables) of the runs, and in their report.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from analysis.adversaries import streams_of
from analysis.as_numbers import Numbers, SeenByAs, read_numbers, seen_by_as
from analysis.as_relationships import Relationships, read_relationships
from analysis.cells import mean_cell, of_drawn_networks
from analysis.runs import Found, find_runs
from analysis.table import Table, as_csv, print_tables
from commands import _options
from commands._found import tell_left_out, tell_parts, tell_summaries
from testbed.basics.console import say
from testbed.basics.ending import VALID
from testbed.results import Run

_COLUMNS = {
    "one_way": "one AS at both ends,\ntowards the server, %",
    "both_ways": "either way, %",
    "most": "the AS that\nsees most, %",
    "without_path": "without a path, %",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of `adversaries`."""
    _options.add_directory(parser)
    parser.add_argument(
        "--as-numbers",
        type=Path,
        metavar="FILE.csv",
        required=True,
        help="the AS of each node, by its name or by prefixes of the lab's addresses",
    )
    parser.add_argument(
        "--as-relationships",
        type=Path,
        metavar="FILE",
        required=True,
        help="relationships of ASes in CAIDA's format serial-1 or serial-2, as text or .bz2",
    )
    _options.add_mixed(parser)
    _options.add_formats(parser)


def run(given: argparse.Namespace, messages: Console) -> int:
    """Print a row for each variant of each drawn network's scenario."""
    known = read_relationships(given.as_relationships)
    numbers = read_numbers(given.as_numbers)
    found = find_runs(given.directory, mixed=given.mixed, whole=False)
    tables = [_table(part, numbers, known) for part in found.parts]
    if not any(table.rows for table in tables):
        say(messages, f"{given.directory} has no runs of drawn networks with their tables")
    if given.json:
        print(json.dumps({"tables": [asdict(table) for table in tables]}, indent=1))
    elif given.csv:
        print("\n".join(map(as_csv, tables)), end="")
    else:
        print_tables(Console(), tables)
    tell_left_out(found.left_out, messages)
    tell_summaries(found, messages)
    tell_parts(found, messages)
    return VALID


def _table(found: Found, numbers: Numbers, known: Relationships) -> Table:
    return Table(
        title="Drawn networks: one autonomous system at both ends",
        columns=("scenario", "variant", "runs", *_COLUMNS.values()),
        rows=tuple(
            (group.scenario, group.variant, f"{len(runs)}", *_cells(runs, numbers, known))
            for group, runs in of_drawn_networks(found).items()
        ),
        note=(
            "By valley-free paths that follow from relationships, not from BGP tables: each AS"
            " prefers routes from customers to those from peers and these to those from providers,"
            " then shorter ones."
        ),
    )


def _cells(runs: Sequence[Run], numbers: Numbers, known: Relationships) -> list[str]:
    seen: list[SeenByAs] = []
    for run in runs:
        of_run = seen_by_as(streams_of(run), numbers.of(run.plan, known), known)
        seen += [of_run] if of_run else []
    return [mean_cell((100 * float(getattr(one, name)) for one in seen), 1) for name in _COLUMNS]
