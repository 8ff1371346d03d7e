"""The look of all figures: colours, line styles, sizes and axes, independent of data.

Lines differ in colour and in style, so they can be told apart in black and white too.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import fill
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray

# Set before pyplot chooses one: figures go to files, even without a display.
matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec, SubplotSpec
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator
from matplotlib.typing import RcKeyType

from analysis.order import FIRST_VARIANTS

Look = dict[str, Any]
"""A line's colour, style and width, as matplotlib's keywords."""

Looks = Mapping[str, Look]
"""Looks by variant."""

COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#000000", "#56B4E9")
"""Okabe and Ito's palette for all kinds of colour vision (Color Universal Design, 2008)."""

LINE_STYLES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1.2)), "-.", (0, (7, 1, 1, 1, 1, 1)))

BESIDE = "#999999"
"""The colour of everything that runs beside a variant's clients under test."""

LINE_WIDTH_POINTS = 1.5
THIN_LINE_WIDTH_POINTS = 0.6
DOTS_PER_INCH = 150

WIDTH_INCHES = 7.2
NARROW_INCHES = 3.5
"""A figure's width for a telephone, where an inch is some 95 dots and 8 points are 10 or 11."""
_LEAST_PANEL_INCHES = 1.7
LEFT_INCHES, _RIGHT_INCHES, _BOTTOM_INCHES = 0.9, 0.14, 0.45
_TITLE_INCHES, _LEGEND_INCHES = 0.28, 0.26
_GAP_INCHES = 0.2

# Sizes at 8 points: a further line of a title and of the legend; in the legend, the line before a
# name with its gaps, and a letter.
_TITLE_LINE_INCHES, _LEGEND_LINE_INCHES = 0.13, 0.17
_HANDLE_INCHES, _LETTER_INCHES = 0.65, 0.066

_LOGARITHMIC_FROM = 4.0
"""The ratio of greatest to least value from which an axis is logarithmic."""

_TAIL_SHARES = (0.0, 0.5, 0.9, 0.99, 0.999)

_SETTINGS: dict[RcKeyType, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "savefig.dpi": DOTS_PER_INCH,
    # Makes the same runs give the same file: names within it are hashes that include this.
    "svg.hashsalt": "hydra-testbed",
}
matplotlib.rcParams.update(_SETTINGS)


def looks(variants: Iterable[str]) -> Looks:
    """The look of each variant's lines.

    Those of vanilla and pctls are always the same; the others follow in the order of their names.

    Args:
        variants: all variants of a report.
    """
    others = sorted(set(variants).difference(FIRST_VARIANTS))
    return {
        name: {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": LINE_STYLES[number % len(LINE_STYLES)],
            "linewidth": LINE_WIDTH_POINTS,
        }
        for number, name in enumerate((*FIRST_VARIANTS, *others))
    }


def grid(
    rows: int,
    columns: int,
    *,
    panel_inches: float,
    row_gap_inches: float = _GAP_INCHES,
    names: Collection[str] = (),
    titles: Sequence[str] = (),
    least_width_inches: float = WIDTH_INCHES,
) -> tuple[Figure, GridSpec]:
    """An empty figure with a grid for its panels, as wide as a page or as its columns need.

    Margins are fixed, as finding them takes matplotlib longer than plotting.

    Args:
        panel_inches: a panel's height.
        row_gap_inches: the gap between two rows: 0.3 holds numbers, 0.45 also a label.
        names: the names that `name_lines` will show, which need room.
        titles: the panels' titles, broken by `wrapped`.
        least_width_inches: the figure's width, unless its columns need more.
    """
    sides = LEFT_INCHES + _RIGHT_INCHES - _GAP_INCHES
    width = max(least_width_inches, sides + columns * (_LEAST_PANEL_INCHES + _GAP_INCHES))
    panel_width = (width - sides) / columns - _GAP_INCHES
    further_lines = max((title.count("\n") for title in titles), default=0)
    top = _TITLE_INCHES + further_lines * _TITLE_LINE_INCHES
    if names:
        rows_of_names = math.ceil(len(names) / _names_in_a_row(names, width))
        top += _LEGEND_INCHES + (rows_of_names - 1) * _LEGEND_LINE_INCHES
    height = top + rows * (panel_inches + row_gap_inches) - row_gap_inches + _BOTTOM_INCHES
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH)
    places = figure.add_gridspec(
        rows,
        columns,
        left=LEFT_INCHES / width,
        right=1 - _RIGHT_INCHES / width,
        top=1 - top / height,
        bottom=_BOTTOM_INCHES / height,
        wspace=_GAP_INCHES / panel_width,
        hspace=row_gap_inches / panel_inches,
    )
    return figure, places


