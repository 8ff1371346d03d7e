"""Make tables of many runs, beside the published numbers.

Failed, invalid and unreadable runs are named and not averaged.

```sh
./run.py tables results/
```

There are throughput and round trips, what the client under test saw in scenarios One, Two and
Three, which of the paper's statements hold, and more. Runs that another Tor, kernel or testbed
made [stand apart](statistics.md#what-is-put-together). Of a run `summary.json` and `manifest.json`
suffice, as a study keeps them; congestion windows and what concerns drawn networks need its
tables.
"""

import argparse
import json
from dataclasses import asdict

from rich.console import Console

from analysis.runs import find_runs
from analysis.table import as_csv, as_markdown, print_tables
from analysis.tables import run_tables
from commands import _options
from commands._found import tell_left_out, tell_parts, tell_summaries
from study.hydra.tables import TABLES
from testbed.basics.ending import VALID


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of `tables`."""
    _options.add_directory(parser)
    _options.add_mixed(parser)
    _options.add_formats(parser).add_argument(
        "--markdown", action="store_true", help="print Markdown, for a document"
    )


def run(given: argparse.Namespace, messages: Console) -> int:
    """Print the tables in the format that was asked for."""
    found = find_runs(given.directory, mixed=given.mixed, whole=False)
    tables = run_tables(found, TABLES)
    if given.json:
        content = {"tables": [asdict(table) for table in tables], "left_out": found.left_out}
        print(json.dumps(content, indent=1))
    elif given.csv:
        print("\n".join(map(as_csv, tables)), end="")
    elif given.markdown:
        print("\n\n".join(map(as_markdown, tables)))
    else:
        print_tables(Console(), tables)
    tell_left_out(found.left_out, messages)
    tell_summaries(found, messages)
    tell_parts(found, messages)
    return VALID
