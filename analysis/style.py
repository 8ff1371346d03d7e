"""How every figure of the analysis looks: colours, line styles, size and axes. No data here.

Lines differ in colour and in style, so that they can be told apart in black and white too.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib

# Before pyplot would choose: figures go to files, also where there is no display.
matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from matplotlib.typing import RcKeyType

COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#000000")
"""Okabe and Ito's palette for all kinds of colour vision (Color Universal Design, 2008)."""

LINE_STYLES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1.2)), "-.", (0, (7, 1, 1, 1, 1, 1)))

PANEL_INCHES = (2.7, 2.6)
DOTS_PER_INCH = 150

LINE_WIDTH_POINTS = 1.8

_SETTINGS: dict[RcKeyType, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
}


def panels(titles: Sequence[str], *, x_label: str, y_label: str) -> tuple[Figure, list[Axes]]:
    """A figure with a panel a title, side by side on the same axes; the labels have the units."""
    with matplotlib.rc_context(_SETTINGS):
        width, height = PANEL_INCHES
        figure = Figure(
            figsize=(width * len(titles), height), dpi=DOTS_PER_INCH, layout="constrained"
        )
        axes = figure.subplots(1, len(titles), sharex=True, sharey=True, squeeze=False)[0]
        for panel, title in zip(axes, titles, strict=True):
            panel.set_title(title)
            panel.set_xlabel(x_label)
        axes[0].set_ylabel(y_label)
    return figure, list(axes)


def line_of(number: int) -> dict[str, Any]:
    """Colour and style of a figure's n-th kind of line, counted from 0."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": LINE_STYLES[number % len(LINE_STYLES)],
        "linewidth": LINE_WIDTH_POINTS,
    }


def scale_logarithmically(panel: Axes) -> None:
    """Make the x axis logarithmic, with plain numbers at 1, 2, 5, 10, 20, 50 and so on."""
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter("{x:g}")


def name_lines(figure: Figure) -> None:
    """Name each kind of line once, above the panels."""
    lines = {str(line.get_label()): line for panel in figure.axes for line in panel.get_lines()}
    figure.legend(
        lines.values(), lines.keys(), loc="outside upper center", ncols=len(lines), frameon=False
    )
