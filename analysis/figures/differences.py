"""Variants against the first one: a row for each, in a panel for each metric, with intervals.

The differences are computed in `analysis.comparison`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from analysis import style
from analysis.comparison import Compared, compare_groups, headlines
from analysis.figures import Part
from analysis.metrics.metric import Metric
from analysis.page import slug
from analysis.plot import Plot
from analysis.runs import Groups
from analysis.statistics import Change, Verdict
from analysis.wording import change_text, percent

PART = Part.TRAFFIC
ORDER = 10

CAPTION = (
    "How each variant differs from {first} (the grey line), with the intervals of the scenario's"
    " whole comparison, which hold together with 95 % confidence. Hollow: the runs don't decide"
    " whether there is a difference. Axes show ratios: half and twice are equally"
    " far from the grey line."
)

_ROW_INCHES, _LETTER_INCHES = 0.22, 0.062
_ROW_GAP_INCHES = 0.75
_COLUMNS = 4
_TITLE_LETTERS, _NARROW_TITLE_LETTERS = 24, 40
_WIDE = 4.0
"""The factor beyond a panel's largest difference at which longer intervals are cut off."""
_TICKS = (1, 1.5, 2, 3, 5, 7)


def plots(groups: Groups, looks: style.Looks) -> Iterator[Plot]:
    """The plot of all variants against the first, if there are several others."""
    if len(groups) > 2:
        title, compared = compare_groups(groups)
        if plot := differences(title, f"differences-{slug(title)}", compared, looks):
            yield plot


def differences(
    title: str, name: str, compared: Sequence[Compared], looks: style.Looks | None = None
) -> Plot | None:
    """The plot of all variants but the first; None if nothing can be compared.

    Args:
        title: the scenario, traffic model and duration of the runs.
        name: the name of its files.
        looks: the looks of the report's other figures, if there are any.
    """
    by_metric = headlines(compared)
    if not by_metric:
        return None
    others = list(dict.fromkeys(row.other for row in compared))
    first = compared[0].first
    looks = looks or style.looks(others)
    colours = {other: looks[other]["color"] for other in others}
    return Plot(
        name=name,
        title=f"{title}: all variants against {first}",
        caption=CAPTION.format(first=first),
        figure=_figure(by_metric, colours, min(len(by_metric), _COLUMNS), _TITLE_LETTERS),
        shows=_words(by_metric),
        narrow=_figure(by_metric, colours, 1, _NARROW_TITLE_LETTERS),
    )


def _words(by_metric: Mapping[Metric, Mapping[str, Compared]]) -> str:
    """Each metric's differences, as far as there are any."""
    return " ".join(
        f"{metric.name}: "
        + ", ".join(
            f"{other} {change_text(row.change)}" for other, row in by_variant.items() if row.change
        )
        + "."
        for metric, by_variant in by_metric.items()
    )


def _figure(
    by_metric: Mapping[Metric, Mapping[str, Compared]],
    colours: Mapping[str, str],
    columns: int,
    title_letters: int,
) -> Figure:
    """A panel for each metric, in so many columns, with a row for each variant."""
    rows = math.ceil(len(by_metric) / columns)
    figure, places = style.grid(
        *(rows, columns),
        panel_inches=0.3 + _ROW_INCHES * len(colours),
        row_gap_inches=_ROW_GAP_INCHES,
        least_width_inches=style.WIDTH_INCHES if columns > 1 else style.NARROW_INCHES,
    )
    _make_room(figure, places, max(map(len, colours)))
    panels = places.subplots(sharey=True, squeeze=False).flat
    for empty in panels[len(by_metric) :]:
        empty.set_visible(False)
    for panel, (metric, by_variant) in zip(panels, by_metric.items(), strict=False):
        changes = [by_variant[other].change for other in colours]
        _plot_changes(panel, changes, list(colours.values()))
        panel.set_title(fill(metric.name, title_letters))
    first = figure.axes[0]
    first.set_yticks(range(len(colours)), list(colours))
    first.set_ylim(len(colours) - 0.5, -0.5)
    return figure


def _plot_changes(panel: Axes, changes: Sequence[Change | None], colours: Sequence[str]) -> None:
    """Plot one panel: ratios on a logarithmic axis that contains every difference."""
    panel.set_xscale("log")
    panel.axvline(1, color=style.BESIDE, linewidth=style.LINE_WIDTH_POINTS)
    ratios = [1 + one.share for one in changes if one]
    least, greatest = min([*ratios, 1.0]), max([*ratios, 1.0])
    for place, (one, colour) in enumerate(zip(changes, colours, strict=True)):
        if one is None:
            continue
        decided = one.verdict is not Verdict.NOT_ENOUGH_RUNS
        if one.interval:
            ends = [1 + bound for bound in one.interval]
            panel.plot(ends, [place, place], color=colour, linewidth=style.LINE_WIDTH_POINTS)
            least = min(least, max(ends[0], least / _WIDE))
            greatest = max(greatest, min(ends[1], greatest * _WIDE))
        panel.plot(
            [1 + one.share],
            [place],
            marker="o",
            markersize=4,
            color=colour,
            markerfacecolor=colour if decided else "white",
        )
    margin = (greatest / least) ** 0.06
    panel.set_xlim(min(least / margin, 0.98), max(greatest * margin, 1.02))
    _number(panel, greatest / least)


def _number(panel: Axes, span: float) -> None:
    """Number a few differences in percent: round factors on a long axis, else even steps."""
    locator = LogLocator(subs=_TICKS, numticks=5) if span > 2 else MaxNLocator(3)
    panel.xaxis.set_major_locator(locator)
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda ratio, _: percent(ratio - 1)))
    panel.tick_params(axis="x", rotation=40)
    panel.tick_params(axis="y", length=0)


def _make_room(figure: Figure, places: GridSpec, longest: int) -> None:
    """Make room for the variants' names on the left, titles of two lines and slanted numbers."""
    width, height = figure.get_size_inches()
    left = max(0.0, _LETTER_INCHES * longest + 0.15 - style.LEFT_INCHES)
    top, bottom = 0.12, 0.1
    whole_width, whole_height = width + left, height + top + bottom
    places.update(
        left=(places.left * width + left) / whole_width,
        right=(places.right * width + left) / whole_width,
        top=(places.top * height + bottom) / whole_height,
        bottom=(places.bottom * height + bottom) / whole_height,
    )
    figure.set_size_inches(whole_width, whole_height)
