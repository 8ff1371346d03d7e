"""Make a run again and say whether it comes out equal.

The new run is made from the plan in the manifest, in a temporary folder. If it isn't equal to the
last digit, the first table, row and column that differ are named, with both values, and what has
changed since: builds of Tor and kernel, C library, OpenSSL, Python and its packages, the testbed.

```sh
./run.py verify results/NoDropping/vanilla/seed-1
```
"""

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from testbed.basics.console import say
from testbed.basics.ending import DIFFERS, VALID
from testbed.results.made_by import SHOWN_DIGITS
from testbed.runs import runner, verify

EPILOG = "exit status: 0 equal, 1 failed, 2 no run that can be made again, 3 not equal"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments."""
    parser.add_argument("run", metavar="RUN", type=Path, help="the run's directory")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="keep the new run there; must not exist"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, not words")


def run(given: argparse.Namespace, messages: Console) -> int:
    """Make the run again, and print what differs."""
    progress = runner.ProgressBar.on(messages, f"making {given.run} again")
    with progress.bar:
        verified = verify.verify(given.run, messages, progress.show, out=given.out)
    if given.json:
        print(json.dumps(verify.record(verified), indent=1))
    else:
        _print(Console(), verified)
    return VALID if verified.equal else DIFFERS


def _print(console: Console, verified: verify.Verified) -> None:
    """Print whether the runs are equal, their first differences, and what has changed."""
    if verified.equal:
        digits = verified.fingerprint[:SHOWN_DIGITS]
        tables = f"all {verified.tables} tables, summary.json among them"
        say(console, f"equal: {tables}; fingerprint {digits}")
    else:
        first, *others = verified.differing
        say(console, f"not equal: {first.place}: {first.one} then, {first.other} now")
        for other in others:
            say(console, f"also {other.place}: {other.one} then, {other.other} now")
        equal = verified.tables - len(verified.differing)
        say(console, f"{equal} of {verified.tables} tables are equal")
    if not verified.changed:
        say(console, "Both ran with the same software, as far as is recorded.")
        return
    table = Table("software", "then", "now", box=None)
    for one in verified.changed:
        table.add_row(one.what, one.then, one.now)
    console.print(table)
