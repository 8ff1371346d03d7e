"""Make a web page of many runs, with figures and tables.

It begins with the answer: which variant is better, or for one run what happened on the shared
link; and the picture that shows why.

```sh
./run.py report results/
```

Below are each scenario's network, a typical run from second to second, how times are distributed,
the tables (a click unfolds one), patches, every check, what was left out, and the commands that
repeat it; of [drawn networks](networks.md) also a map, times by class of client, and what relays
used of their rates. The page is one file and needs neither network nor script. Figures as PNG and
SVG, and tables as CSV, lie beside it, here in `results/report/`. [How to
read it](start.md).

Of a study's folder it is the study's page, of the runs that it keeps, here in
`results/mitigations/page.html`:

```sh
./run.py report studies/mitigations
```
"""

import argparse
from pathlib import Path

from rich.console import Console

from analysis.report import write_report
from commands import _options
from commands._found import tell_left_out, tell_parts
from study.folder import find_study
from study.hydra.tables import TABLES
from study.kept import unpacked
from study.page import make_page
from study.web_page import write_web_page
from testbed.basics.console import say
from testbed.basics.ending import VALID
from testbed.basics.errors import InputError
from testbed.batch.batch_file import STUDY


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of `report`."""
    _options.add_directory(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the page (default: DIR/report/report.html; of a study results/<name>/page.html)",
    )
    _options.add_mixed(parser)


def run(given: argparse.Namespace, messages: Console) -> int:
    """Write the page."""
    if (given.directory / STUDY).is_file():
        if given.mixed:
            raise InputError("--mixed: a study's page has runs of one state of the testbed only")
        _write_study(given.directory, given.out, messages)
        return VALID
    write(given.directory, given.out, messages, mixed=given.mixed)
    return VALID


def _write_study(folder: Path, out: Path | None, messages: Console) -> None:
    """Write a study's page, of the runs that it keeps, and print where it is."""
    study = find_study(f"{folder}/")
    with unpacked(study) as kept:
        made = make_page(study, kept)
    file = out or Path("results") / study.name / "page.html"
    write_web_page(study, made, file)
    tell_left_out(made.left_out, messages)
    say(messages, f"page in {file}")


def write(directory: Path, out: Path | None, messages: Console, *, mixed: bool) -> None:
    """Write the page on the runs below a directory, and print where it is."""
    file = out or directory / "report" / "report.html"
    found = write_report(directory, file, mixed=mixed, of_papers=TABLES)
    tell_left_out(found.left_out, messages)
    tell_parts(found, messages)
    say(messages, f"report in {file}")
