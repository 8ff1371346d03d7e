"""Distributions of times, by variant.

The plots by measure and by model look like figures 13 and 14 of *Examining the Hydra*. The axis of
shares is tail-logarithmic, as users notice how long the slowest transfers take.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars
from matplotlib.figure import Figure
from numpy.typing import NDArray

from analysis import run_values, style
from analysis.alternative import number
from analysis.figures import Part
from analysis.order import SCENARIO_ORDER, TRAFFIC_ORDER
from analysis.plot import Plot
from analysis.runs import Group, Groups
from analysis.whole_networks import is_drawn, of_class
from testbed.results import Run

PART = Part.SECTION
HEADING = "Distributions"
ORDER = 20

TWO_CLIENTS_TOPOLOGY = "two_clients"
"""The topology whose scenarios are plotted by traffic model, as in figure 14."""

MOST_STEPS = 300
"""The most steps of a distribution that are plotted; a panel is some 200 dots high."""

HOW_TO_READ = (
    "The share of all runs' transfers, circuits or probes that took at most the time on the x axis."
    " The y axis has a logarithmic tail: 0, 0.9 and 0.99 are equally far apart."
)
OWN_AXES = "Each panel has its own x axis; where scales differ, it is broken (slashes)."

_PANEL_INCHES = 1.3


@dataclass(frozen=True)
class Measure:
    """A kind of time whose distribution is plotted.

    Attributes:
        name: the name for readers.
        unit: the unit of the times.
        things: what took the times, such as transfers.
        of: reads the times of one run.
    """

    name: str
    unit: str
    things: str
    of: Callable[[Run], polars.Series]


TIME_TO_LAST_BYTE = Measure(
    *("time to last byte", "s", "transfers"),
    lambda run: run_values.transfers(run)["time_to_last_byte_s"].drop_nulls(),
)
BUILD_TIME = Measure("circuit build time", "ms", "circuits", run_values.build_times_ms)
STREAM_ROUND_TRIP = Measure(
    "stream round trip", "ms", "transfers", run_values.stream_round_trips_ms
)
CIRCUIT_ROUND_TRIP = Measure(
    "circuit round trip", "ms", "probes", run_values.circuit_round_trips_ms
)


@dataclass(frozen=True)
class CumulativeDistribution:
    """An empirical cumulative distribution.

    Attributes:
        values: in ascending order.
        shares: for each of these, the share of all values that are at most as large.
        count: the number of values before thinning.
    """

    values: NDArray[np.float64]
    shares: NDArray[np.float64]
    count: int

    @property
    def median(self) -> float:
        """The least value that half of all values don't exceed, as far as thinning keeps it."""
        return float(self.values[np.searchsorted(self.shares, 0.5)])

    @classmethod
    def of(cls, values: Iterable[float]) -> "CumulativeDistribution":
        """The distribution of at least one value, thinned to what a plot can show.

        It keeps the first value, the last, and ranks at even distances on a tail-logarithmic axis.
        """
        ordered = np.sort(np.fromiter(values, dtype=np.float64))
        count = len(ordered)
        distances = np.linspace(0, math.log10(count), MOST_STEPS)
        ranks = np.unique(np.append(count * (1 - 10**-distances), count - 1).astype(int))
        return cls(ordered[ranks], (ranks + 1) / count, count)


Curves = Mapping[str, CumulativeDistribution]
"""Curves by variant."""


@dataclass(frozen=True)
class PanelRow:
    """A row of panels.

    Attributes:
        share_label, value_label: the labels of the axes.
        panels: the curves of each scenario; empty without runs.
    """

    share_label: str
    value_label: str
    panels: Sequence[Curves]

    def curves(self) -> list[CumulativeDistribution]:
        """All curves of the row, over its panels."""
        return [curve for curves in self.panels for curve in curves.values()]


