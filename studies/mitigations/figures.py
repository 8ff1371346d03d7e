"""What is particular to this study: gains beside costs, and its two figures."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import style
from analysis.cells import mean_cell
from analysis.figures.sweeps import cubic_mb_per_s
from analysis.metrics.costs import CONNECTIONS, TOR_MEMORY, WIRE_BYTES
from analysis.metrics.metric import Metric
from analysis.metrics.transfers import CIRCUIT_BUILD_TIME, STREAM_ROUND_TRIP, THROUGHPUT
from analysis.plot import Plot
from analysis.runs import Found
from analysis.statistics import (
    Change,
    Interval,
    change,
    mean_interval,
    simultaneous_confidence,
)
from analysis.table import Table
from analysis.wording import NOTHING, change_text, verdict_word
from testbed.results import Run

LOSSY, LOSSLESS, TWO_PATHS = "SharedDropping", "NoDropping", "TwoPaths"
LOSSES = {"0.01 %": 0.0001, "0.1 %": 0.001, "0.5 %": 0.005, "1 %": 0.01}
CIRCUITS = (1, 2, 4, 8, 16)
VARIANTS = (
    *("vanilla", "vanilla-kistlite", "vanilla-vegas", "shared-by-number-3"),
    *("own-up-to-2", "own-up-to-3", "own-up-to-4", "own-up-to-6", "own-up-to-8"),
    *("pctls", "pctcp", "mctor-3", "pctls-vegas"),
)
LINKED = ("vanilla", "vanilla-vegas", "pctls", "pctls-vegas", "conflux", "pctls-conflux")
ROUND_TRIP_S = 0.025
"""Of the shared link, on which the closed form is for 0.1 % loss 2.17 MB/s."""

Runs = Mapping[tuple[str, str], Sequence[Run]]
"""Runs by scenario and variant."""


def _runs(found: Found) -> Runs:
    return {
        (group.scenario, group.variant): runs
        for part in reversed(found.parts)
        for group, runs in part.valid.items()
    }


def _of_loss(loss: str) -> str:
    """The scenario with that loss: 0.1 % is the file's own."""
    if loss == "0.1 %":
        return LOSSY
    return f"{LOSSY},links.middle-exit.loss={loss.replace(' ', '')}"


def _of_circuits(circuits: int) -> str:
    """The scenario with that many clients: eight is the file's own."""
    return LOSSY if circuits == 8 else f"{LOSSY},parameters.clients={circuits}"


def tables(found: Found) -> dict[str, Table]:
    """Gains and costs by variant, by loss, by circuits, and where there are two paths."""
    runs = _runs(found)
    return {
        "gains": _gains(runs),
        "costs": _costs(runs),
        "losses": _losses(runs),
        "circuits": _circuits(runs),
        "two_paths": _two_paths(runs),
    }


def fields(found: Found) -> dict[str, object]:
    """Verdicts of the tables, and a sentence on rows of one run."""
    runs = _runs(found)
    of_tables = (
        (LOSSY, VARIANTS, _confidence_of_gains(runs)),
        (LOSSLESS, VARIANTS, _confidence_of_gains(runs)),
        (TWO_PATHS, LINKED, _confidence_of_two_paths(runs)),
    )
    decided = {
        (scenario, variant): _changed(runs, scenario, variant, THROUGHPUT, confidence)
        for scenario, variants, confidence in of_tables
        for variant in variants[1:]
    }
    return {
        "verdict": lambda scenario, variant: verdict_word(
            THROUGHPUT, decided.get((scenario, variant))
        ),
        "changed": lambda scenario, variant: change_text(decided.get((scenario, variant))),
        "those": lambda scenario, word: _those(decided, scenario, word),
        "one_seed": lambda: _with_one_seed(runs),
    }


def _changed(
    runs: Runs, scenario: str, variant: str, metric: Metric, confidence: float
) -> Change | None:
    """The change against vanilla in the same scenario."""
    before, after = (
        metric.by_seed(runs.get((scenario, name), ())) for name in ("vanilla", variant)
    )
    return change(before, after, confidence)


def _those(decided: Mapping[tuple[str, str], Change | None], scenario: str, word: str) -> str:
    """The variants of a scenario of which the runs say that, or "none"."""
    names = [
        f"`{variant}`"
        for (at, variant), changed in decided.items()
        if at == scenario and verdict_word(THROUGHPUT, changed) == word
    ]
    return ", ".join(names) or "none"


