"""What is particular to this study: tables and numbers of what `salsa` printed, and its figure."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from analysis import style
from analysis.plot import Plot
from analysis.runs import Found
from analysis.table import Table
from analysis.wording import NOTHING
from study.printed import AllPrinted

SINCE = "Shared links from consensus to consensus"
TITLES = {
    "since": SINCE,
    "effective": "Effective numbers of relays and links with many circuits",
    "paper": "Published figures and ours",
    "scales": "Shared links by scale, published and ours",
    "classes": "Shared links by class of traffic, published and ours",
    "rules": "Shared links by Tor's rules that the paper leaves out",
}
TODAY, CIRCUITS = "2026-04-18", 96_876


def tables(_found: Found, printed: AllPrinted) -> dict[str, Table]:
    """The tables that `salsa --tables` printed, by short names; without rows if it didn't."""
    made = {one["title"]: _table(one) for one in printed("tables")}
    return {name: made.get(title, Table(title, (), ())) for name, title in TITLES.items()}


def _table(one: dict[str, Any]) -> Table:
    rows = tuple(tuple(row) for row in one["rows"])
    return Table(one["title"], tuple(one["columns"]), rows, one["note"])


def fields(_found: Found, printed: AllPrinted) -> dict[str, object]:
    """Single numbers, as texts: "-" where the command wasn't carried out."""

    def expected(of: str, key: str, digits: int, **wanted: object) -> str:
        for one in printed(of):
            if all(one[name] == value for name, value in wanted.items()):
                return f"{one[key]:.{digits}f}"
        return NOTHING

    def with_eight(day: str, *, circuits: int = CIRCUITS, **wanted: object) -> float | None:
        return _at_least(printed("expected"), 8, consensus=day, circuits=circuits, **wanted)

    return {
        "expected": expected,
        "with_eight": lambda *day, **wanted: _few(with_eight(*day, **wanted)),
        "every": lambda *day, **wanted: _interval(with_eight(*day, **wanted)),
        "of_two": lambda day: _share_of_two(printed("expected"), day),
    }


def _found_one(results: Sequence[dict[str, Any]], **wanted: object) -> dict[str, Any] | None:
    wanted = {"internal_share": 0.0, "direction": "directed", **wanted}
    fitting = (one for one in results if all(one[key] == value for key, value in wanted.items()))
    return next(fitting, None)


def _at_least(results: Sequence[dict[str, Any]], parts: int, **wanted: object) -> float | None:
    """The expected number of links with that many circuits or more."""
    one = _found_one(results, **wanted)
    return sum(one["links_by_parts_mean"][parts - 1 :]) if one else None


def _share_of_two(results: Sequence[dict[str, Any]], day: str) -> str:
    """How many of the shared links have two circuits: "93 %"."""
    one = _found_one(results, consensus=day, circuits=CIRCUITS)
    if not one:
        return NOTHING
    links = one["links_by_parts_mean"]
    return f"{100 * links[1] / sum(links[1:]):.0f} %"


def _few(links: float | None) -> str:
    return NOTHING if links is None else f"{links:.2g}"


def _interval(links: float | None) -> str:
    """How often a second has such a link, if so many are expected in each."""
    if not links:
        return NOTHING
    seconds = 1 / links
    if seconds < 600:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.0f} hours"


def plots(_found: Found, printed: AllPrinted) -> Iterator[Plot]:
    """Shared links over the years: a point for each consensus and kind of circuits."""
    table = tables(_found, printed)["since"]
    if not table.rows:
        return
    figure, places = style.grid(1, 1, panel_inches=2.6)
    panel = figure.add_subplot(places[0, 0])
    days = np.array(table.column(0), dtype="datetime64[D]")
    for number, (colour, line) in enumerate(
        zip(style.COLOURS[:4], style.LINE_STYLES[:4], strict=True), start=2
    ):
        texts = [cell.split(" ± ") for cell in table.column(number)]
        panel.errorbar(
            days,
            [float(text[0]) for text in texts],
            yerr=[float(text[1]) if text[1:] else 0.0 for text in texts],
            label=table.columns[number].removesuffix(", %"),
            color=colour,
            linestyle=line,
            marker="o",
            markersize=3,
        )
    panel.set_ylabel("shared links, %")
    panel.set_ylim(0)
    panel.legend(frameon=False, handlelength=3)
    yield Plot(
        name="shared-links-by-year",
        title=SINCE,
        caption=f"{CIRCUITS} circuits in each consensus; bars are standard deviations of five"
        " simulations.",
        figure=figure,
    )
