r"""Measure the relays of a drawn network as TorFlow did, and write a bandwidth file.

TorFlow found the live network's weights before, and is what FlashFlow is held against.

```sh
./run.py torflow SmallNetwork --set "network.relay_rates=20 %" --clients 20 --v3bw torflow.v3bw
./run.py scenario SmallNetwork --set "network.relay_rates=20 %" \
    --set "network.bandwidth_file=../torflow.v3bw"
```

A client downloads through circuits of two relays; a relay's weight is the most that it has carried
itself in ten seconds, times how much faster downloads through it were than through others
([how](torflow.md)). What relays have carried comes from the downloads and from the traffic
of `--clients`.
"""

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from commands import _options
from commands._measured_relays import add_measuring, network_errors
from flashflow.lab import file_header, true_rate
from flashflow.torflow import AT_ONCE, LONGEST_S, SLICE_RELAYS, TIMES, Rated, rated, slices
from testbed.asked.plans import check_seed
from testbed.basics.console import say
from testbed.basics.ending import PREMISE_FAILED, VALID
from testbed.network.bandwidth_file import BandwidthFile, MeasuredRelay, write_bandwidth_file
from testbed.plan.model import Plan
from testbed.plan.scan import Scan

_MEASURER_BIT_PER_S = 1_000_000_000

_HEADINGS = (
    "relay",
    "carries,\nMbit/s",
    "observed",
    "less, %",
    "downloads,\nMbit/s",
    "ratio",
    "weight,\nkB/s",
    "share over\nright one",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of `torflow`."""
    _options.add_scenario(parser)
    add_measuring(parser, "torflow")
    parser.add_argument(
        "--slice",
        type=_options.whole(2),
        default=SLICE_RELAYS,
        metavar="N",
        help="how many relays of similar weights are measured through each other at most"
        f" (default: {SLICE_RELAYS})",
    )
    parser.add_argument(
        "--times",
        type=_options.whole(1),
        default=TIMES,
        metavar="N",
        help=f"in how many circuits each relay is at least (default: {TIMES})",
    )
    _options.add_set(parser)
    _options.add_seed(parser, "the seed that draws the network and the circuits")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


def run(given: argparse.Namespace, messages: Console) -> int:
    """Measure a network's relays, write the bandwidth file and print what was found."""
    # Importing what starts machines takes longer than refusing a wrong seed.
    from testbed.asked.measurers import MEASURER, scanning_plan
    from testbed.machines.virtual import START_NS
    from testbed.runs.measured_relays import scan_relays
    from testbed.runs.runner import ProgressBar

    check_seed(given.seed)
    plan = scanning_plan(
        given.scenario,
        _MEASURER_BIT_PER_S,
        seed=given.seed,
        changes=dict(given.set),
        clients=given.clients,
    )
    asked = Scan(
        measurer=f"{MEASURER}1",
        times=given.times,
        at_once=AT_ONCE,
        longest_s=LONGEST_S,
        slices=slices(plan, given.slice),
    )
    name = plan.unchanged_scenario
    progress = ProgressBar.on(messages, f"measuring {name}")
    with progress.bar:
        scanned = scan_relays(plan, asked, messages, progress.show)
    found = rated(scanned.relays, {one.name: true_rate(one) for one in plan.of_kind("relay")})
    file = given.v3bw or Path("results/torflow", name, f"seed-{given.seed}.v3bw")
    write_bandwidth_file(file, _bandwidth_file(plan, found, START_NS // 10**9))
    if given.json:
        print(json.dumps([one.record() for one in found], indent=1))
    else:
        _print(Console(), found)
    say(messages, f"weights in {file}")
    return VALID if all(one.weight for one in found) else PREMISE_FAILED


def _bandwidth_file(plan: Plan, found: list[Rated], unix_time: int) -> BandwidthFile:
    relays = (MeasuredRelay(one.fingerprint, one.relay, one.weight) for one in found if one.weight)
    return BandwidthFile(unix_time, tuple(relays), file_header(plan, "torflow"))


def _print(console: Console, found: list[Rated]) -> None:
    """Print a row for each relay, and the whole network's errors."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, heading in enumerate(_HEADINGS):
        table.add_column(heading, justify="right" if number else "left")
    for one in found:
        table.add_row(
            one.relay,
            f"{one.true_bit_per_s / 1e6:.2f}",
            f"{one.observed_bit_per_s / 1e6:.2f}",
            f"{-one.error_percent:.1f}",
            *_of_downloads(one),
        )
    console.print(table)
    for one in found:
        if one.weight is None:
            say(console, f"{one.relay}: none of {one.failed} downloads was complete")
    if weighed := [one for one in found if one.weight]:
        true = [one.true_bit_per_s for one in weighed]
        observed = [one.observed_bit_per_s for one in weighed]
        say(console, network_errors(true, observed, [one.weight or 0 for one in weighed]))


def _of_downloads(one: Rated) -> tuple[str, ...]:
    if one.stream_bit_per_s is None:
        return ("-",) * 4
    return (
        f"{one.stream_bit_per_s / 1e6:.2f}",
        f"{one.ratio:.2f}",
        str(one.weight),
        f"{one.weight_ratio:.2f}",
    )