def _with_one_seed(runs: Runs) -> str:
    """A sentence where rows are of one run, and so examples; nothing if none is."""
    ones = sum(len(some) == 1 for some in runs.values())
    if not ones:
        return ""
    return (
        f"**Of {ones} of the {len(runs)} groups of runs below only one seed is made: their numbers,"
        " without ±, are examples, and nothing is decided by them.**"
    )


def _cells(runs: Sequence[Run], *metrics: Metric) -> tuple[str, ...]:
    return tuple(mean_cell(metric.by_seed(runs).values(), metric.digits) for metric in metrics)


def _confidence_of_gains(runs: Runs) -> float:
    """The confidence of each interval, so that all of the table hold together with 95 %."""
    pairs = product((LOSSY, LOSSLESS), VARIANTS[1:])
    return simultaneous_confidence(max(1, sum(pair in runs for pair in pairs)))


def _confidence_of_two_paths(runs: Runs) -> float:
    """The same where there are two paths: of two metrics."""
    return simultaneous_confidence(max(1, 2 * sum((TWO_PATHS, one) in runs for one in LINKED[1:])))


def _gains(runs: Runs) -> Table:
    """Throughput with and without loss, with the changes against vanilla."""
    there = [name for name in VARIANTS if (LOSSY, name) in runs]
    confidence = _confidence_of_gains(runs)
    rows = []
    for name in there:
        cells: list[str] = []
        for scenario in (LOSSY, LOSSLESS):
            changed = _changed(runs, scenario, name, THROUGHPUT, confidence)
            cells += _cells(runs.get((scenario, name), ()), THROUGHPUT)
            cells.append(NOTHING if name == "vanilla" else change_text(changed))
        rows.append((name, *cells))
    columns = ("variant", "0.1 % loss, MB/s", "change", "no loss, MB/s", "change ")
    return Table("Throughput by variant", columns, tuple(rows))


def _costs(runs: Runs) -> Table:
    """What variants cost on the lossy link."""
    shown = {
        "stream round trip, ms": STREAM_ROUND_TRIP,
        "build time, ms": CIRCUIT_BUILD_TIME,
        "connections": CONNECTIONS,
        "Tor, MB": TOR_MEMORY,
        "on the wire": WIRE_BYTES,
    }
    rows = tuple(
        (name, *_cells(runs[LOSSY, name], *shown.values()))
        for name in VARIANTS
        if (LOSSY, name) in runs
    )
    return Table("Costs by variant", ("variant", *shown), rows)


def _losses(runs: Runs) -> Table:
    names = ("vanilla", "own-up-to-3", "pctls")
    rows = tuple(
        (
            loss,
            f"{cubic_mb_per_s(share, ROUND_TRIP_S):.2f}",
            *(_cells(runs.get((_of_loss(loss), name), ()), THROUGHPUT)[0] for name in names),
        )
        for loss, share in LOSSES.items()
    )
    return Table("Throughput by loss, MB/s", ("loss", "closed form", *names), rows)


def _circuits(runs: Runs) -> Table:
    whole = cubic_mb_per_s(LOSSES["0.1 %"], ROUND_TRIP_S)
    names = ("vanilla", "pctls")
    rows = tuple(
        (
            str(circuits),
            f"{whole / circuits:.2f}",
            *(
                _cells(runs.get((_of_circuits(circuits), name), ()), THROUGHPUT)[0]
                for name in names
            ),
        )
        for circuits in CIRCUITS
    )
    columns = ("circuits", "closed form: they share a window", *names)
    return Table("Throughput by circuits on the link, MB/s", columns, rows)


def _two_paths(runs: Runs) -> Table:
    there = [name for name in LINKED if (TWO_PATHS, name) in runs]
    compared = (THROUGHPUT, STREAM_ROUND_TRIP)
    confidence = _confidence_of_two_paths(runs)
    rows = []
    for name in there:
        cells: list[str] = []
        for metric in compared:
            changed = _changed(runs, TWO_PATHS, name, metric, confidence)
            cells += _cells(runs[TWO_PATHS, name], metric)
            cells.append(NOTHING if name == "vanilla" else change_text(changed))
        cells += _cells(runs[TWO_PATHS, name], CONNECTIONS)
        rows.append((name, *cells))
    columns = ("variant", "MB/s", "change", "stream round trip, ms", "change ", "connections")
    return Table("Two paths", columns, tuple(rows))


class Point(NamedTuple):
    """A variant in the figure: its price, its gain, and the gain's 95 % interval over seeds."""

    name: str
    connections: float
    mb_per_s: float
    interval: Interval | None