def plots(groups: Groups, looks: style.Looks) -> Iterator[Plot]:
    """A set of plots for each kind of runs.

    Kinds differ in topology, in duration, in whether links carry bundles, and in the scenario if
    runs changed its values.

    Raises:
        TestbedError: a run's plan or a table can't be read.
    """
    for setting in dict.fromkeys(_setting(item) for item in groups.items()):
        topology, duration_s, in_bundles, changed = setting
        chosen = dict(item for item in groups.items() if _setting(item) == setting)
        by_time = _by_model if topology == TWO_CLIENTS_TOPOLOGY else _by_measure
        bundles = "-bundles" if in_bundles else ""
        of_changed = f"-{changed}-changed" if changed else ""
        where = f"{topology}-{duration_s:g}s{bundles}{of_changed}"
        yield from by_time(chosen, looks, where)
        if drawn := {group: runs for group, runs in chosen.items() if is_drawn(runs[0])}:
            yield from _by_class(drawn, looks, where)


def _setting(item: tuple[Group, Sequence[Run]]) -> tuple[str, float, bool, str]:
    group, runs = item
    plan = runs[0].plan
    changed = plan.unchanged_scenario if plan.changes else ""
    return plan.topology, group.duration_s, group.in_bundles, changed


def _by_measure(groups: Groups, looks: style.Looks, where: str) -> Iterator[Plot]:
    """Figure 13, once for each traffic model: a row for each measure."""
    for model in _in_order((group.traffic for group in groups), TRAFFIC_ORDER):
        names = (group.scenario for group in groups if group.traffic == model)
        scenarios = _in_order(names, SCENARIO_ORDER)
        rows = [
            row
            for measure in _measures(groups)
            if (
                row := _row(groups, measure, scenarios, [model], f"share of {measure.things}")
            ).curves()
        ]
        if not rows:
            continue
        yield Plot(
            name=f"distributions-{model}-{where}",
            title=f"Transfers, circuits and round trips by scenario, {model}",
            caption=f"{HOW_TO_READ} {_counts(rows)}",
            figure=_figure(rows, scenarios, looks, own_axes=False),
            shows=_words(rows, scenarios),
        )


def _by_model(groups: Groups, looks: style.Looks, where: str) -> Iterator[Plot]:
    """Figure 14, once for each measure: a row for each traffic model."""
    scenarios = _in_order((group.scenario for group in groups), SCENARIO_ORDER)
    models = _in_order((group.traffic for group in groups), TRAFFIC_ORDER)
    for measure in _measures(groups):
        rows = [
            _row(groups, measure, scenarios, [model], f"{model}: share of {measure.things}")
            for model in models
        ]
        if measure is BUILD_TIME:
            # Circuits are built before there is traffic, so one row stands for all models.
            rows = [_row(groups, measure, scenarios, models, f"share of {measure.things}")]
        yield Plot(
            name=f"{measure.name.replace(' ', '-')}-{where}",
            title=f"{measure.name.capitalize()} of two clients by scenario and traffic model",
            caption=f"{HOW_TO_READ} {OWN_AXES} {_counts(rows)}",
            figure=_figure(rows, scenarios, looks, own_axes=True),
            shows=_words(rows, scenarios),
        )


def _by_class(groups: Groups, looks: style.Looks, where: str) -> Iterator[Plot]:
    """Times in drawn networks, a plot for each measure: a row for each class of clients."""
    scenarios = _in_order((group.scenario for group in groups), SCENARIO_ORDER)
    models = {
        model
        for runs in groups.values()
        for run in runs
        for model in run.plan.traffic_by_client.values()
    }
    for name, column in (
        ("time to first byte", "time_to_first_byte_s"),
        ("time to last byte", "time_to_last_byte_s"),
    ):
        rows = [
            PanelRow(
                f"{model}:\nshare of transfers",
                f"{name}, s",
                [_of_class(groups, scenario, model, column) for scenario in scenarios],
            )
            for model in _in_order(models, TRAFFIC_ORDER)
        ]
        yield Plot(
            name=f"{name.replace(' ', '-')}-by-class-{where}",
            title=f"{name.capitalize()} by class of client",
            caption=f"{HOW_TO_READ} {OWN_AXES} {_counts(rows)}",
            figure=_figure(rows, scenarios, looks, own_axes=True),
            shows=_words(rows, scenarios),
        )


def _of_class(groups: Groups, scenario: str, model: str, column: str) -> Curves:
    values: dict[str, list[float]] = defaultdict(list)
    for group, runs in groups.items():
        if group.scenario == scenario:
            for run in runs:
                values[group.variant] += of_class(run, model)[column].drop_nulls().to_list()
    return {variant: CumulativeDistribution.of(some) for variant, some in values.items() if some}


