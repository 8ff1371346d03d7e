"""The report page: figures of shared links, with the tables beside them."""

import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from analysis import page
from analysis.plot import Plot
from salsa import figures
from salsa.figures import KINDS
from salsa.held_tables import Periods, tables_of_paper, tables_since
from salsa.simulation import simulate_all
from testbed.basics.errors import InputError
from testbed.network.consensus import Consensus

PAGE = "report.html"
FIGURE_COUNT = 5


def write_report(
    consensuses: Sequence[Consensus], folder: Path, *, seeds: int, tell: Callable[[int], None]
) -> Path:
    """Write the page, with figures and tables beside it, and return its file.

    Args:
        tell: called with the number of figures that are done.

    Raises:
        InputError: the folder can't be written.
    """
    file = folder / PAGE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sections = _sections(consensuses, page.Folder(folder), seeds, tell)
        file.write_text(page.page("Shared links of the live network", sections), encoding="utf-8")
    except OSError as error:
        raise InputError(f"--figures {folder}: {error.filename}: {error.strerror}") from error
    return file


def _sections(
    consensuses: Sequence[Consensus],
    folder: page.Folder,
    seeds: int,
    tell: Callable[[int], None],
) -> list[tuple[str, str]]:
    periods = Periods.of(consensuses)
    by_kind = simulate_all([(one, kind) for one in consensuses for kind in KINDS], seeds)
    since = [
        folder.figure(figures.years_figure(by_kind)),
        *map(folder.table, tables_since(consensuses, by_kind)),
    ]
    again = []
    for done, plot in enumerate(_plots(periods, seeds), start=1):
        tell(done)
        again.append(folder.figure(plot()))
    return [
        ("Since 2021", "".join(since)),
        ("Against the paper", "".join(map(folder.table, tables_of_paper(periods, seeds)))),
        ("The paper's figures", "".join(again)),
        ("Repeat it", page.preformatted(f"./run.py {shlex.join(sys.argv[1:])}")),
    ]


def _plots(periods: Periods, seeds: int) -> list[Callable[[], Plot]]:
    """Functions that plot figures 4 to 8, without 5 if no consensus has exit policies."""
    of_classes = partial(figures.class_figure, periods.with_policies, seeds)
    return [
        partial(figures.scale_figure, periods.month, seeds),
        *([of_classes] if periods.with_policies else []),
        partial(figures.client_figure, periods.month, seeds),
        partial(figures.parts_figure, periods.year),
        partial(figures.forecast_figure, periods.year),
    ]
