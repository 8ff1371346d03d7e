"""What is particular to this study: relays with slow processors, and relays that are measured."""

import re
from collections.abc import Iterable, Sequence
from math import inf
from statistics import fmean

from analysis.cells import mean_cell
from analysis.metrics.metric import Metric
from analysis.metrics.transfers import CIRCUIT_ROUND_TRIP, STREAM_ROUND_TRIP, THROUGHPUT
from analysis.runs import Found, Group
from analysis.statistics import change, simultaneous_confidence
from analysis.table import Table
from analysis.wording import NOTHING, change_text, verdict_word
from flashflow.errors import capacity_error, weight_error
from flashflow.liars import liars
from flashflow.parameters import PAPER
from study.measured_relays import LEAST_SEEDS, by_words, measurements
from study.printed import AllPrinted
from testbed.basics.toml_file import PROJECT, read_toml
from testbed.results import Run

LEAST_RUNS = 2
"""What fewer runs showed is compared with nothing."""

PUBLISHED = read_toml(PROJECT / "studies" / "capacity" / "published.toml")
SCENARIOS = ("NoDropping", "SharedDropping")
FREE = "free"
PROCESSORS = ("50 Mbit/s", "100 Mbit/s", "400 Mbit/s", FREE)
AT = {FREE: "if relays take no time"}
VARIANTS = ("vanilla", "pctls", "vanilla-vegas", "pctcp", "mctor-3")
COUNTING = {"scheduler-runs": "vanilla", "pctls+scheduler-runs": "pctls"}
"""The variants that count their schedulers' runs, and what they are besides."""

SECONDS = (10, 30)
"""The lengths of measurements that are compared, each the beginning of the next."""


def _busiest(run: Run) -> float | None:
    """The busy share of the relay that was busiest, in percent."""
    return max((one.busy_percent for one in run.summary.processors or ()), default=None)


BUSIEST = Metric(
    key="processors.busiest_percent",
    name="busiest relay's processor",
    unit="%",
    digits=0,
    better="neither",
    of=_busiest,
)


def metrics() -> list[Metric]:
    """Metrics beside those of all runs."""
    return [BUSIEST]


def tables(found: Found, printed: AllPrinted) -> dict[str, Table]:
    """Eight clients whose relays are slow, and each series of measurements."""
    return {
        "gains": _gains(found),
        "processors": _processors(found),
        "this_host": _this_host(found),
        "scheduler": _scheduler(found),
        "rates": _rates(printed),
        "multipliers": _multipliers(printed),
        "sockets": _sockets(printed),
        "loss": _loss(printed),
        "at_once": _at_once(printed),
        "clients": _clients(printed),
        "network": _network(printed),
        "schedule": _schedule(printed),
    }


def fields(found: Found, printed: AllPrinted) -> dict[str, object]:
    """What the page says in its sentences, as texts."""
    slow_relays = [
        run.summary.transfers
        for (_, processor, _), runs in _groups(found, least=1).items()
        if processor != FREE
        for run in runs
    ]
    gains = {row[:2]: row[4:6] for row in _gains(found).rows}
    alone = [*measurements(printed, "rates")]
    made = tables(found, printed)
    return {
        "host": read_toml(PROJECT / "studies" / "capacity" / "host.toml"),
        "there": lambda name: bool(made[name].rows),
        "changes": lambda scenario: [
            (AT.get(one, f"at {one}"), *gains[scenario, one])
            for one in (FREE, PROCESSORS[0])
            if (scenario, one) in gains
        ],
        "seconds": _listed(sorted({f"{run.summary.duration_s:g}" for run in _compared(found)})),
        "transfers": {
            "completed": sum(one.completed for one in slow_relays),
            "failed": sum(one.failed for one in slow_relays),
        },
        "errors": _range(one.error_percent for one in alone) if alone else "",
        "multipliers": _listed(row[0] for row in made["multipliers"].rows),
        "least_multiplier": _least_multiplier(made["multipliers"]),
        "false_report_gain": liars(PAPER)[0].value,
    }