def _measures(groups: Groups) -> tuple[Measure, ...]:
    """The measures of figures 13 and 14; the third needs runs that recorded it."""
    recorded = any(len(STREAM_ROUND_TRIP.of(run)) for runs in groups.values() for run in runs)
    return TIME_TO_LAST_BYTE, BUILD_TIME, STREAM_ROUND_TRIP if recorded else CIRCUIT_ROUND_TRIP


def _row(
    groups: Groups, measure: Measure, scenarios: Sequence[str], models: Sequence[str], label: str
) -> PanelRow:
    panels = [_curves(groups, measure, scenario, models) for scenario in scenarios]
    return PanelRow(label, f"{measure.name}, {measure.unit}", panels)


def _curves(groups: Groups, measure: Measure, scenario: str, models: Sequence[str]) -> Curves:
    """The times of all runs together, by variant; a variant without times has no curve."""
    values: dict[str, list[float]] = defaultdict(list)
    for group, runs in groups.items():
        if group.scenario == scenario and group.traffic in models:
            values[group.variant] += [value for run in runs for value in measure.of(run)]
    return {variant: CumulativeDistribution.of(some) for variant, some in values.items() if some}


def _in_order(names: Iterable[str], first: Sequence[str]) -> list[str]:
    """The names without repetitions: those in `first` in its order, then the others by name."""
    found = set(names)
    return [*(name for name in first if name in found), *sorted(found.difference(first))]


def _words(rows: Sequence[PanelRow], scenarios: Sequence[str]) -> str:
    """The median and the largest value of each line."""
    return " ".join(
        f"{' '.join(row.share_label.split())} over {row.value_label}, {scenario}: "
        + "; ".join(
            f"{variant}: half at most {number(curve.median)}, all at most"
            f" {number(curve.values[-1])}"
            for variant, curve in curves.items()
        )
        + "."
        for row in rows
        for scenario, curves in zip(scenarios, row.panels, strict=True)
        if curves
    )


def _counts(rows: Sequence[PanelRow]) -> str:
    counts = [curve.count for row in rows for curve in row.curves()]
    return f"A line has {min(counts)} to {max(counts)} values." if counts else "No run has a value."


def _figure(
    rows: Sequence[PanelRow], scenarios: Sequence[str], looks: style.Looks, *, own_axes: bool
) -> Figure:
    """The panels, a column for each scenario.

    Args:
        own_axes: give each panel its own x axis, which may be broken; otherwise a row shares one.
    """
    row_gap_inches = 0.3 if own_axes else 0.45
    plotted = {name for row in rows for curves in row.panels for name in curves}
    named = {name: look for name, look in looks.items() if name in plotted}
    titles = [style.wrapped(scenario) for scenario in scenarios]
    figure, places = style.grid(
        len(rows),
        len(scenarios),
        panel_inches=_PANEL_INCHES,
        row_gap_inches=row_gap_inches,
        names=named,
        titles=titles,
    )
    for row_number, row in enumerate(rows):
        for column, curves in enumerate(row.panels):
            seen = curves.values() if own_axes else row.curves()
            values = sorted(float(value) for curve in seen for value in curve.values) or [0.0]
            panel = style.panel(figure, places[row_number, column], values, broken=own_axes)
            _plot_curves(panel, curves, looks)
            for part in panel.parts:
                style.scale_tail(part, max((curve.count for curve in row.curves()), default=1))
            if row_number == 0:
                panel.frame.set_title(titles[column])
            if column == 0:
                panel.frame.set_ylabel(row.share_label)
            else:
                panel.hide_y_numbers()
            if not own_axes or row is rows[-1]:
                panel.frame.set_xlabel(row.value_label)
    style.name_lines(figure, named)
    return figure


def _plot_curves(panel: style.Panel, curves: Curves, looks: style.Looks) -> None:
    if not curves:
        panel.frame.text(0.5, 0.5, "no runs", transform=panel.frame.transAxes, ha="center")
    for part in panel.parts:
        for variant, curve in curves.items():
            part.plot(
                [curve.values[0], *curve.values],
                [0, *curve.shares],
                drawstyle="steps-post",
                label=variant,
                **looks[variant],
            )
