"""A map of a drawn network: how many clients, relays and servers each country has.

Areas are counts or weights. Links aren't shown, as there is one between any two sites.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import cos, radians

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from analysis import style
from analysis.figures import Part
from analysis.plot import Plot
from analysis.runs import Groups
from testbed.network.places import LAND_GRID_DEG, Country, Places, read_places
from testbed.plan.network import Node

PART = Part.SCENARIO
ORDER = 20

CAPTION = (
    "A circle is a country, at its largest city. Areas: clients (blue rings), consensus weight of"
    " relays (orange discs), servers (green squares), each as a share of all. Grey: where people"
    " live. Below: Europe."
)

_WORLD = ((-130.0, 180.0), (-50.0, 72.0))
_EUROPE = ((-14.0, 46.0), (35.0, 62.5))
"""Ranges of longitude and latitude."""

_WIDTH_INCHES = 7.2
_LARGEST_POINTS = 1800.0
"""The area of a country that has all nodes of a kind, in square points."""

_LAND, _NAMES = "#D2D2D2", "#333333"
_CLIENTS, _RELAYS, _SERVERS = style.COLOURS[1], style.COLOURS[0], style.COLOURS[2]
_NAMED_SHARE = 0.01
"""The share of all nodes that a country needs to be named on the map of the world; the map of
Europe names every country."""


def plots(groups: Groups, _looks: style.Looks) -> Iterator[Plot]:
    """The map of the network that the lowest seed drew."""
    plan = min((runs[0].plan for runs in groups.values()), key=lambda plan: plan.seed)
    if plan.of_kind("router"):
        yield network_map(plan.unchanged_scenario, plan.seed, plan.nodes, read_places())


def network_map(scenario: str, seed: int, nodes: Sequence[Node], places: Places) -> Plot:
    """The map of the network that a seed draws for a scenario.

    Nodes in countries that are missing in these places are left out.
    """
    hosts = [node for node in nodes if node.kind != "router" and node.country in places.countries]
    heights = [_WIDTH_INCHES * _height(*span) for span in (_WORLD, _EUROPE)]
    total = sum(heights) + 0.35
    figure = Figure(figsize=(_WIDTH_INCHES, total), dpi=style.DOTS_PER_INCH)
    world = _panel(figure, 1 - (heights[0] + 0.3) / total, heights[0] / total)
    europe = _panel(figure, 0, heights[1] / total)
    _plot_nodes(world, hosts, places, _WORLD, scale=1.0)
    _plot_nodes(europe, hosts, places, _EUROPE, scale=2.5)
    counts = Counter(node.country or "" for node in hosts)
    for code, count in counts.items():
        country = places.countries[code]
        if _within(country, _EUROPE):
            _name(europe, country)
        elif count > _NAMED_SHARE * len(hosts):
            _name(world, country)
    title = f"{scenario}, seed {seed}"
    _explain(figure, title)
    return Plot(
        name=f"map-{scenario}-seed-{seed}",
        title=title,
        caption=CAPTION,
        figure=figure,
    )


Extent = tuple[float, float]


def _height(longitudes: Extent, latitudes: Extent) -> float:
    """The height of a panel of width 1 that is true to scale at its middle latitude."""
    middle = radians(sum(latitudes) / 2)
    return (latitudes[1] - latitudes[0]) / ((longitudes[1] - longitudes[0]) * cos(middle))


def _panel(figure: Figure, bottom: float, height: float) -> Axes:
    place = (0.0, bottom + 0.005, 1.0, height - 0.01)
    return figure.add_axes(place, frameon=False, xticks=[], yticks=[])


def _plot_nodes(
    panel: Axes,
    hosts: Sequence[Node],
    places: Places,
    span: tuple[Extent, Extent],
    *,
    scale: float,
) -> None:
    panel.set_xlim(*span[0])
    panel.set_ylim(*span[1])
    panel.grid(False)
    _plot_land(panel, places)
    for kind, looks in (
        ("relay", {"color": _RELAYS, "linewidths": 0, "alpha": 0.85}),
        ("client", {"facecolors": "none", "edgecolors": _CLIENTS, "linewidths": 1.0}),
        (
            "server",
            {"facecolors": "none", "edgecolors": _SERVERS, "linewidths": 1.4, "marker": "s"},
        ),
    ):
        size = _LARGEST_POINTS * scale / (4 if kind == "server" else 1)
        _scatter(panel, places, _shares(hosts, kind), size, looks)


def _name(panel: Axes, country: Country) -> None:
    panel.annotate(
        country.code,
        (country.longitude_deg, country.latitude_deg),
        (4, 3),
        textcoords="offset points",
        fontsize=6,
        color=_NAMES,
        bbox={"facecolor": "white", "alpha": 0.6, "edgecolor": "none", "pad": 0.3},
    )


def _plot_land(panel: Axes, places: Places) -> None:
    """Plot land as an image with a pixel for each grid point: a tenth of the bytes of markers."""
    per_degree = round(1 / LAND_GRID_DEG)
    land = np.zeros((180 * per_degree + 1, 360 * per_degree + 1))
    for latitude, longitude in places.land:
        land[round((latitude + 90) * per_degree), round((longitude + 180) * per_degree)] = 1
    half = LAND_GRID_DEG / 2
    extent = (-180 - half, 180 + half, -90 - half, 90 + half)
    colours = ListedColormap(["white", _LAND])
    limits = panel.get_xlim(), panel.get_ylim()
    panel.imshow(land, colours, extent=extent, origin="lower", aspect="auto", interpolation="none")
    panel.set(xlim=limits[0], ylim=limits[1])


def _scatter(
    panel: Axes, places: Places, shares: Mapping[str, float], size: float, looks: style.Look
) -> None:
    shown = [places.countries[code] for code in sorted(shares)]
    panel.scatter(
        [country.longitude_deg for country in shown],
        [country.latitude_deg for country in shown],
        s=[size * shares[country.code] for country in shown],
        **looks,
    )


def _shares(hosts: Sequence[Node], kind: str) -> dict[str, float]:
    """Each country's share of the hosts of a kind, or of the relays' weight."""
    found: Counter[str] = Counter()
    for node in hosts:
        if node.kind == kind:
            found[node.country or ""] += node.weight or 1
    return {code: value / found.total() for code, value in found.items()}


def _within(country: Country, span: tuple[Extent, Extent]) -> bool:
    (west, east), (south, north) = span
    return west < country.longitude_deg < east and south < country.latitude_deg < north


def _explain(figure: Figure, title: str) -> None:
    words = (
        (title, "black", "bold"),
        ("○ clients", _CLIENTS, "normal"),
        ("● relays, by weight", _RELAYS, "normal"),
        ("□ servers", _SERVERS, "normal"),
    )
    for (text, colour, font), x in zip(words, (0.01, 0.45, 0.6, 0.85), strict=True):
        figure.text(x, 0.995, text, color=colour, fontweight=font, fontsize=8, va="top")
