"""Measure the links of a scenario, without Tor; or what relays cost this host.

Of each direction of each link: delay, rate, loss of single packets, and whether segments crossed
in bundles.

```sh
./run.py calibrate SharedDropping
```

```
link            direction          delay, ms      rate, Mbit/s  loss, %
client1-guard1  client1 to guard1  0.001 / 0      300.02 / 300  0.0000 / 0
…
middle1-exit1   middle1 to exit1   12.501 / 12.5  299.99 / 300  0.1074 / 0.1 (0.0741 to 0.1283)
middle1-exit1   exit1 to middle1   12.501 / 12.5  300.02 / 300  0.1016 / 0.1 (0.0744 to 0.1280)
```

Each pair is what was measured and what the scenario says (`bundled` is cut off here). The bounds
are 0.1 ms, 1 %, and the 99 % binomial interval over at least 10^5 packets. It also shows what
waits in the queues [under a full load](links.md#the-queue-under-a-full-load).

```sh
./run.py calibrate --processor
```

With `--processor` it measures what a relay's work costs this host's processor, so that a
scenario's [processors](scenarios.md#processors) can be as fast: the pinned Tors run over the
loopback, in real time, for two minutes, at four loads. It prints the costs as a scenario has them,
and how far the fit is from each load. The costs are those of busy relays: one with little to do
takes longer for a byte, as it is woken for a few cells at a time. Other work on the host makes all
of it larger.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

from rich.console import Console
from rich.table import Table

from commands import _options
from testbed.asked.plans import make_plan
from testbed.asked.this_host import THIS_HOST, keep_costs
from testbed.basics.console import say
from testbed.basics.ending import PREMISE_FAILED, VALID
from testbed.basics.errors import InputError
from testbed.results.calibration import Measured
from testbed.runs import runner
from testbed.runs.relay_costs import RelayCosts, fitted
from testbed.runs.relay_work import watch_relays

EPILOG = "exit status: 0 all within bounds, 1 failed, 2 bad input, 3 a property is out of bounds"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `calibrate`."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("scenario", nargs="?", help="a name (see list) or a .toml file")
    what.add_argument(
        "--processor",
        action="store_true",
        help="measure what a relay's work costs this host's processor instead, for scenarios with"
        ' processor = "this host"',
    )
    _options.add_seed(parser, "seed of the losses")
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")


def run(given: argparse.Namespace, messages: Console) -> int:
    """Measure, and print observed values beside the scenario's, or a processor's costs."""
    if given.processor:
        if given.seed != 1:
            raise InputError("--seed: a processor's costs depend on none; leave it out")
        return _run_processor(given, messages)
    plan = make_plan(given.scenario, "vanilla", seed=given.seed)
    progress = runner.ProgressBar.on(messages, f"calibrating {plan.scenario}")
    with progress.bar:
        rows = runner.calibrate(plan, messages, progress.show)
    if given.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        print_calibration(Console(), rows)
    return VALID if all(row.ok for row in rows) else PREMISE_FAILED


def _run_processor(given: argparse.Namespace, messages: Console) -> int:
    costs = fitted(watch_relays(messages))
    keep_costs(costs.keys)
    if given.json:
        print(json.dumps(asdict(costs), indent=1))
    else:
        print_costs(Console(), costs)
    return VALID


def print_costs(console: Console, costs: RelayCosts) -> None:
    """Print the costs as a scenario has them, and how far from them each role was."""
    keys = ", ".join(f'{key} = "{value}"' for key, value in costs.keys.items())
    say(console, f"processor = {{ {keys} }}")
    limits = [f"{limit} KB/s a client" for limit in next(iter(costs.errors_percent.values()))]
    table = Table("the fit less what was measured, %", *limits[:-1], "no limit", box=None)
    for role, errors in costs.errors_percent.items():
        table.add_row(role, *(f"{error:+.0f}" for error in errors.values()))
    console.print(table)
    say(console, f'kept: scenarios have these costs by processor = "{THIS_HOST}"')


def print_calibration(console: Console, rows: Sequence[Measured]) -> None:
    """Print a line per direction, with wrong values in red, and a verdict."""
    for title, first, shown_as in (
        ("observed / scenario (range that is right)", "link", _SHOWN_AS),
        ("links whose bundles cross, and are lost, as one", "link", _BUNDLES_SHOWN_AS),
        ("under a full load: ms in the queue, most / room; shares in %", "queue", _LOAD_SHOWN_AS),
    ):
        if any(row.what in shown_as for row in rows):
            console.print(_table(title, rows, first, shown_as))
    all_ok = all(row.ok for row in rows)
    console.print(
        "All links are as the scenario says." if all_ok else "Links are not as the scenario says."
    )


@dataclass(frozen=True)
class _Shown:
    """How a property is printed: heading, factor and decimals."""

    heading: str
    factor: float
    decimals: int


_SHOWN_AS = {
    "delay_ms": _Shown("delay, ms", 1.0, 3),
    "rate_bit_per_s": _Shown("rate, Mbit/s", 1e-6, 2),
    "loss": _Shown("loss, %", 100.0, 4),
    "bundled_segments": _Shown("bundled", 1.0, 0),
}
_BUNDLES_SHOWN_AS = {
    "segments_per_bundle": _Shown("segments each", 1.0, 2),
    "divided_bundles": _Shown("divided", 1.0, 0),
    "segment_loss": _Shown("segments lost, %", 100.0, 4),
}
_LOAD_SHOWN_AS = {
    "queue_delay_ms": _Shown("median", 1.0, 2),
    "queue_delay_p95_ms": _Shown("95 %", 1.0, 2),
    "queue_delay_max_ms": _Shown("most", 1.0, 1),
    "datagram_delay_ms": _Shown("other", 1.0, 2),
    "carried": _Shown("carried", 100.0, 1),
    "queue_drops": _Shown("drops", 100.0, 3),
}


def _table(
    title: str, rows: Sequence[Measured], first: str, shown_as: Mapping[str, _Shown]
) -> Table:
    """Make a table with a line per direction, and a column for each property that was measured."""
    table = Table(box=None, title=title)
    there = [what for what in shown_as if any(row.what == what for row in rows)]
    for heading in (first, "direction", *(shown_as[what].heading for what in there)):
        table.add_column(heading, no_wrap=heading in (first, "direction"))
    for (link, direction), properties in groupby(rows, lambda row: (row.link, row.direction)):
        by_name = {row.what: row for row in properties}
        cells = [_cell(by_name.get(what), shown_as[what]) for what in there]
        if any(cells):
            name = link if first == "link" else next(iter(by_name.values())).queue
            table.add_row(name, direction, *cells)
    return table


_SHARES = ("loss", "segment_loss")


def _cell(row: Measured | None, shown: _Shown) -> str:
    if row is None:
        return ""
    text = f"{row.observed * shown.factor:.{shown.decimals}f}"
    if row.expected is not None:
        text += f" / {row.expected * shown.factor:.6g}"
    if row.tolerance and row.what in _SHARES and row.expected:
        least, most = (limit * shown.factor for limit in row.tolerance)
        text += f" ({least:.{shown.decimals}f} to {most:.{shown.decimals}f})"
    return text if row.ok else f"[bold red]{text}[/bold red]"