def name_lines(figure: Figure, looks_by_name: Looks) -> None:
    """Name each kind of line once, above the panels, in as many rows as needed."""
    lines = [Line2D([], [], **look) for look in looks_by_name.values()]
    figure.legend(
        lines,
        list(looks_by_name),
        loc="upper center",
        ncols=_names_in_a_row(looks_by_name, figure.get_figwidth()),
        frameon=False,
        borderaxespad=0.3,
        handlelength=3,
    )


def _names_in_a_row(names: Collection[str], width_inches: float) -> int:
    """How many names stand in a row: all if they fit, else as many as make rows equally long."""
    longest = max(map(len, names))
    most = max(1, int(width_inches / (_HANDLE_INCHES + _LETTER_INCHES * longest)))
    return math.ceil(len(names) / math.ceil(len(names) / most))


def wrapped(title: str, width_inches: float = _LEAST_PANEL_INCHES) -> str:
    """A panel's title in lines that fit above it, the narrowest if no width is given.

    It is broken at blanks and commas.
    """
    spaced = re.sub(r",(?! )", ", ", title)
    return fill(spaced, int(width_inches / _LETTER_INCHES))


def scale_tail(panel: Axes, most_values: int) -> None:
    """Make the y axis of shares tail-logarithmic: 0, 0.9 and 0.99 are equally far apart.

    Args:
        most_values: the number of values of the largest distribution; the axis ends at the last
            power of ten that so many values can resolve, and at 0.999 at the latest.
    """
    panel.set_yscale("function", functions=(_tail_place, _tail_share))
    decades = min(math.ceil(math.log10(most_values + 1)), len(_TAIL_SHARES) - 2)
    panel.yaxis.set_major_locator(FixedLocator(_TAIL_SHARES))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter("{x:g}")
    panel.set_ylim(0, 1 - 10.0**-decades)


def _tail_place(share: NDArray[np.float64]) -> NDArray[np.float64]:
    # A share of 1 is infinitely far away; just beyond every axis's end is far enough.
    return -np.log10(np.clip(1 - share, 1e-6, None))


def _tail_share(place: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 - np.power(10.0, -place)


def scale_time(panel: Axes, duration_s: float) -> None:
    """Make the x axis reach from 0 to `duration_s`."""
    panel.set_xlim(0, duration_s)
    panel.xaxis.set_major_locator(MaxNLocator(6))
    panel.xaxis.set_major_formatter("{x:g}")


def scale_from_zero(row: Iterable[Axes]) -> None:
    """Begin the y axis that these panels share at 0; it ends at 1 if all values are 0."""
    panels = list(row)
    greatest = max(float(panel.dataLim.y1) for panel in panels)
    panels[0].set_ylim(0, 1.05 * greatest if 0 < greatest < math.inf else 1)
    panels[0].yaxis.set_major_locator(MaxNLocator(3))


def scale_values(panel: Axes, least: float, greatest: float) -> None:
    """Make the x axis span these values; it is logarithmic if they differ by factors."""
    if 0 < _LOGARITHMIC_FROM * least <= greatest:
        _scale_logarithmically(panel, least, greatest)
    else:
        _scale_linearly(panel, least, greatest, most_numbers=4)


def scale_steps(panel: Axes, steps: Sequence[float], values: Sequence[float]) -> None:
    """Scale both axes for values at a few steps; an axis is logarithmic if they differ by factors.

    Args:
        steps: along x, in ascending order; each is numbered, and 0 stands before the others.
        values: along y.
    """
    positive = [step for step in steps if step > 0]
    if positive and positive[0] * _LOGARITHMIC_FROM <= positive[-1]:
        if steps[0] == 0:
            panel.set_xscale("symlog", linthresh=positive[0], linscale=0.5)
        else:
            panel.set_xscale("log")
    panel.xaxis.set_major_locator(FixedLocator(steps))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter("{x:g}")
    least, greatest = min(values, default=0), max(values, default=0)
    if 0 < least * _LOGARITHMIC_FROM <= greatest:
        panel.set_yscale("log")
        panel.set_ylim(least / 1.2, greatest * 1.2)
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_minor_locator(NullLocator())
        panel.yaxis.set_major_formatter("{x:g}")
    else:
        scale_from_zero([panel])


def _scale_logarithmically(panel: Axes, least: float, greatest: float) -> None:
    """Number a logarithmic axis at 1, 2, 5, 10, 20 …, or a long one at powers of ten only."""
    panel.set_xscale("log")
    panel.set_xlim(least / 1.1, greatest * 1.1)
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if greatest < 50 * least else (1,)))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter("{x:g}")


