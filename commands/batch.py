"""Make many runs, on all cores or on a cluster.

Whole runs are not made again, so the same command continues a batch that was stopped.

```sh
./run.py batch docs/examples/smoke.toml --dry-run
./run.py batch docs/examples/smoke.toml
```

`smoke.toml` takes seven minutes on two cores, `hydra`, all runs of the paper's study,
[some hours](batch.md#how-long-it-takes). Results and their report go to `results/smoke/`. [How to
write such a file](batch.md), and what happens to runs that fail or don't count; [on a
cluster](cluster.md).
"""

import argparse
from pathlib import Path

from rich.console import Console

from commands import _batches, _options
from commands.report import write
from testbed import batch
from testbed.basics.ending import VALID

EPILOG = _options.STATUS


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments."""
    parser.add_argument("file", metavar="FILE", help="a name in studies/, or a .toml file")
    _batches.add_making(parser)
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where all runs go (default: results/<name>)"
    )


def run(given: argparse.Namespace, messages: Console) -> int:
    """Make the missing runs and a report on all; or print what would be made."""
    wanted = batch.read_batch(given.file)
    _batches.cluster(given)  # refuses options that do not fit
    directory = given.out or Path("results") / wanted.name
    if given.dry_run:
        _batches.print_dry_run(given, wanted, directory)
        return VALID
    ended = _batches.make(given, wanted, directory, messages)
    if any(one.run for one in ended.standings):  # without any run there is no report
        write(directory, None, messages, mixed=given.mixed)
    return _batches.status(ended)