def _least_multiplier(made: Table) -> str:
    """The least multiplier whose results are all as large as figure 15 asks; "inf" if none is."""
    least = PUBLISHED["figure_15"]["outliers_below"]
    enough = (float(m) for m, of_true in made.rows if float(of_true.split(" to ")[0]) >= least)
    return f"{min(enough, default=inf):g}" if made.rows else NOTHING


def _listed(texts: Iterable[str]) -> str:
    """Texts with commas between them, and "and" before the last."""
    *most, last = [*texts] or [""]
    return f"{', '.join(most)} and {last}" if most else last


# Eight clients.


def _compared(found: Found) -> list[Run]:
    """The runs of eight clients in which schedulers' runs aren't counted."""
    groups = _groups(found, least=1).items()
    return [run for names, runs in groups if names[2] not in COUNTING for run in runs]


def _groups(found: Found, least: int = LEAST_RUNS) -> dict[tuple[str, str, str], Sequence[Run]]:
    """Runs by scenario, processor and variant; those with too few seeds are left out."""
    groups: dict[tuple[str, str, str], Sequence[Run]] = {}
    for part in reversed(found.parts):
        for group, runs in part.valid.items():
            if len(runs) >= least:
                groups[(*_scenario(group), group.variant)] = runs
    return groups


def _scenario(group: Group) -> tuple[str, str]:
    """A scenario's name, and how fast its relays' processors are."""
    name, _, changes = group.scenario.partition(",")
    if "per_call" in changes:
        return name, "a host's"
    rate = re.search(r"processor=(\d+)", changes)
    return name, f"{rate.group(1)} Mbit/s" if rate else FREE


def _gains(found: Found) -> Table:
    """What pctls changes at each speed of the relays."""
    groups = _groups(found)
    pairs = {
        (scenario, processor): (
            groups.get((scenario, processor, "vanilla"), ()),
            groups.get((scenario, processor, "pctls"), ()),
        )
        for scenario in SCENARIOS
        for processor in PROCESSORS
    }
    pairs = {names: (first, other) for names, (first, other) in pairs.items() if first and other}
    confidence = simultaneous_confidence(max(1, len(pairs)))
    rows = []
    for names, pair in pairs.items():
        throughput = [THROUGHPUT.by_seed(runs) for runs in pair]
        cells = (mean_cell(one.values(), THROUGHPUT.digits) for one in throughput)
        changed = change(*throughput, confidence)
        told = change_text(changed), verdict_word(THROUGHPUT, changed)
        rows.append((*names, *cells, *told, *map(_busy, pair)))
    columns = (
        *("scenario", "relays", "vanilla, MB/s", "pctls, MB/s", "pctls against vanilla"),
        *("pctls is", "vanilla: busiest, %", "pctls: busiest, %"),
    )
    return Table("What pctls changes where relays are slow", columns, tuple(rows))


def _busy(runs: Sequence[Run]) -> str:
    """The mean share of the busiest relays, in percent; they hardly vary."""
    known = [*BUSIEST.by_seed(runs).values()]
    return f"{fmean(known):.0f}" if known else NOTHING


def _processors(found: Found) -> Table:
    """Every variant at each speed of the relays; some have a single run."""
    shown = (THROUGHPUT, STREAM_ROUND_TRIP, CIRCUIT_ROUND_TRIP, BUSIEST)
    groups = _groups(found, least=1)
    rows = []
    for scenario in SCENARIOS:
        for variant in VARIANTS:
            for processor in PROCESSORS:
                if runs := groups.get((scenario, processor, variant)):
                    transfers = [run.summary.transfers for run in runs]
                    cells = (mean_cell(one.by_seed(runs).values(), one.digits) for one in shown)
                    counts = (
                        str(sum(one.completed for one in transfers)),
                        str(sum(one.failed for one in transfers)),
                    )
                    names = (scenario, variant, processor, str(len(runs)))
                    rows.append((*names, *cells, *counts))
    columns = ("scenario", "variant", "relays", "runs", *(one.label for one in shown))
    return Table(
        "Eight clients where relays are slow", (*columns, "completed", "failed"), tuple(rows)
    )