def _scale_linearly(panel: Axes, least: float, greatest: float, *, most_numbers: int) -> None:
    margin = 0.05 * ((greatest - least) or abs(greatest) or 1.0)
    panel.set_xlim(least - margin, greatest + margin)
    panel.xaxis.set_major_locator(MaxNLocator(most_numbers))


@dataclass(frozen=True)
class Panel:
    """A panel whose x axis may be broken.

    Attributes:
        frame: the axes for title and labels, without lines if the x axis is broken.
        parts: the one or two axes for lines; each gets all lines.
    """

    frame: Axes
    parts: Sequence[Axes]

    def hide_y_numbers(self) -> None:
        """Hide the y axis's numbers, which another panel with the same axis shows."""
        for axes in (self.frame, *self.parts):
            axes.tick_params(axis="y", labelleft=False)


def panel(figure: Figure, place: SubplotSpec, values: Sequence[float], *, broken: bool) -> Panel:
    """A panel for these x values.

    Args:
        values: in ascending order.
        broken: use a linear axis that may be broken (see `intervals`), not a whole one that is
            logarithmic if the values differ by factors.
    """
    if not broken:
        whole = figure.add_subplot(place)
        scale_values(whole, values[0], values[-1])
        return Panel(whole, [whole])
    shown = intervals(values)
    spans = place.subgridspec(1, len(shown), wspace=0.1)
    parts = list(spans.subplots(squeeze=False)[0])
    for part, (least, greatest) in zip(parts, shown, strict=True):
        _scale_linearly(part, least, greatest, most_numbers=4 if len(parts) == 1 else 2)
    if len(parts) == 1:
        return Panel(parts[0], parts)
    left, right = parts
    right.spines.left.set_visible(False)
    right.tick_params(axis="y", left=False, labelleft=False)
    _mark_break(left, 1)
    _mark_break(right, 0)
    return Panel(_frame_around(figure, place), parts)


def intervals(values: Sequence[float]) -> list[tuple[float, float]]:
    """The intervals that a linear axis of these values shows: one, or two with a gap between.

    There are two where scales differ: a gap would take half of the axis, and the values beyond it
    are at least twice as large. A few outliers at either end (a tenth of the values) don't count.

    Args:
        values: in ascending order, at least one.
    """
    first, last = values[0], values[-1]
    outliers = math.ceil(len(values) / 10)
    inner = values[outliers - 1 : len(values) - outliers + 1]
    gaps = [(above - below, below, above) for below, above in pairwise(inner)]
    width, below, above = max(gaps, default=(0.0, first, last))
    if width > (last - first) / 2 and above >= 2 * below:
        return [(first, below), (above, last)]
    return [(first, last)]


def _frame_around(figure: Figure, place: SubplotSpec) -> Axes:
    """Invisible axes around all parts, for labels; its invisible numbers keep their room."""
    frame = figure.add_subplot(place, frameon=False)
    frame.tick_params(labelcolor="none", bottom=False, left=False)
    frame.grid(False)
    return frame


def _mark_break(part: Axes, at: float) -> None:
    """Plot a slash across the x axis, at its end (1) or beginning (0)."""
    part.plot(
        [at],
        [0],
        transform=part.transAxes,
        marker=[(-0.5, -1), (0.5, 1)],
        markersize=6,
        linestyle="none",
        color="black",
        clip_on=False,
    )
