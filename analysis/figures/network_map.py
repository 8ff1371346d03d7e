"""A drawn network as a map: which countries have clients, relays and servers, and how many.

Areas are counts or weights. Links aren't drawn: there is one between any two sites.
"""

from collections.abc import Callable, Sequence
from math import cos, radians

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from analysis import style
from analysis.figures.drawing import Drawing
from testbed.network.drawn import Drawn
from testbed.network.model import Site
from testbed.network.places import LAND_GRID_DEG

CAPTION = (
    "A circle is a country, at its largest city. Areas: clients (blue rings), consensus weight of"
    " relays (orange discs), servers (green squares), each as a share of all. Grey: where people"
    " live. Below: Europe."
)

_WORLD = ((-130.0, 180.0), (-50.0, 72.0))
_EUROPE = ((-14.0, 46.0), (35.0, 62.5))
"""Longitudes and latitudes."""

_WIDTH_INCHES = 7.2
_LARGEST_POINTS = 1800.0
"""The area of a country that had all of something, in square points."""

_LAND, _NAMES = "#D2D2D2", "#333333"
_CLIENTS, _RELAYS, _SERVERS = style.COLOURS[1], style.COLOURS[0], style.COLOURS[2]
_NAMED_SHARE = 0.01
"""Of all nodes a country must have for its name to stand in the world's map."""


def network_map(drawn: Drawn) -> Drawing:
    """The map of a drawn network."""
    heights = [_WIDTH_INCHES * _height(*span) for span in (_WORLD, _EUROPE)]
    total = sum(heights) + 0.35
    figure = Figure(figsize=(_WIDTH_INCHES, total), dpi=style.DOTS_PER_INCH)
    world = _panel(figure, 1 - (heights[0] + 0.3) / total, heights[0] / total)
    europe = _panel(figure, 0, heights[1] / total)
    _draw(world, drawn, _WORLD, scale=1.0, named_share=_NAMED_SHARE)
    _draw(europe, drawn, _EUROPE, scale=2.5, named_share=0.0)
    _explain(figure, drawn)
    return Drawing(
        name=f"map-{drawn.scenario}-seed-{drawn.seed}",
        title=f"{drawn.scenario}, seed {drawn.seed}",
        caption=CAPTION,
        figure=figure,
    )


Span = tuple[float, float]


def _height(longitudes: Span, latitudes: Span) -> float:
    """Of a panel as wide as 1: as in its middle, east is as long as north."""
    middle = radians(sum(latitudes) / 2)
    return (latitudes[1] - latitudes[0]) / ((longitudes[1] - longitudes[0]) * cos(middle))


def _panel(figure: Figure, bottom: float, height: float) -> Axes:
    place = (0.0, bottom + 0.005, 1.0, height - 0.01)
    return figure.add_axes(place, frameon=False, xticks=[], yticks=[])


def _draw(
    panel: Axes, drawn: Drawn, span: tuple[Span, Span], *, scale: float, named_share: float
) -> None:
    panel.set_xlim(*span[0])
    panel.set_ylim(*span[1])
    panel.grid(False)
    _draw_land(panel, drawn)
    network = drawn.network
    for kind, looks in (
        ("relay", {"color": _RELAYS, "linewidths": 0, "alpha": 0.85}),
        ("client", {"facecolors": "none", "edgecolors": _CLIENTS, "linewidths": 1.0}),
        (
            "server",
            {"facecolors": "none", "edgecolors": _SERVERS, "linewidths": 1.4, "marker": "s"},
        ),
    ):
        shares = _shares(drawn, kind)
        size = _LARGEST_POINTS * scale / (4 if kind == "server" else 1)
        _scatter(panel, network.sites, lambda site, of=shares: of[site.name], size, looks)  # type: ignore[misc]
    counts = {site.name: 0 for site in network.sites}
    for node in network.nodes:
        if node.site and node.kind != "router":
            counts[node.site] += 1
    for site in network.sites:
        if counts[site.name] > named_share * sum(counts.values()) and _within(site, span):
            panel.annotate(
                site.country,
                (site.longitude_deg, site.latitude_deg),
                (4, 3),
                textcoords="offset points",
                fontsize=6,
                color=_NAMES,
            )


def _draw_land(panel: Axes, drawn: Drawn) -> None:
    """As an image with a pixel for each point of the grid: a tenth of the bytes of markers."""
    per_degree = round(1 / LAND_GRID_DEG)
    land = np.zeros((180 * per_degree + 1, 360 * per_degree + 1))
    for latitude, longitude in drawn.places.land:
        land[round((latitude + 90) * per_degree), round((longitude + 180) * per_degree)] = 1
    half = LAND_GRID_DEG / 2
    extent = (-180 - half, 180 + half, -90 - half, 90 + half)
    colours = ListedColormap(["white", _LAND])
    limits = panel.get_xlim(), panel.get_ylim()
    panel.imshow(land, colours, extent=extent, origin="lower", aspect="auto", interpolation="none")
    panel.set(xlim=limits[0], ylim=limits[1])


def _scatter(
    panel: Axes,
    sites: Sequence[Site],
    share: Callable[[Site], float],
    size: float,
    looks: style.Look,
) -> None:
    shown = [site for site in sites if share(site)]
    panel.scatter(
        [site.longitude_deg for site in shown],
        [site.latitude_deg for site in shown],
        s=[size * share(site) for site in shown],
        **looks,
    )


def _shares(drawn: Drawn, kind: str) -> dict[str, float]:
    """Each site's share of the nodes of a kind; of relays, of their weight."""
    found = {site.name: 0.0 for site in drawn.network.sites}
    for node in drawn.network.nodes:
        if node.kind == kind and node.site:
            found[node.site] += node.weight or 1
    total = sum(found.values())
    return {name: value / total for name, value in found.items()}


def _within(site: Site, span: tuple[Span, Span]) -> bool:
    (west, east), (south, north) = span
    return west < site.longitude_deg < east and south < site.latitude_deg < north


def _explain(figure: Figure, drawn: Drawn) -> None:
    words = (
        (f"{drawn.scenario}, seed {drawn.seed}", "black", "bold"),
        ("○ clients", _CLIENTS, "normal"),
        ("● relays, by weight", _RELAYS, "normal"),
        ("□ servers", _SERVERS, "normal"),
    )
    for (text, colour, font), x in zip(words, (0.01, 0.45, 0.6, 0.85), strict=True):
        figure.text(x, 0.995, text, color=colour, fontweight=font, fontsize=8, va="top")