def _this_host(found: Found) -> Table:
    """Relays with a host's costs beside those that take no time, and the published throughput."""
    groups = _groups(found)
    published = read_toml(PROJECT / "studies" / "hydra" / "published.toml")["table_4"]
    rows = []
    for one in published:
        names = one["scenario"], one["variant"]
        runs = groups.get((names[0], "a host's", names[1]), ())
        free = groups.get((names[0], FREE, names[1]), ())
        if runs:
            of_paper = one["throughput_mb_per_s"]
            rows.append(
                (
                    *names,
                    f"{of_paper['mean']:.2f} ± {of_paper['deviation']:.2f}",
                    mean_cell(THROUGHPUT.by_seed(free).values(), THROUGHPUT.digits),
                    mean_cell(THROUGHPUT.by_seed(runs).values(), THROUGHPUT.digits),
                )
            )
    columns = ("scenario", "variant", "paper, MB/s", "free", "a host's")
    return Table("With a host's costs", columns, tuple(rows))


def _scheduler(found: Found) -> Table:
    """How often the schedulers of the middle and of the other relays ran, by their processors."""
    rows = []
    groups = _groups(found)
    for variant in COUNTING:
        for processor in PROCESSORS:
            if runs := groups.get(("NoDropping", processor, variant)):
                intervals = (_interval_ms(runs, one) for one in ("middle1", "guard1", "exit1"))
                rows.append((COUNTING[variant], processor, str(len(runs)), _busy(runs), *intervals))
    columns = (
        *("variant", "relays", "runs", "busiest, %"),
        *("middle, ms", "a guard, ms", "exit, ms"),
    )
    return Table("The scheduler's mean interval", columns, tuple(rows))


def _interval_ms(runs: Sequence[Run], relay: str) -> str:
    intervals = [
        one.scheduler_interval_ms
        for run in runs
        for one in run.summary.relays
        if one.relay == relay and one.scheduler_interval_ms is not None
    ]
    return mean_cell(intervals, 1)


# Relays that are measured.


def _range(values: Iterable[float]) -> str:
    """The least and the greatest of some percents."""
    known = sorted(values)
    return f"{known[0]:+.1f} to {known[-1]:+.1f} %" if known else NOTHING


def _shares(values: Iterable[float]) -> str:
    known = sorted(values)
    return f"{known[0]:.2f} to {known[-1]:.2f}" if known else NOTHING


def _rates(printed: AllPrinted) -> Table:
    """Results of each of `SECONDS` at each rate."""
    of_paper = PUBLISHED["true_mbit_per_s"]
    rows = []
    for (limit,), ones in by_words(measurements(printed, "rates"), r"processor=(\d+)").items():
        cells = (_shares(one.after(seconds) for one in ones) for seconds in SECONDS)
        published = f"{of_paper.get(limit, of_paper['none']):g}"
        rows.append((published, f"{ones[0].true_mbit_per_s:.3g}", *cells))
    columns = ("paper: true, Mbit/s", "true")
    lengths = (f"of true in {seconds} s" for seconds in SECONDS)
    return Table("A relay's rate", (*columns, *lengths), tuple(rows))


def _multipliers(printed: AllPrinted) -> Table:
    """Results by how many times a relay's capacity its measurers have: the paper's m."""
    rows = [
        (f"{float(factor):.2f}", _shares(one.after(10) for one in ones))
        for (factor,), ones in by_words(
            measurements(printed, "multipliers"), r"--factor ([\d.]+)"
        ).items()
    ]
    usual = by_words(measurements(printed, "sockets"), r"(118ms --sockets 160)").values()
    rows += [(f"{PAPER.excess:.2f}", _shares(one.after(10) for one in ones)) for ones in usual]
    return Table("The multiplier m", ("m", "of true in 10 s"), tuple(sorted(rows)))


def _sockets(printed: AllPrinted) -> Table:
    """Results by the number of sockets, and by the round trip."""
    return _by_sockets(printed, "sockets", r"places/(\d+)ms --sockets (\d+)", "{} ms")


