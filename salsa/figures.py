"""The paper's figures 4 to 8 again, and the years since.

Each function computes its results and returns their plot; `salsa.report` puts these on a page.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import style
from analysis.plot import Plot
from salsa import published
from salsa.cases import MIXTURE, PAPER_CIRCUITS, Case
from salsa.simulation import Job, Result, simulate_all
from testbed.network.consensus import Consensus

KINDS = tuple(
    Case(internal_share=share, undirected=undirected)
    for share in (0.0, 1.0)
    for undirected in (False, True)
)
"""The lines of figures 4 and 8: external and internal circuits, directed and undirected links."""

SCALES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
PER_CLIENT = (1, 16, 32, 64)
FORECAST = tuple(range(20_000, 400_001, 20_000))
"""The twenty numbers of circuits in figure 8."""

CLASSES = ("web", MIXTURE, "bittorrent", "bittorrent-extended", "file-sharing", "various")

_PANEL_INCHES = 2.6
_PUBLISHED: style.Look = {"color": "#000000", "linestyle": "none", "marker": "x", "markersize": 5}
_PUBLISHED_SALSA: style.Look = {**_PUBLISHED, "marker": "+", "markersize": 7}


def name_of(case: Case) -> str:
    """The name of a line, such as "external, directed"."""
    return f"{case.kind}, {case.direction}"


LOOKS: style.Looks = {
    name_of(case): {
        "color": colour,
        "linestyle": line,
        "linewidth": style.LINE_WIDTH_POINTS,
    }
    for case, colour, line in zip(KINDS, style.COLOURS, style.LINE_STYLES, strict=False)
}


def scale_figure(consensuses: Sequence[Consensus], seeds: int) -> Plot:
    """Figure 4: shared links by the scale of the network."""
    found = _means(consensuses, [replace(k, scale=s) for s in SCALES for k in KINDS], seeds)
    figure, panel = _panel("share of the network, %", "shared links, %")
    scales = [100 * scale for scale in SCALES]
    for kind in KINDS:
        shares = [found[replace(kind, scale=scale)] for scale in SCALES]
        panel.plot(scales, shares, **LOOKS[name_of(kind)])
    for values, look in (
        (published.SHADOW_BY_SCALE, _PUBLISHED),
        (published.SALSA_BY_SCALE, _PUBLISHED_SALSA),
    ):
        panel.plot([100 * scale for scale in values], list(values.values()), **look)
    panel.set_xscale("log")
    panel.set_xticks([1, 2, 5, 10, 25, 50, 100], labels=["1", "2", "5", "10", "25", "50", "100"])
    panel.minorticks_off()
    panel.set_ylim(0)
    looks = {**LOOKS, "Shadow (paper)": _PUBLISHED, "SALSA (paper)": _PUBLISHED_SALSA}
    _name_in(panel, looks)
    return Plot(
        name="shared-links-by-scale",
        title="Shared links by the scale of the network",
        caption=f"As figure 4 of the paper. {_of(consensuses)} Relays are sampled as tornettools"
        " does, and circuits scale with them. Both marks are published values for external circuits"
        " and directed links.",
        figure=figure,
    )


def class_figure(consensuses: Sequence[Consensus], seeds: int) -> Plot:
    """Figure 5: shared links by the class of traffic that all circuits carry."""
    figure, panel = _panel("", "shared links, %")
    places = np.arange(len(CLASSES))
    for number, undirected in enumerate((False, True)):
        cases = [Case(exit_class=name, undirected=undirected) for name in CLASSES]
        found = _means(consensuses, cases, seeds)
        panel.bar(
            places + 0.36 * (number - 0.5),
            [found[case] for case in cases],
            width=0.34,
            color=style.COLOURS[number],
            label=name_of(cases[0]),
        )
    values = [published.BY_EXIT_CLASS[name] for name in CLASSES]
    panel.plot(places, values, label="paper", **_PUBLISHED)
    panel.set_xticks(places, labels=[name.replace("-", "\n", 1) for name in CLASSES])
    panel.grid(visible=False, axis="x")
    panel.legend(frameon=False, loc="upper left")
    return Plot(
        name="shared-links-by-exit-class",
        title="Shared links by the class of traffic",
        caption=f"As figure 5 of the paper. {_of(consensuses)} Exits are those that accept every"
        " port of the class; the mixture is 1.7 times as much of the other classes as of web.",
        figure=figure,
    )


def client_figure(consensuses: Sequence[Consensus], seeds: int) -> Plot:
    """Figure 6: shared links by the circuits of a client, for each scale."""
    scales = [scale for scale in SCALES if scale >= 0.1]
    cases = [Case(per_client=count, scale=scale) for count in PER_CLIENT for scale in scales]
    found = _means(consensuses, cases, seeds)
    figure, panel = _panel("share of the network, %", "shared links, %")
    looks: style.Looks = {
        f"{count} a client": {"color": colour, "linestyle": line, "linewidth": 1.2}
        for count, colour, line in zip(PER_CLIENT, style.COLOURS, style.LINE_STYLES, strict=False)
    }
    for count, look in zip(PER_CLIENT, looks.values(), strict=True):
        shares = [found[Case(per_client=count, scale=scale)] for scale in scales]
        panel.plot([100 * scale for scale in scales], shares, **look)
    panel.plot([100] * 2, list(published.BY_PER_CLIENT.values()), **_PUBLISHED)
    panel.set_ylim(0)
    _name_in(panel, {**looks, "1 and 64 (paper)": _PUBLISHED})
    return Plot(
        name="shared-links-by-circuits-per-client",
        title="Shared links by the circuits of a client",
        caption=f"As figure 6 of the paper. {_of(consensuses)} External circuits, directed links."
        " A client's circuits all have the same guard; the circuits of all clients together stay"
        " the same.",
        figure=figure,
    )


def parts_figure(consensuses: Sequence[Consensus]) -> Plot:
    """Figure 7: how many circuits the links carry."""
    results = simulate_all([(consensus, Case()) for consensus in consensuses], 1)
    shares = np.array([_shares_by_parts(result) for result in results])
    places = np.arange(1, shares.shape[1] + 1)
    spread = shares.std(axis=0, ddof=1) if len(results) > 1 else None
    figure, panel = _panel("circuits on the link", "share of the links, %")
    panel.bar(
        places,
        shares.mean(axis=0),
        yerr=spread,
        color=[style.COLOURS[1], *[style.COLOURS[0]] * (len(places) - 1)],
        error_kw={"linewidth": 0.8},
    )
    panel.plot([2], [published.LINKS_WITH_TWO], label="paper, two circuits", **_PUBLISHED)
    panel.set_yscale("log")
    panel.set_xticks(places)
    panel.legend(frameon=False)
    return Plot(
        name="links-by-circuits",
        title="How many circuits the links carry",
        caption=f"As figure 7 of the paper. {_of(consensuses)} {PAPER_CIRCUITS} external circuits,"
        " directed links; one simulation of each consensus, with the standard deviation over"
        " consensuses. A link with one circuit is not shared.",
        figure=figure,
    )


def forecast_figure(consensuses: Sequence[Consensus]) -> Plot:
    """Figure 8: shared links by the number of circuits."""
    found = _means(consensuses, [replace(k, circuits=n) for n in FORECAST for k in KINDS], 1)
    figure, panel = _panel("circuits active in a second, thousands", "shared links, %")
    for kind in KINDS:
        shares = [found[replace(kind, circuits=circuits)] for circuits in FORECAST]
        panel.plot([circuits / 1000 for circuits in FORECAST], shares, **LOOKS[name_of(kind)])
    for circuits, span in (
        (PAPER_CIRCUITS, published.YEAR_2021),
        (published.CAPACITY_CIRCUITS, published.YEAR_2021_AT_CAPACITY),
    ):
        panel.plot([circuits / 1000] * 2, list(span), **_PUBLISHED)
    panel.set_ylim(0)
    panel.set_xlim(0)
    _name_in(panel, {**LOOKS, "least and greatest (paper)": _PUBLISHED})
    return Plot(
        name="shared-links-by-circuits",
        title="Shared links by the number of circuits",
        caption=f"As figure 8 of the paper. {_of(consensuses)} One simulation of each consensus."
        f" Marks are published for today's {PAPER_CIRCUITS} circuits and for the"
        f" {published.CAPACITY_CIRCUITS} that the network of 2021 could have carried.",
        figure=figure,
    )


def years_figure(results: Sequence[Result]) -> Plot:
    """Shared links over the years: a point for each consensus and kind.

    Args:
        results: those of the four `KINDS` in each consensus, with the same number of circuits.
    """
    figure, panel = _panel("", "shared links, %")
    for kind in KINDS:
        own = [one for one in results if one.case == kind]
        shares = [one.shared_percent for one in own]
        panel.errorbar(
            np.array([one.network.day for one in own], dtype="datetime64[D]"),
            [share.mean for share in shares],
            yerr=[
                [share.mean - (share.mean if share.low is None else share.low) for share in shares],
                [
                    (share.mean if share.high is None else share.high) - share.mean
                    for share in shares
                ],
            ],
            marker="o",
            markersize=3,
            **LOOKS[name_of(kind)],
        )
    panel.set_ylim(0)
    _name_in(panel, LOOKS)
    return Plot(
        name="shared-links-by-year",
        title="Shared links from consensus to consensus",
        caption=f"{PAPER_CIRCUITS} circuits in each consensus, as in November 2021, so only the"
        " network changes. Bars are 95 % intervals over simulations.",
        figure=figure,
    )


def _means(
    consensuses: Sequence[Consensus], cases: Iterable[Case], seeds: int
) -> Mapping[Case, float]:
    """The mean share of shared links over consensuses, in percent, by case."""
    jobs: list[Job] = [(consensus, case) for case in cases for consensus in consensuses]
    shares: dict[Case, list[float]] = {}
    for result in simulate_all(jobs, seeds):
        shares.setdefault(result.case, []).append(result.shared_percent.mean)
    return {case: float(np.mean(some)) for case, some in shares.items()}


def _shares_by_parts(result: Result, most: int = 8) -> list[float]:
    links = [one.mean for one in result.by_parts] + [0.0] * most
    return [100 * number / result.links.links.mean for number in links[:most]]


def _panel(x: str, y: str) -> tuple[Figure, Axes]:
    figure, places = style.grid(1, 1, panel_inches=_PANEL_INCHES)
    panel = figure.add_subplot(places[0, 0])
    panel.set_xlabel(x)
    panel.set_ylabel(y)
    return figure, panel


def _name_in(panel: Axes, looks: style.Looks) -> None:
    """Name the lines within the panel, as they are too many for a row above it."""
    for name, look in looks.items():
        panel.plot([], [], label=name, **look)
    panel.legend(frameon=False, handlelength=3)


def _of(consensuses: Sequence[Consensus]) -> str:
    days = ", ".join(consensus.day for consensus in consensuses)
    return f"Mean of the consensuses {days}." if len(consensuses) > 1 else f"Consensus {days}."
