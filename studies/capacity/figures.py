"""What is particular to this study: relays with slow processors, and relays that are measured."""

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analysis.cells import mean_cell
from analysis.metrics.metric import Metric
from analysis.metrics.transfers import CIRCUIT_ROUND_TRIP, STREAM_ROUND_TRIP, THROUGHPUT
from analysis.runs import Found, Group
from analysis.statistics import change, simultaneous_confidence
from analysis.table import Table
from analysis.wording import NOTHING, change_text
from study.printed import AllPrinted, Printed
from testbed.basics.toml_file import PROJECT, read_toml
from testbed.results import Run

LEAST_SEEDS = 3
"""What fewer seeds measured stands in no row."""

LEAST_RUNS = 2
"""What fewer runs showed stands in no row; rows say how many there are."""

PUBLISHED = read_toml(PROJECT / "studies" / "capacity" / "published.toml")
SCENARIOS = ("NoDropping", "SharedDropping")
PROCESSORS = ("50 Mbit/s", "100 Mbit/s", "400 Mbit/s", "free")
VARIANTS = ("vanilla", "pctls", "vanilla-vegas", "pctcp", "mctor-3")
SECONDS = (10, 20, 30)
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


def metrics(_found: Found) -> list[Metric]:
    """Metrics beside those of all runs."""
    return [BUSIEST]


def tables(found: Found, printed: AllPrinted) -> dict[str, Table]:
    """Eight clients whose relays are slow, and each series of measurements."""
    return {
        "gains": _gains(found),
        "processors": _processors(found),
        "this_host": _this_host(found),
        "rates": _rates(printed),
        "multipliers": _multipliers(printed),
        "sockets": _sockets(printed),
        "loss": _loss(printed),
        "at_once": _at_once(printed),
        "network": _network(printed),
        "schedule": _schedule(printed),
    }


def fields(found: Found, printed: AllPrinted) -> dict[str, object]:
    """What the page says in its sentences, as texts."""
    slow_relays = [
        run.summary.transfers
        for (_, processor, _), runs in _groups(found).items()
        if processor != "free"
        for run in runs
    ]
    gains = {row[:2]: row[5] for row in _gains(found).rows}
    by_rate = _by(_measurements(printed, "rates"), r"processor=(\d+)")
    errors = {int(rate): [one.error_percent for one in ones] for (rate,), ones in by_rate.items()}
    made = tables(found, printed)
    return {
        "host": read_toml(PROJECT / "studies" / "capacity" / "host.toml"),
        "there": lambda name: bool(made[name].rows),
        "change": lambda scenario, processor: gains.get((scenario, processor), NOTHING),
        "transfers": {
            "completed": sum(one.completed for one in slow_relays),
            "failed": sum(one.failed for one in slow_relays),
        },
        "errors": ", ".join(
            f"{_range(some)} at {rate} Mbit/s" for rate, some in sorted(errors.items())
        ),
    }


# Eight clients.


def _groups(found: Found) -> dict[tuple[str, str, str], Sequence[Run]]:
    """Runs by scenario, processor and variant; those with too few seeds are left out."""
    groups: dict[tuple[str, str, str], Sequence[Run]] = {}
    for part in reversed(found.parts):
        for group, runs in part.valid.items():
            if len(runs) >= LEAST_RUNS:
                groups[(*_scenario(group), group.variant)] = runs
    return groups


def _scenario(group: Group) -> tuple[str, str]:
    """A scenario's name, and how fast its relays' processors are."""
    name, _, changes = group.scenario.partition(",")
    if "per_call" in changes:
        return name, "a host's"
    rate = re.search(r"processor=(\d+)", changes)
    return name, f"{rate.group(1)} Mbit/s" if rate else "free"


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
    rows = tuple(
        (
            *names,
            str(min(map(len, pair))),
            *(mean_cell(THROUGHPUT.by_seed(runs).values(), THROUGHPUT.digits) for runs in pair),
            change_text(
                change(THROUGHPUT.by_seed(pair[0]), THROUGHPUT.by_seed(pair[1]), confidence)
            ),
            *(mean_cell(BUSIEST.by_seed(runs).values(), BUSIEST.digits) for runs in pair),
        )
        for names, pair in pairs.items()
    )
    columns = (
        *("scenario", "relays", "runs", "vanilla, MB/s", "pctls, MB/s", "pctls against vanilla"),
        *("vanilla: busiest, %", "pctls: busiest, %"),
    )
    return Table("What pctls changes where relays are slow", columns, rows)


