"""How much of its rate each relay of a drawn network used, by its class.

How the figures are made is `analysis.whole_networks`'s.
"""

from collections.abc import Iterator, Mapping, Sequence

import polars
from matplotlib.ticker import LogLocator, NullLocator

from analysis import style
from analysis.figures.drawing import Drawing
from analysis.runs import Group
from analysis.whole_networks import is_drawn, relays_use
from testbed.network.model import RELAY_CLASSES
from testbed.results import Run

CAPTION = (
    "A point is a relay of a run: what it sent on average, as a share of its own rate, from"
    " measuring's begin until the last transfer of that time had ended. The relays of all runs,"
    " each a network of its own. Both: guard and exit."
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


def relays_used(groups: Mapping[Group, Sequence[Run]]) -> Iterator[Drawing]:
    """A figure for each drawn network's scenario, traffic model and duration: a panel a variant.

    Raises:
        TestbedError: a run's plan or a table can't be read.
    """
    drawn = {group: runs for group, runs in groups.items() if is_drawn(runs[0])}
    for setting in dict.fromkeys((one.scenario, one.traffic, one.duration_s) for one in drawn):
        scenario, traffic, duration_s = setting
        by_variant = {
            group.variant: polars.concat(relays_use(run) for run in runs)
            for group, runs in drawn.items()
            if (group.scenario, group.traffic, group.duration_s) == setting
        }
        yield _drawing(scenario, f"{scenario}-{traffic}-{duration_s:g}s", by_variant)


def _drawing(scenario: str, where: str, by_variant: Mapping[str, polars.DataFrame]) -> Drawing:
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
    panels[0].set_ylabel("use of its rate, %")
    style.scale_from_zero(panels)
    figure.supxlabel("relay's rate, Mbit/s", fontsize=8)
    style.name_lines(figure, _LOOKS)
    return Drawing(
        name=f"relays-use-{where}",
        title=f"{scenario}: what relays used of their rates",
        caption=CAPTION,
        figure=figure,
    )