def _loss(printed: AllPrinted) -> Table:
    """Results by the number of sockets, and by the loss on the way."""
    words = r"network.loss=([\d.]+) %. --sockets (\d+)"
    return _by_sockets(printed, "loss", words, "{} % lost")


def _by_sockets(printed: AllPrinted, name: str, words: str, column: str) -> Table:
    """Results in Mbit/s, by what the words find: a column each, and the number of sockets."""
    by_case = by_words(measurements(printed, name), words)
    columns, counts = (sorted({case[place] for case in by_case}, key=float) for place in (0, 1))
    rows = tuple(
        (
            count,
            *(
                mean_cell((one.mbit_per_s for one in by_case.get((of, count), ())), 1)
                for of in columns
            ),
        )
        for count in counts
    )
    return Table("By sockets", ("sockets", *map(column.format, columns)), rows)


def _at_once(printed: AllPrinted) -> Table:
    """Results of relays that are measured at once, beside table 4."""
    by_limit = by_words(measurements(printed, "at_once"), r"processor=(\d+)")
    rows = []
    for one in PUBLISHED["table_4"]:
        if ones := by_limit.get((str(one["limit"]),)):
            ours = _shares(measurement.after(10) for measurement in ones)
            of_paper = f"{one['least'] / 100:.2f} to {one['most'] / 100:.2f}"
            rows.append((f"{one['relays']} of {one['limit']}", of_paper, ours))
    return Table("At once", ("relays, Mbit/s", "paper: of true", "of true in 10 s"), tuple(rows))


def _clients(printed: AllPrinted) -> Table:
    """What clients had before, while and after a relay was measured, beside figure 7."""
    of_paper = PUBLISHED["figure_7"]
    published = (f"{of_paper['background_before']}", f"{of_paper['background_meanwhile']}", NOTHING)
    rows = [
        (
            of.of.given("--sockets") or NOTHING,
            of.of.given("--seed") or NOTHING,
            *(f"{one:.0f}" for one in of.clients),
        )
        for of in measurements(printed, "clients")
    ]
    columns = ("sockets", "seed", "before, Mbit/s", "meanwhile", "after")
    rows = [("160", "paper", *published), *rows] if rows else []
    return Table("Clients' traffic", columns, tuple(rows))


def _network(printed: AllPrinted) -> Table:
    """The errors of a network's capacity and weights (equations 3 and 6), over seeds."""
    usual, as_published = (_network_errors(printed, one) for one in ("network", "network_160"))
    if len(usual) < LEAST_SEEDS:
        return Table("A network's errors", ("error", "paper, %", "ours, %"), ())
    of_paper = PUBLISHED["figure_8"]
    columns = ("error", "paper, %", "ours, %", "ours with 160 connections and 30 s, %")
    rows = tuple(
        (
            name,
            f"{of_paper[key]}",
            *(
                mean_cell([one[name] for one in of], 1) if of else NOTHING
                for of in (usual, as_published)
            ),
        )
        for name, key in (("capacity", "capacity_error"), ("weights", "weight_error"))
    )
    return Table("A network's errors", columns, rows)


def _network_errors(printed: AllPrinted, name: str) -> list[dict[str, float]]:
    """Equations 3 and 6 of each network that was measured, in percent."""
    errors = []
    for of in printed.each(name):
        true = [one["true_bit_per_s"] for one in of.results]
        measured = [one["bit_per_s"] or 0 for one in of.results]
        of_capacity, of_weights = (one(measured, true) for one in (capacity_error, weight_error))
        errors.append({"capacity": 100 * of_capacity, "weights": 100 * of_weights})
    return errors


def _schedule(printed: AllPrinted) -> Table:
    """Schedules of the live network beside section 7."""
    of_paper = PUBLISHED["section_7"]
    rows = [
        ("July 2019 (paper)", *(f"{of_paper[key]:g}" for key in ("relays", "slots", "hours"))),
        *(
            (one["network"], str(one["relays"]), str(one["slots"]), f"{one['hours']:.1f}")
            for of in printed.each("schedule")
            for one in of.results
        ),
    ]
    return Table("The live network", ("network", "relays", "slots", "hours"), tuple(rows))
