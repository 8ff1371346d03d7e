"""What networks of several sizes cost, read from a CSV file, and the figure of it.

The figures themselves are measured by `bench --network`, and in other programs by hand.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from analysis import style
from analysis.plot import Plot
from testbed.basics.errors import InputError

FIGURES = {
    "memory_mb": "memory, MB",
    "ready_cpu_s": "CPU s until ready",
    "idle_cpu_s_per_min": "CPU s per idle minute",
    "cpu_s_per_mb": "CPU s per MB",
}
"""What is measured, by the names of the columns."""

_COLUMNS = ",".join(("program", "tors", *FIGURES))


@dataclass(frozen=True)
class Costs:
    """What a program's network of a size costs.

    Attributes:
        tors: the number of its Tors.
        values: those of `FIGURES`, in their order; None is not measured.
    """

    program: str
    tors: int
    values: tuple[float | None, ...]


def read_costs(file: Path) -> list[Costs]:
    """Read what networks cost, a row for each.

    Raises:
        InputError: no such file, other columns, or no number where one must be.
    """
    try:
        with file.open(encoding="utf-8", newline="") as opened:
            lines = list(csv.reader(opened, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file}: no CSV file that can be read: {error}") from error
    columns = ",".join(lines[0]) if lines else ""
    if columns != _COLUMNS:
        raise InputError(f"{file}: {columns or 'is empty'}: expected {_COLUMNS} in the first row")
    if not lines[1:]:
        raise InputError(f"{file}: has no rows below {_COLUMNS}: write a row for each network")
    return [_costs(f"{file}, row {number}", row) for number, row in enumerate(lines[1:], 2)]


def _costs(where: str, row: Sequence[str]) -> Costs:
    if len(row) != 2 + len(FIGURES):
        raise InputError(f"{where}: {len(row)} cells: expected {2 + len(FIGURES)}")
    program, tors, *values = row
    try:
        measured = tuple(float(value) if value else None for value in values)
        return Costs(program, int(tors), measured)
    except ValueError as error:
        raise InputError(f"{where}: {error}: expected numbers, or nothing") from error


def costs_plot(costs: Sequence[Costs]) -> Plot:
    """A panel for each figure, over the number of Tors, with a line for each program."""
    programs = list(dict.fromkeys(one.program for one in costs))
    looks = {
        program: {
            "color": style.COLOURS[number % len(style.COLOURS)],
            "linestyle": style.LINE_STYLES[number % len(style.LINE_STYLES)],
        }
        for number, program in enumerate(programs)
    }
    figure, places = style.grid(
        2, 2, panel_inches=1.7, row_gap_inches=0.55, names=programs, titles=list(FIGURES.values())
    )
    places.update(left=0.07, wspace=0.17)  # each panel has numbers of its own along y
    for number, title in enumerate(FIGURES.values()):
        panel = figure.add_subplot(places[number // 2, number % 2])
        for program in programs:
            points = [
                (one.tors, one.values[number])
                for one in costs
                if one.program == program and one.values[number] is not None
            ]
            panel.plot(*zip(*points, strict=True), marker="o", markersize=3, **looks[program])
        panel.set_xscale("log")
        if number < len(FIGURES) - 1:
            panel.set_yscale("log")
        else:
            panel.margins(y=0.1)
            panel.set_ylim(bottom=0)
        for axis in (panel.xaxis, panel.yaxis):
            if axis.get_scale() == "log":
                axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panel.set_xlabel("Tors" if number >= 2 else "")
        panel.set_title(title)
    style.name_lines(figure, looks)
    return Plot(
        name="costs",
        title="What a network costs over its size",
        caption="A point is a network. Both axes are logarithmic, except for the costs of a MB.",
        figure=figure,
    )