SHOWN = {
    LOSSY: ("Eight circuits on a link that loses 0.1 %", VARIANTS),
    TWO_PATHS: ("Two clients, two paths of 20 Mbit/s", LINKED),
}
"""The panels of the figure by scenario: title and variants."""
BESIDE_X, BESIDE_Y = 1.04, 0.07
"""Points so near, by the ratio of prices and by the share of the greatest gain, have one label."""


def plots(found: Found) -> Iterator[Plot]:
    """Gain against price: a point for each variant, on the lossy link and on two paths."""
    points = {scenario: _points(_runs(found), scenario) for scenario in SHOWN}
    if not any(points.values()):
        return
    yield Plot(
        name="gain-against-price",
        title="Gain against price",
        caption="Bars are 95 % intervals of the mean over seeds; without one, a single seed is"
        " made. Up and to the left is better.",
        figure=_gain_against_price(points, style.WIDTH_INCHES),
        narrow=_gain_against_price(points, style.NARROW_INCHES),
        shows=" ".join(
            f"{SHOWN[scenario][0]}: "
            + ", ".join(
                f"{one.name} {one.mb_per_s:.2f} MB/s with {one.connections:.0f} connections"
                for one in some
            )
            + "."
            for scenario, some in points.items()
        ),
    )


def _points(runs: Runs, scenario: str) -> list[Point]:
    """The variants of a scenario that have runs with both numbers."""
    found = []
    for name in SHOWN[scenario][1]:
        gains, prices = (
            list(metric.by_seed(runs.get((scenario, name), ())).values())
            for metric in (THROUGHPUT, CONNECTIONS)
        )
        if gains and prices:
            found.append(Point(name, fmean(prices), fmean(gains), mean_interval(gains)))
    return found


def _gain_against_price(points: Mapping[str, Sequence[Point]], width_inches: float) -> Figure:
    """The figure, of a panel for each scenario, one below the other."""
    titles = [title for title, _ in SHOWN.values()]
    figure, places = style.grid(
        *(len(SHOWN), 1), panel_inches=2.5, row_gap_inches=0.7, titles=titles,
        least_width_inches=width_inches,
    )  # fmt: skip
    for row, (scenario, (title, _)) in enumerate(SHOWN.items()):
        panel = figure.add_subplot(places[row, 0])
        panel.set_title(style.wrapped(title, width_inches))
        some = points[scenario]
        for one in reversed(some):  # vanilla, the first, on top
            low, high = one.interval or (one.mb_per_s, one.mb_per_s)
            panel.errorbar(
                [one.connections],
                [one.mb_per_s],
                yerr=[[one.mb_per_s - low], [high - one.mb_per_s]],
                marker="o",
                markersize=4,
                capsize=2,
                color=style.COLOURS[0 if one.name == "vanilla" else 1],
            )
        prices = [one.connections for one in some] or [1.0]
        style.scale_values(panel, min(prices) / 2, 1.6 * max(prices))
        panel.set_ylim(0, 1.15 * max((one.mb_per_s for one in some), default=1.0))
        _name_points(panel, some)
        panel.set_ylabel("throughput of a client, MB/s")
    panel.set_xlabel("connections of the relay that has most")
    return figure


def _name_points(panel: Axes, points: Sequence[Point]) -> None:
    """Name each point at its right, or at its left if there is another one.

    Points that are near each other have one label.
    """
    beside: list[list[Point]] = []
    greatest = max((one.mb_per_s for one in points), default=1.0)
    for one in sorted(points, key=lambda point: (-point.mb_per_s, point.connections)):
        near = (
            some
            for some in beside
            if max(one.connections, some[0].connections)
            <= BESIDE_X * min(one.connections, some[0].connections)
            and some[-1].mb_per_s - one.mb_per_s <= BESIDE_Y * greatest
        )
        if (group := next(near, None)) is None:
            beside.append([one])
        else:
            group.append(one)
    for some in beside:
        height = fmean(one.mb_per_s for one in some)
        at_right = any(
            some[0].connections < one.connections < 1.7 * some[0].connections
            and abs(one.mb_per_s - height) <= BESIDE_Y * greatest
            for one in points
            if one not in some
        )
        panel.annotate(
            "\n".join(one.name for one in some),
            (some[0].connections, height),
            xytext=(-6 if at_right else 6, 0),
            textcoords="offset points",
            ha="right" if at_right else "left",
            va="center",
            fontsize=7,
        )
