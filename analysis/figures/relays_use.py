"""The share of its rate, and of its processor's time, that each relay of a drawn network used.

`analysis.whole_networks` computes it.
"""

from collections.abc import Callable, Iterator, Mapping

import polars
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from analysis import style
from analysis.figures import Part
from analysis.plot import Plot
from analysis.runs import Groups
from analysis.whole_networks import is_drawn, processors_use, relays_use
from testbed.plan.network import RELAY_CLASSES
from testbed.results import Run

PART = Part.TRAFFIC
ORDER = 30

_ALL = " The relays of all runs, each a network of its own. Both: guard and exit."
CAPTION = (
    "A point is a relay of a run: what it sent on average, as a share of its own rate, from"
    f" measuring's begin until the last transfer of that time had ended.{_ALL}"
)
CAPTION_OF_PROCESSORS = (
    "A point is a relay of a run whose processor takes time: the share of the measured time in"
    f" which it was busy.{_ALL}"
)

_MARKERS = ("o", "s", "D", "v")
_LOOKS: Mapping[str, style.Look] = {
    relay_class: {
        "color": style.COLOURS[number],
        "marker": marker,
        "markersize": 4,
        "markerfacecolor": "none",
        "linestyle": "none",
        "clip_on": False,
    }
    for number, (relay_class, marker) in enumerate(zip(RELAY_CLASSES, _MARKERS, strict=True))
}
_PANEL_INCHES = 2.2


def plots(groups: Groups, _looks: style.Looks) -> Iterator[Plot]:
    """If the network was drawn, a plot of the rates and one of the processors that take time."""
    drawn = {group: runs for group, runs in groups.items() if is_drawn(runs[0])}
    if not drawn:
        return
    one = next(iter(groups))
    where = f"{one.scenario}-{one.traffic}-{one.duration_s:g}s"

    def plot(
        use: Callable[[Run], polars.DataFrame], name: str, label: str, *, title: str, caption: str
    ) -> Plot:
        by_variant = {group.variant: polars.concat(map(use, runs)) for group, runs in drawn.items()}
        figure = _figure(by_variant, label)
        return Plot(name=f"{name}-{where}", title=title, caption=caption, figure=figure)

    yield plot(
        relays_use,
        "relays-use",
        "use of its rate, %",
        title=f"{one.scenario}: what relays used of their rates",
        caption=CAPTION,
    )
    if all(run.plan.processors for runs in drawn.values() for run in runs):
        yield plot(
            processors_use,
            "relays-processors",
            "processor busy, %",
            title=f"{one.scenario}: how busy relays' processors were",
            caption=CAPTION_OF_PROCESSORS,
        )


def _figure(by_variant: Mapping[str, polars.DataFrame], label: str) -> Figure:
    figure, places = style.grid(1, len(by_variant), panel_inches=_PANEL_INCHES, names=_LOOKS)
    panels = places.subplots(sharex=True, sharey=True, squeeze=False)[0]
    for panel, (variant, relays) in zip(panels, by_variant.items(), strict=True):
        for relay_class, look in _LOOKS.items():
            own = relays.filter(relay_class=relay_class)
            panel.plot(own["rate_bit_per_s"] / 1e6, 100 * own["use"], label=relay_class, **look)
        panel.set_title(variant)
    panels[0].set_xscale("log")
    panels[0].xaxis.set_major_locator(LogLocator())
    panels[0].xaxis.set_minor_locator(NullLocator())
    panels[0].xaxis.set_major_formatter("{x:g}")
    panels[0].set_ylabel(label)
    style.scale_from_zero(panels)
    figure.supxlabel("relay's rate, Mbit/s", fontsize=8)
    style.name_lines(figure, _LOOKS)
    return figure
