"""Words for what a figure shows, for those who don't see it.

They are computed from the data that is plotted, and stand as alternative text in pages.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray


def number(value: float) -> str:
    """A number with three digits that matter, never in powers of ten."""
    text = f"{value:.3g}"
    return f"{value:.0f}" if "e+" in text else text


def span(values: Iterable[float], unit: str = "") -> str:
    """The mean of values, the least and the greatest; NaN doesn't count."""
    known = np.array([value for value in values if np.isfinite(value)])
    unit = f" {unit}" if unit else ""
    if not len(known):
        return "no value"
    if known.min() == known.max():
        return f"{number(known[0])}{unit} throughout"
    ends = f"{number(known.min())} to {number(known.max())}"
    return f"{number(known.mean())}{unit} on average ({ends})"


def counted(count: int, what: str) -> str:
    """A number of things: "1 line", "8 lines"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def of_axes(figure: Figure) -> str:
    """What each panel with lines has: its title, its axes, and the values of its named lines."""
    return " ".join(text for panel in figure.axes if (text := _of_panel(panel)))


def _of_panel(panel: Axes) -> str:
    lines = dict(_lines(panel))
    if not lines:
        return ""
    along = f" over {panel.get_xlabel()}" if panel.get_xlabel() else ""
    head = ", ".join(
        " ".join(words.split()) for words in (panel.get_title(), panel.get_ylabel()) if words
    )
    values = "; ".join(f"{name}: {span(values)}" for name, values in lines.items())
    return f"{head}{along}: {values}." if head else f"{values}."


def _lines(panel: Axes) -> Iterator[tuple[str, NDArray[np.float64]]]:
    for line in panel.get_lines():
        name = str(line.get_label())
        values = np.asarray(line.get_ydata(orig=False), dtype=np.float64)
        if not name.startswith("_") and len(values):
            yield name, values
