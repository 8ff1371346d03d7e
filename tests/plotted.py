"""Helpers for tests that read the data in plots."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from analysis import style
from analysis.figures import over_time
from analysis.plot import Plot
from analysis.runs import find_runs


def curves(panel: Axes) -> dict[str, Line2D]:
    """The named lines, so without the marks of a broken axis."""
    return {
        str(line.get_label()): line
        for line in panel.get_lines()
        if not str(line.get_label()).startswith("_")
    }


def points(line: Line2D) -> list[tuple[float, float]]:
    x, y = line.get_data(orig=False)
    return list(zip(np.asarray(x, float).tolist(), np.asarray(y, float).tolist(), strict=True))


def plotted_over_time(results: Path) -> list[Plot]:
    groups = find_runs(results).valid
    return list(over_time.plots(groups, style.looks(group.variant for group in groups)))
