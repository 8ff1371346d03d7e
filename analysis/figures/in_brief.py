"""What happened in a typical run of each variant, in the few quantities that explain an answer.

`over_time` has all quantities, and a column for each variant; here variants share a panel.
"""

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import style
from analysis.figures import Part, over_time
from analysis.figures.over_time import Line, Rows
from analysis.metrics.transfers import THROUGHPUT
from analysis.plot import Plot
from analysis.runs import Groups
from analysis.statistics import MeanOverRuns
from testbed.results import Run

PART = Part.ANSWER
ORDER = 10

QUANTITIES = {
    "delivered to each client, MB/s": over_time.delivered_mb_per_s,
    "congestion window of each connection on the shared link, segments": (
        over_time.congestion_window_segments
    ),
    "wait in Tor's queue in front of that link, ms": over_time.wait_in_tor_ms,
    "active circuits": over_time.active_circuits,
    "links that circuits share, %": over_time.shared_links_percent,
}
"""What explains an answer, by the panel's title; the first ones that there are, are shown."""
MOST_QUANTITIES = 3
MOST_VARIANTS = 4
"""The most variants that can be told apart in a panel."""

CAPTION = (
    "One run of each variant: the one with the median of its runs' mean times to last byte. Thick:"
    " the mean of all clients, connections or circuits; thin, with one or two variants: each of"
    " them."
)

_MOST_WITH_THIN_LINES = 2
_THIN_OPACITY = 0.3
_PANEL_INCHES, _ROW_GAP_INCHES, _LEFT_INCHES = 1.15, 0.5, 0.48


def plots(groups: Groups, looks: style.Looks) -> Iterator[Plot]:
    """One plot, if the runs have recorded any of it."""
    shown = chosen(groups)
    runs = {group.variant: over_time.representative(its) for group, its in shown.items()}
    rows = _rows(runs)
    if not rows:
        return
    one = next(iter(groups))
    few = len(shown) < len(groups)
    yield Plot(
        name=f"in-brief-{one.scenario}-{one.traffic}-{one.duration_s:g}s",
        title=f"{one.scenario}, {one.traffic}: what happened from second to second",
        caption=f"{CAPTION}{_left_out(groups, shown) if few else ''}",
        figure=_figure(rows, runs, looks, one.duration_s),
        shows=over_time.in_words(rows, runs),
        narrow=_figure(rows, runs, looks, one.duration_s, style.NARROW_INCHES),
    )


def chosen(groups: Groups) -> Groups:
    """All groups, or of many the first, and those with the most and with the least throughput."""
    if len(groups) <= MOST_VARIANTS:
        return groups
    first, *others = groups
    means = {
        group: its.mean
        for group in others
        if (its := MeanOverRuns.of(THROUGHPUT.by_seed(groups[group]).values()))
    }
    ranked = sorted(means, key=lambda group: means[group])
    kept = {first, *ranked[:1], *ranked[-1:]}
    return {group: runs for group, runs in groups.items() if group in kept}


def _left_out(groups: Groups, shown: Groups) -> str:
    return (
        f" Of {len(groups)} variants: the first, and those of the others with the most and the"
        f" least throughput ({', '.join(group.variant for group in shown)})."
    )


def _rows(runs: Mapping[str, Run]) -> Rows:
    rows = {
        title: {variant: lines(run) for variant, run in runs.items()}
        for title, lines in QUANTITIES.items()
    }
    known = [(title, of_title) for title, of_title in rows.items() if any(of_title.values())]
    return dict(known[:MOST_QUANTITIES])


def _figure(
    rows: Rows,
    runs: Mapping[str, Run],
    looks: style.Looks,
    duration_s: float,
    width_inches: float = style.WIDTH_INCHES,
) -> Figure:
    """A panel for each quantity, one below the other."""
    names = {f"{variant}, seed {run.summary.seed}": variant for variant, run in runs.items()}
    figure, places = style.grid(
        *(len(rows), 1),
        panel_inches=_PANEL_INCHES,
        row_gap_inches=_ROW_GAP_INCHES,
        names=names,
        least_width_inches=width_inches,
    )
    places.update(left=_LEFT_INCHES / figure.get_figwidth())
    panels = places.subplots(sharex=True, squeeze=False)[:, 0]
    for panel, (title, by_variant) in zip(panels, rows.items(), strict=True):
        for variant, lines in by_variant.items():
            _plot_lines(panel, lines, looks[variant], thin=len(runs) <= _MOST_WITH_THIN_LINES)
        panel.set_title(_in_lines(title, figure.get_figwidth()), loc="left", x=0, pad=4)
        style.scale_from_zero([panel])
        style.scale_time(panel, duration_s)
    figure.supxlabel("time since measuring began, s", fontsize=8)
    style.name_lines(figure, {name: looks[variant] for name, variant in names.items()})
    return figure


def _plot_lines(panel: Axes, lines: Sequence[Line], look: style.Look, *, thin: bool) -> None:
    several = len(lines) > 1
    for line in lines if thin and several else ():
        panel.plot(
            *(line.times_s, line.values),
            color=look["color"],
            linewidth=style.THIN_LINE_WIDTH_POINTS,
            alpha=_THIN_OPACITY,
        )
    if lines:
        whole = over_time.mean(lines) if several else lines[0]
        panel.plot(whole.times_s, whole.values, label=whole.name, **look)


def _in_lines(title: str, width_inches: float) -> str:
    """A title in lines that fit the figure's width."""
    return style.wrapped(title, width_inches - _LEFT_INCHES)