def _processors(found: Found) -> Table:
    """Every variant at each speed of the relays."""
    shown = (THROUGHPUT, STREAM_ROUND_TRIP, CIRCUIT_ROUND_TRIP, BUSIEST)
    groups = _groups(found)
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
        free = groups.get((names[0], "free", names[1]), ())
        if runs:
            of_paper = one["throughput_mb_per_s"]
            rows.append(
                (
                    *names,
                    f"{of_paper['mean']:.2f} ± {of_paper['deviation']:.2f}",
                    mean_cell(THROUGHPUT.by_seed(free).values(), THROUGHPUT.digits),
                    mean_cell(THROUGHPUT.by_seed(runs).values(), THROUGHPUT.digits),
                    mean_cell(BUSIEST.by_seed(runs).values(), BUSIEST.digits),
                )
            )
    columns = ("scenario", "variant", "paper, MB/s", "free", "a host's", "busiest, %")
    return Table("With a host's costs", columns, tuple(rows))


# Relays that are measured.


@dataclass(frozen=True)
class Measurement:
    """A relay's result.

    Attributes:
        of: what the command printed it with.
        true_mbit_per_s: what the relay can carry.
        seconds: what was measured in each second, in Mbit/s.
    """

    of: Printed
    true_mbit_per_s: float
    mbit_per_s: float
    seconds: tuple[float, ...]

    @property
    def error_percent(self) -> float:
        """How far the result is from what the relay can carry."""
        return 100 * (self.mbit_per_s / self.true_mbit_per_s - 1)

    def after(self, seconds: int) -> float:
        """The result of a measurement that ended after some seconds, as a share of the true one."""
        return statistics.median(self.seconds[:seconds]) / self.true_mbit_per_s

    def values(self, pattern: str) -> tuple[str, ...]:
        """What a pattern finds in the command."""
        found = re.search(pattern, self.of.command)
        return found.groups() if found else ()


def _measurements(printed: AllPrinted, name: str) -> list[Measurement]:
    """The results of a series; relays without one are left out."""
    return [
        Measurement(
            of=of,
            true_mbit_per_s=one["true_bit_per_s"] / 1e6,
            mbit_per_s=one["bit_per_s"] / 1e6,
            seconds=tuple(second / 1e6 for second in one["seconds_bit_per_s"]),
        )
        for of in printed.each(name)
        for one in of.results
        if one["bit_per_s"] is not None
    ]


def _by(
    measurements: Iterable[Measurement], pattern: str
) -> dict[tuple[str, ...], list[Measurement]]:
    """Measurements by what a pattern finds in their commands; those of few seeds are left out."""
    groups: dict[tuple[str, ...], list[Measurement]] = {}
    for one in measurements:
        groups.setdefault(one.values(pattern), []).append(one)
    return {
        key: ones
        for key, ones in groups.items()
        if len({one.of.given("--seed") for one in ones}) >= LEAST_SEEDS
    }


def _range(values: Iterable[float]) -> str:
    """The least and the greatest of some percents."""
    known = sorted(values)
    return f"{known[0]:+.1f} to {known[-1]:+.1f} %" if known else NOTHING


def _shares(values: Iterable[float]) -> str:
    known = sorted(values)
    return f"{known[0]:.2f} to {known[-1]:.2f}" if known else NOTHING


