"""Throughput over a value of the scenario, such as a loss, that differs between runs.

The runs' plans have these values (`Plan.changes`).
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from statistics import fmean

import numpy as np
from matplotlib.figure import Figure

from analysis import style
from analysis.figures import Part
from analysis.metrics.transfers import THROUGHPUT
from analysis.plot import Plot
from analysis.runs import Groups
from analysis.statistics import mean_interval
from testbed.basics.toml_file import Value
from testbed.basics.units import loss_fraction
from testbed.plan.model import Plan
from testbed.results import Run

PART = Part.SECTION
HEADING = "Throughput over a value"
ORDER = 10

Points = Sequence[tuple[float, Sequence[Run]]]
"""Values in ascending order, with the runs of each."""

SEGMENT_BYTES = 1448
"""The bytes of a TCP stream in a full segment."""
CELL_PAYLOAD_BYTES = 498
"""What a relay cell of version 0 carries of a stream."""
CELL_SHARE = CELL_PAYLOAD_BYTES / 514
"""The payload of a relay cell, as a share of its size on the wire."""

CAPTION = (
    "Mean throughput of a transfer, with the 95 % confidence interval over runs where there are two"
    " or more, over {key}."
)
CUBIC_CAPTION = (
    " Grey: the closed form of CUBIC's average window (RFC 9438, section 5; the Reno-friendly one"
    " where that is larger) on the shared link, with its round trip when nothing waits: for one"
    " connection that {circuits} circuits share, and for a connection of each."
)

_PANEL_INCHES = 2.6
_CURVE_POINTS = 100


def plots(groups: Groups, _looks: style.Looks) -> Iterator[Plot]:
    """A plot for each scenario and key with runs of several values.

    Its lines have looks of their own, as in a report on many variants some look alike.

    Raises:
        TestbedError: a run's plan or a table can't be read.
    """
    swept: dict[tuple[str, ...], dict[str, list[tuple[float, Sequence[Run]]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for group, runs in groups.items():
        plan = runs[0].plan
        for key, value in plan.changes.items():
            with suppress(ValueError):
                others = (f"{one}={given}" for one, given in plan.changes.items() if one != key)
                where = (plan.unchanged_scenario, group.traffic, f"{group.duration_s:g}")
                swept[(key, *where, *others)][group.variant].append((number_of(key, value), runs))
    for of_sweep, by_variant in swept.items():
        key, *setting = of_sweep
        lines = {name: sorted(points, key=_value) for name, points in by_variant.items()}
        if max(map(len, lines.values())) > 1:
            yield _plot(key, setting, lines)


def number_of(key: str, value: Value) -> float:
    """A value as a number; a loss as a share.

    Raises:
        ValueError: it is not a number.
    """
    return loss_fraction(value) if key.endswith(".loss") else float(value)


def cubic_window_segments(loss: float, round_trip_s: float) -> float:
    """CUBIC's average window at a random loss, in segments (RFC 9438, sections 4.3, 5.1 and 5.2).

    With β = 0.7 and C = 0.4 it is 1.054 · RTT^(3/4) / p^(3/4), but at least Reno's √(3 / 2p),
    which CUBIC follows where round trips are short.
    """
    beta, scale = 0.7, 0.4
    cubic = (scale * (3 + beta) / (4 * (1 - beta))) ** 0.25 * (round_trip_s / loss) ** 0.75
    return max(float(cubic), math.sqrt(3 / (2 * loss)))


def cubic_mb_per_s(loss: float, round_trip_s: float) -> float:
    """The rate of cell payload that such a window carries; 1 MB = 10^6 bytes."""
    window_bytes = cubic_window_segments(loss, round_trip_s) * SEGMENT_BYTES
    return window_bytes * CELL_SHARE / round_trip_s / 1e6


def _value(point: tuple[float, Sequence[Run]]) -> float:
    return point[0]


def _plot(key: str, where: Sequence[str], lines: Mapping[str, Points]) -> Plot:
    plan = next(iter(lines.values()))[0][1][0].plan
    figure = _figure(key, lines)
    caption = CAPTION.format(key=key)
    positive = [point[0] for points in lines.values() for point in points if point[0] > 0]
    if positive and (round_trip_s := _lossy_round_trip_s(key, plan)):
        _plot_cubic(figure, round_trip_s, len(plan.paths), min(positive), max(positive))
        caption += CUBIC_CAPTION.format(circuits=len(plan.paths))
    return Plot(
        name="-".join(["sweep", *where, key]).replace(".", "-"),
        title=f"{', '.join(where)} s: throughput over {key}" if len(where) == 3 else key,
        caption=caption,
        figure=figure,
    )


def _figure(key: str, lines: Mapping[str, Points]) -> Figure:
    looks = style.looks(lines)
    figure, places = style.grid(1, 1, panel_inches=_PANEL_INCHES, names=lines)
    panel = places.subplots(squeeze=False)[0, 0]
    steps: set[float] = set()
    plotted: list[float] = []
    factor = 100 if key.endswith(".loss") else 1
    for variant, points in lines.items():
        known = [
            (factor * value, list(numbers))
            for value, runs in points
            if (numbers := THROUGHPUT.by_seed(runs).values())
        ]
        means = [fmean(numbers) for _, numbers in known]
        intervals = [mean_interval(numbers) for _, numbers in known]
        reaches = [
            one.high - mean if one else 0 for one, mean in zip(intervals, means, strict=True)
        ]
        values = [value for value, _ in known]
        steps.update(values)
        plotted += means
        panel.errorbar(values, means, reaches, capsize=2, label=variant, **looks[variant])
    panel.set_xlabel(f"{key}, %" if factor == 100 else key)
    panel.set_ylabel(THROUGHPUT.label)
    style.scale_steps(panel, sorted(steps), plotted)
    style.name_lines(figure, {name: looks[name] for name in lines})
    return figure


def _lossy_round_trip_s(key: str, plan: Plan) -> float:
    """The round trip of the shared link if the key is its loss of single packets; else 0.

    The closed form doesn't hold for the loss of another link, or of whole bundles.
    """
    for link in plan.links:
        its_loss = key == f"links.{'-'.join(link.roles)}.loss"
        if link.ends == plan.shared_link and its_loss and not link.there.bundles:
            return (link.there.delay_ms + link.back.delay_ms) / 1000
    return 0.0


def _plot_cubic(
    figure: Figure, round_trip_s: float, all_circuits: int, least: float, greatest: float
) -> None:
    """Plot the two lines of the closed form between two losses, within the y axis."""
    (panel,) = figure.axes
    losses = np.geomspace(least, greatest, _CURVE_POINTS)
    reach = panel.get_ylim()
    for circuits, dashes in ((all_circuits, ":"), (1, "--")):
        rates = [cubic_mb_per_s(loss, round_trip_s) / circuits for loss in losses]
        panel.plot(100 * losses, rates, color=style.BESIDE, linestyle=dashes, zorder=0)
    panel.set_ylim(reach)
