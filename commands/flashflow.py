"""Compute how FlashFlow would measure the live network, and what a lying relay can gain.

Schedules are computed from consensuses. Starts no virtual machine and measures no relay.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from rich.console import Console
from rich.table import Table

from commands import _options
from commands._late_bar import late_bar
from flashflow.allocation import least_measurers
from flashflow.liars import liars
from flashflow.live import Schedule, capacities, schedule
from flashflow.parameters import PAPER, Parameters
from flashflow.published import FACTOR_IN_SECTION_7, SECTION_7
from testbed.asked.plans import check_seed
from testbed.basics.console import say
from testbed.basics.ending import VALID
from testbed.basics.errors import InputError
from testbed.basics.units import rate_bit_per_s
from testbed.network.consensus import Consensus
from testbed.network.finding import read_consensuses
from testbed.network.places import PLACES, read_places

EACH_BIT_PER_S = 1_000_000_000
"""The capacity of a measurer, as in the paper."""

_MOST_TEAMS = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of `flashflow`."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--schedule",
        nargs="*",
        metavar="CONSENSUS",
        help="compute the whole network's schedule: a name (2021-11-30), a document, a folder or a"
        " tar archive of them; default: all that come with the project",
    )
    what.add_argument("--liars", action="store_true", help="show what relays gain that lie")
    parser.add_argument(
        "--measurers",
        type=_rates,
        metavar="RATE,…",
        help="the capacities of a team's measurers, such as '1 Gbit/s,500 Mbit/s' (default: as many"
        " of 1 Gbit/s as the largest relay needs)",
    )
    parser.add_argument(
        "--factor",
        type=_factor,
        metavar="F",
        help="the excess allocation factor f instead of m (1 + e2) / (1 - e1), which is"
        f" {PAPER.excess:.2f}",
    )
    parser.add_argument(
        "--teams",
        type=_options.whole(1),
        default=1,
        metavar="N",
        help="authorities that measure each relay, each with such a team (default: 1)",
    )
    _options.add_seed(parser, "the seed that the authorities share")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


def run(given: argparse.Namespace, messages: Console) -> int:
    """Print schedules, or what liars gain.

    Raises:
        InputError: the measurers are too few for a relay, or a consensus can't be read.
    """
    check_seed(given.seed)
    if given.liars:
        _print_liars(given.json)
        return VALID
    if given.teams > _MOST_TEAMS:
        raise InputError(f"--teams {given.teams}: take at most {_MOST_TEAMS}")
    with late_bar(messages, "reading", None) as tell:
        consensuses = read_consensuses(given.schedule, tell)
    places, by = read_places(PLACES), _parameters(given.factor)
    found = []
    with late_bar(messages, "scheduling", len(consensuses)) as tell:
        for number, consensus in enumerate(consensuses, start=1):
            relays = capacities(consensus, places)
            team = _team(consensus, max(relays), given.measurers, by)
            one = schedule(consensus.name, relays, team, by, teams=given.teams, seed=given.seed)
            found.append(one)
            tell(number)
    if given.json:
        print(json.dumps([one.record() for one in found], indent=1))
    else:
        _print_schedules(Console(), found, by)
    return VALID


def _parameters(factor: float | None) -> Parameters:
    """The paper's parameters, or those with another multiplier by which f is `factor`."""
    if factor is None:
        return PAPER
    return replace(PAPER, multiplier=PAPER.multiplier * factor / PAPER.excess)


def _team(
    consensus: Consensus, largest: float, given: Sequence[int] | None, by: Parameters
) -> float:
    """The capacity of a team; InputError if it is too small for the largest relay."""
    least = least_measurers(largest, EACH_BIT_PER_S, by)
    if given is None:
        return float(least * EACH_BIT_PER_S)
    if sum(given) < by.excess * largest:
        raise InputError(
            f"--measurers: they have {sum(given) / 1e6:.0f} Mbit/s, and the largest relay of"
            f" {consensus.name}, of {largest / 1e6:.0f} Mbit/s, needs {by.excess:.2f} times its"
            f" own, {by.excess * largest / 1e6:.0f}: {least} of 1 Gbit/s have enough"
        )
    return float(sum(given))


def _print_schedules(console: Console, found: Sequence[Schedule], by: Parameters) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    headings = (
        *("network", "relays", "capacity,\nGbit/s", "team,\nGbit/s", "slots,\nleast", "slots"),
        *("hours", "busy,\n%", "new relays\nwait, s"),
    )
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    table.add_row(*SECTION_7)
    for one in found:
        table.add_row(
            one.network,
            str(one.relays),
            f"{one.total_bit_per_s / 1e9:.0f}",
            f"{one.team_bit_per_s / 1e9:g}",
            str(one.least_slots),
            str(one.slots),
            f"{one.hours:.1f}",
            f"{one.busy_percent:.0f}",
            _waits(one),
        )
    console.print(table)
    say(console, f"f = {by.excess:.2f}. {FACTOR_IN_SECTION_7}")
    for one in found:
        if one.left_out:
            text = f"{one.network}: the period has no slot for {one.left_out} measurements"
            say(console, text)


def _waits(of: Schedule) -> str:
    """The median wait, and the longest in parentheses."""
    if of.new_median_wait_s is None:
        return "-"
    return f"{of.new_median_wait_s:.0f} ({of.new_longest_wait_s:.0f})"


def _print_liars(as_json: bool) -> None:
    found = liars(PAPER)
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=1))
        return
    console = Console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("a relay that", "what", "value", "published"):
        table.add_column(heading, justify="right" if heading == "value" else "left")
    for one in found:
        table.add_row(one.does, one.what, _shown(one.value), one.published)
    console.print(table)


def _shown(value: float) -> str:
    return f"{value:.2f}" if value >= 0.01 else f"{value:.0e}"


def _rates(text: str) -> list[int]:
    try:
        return [rate_bit_per_s(one.strip()) for one in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f'"{text}" {error}') from None


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number') from None
    if not 1 <= factor <= 100:
        raise argparse.ArgumentTypeError(f"{text} is not from 1 to 100")
    return factor
