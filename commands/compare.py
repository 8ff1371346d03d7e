r"""Compare variants over several runs, and say which is better.

Runs seeds 1 to N of each variant; runs that exist are not made again.

```sh
./run.py compare One vanilla pctls --runs 3 --traffic audio --duration "20 s"
```

```
One, audio, 20 s: pctls against vanilla
metric                 vanilla   pctls what the runs say
throughput, MB/s         0.048   0.049 pctls is the same as vanilla within 5 %: throughput +1.3 %
                       ± 0.000 ± 0.000 (99.64 % interval: -0.2 % to +2.9 %)
time to first byte, s     0.18    0.12 pctls is better than vanilla: time to first byte -35 %
                        ± 0.01  ± 0.01 (99.64 % interval: -50 % to -15 %)
…
circuit build time, ms     150     357 pctls is worse than vanilla: circuit build time +137 %
                           ± 9    ± 30 (99.64 % interval: +45 % to +287 %)
```

The first variant is what the others are compared with. Each metric has a sentence with the
confidence interval over runs, [corrected for all variants and
metrics](statistics.md#many-variants-and-metrics-at-once); what the runs don't decide is said, too.
`--across` compares [values of the scenario](statistics.md#values-of-a-scenario): one variant with
two losses, say.

```sh
./run.py compare SharedDropping vanilla --across "links.middle-exit.loss=0.1 %,0.2 %" \
    --duration "60 s"
```
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from analysis import comparison
from analysis.figures.differences import differences
from analysis.metrics import check_key
from analysis.runs import Groups, read_runs
from analysis.table import as_csv, print_tables
from commands import _options
from commands._found import tell_left_out, tell_parts
from testbed.asked.output import default_output
from testbed.basics.console import say
from testbed.basics.ending import PREMISE_FAILED, VALID
from testbed.basics.errors import InputError
from testbed.basics.toml_file import Value, shown
from testbed.plan.model import Plan
from testbed.runs import repeats

EPILOG = _options.STATUS


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of `compare`."""
    _options.add_scenario(parser)
    parser.add_argument("first", metavar="A", help="the variant that the others are compared with")
    parser.add_argument(
        "others", metavar="B", nargs="*", help="the others; with --across there may be none"
    )
    parser.add_argument(
        "--runs", type=int, default=3, metavar="N", help="runs of each variant (default: 3)"
    )
    _options.add_traffic(parser)
    _options.add_duration(parser)
    _options.add_set(parser)
    _options.add_across(parser)
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="KEY",
        help="compare only this metric, by its name in --json; may be repeated. Intervals are"
        " widened for as many metrics as there are",
    )
    parser.add_argument(
        "--chart", type=Path, metavar="FILE.svg", help="plot all differences, as SVG or PNG"
    )
    _options.add_mixed(parser)
    _options.add_formats(parser)


def run(given: argparse.Namespace, messages: Console) -> int:
    """Make the missing runs, then print the comparison."""
    for key in given.metric:
        check_key(key)
    plans = repeats.paired_plans(
        given.scenario,
        [given.first, *given.others],
        given.runs,
        duration=given.duration,
        traffic=given.traffic,
        changes=dict(given.set),
        across=_settings(given),
    )
    repeats.carry_out_each(repeats.missing(plans, mixed=given.mixed), messages)
    found = read_runs((default_output(plan) for plan in plans), mixed=given.mixed)
    plan, runs = plans[0], _by_name(given, plans, found.valid)
    compared = comparison.compare(runs, given.metric)
    if given.metric and not compared:
        raise InputError(f"--metric {', '.join(given.metric)}: these runs have no such number")
    scenario = plan.unchanged_scenario if given.across else plan.scenario
    if given.json:
        content = {
            "scenario": scenario,
            **{key: getattr(plan, key) for key in ("traffic", "duration_s")},
            "comparisons": comparison.records(compared),
            "left_out": found.left_out,
        }
        print(json.dumps(content, indent=1))
    elif given.csv:
        print(as_csv(comparison.records_table(compared)), end="")
    else:
        title = f"{scenario}, {plan.traffic}, {plan.duration_s:g} s"
        print_tables(Console(), comparison.comparison_tables(title, compared))
    if given.chart:
        _plot_chart(given.chart, f"{scenario}, {plan.traffic}", compared, messages)
    tell_left_out(found.left_out, messages)
    tell_parts(found, messages)
    return PREMISE_FAILED if found.left_out else VALID


def _settings(given: argparse.Namespace) -> list[dict[str, Value]]:
    """What differs between runs beside variants and seeds: nothing, or a key's values."""
    if not given.across:
        if not given.others:
            raise InputError(
                f"compare {given.scenario} {given.first}: name another variant, or the values of a"
                " key with --across"
            )
        return [{}]
    key, values = given.across
    if key in dict(given.set):
        raise InputError(f"--set {key} and --across {key}: leave one of them out")
    return [{key: value} for value in values]


def _by_name(given: argparse.Namespace, plans: Sequence[Plan], valid: Groups) -> comparison.Named:
    """The runs by variant, and by the value of the key if there are several."""
    of_group = {(group.variant, group.scenario): runs for group, runs in valid.items()}
    key = given.across[0] if given.across else None
    return {
        f"{plan.variant} with {key}={_said(plan.changes[key])}" if key else plan.variant: (
            of_group.get((plan.variant, plan.scenario), ())
        )
        for plan in plans
    }


def _said(value: Value) -> str:
    return value if isinstance(value, str) else shown(value)


def _plot_chart(
    file: Path, title: str, compared: Sequence[comparison.Compared], messages: Console
) -> None:
    plot = differences(title, file.stem, compared)
    if plot is None:
        raise InputError(f"--chart {file}: nothing can be compared")
    plot.save_as(file)
    say(messages, f"chart in {file}")
