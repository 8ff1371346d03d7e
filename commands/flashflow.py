r"""Measure the relays of a drawn network as FlashFlow does, and write a bandwidth file.

Or compute how it would measure the live network, or what lying relays gain, without a machine.

```sh
./run.py flashflow SmallNetwork --set "network.relay_rates=20 %" --seconds 10 --sockets 48 \
    --v3bw measured.v3bw
./run.py scenario SmallNetwork --set "network.relay_rates=20 %" \
    --set "network.bandwidth_file=../measured.v3bw"
```

[What is measured](capacity.md#measured-in-the-lab). `--schedule` computes for the relays of a
consensus how many slots of 30 s the measurers need, how busy they are in a day with a random
schedule, and how long new relays wait; `--liars` what a relay gains that lies. In a scenario,
`--clients` have [traffic meanwhile](capacity.md#while-clients-have-traffic), `--liar` names
[relays that lie](capacity.md#liars), and of `--teams` each relay has the median. `--relays relay1`
with `--guess "250 Mbit/s"` measures one relay in a single round, if the guess is about right.

```sh
./run.py flashflow --schedule 2021-11-30 2026-04-18
./run.py flashflow --schedule 2021-11-30 --measurers "2 Gbit/s,2 Gbit/s" --factor 2.84 --json
./run.py flashflow --liars
```
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from commands import _options
from commands._computed_schedules import print_liars, print_schedules
from commands._late_bar import late_bar
from commands._measured_relays import add_measuring, print_outcomes
from flashflow import lab
from flashflow.allocation import least_measurers
from flashflow.lies import lies_of
from flashflow.live import capacities, schedule
from flashflow.parameters import PAPER, Parameters
from testbed.asked.drawing import read_source
from testbed.asked.plans import check_seed
from testbed.basics.console import say
from testbed.basics.ending import PREMISE_FAILED, VALID
from testbed.basics.errors import InputError
from testbed.basics.units import rate_bit_per_s, share_fraction
from testbed.network.bandwidth_file import write_bandwidth_file
from testbed.network.finding import read_consensuses
from testbed.network.places import PLACES, read_places

EACH_BIT_PER_S = 1_000_000_000
"""The capacity of a measurer, as in the paper."""

SOCKETS = 160
"""The connections to a relay, as in the paper."""

_MOST_TEAMS = 20
_MOST_RATIO_PERCENT = 90
"""MeasurementBackground's limit."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of `flashflow`."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("scenario", nargs="?", help="a name (see list) or a .toml file")
    what.add_argument(
        "--schedule",
        nargs="*",
        metavar="CONSENSUS",
        help="compute the whole network's schedule: a name (2021-11-30), a document, a folder or a"
        " tar archive of them; default: all that come with the project",
    )
    what.add_argument("--liars", action="store_true", help="show what relays gain that lie")
    _add_lab(parser)
    parser.add_argument(
        "--measurers",
        type=_rates,
        metavar="RATE,…",
        help="the capacities of a team's measurers, such as '1 Gbit/s,500 Mbit/s' (default: as many"
        " of 1 Gbit/s as the largest relay needs)",
    )
    parser.add_argument(
        "--factor",
        type=_options.number(1, 100),
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
    _options.add_seed(parser, "the seed that draws the network, or the authorities' secret")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


def _add_lab(parser: argparse.ArgumentParser) -> None:
    """Add the options of measurements in the lab."""
    add_measuring(parser, "flashflow")
    parser.add_argument(
        "--seconds",
        type=_options.whole(1),
        default=PAPER.slot_s,
        metavar="N",
        help=f"how long a relay is measured (default: {PAPER.slot_s})",
    )
    parser.add_argument(
        "--sockets",
        type=_options.whole(1),
        default=SOCKETS,
        metavar="N",
        help=f"the most connections to a relay (default: {SOCKETS}); each has 4 Mbit/s at least",
    )
    parser.add_argument(
        "--relays",
        type=_names,
        default=(),
        metavar="NAME,…",
        help="the relays to measure (default: all)",
    )
    parser.add_argument(
        "--guess",
        type=_rate,
        metavar="RATE",
        help="what each relay is taken for before it is measured (default: its weight)",
    )
    _add_conditions(parser)
    _options.add_set(parser)


def _add_conditions(parser: argparse.ArgumentParser) -> None:
    """Add the options of what goes on while relays are measured."""
    parser.add_argument(
        "--ratio",
        type=_ratio,
        default=PAPER.background_ratio,
        metavar="SHARE",
        help="r, the largest share of a measured relay's traffic that may be its clients', such as"
        f" '10 %%' (default: {100 * PAPER.background_ratio:g} %%)",
    )
    parser.add_argument(
        "--liar",
        action="append",
        default=[],
        metavar="RELAYS=LIE",
        help="relays that lie, such as 'relay1=background', 'relay*=undecrypted', or"
        " 'relay2=40 %%', which has its capacity in 40 %% of the slots; may be repeated",
    )
    parser.add_argument(
        "--check",
        type=_options.number(0, 1, above=True),
        default=PAPER.check_probability,
        metavar="P",
        help=f"the probability of a cell to be checked (default: {PAPER.check_probability:g})",
    )


def run(given: argparse.Namespace, messages: Console) -> int:
    """Measure relays, or print schedules, or what liars gain.

    Raises:
        InputError: the measurers are too few for a relay, or a consensus can't be read.
    """
    check_seed(given.seed)
    by = _parameters(given.factor)
    _refuse_others(given)
    if given.teams > _MOST_TEAMS:
        raise InputError(f"--teams {given.teams}: take at most {_MOST_TEAMS}")
    if given.scenario is not None:
        by = replace(
            by,
            slot_s=given.seconds,
            background_ratio=given.ratio,
            check_probability=given.check,
        )
        return _measure(given, by, messages)
    if given.liars:
        print_liars(given.json)
        return VALID
    with late_bar(messages, "reading", None) as tell:
        consensuses = read_consensuses(given.schedule, tell)
    places = read_places(PLACES)
    found = []
    with late_bar(messages, "scheduling", len(consensuses)) as tell:
        for number, consensus in enumerate(consensuses, start=1):
            relays = capacities(consensus, places)
            team = float(sum(_team(consensus.name, max(relays), given.measurers, by)))
            one = schedule(consensus.name, relays, team, by, teams=given.teams, seed=given.seed)
            found.append(one)
            tell(number)
    if given.json:
        print(json.dumps([one.record() for one in found], indent=1))
    else:
        print_schedules(Console(), found, by)
    return VALID


def _refuse_others(given: argparse.Namespace) -> None:
    """Refuse options that have no meaning for what was asked."""
    of_lab: dict[str, object] = {
        "v3bw": None,
        "seconds": PAPER.slot_s,
        "sockets": SOCKETS,
        "relays": (),
        "guess": None,
        "clients": 0,
        "ratio": PAPER.background_ratio,
        "liar": [],
        "check": PAPER.check_probability,
        "set": [],
    }
    if given.liars:
        of_schedules: dict[str, object] = {"factor": None, "measurers": None, "teams": 1, "seed": 1}
        for name, default in of_schedules.items():
            if getattr(given, name) != default:
                raise InputError(f"--{name} is for schedules and measurements, not for --liars")
    if given.scenario is not None:
        return
    for name, default in of_lab.items():
        if getattr(given, name) != default:
            raise InputError(f"--{name} measures a scenario's relays: name a scenario")


def _parameters(factor: float | None) -> Parameters:
    """The paper's parameters, or those with another multiplier by which f is `factor`."""
    if factor is None:
        return PAPER
    return replace(PAPER, multiplier=PAPER.multiplier * factor / PAPER.excess)


def _team(of: str, largest: float, given: Sequence[int] | None, by: Parameters) -> Sequence[int]:
    """The capacities of a team; InputError if they are too small for the largest relay."""
    least = least_measurers(largest, EACH_BIT_PER_S, by)
    if given is None:
        return [EACH_BIT_PER_S] * least
    if sum(given) < by.excess * largest:
        raise InputError(
            f"--measurers: they have {sum(given) / 1e6:.0f} Mbit/s, and the largest relay of {of},"
            f" of {largest / 1e6:.0f} Mbit/s, needs {by.excess:.2f} times its own,"
            f" {by.excess * largest / 1e6:.0f}: {least} of 1 Gbit/s have enough"
        )
    return given


def _measure(given: argparse.Namespace, by: Parameters, messages: Console) -> int:
    """Measure a network's relays, write the bandwidth file and print what was found."""
    # Importing what starts machines takes longer than a schedule.
    from testbed.asked.measurers import MEASURER, measurement_key, measuring_plan
    from testbed.machines.virtual import START_NS
    from testbed.runs.measured_relays import measure_relays
    from testbed.runs.runner import ProgressBar

    drawn = read_source(given.scenario, dict(given.set)).draw(given.seed)
    largest = max(relay.rate_up_bit_per_s or 0 for relay in drawn.network.of_kind("relay"))
    team = _team(drawn.scenario, largest, given.measurers, by)
    plan = measuring_plan(
        given.scenario,
        team,
        seed=given.seed,
        changes=dict(given.set),
        clients=given.clients,
        ratio=None if by.background_ratio == PAPER.background_ratio else by.background_ratio,
    )
    guesses = lab.chosen_guesses(plan, given.relays, given.guess)
    lies = lies_of(given.liar, [relay.name for relay in plan.of_kind("relay")])
    progress = ProgressBar.on(messages, f"measuring {drawn.scenario}")
    with progress.bar:
        found = lab.combined(
            [
                lab.measure_network(
                    plan,
                    {f"{MEASURER}{number}": float(rate) for number, rate in enumerate(team, 1)},
                    measurement_key(given.seed),
                    by,
                    given.sockets,
                    lambda asked: measure_relays(plan, asked, messages, progress.show),
                    guesses,
                    lies,
                    one,
                )
                for one in range(1, given.teams + 1)
            ]
        )
    file = given.v3bw or Path("results/flashflow", drawn.scenario, f"seed-{given.seed}.v3bw")
    write_bandwidth_file(file, lab.bandwidth_file(plan, found, START_NS // 10**9))
    if given.json:
        print(json.dumps([one.record() for one in found], indent=1))
    else:
        print_outcomes(Console(), found)
    say(messages, f"weights in {file}")
    return VALID if all(one.holds for one in found) else PREMISE_FAILED


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _rates(text: str) -> list[int]:
    return [_rate(one.strip()) for one in text.split(",")]


def _rate(text: str) -> int:
    try:
        return rate_bit_per_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f'"{text}" {error}') from None


def _ratio(text: str) -> float:
    """A share of whole percent, as Tor's option is."""
    try:
        share = share_fraction(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f'"{text}" {error}') from None
    percent = round(100 * share)
    if abs(100 * share - percent) > 1e-9 or not 1 <= percent <= _MOST_RATIO_PERCENT:
        raise argparse.ArgumentTypeError(
            f"{text} is not a whole number of percent from 1 to {_MOST_RATIO_PERCENT}"
        )
    return percent / 100