def _rates(printed: AllPrinted) -> Table:
    """Results of 10, 20 and 30 s at each rate."""
    rows = []
    for (limit,), ones in _by(_measurements(printed, "rates"), r"processor=(\d+)").items():
        key = limit if limit in PUBLISHED["true_mbit_per_s"] else "none"
        of_paper = PUBLISHED["true_mbit_per_s"][key]
        cells = (_shares(one.after(seconds) for one in ones) for seconds in SECONDS)
        results = mean_cell((one.mbit_per_s for one in ones), 1)
        rows.append((key, f"{of_paper:g}", f"{ones[0].true_mbit_per_s:g}", results, *cells))
    columns = ("limit, Mbit/s", "paper: true", "true", "measured in 30 s")
    lengths = (f"of true in {seconds} s" for seconds in SECONDS)
    return Table("A relay's rate", (*columns, *lengths), tuple(rows))


def _multipliers(printed: AllPrinted) -> Table:
    """Results by the multiplier m."""
    rows = [
        (f"{float(factor) / 1.3125:g}", _shares(one.after(10) for one in ones))
        for (factor,), ones in _by(
            _measurements(printed, "multipliers"), r"--factor ([\d.]+)"
        ).items()
    ]
    usual = _by(_measurements(printed, "sockets"), r"(118ms --sockets 160)").values()
    rows += [("2.25", _shares(one.after(10) for one in ones)) for ones in usual]
    return Table("The multiplier m", ("m", "of true in 10 s"), tuple(sorted(rows)))


def _sockets(printed: AllPrinted) -> Table:
    """Results by the number of sockets, and by the round trip."""
    by_case = _by(_measurements(printed, "sockets"), r"places/(\d+)ms --sockets (\d+)")
    trips, counts = (sorted({int(case[place]) for case in by_case if case}) for place in (0, 1))
    rows = tuple(
        (
            str(count),
            *(
                mean_cell((one.mbit_per_s for one in by_case.get((str(trip), str(count)), ())), 1)
                for trip in trips
            ),
        )
        for count in counts
    )
    return Table("Sockets and round trips", ("sockets", *(f"{one} ms" for one in trips)), rows)


def _loss(printed: AllPrinted) -> Table:
    """Results by the loss on the way, and the number of sockets."""
    rows = tuple(
        (f"{loss} %", sockets, mean_cell((one.mbit_per_s for one in ones), 1))
        for (loss, sockets), ones in _by(
            _measurements(printed, "loss"), r"network.loss=([\d.]+) %. --sockets (\d+)"
        ).items()
    )
    return Table("Loss", ("loss", "sockets", "Mbit/s"), rows)


def _at_once(printed: AllPrinted) -> Table:
    """Results of relays that are measured at once, beside table 4."""
    by_limit = _by(_measurements(printed, "at_once"), r"processor=(\d+)")
    rows = []
    for one in PUBLISHED["table_4"]:
        if ones := by_limit.get((str(one["limit"]),)):
            ours = _shares(measurement.after(10) for measurement in ones)
            of_paper = f"{one['least'] / 100:.2f} to {one['most'] / 100:.2f}"
            rows.append((f"{one['relays']} of {one['limit']}", of_paper, ours))
    return Table("At once", ("relays, Mbit/s", "paper: of true", "of true in 10 s"), tuple(rows))


def _network(printed: AllPrinted) -> Table:
    """The errors of a network's capacity and weights (equations 3 and 6), over seeds."""
    capacities, weights = [], []
    for of in printed.each("network"):
        true = [one["true_bit_per_s"] for one in of.results]
        measured = [one["bit_per_s"] or 0 for one in of.results]
        capacities.append(100 * (1 - sum(measured) / sum(true)))
        weights.append(
            50
            * sum(
                abs(one / sum(measured) - other / sum(true))
                for one, other in zip(measured, true, strict=True)
            )
        )
    if len(capacities) < LEAST_SEEDS:
        return Table("A network's errors", ("error", "paper, %", "ours, %"), ())
    of_paper = PUBLISHED["figure_8"]
    rows = (
        ("capacity", f"{of_paper['capacity_error']}", mean_cell(capacities, 1)),
        ("weights", f"{of_paper['weight_error']}", mean_cell(weights, 1)),
        ("weights, TorFlow", f"{of_paper['weight_error_torflow']}", NOTHING),
    )
    return Table("A network's errors", ("error", "paper, %", "ours, %"), rows)


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
