"""The network of a scenario as a drawing: nodes, links and what they do, from the plan of a run.

What crossed the links is not shown here.
"""

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import style
from analysis.figures.drawing import Drawing
from analysis.figures.network_map import network_map
from analysis.runs import Group
from testbed.network.places import read_places
from testbed.plan_model import Competing, Link, Plan
from testbed.results import Run
from testbed.topology import ROLES

CAPTION = (
    "Rate, delay, loss and queue (packets that wait) hold in each direction of every link between"
    " these roles. Dashed links lose packets; the thick one is shared."
)

Place = tuple[float, float]
"""Column and row, the first row on top."""

_COLUMN_INCHES, _ROW_INCHES = 1.6, 0.36
_HEAD_ROWS, _FOOT_ROWS = 2.4, 1.0
_LINK_COLOUR, _LOSSY_COLOUR = "#555555", "#CC79A7"


def networks(groups: Mapping[Group, Sequence[Run]]) -> Iterator[Drawing]:
    """The network of each scenario; its clients' models are those of all its runs.

    Of drawn networks a map of the first run's: each seed draws another one.

    Raises:
        TestbedError: a run's plan can't be read.
    """
    for scenario in dict.fromkeys(group.scenario for group in groups):
        plans = [runs[0].plan for group, runs in groups.items() if group.scenario == scenario]
        if plans[0].of_kind("router"):
            plan = min(plans, key=lambda plan: plan.seed)
            yield network_map(plan.unchanged_scenario, plan.seed, plan.nodes, read_places())
            continue
        yield Drawing(
            name=f"network-{scenario}",
            title=f"{scenario}: {plans[0].scenario_title}",
            caption=f"{CAPTION} {congestion_control_of(plans[0])}",
            figure=_figure(plans),
        )


def places_of(plan: Plan) -> dict[str, Place]:
    """Where each node that has a link stands: a column a role, each column in the middle."""
    columns = [
        [node.name for node in plan.nodes_with(role) if node.address is not None] for role in ROLES
    ]
    columns = [names for names in columns if names]
    most = max(len(names) for names in columns)
    return {
        name: (column, (place + 0.5) * most / len(names) - 0.5)
        for column, names in enumerate(columns)
        for place, name in enumerate(names)
    }


def settings_of(link: Link) -> str:
    """What a link does, a line each."""
    shape = link.there
    lines = [
        f"{shape.rate_bit_per_s / 1e6:g} Mbit/s" if shape.rate_bit_per_s else "",
        f"{shape.delay_ms:g} ms" if shape.delay_ms else "",
        f"{100 * shape.loss:g} % loss" if shape.loss else "",
        f"queue {shape.queue_packets}" + (f" ({shape.queue_kind})" if shape.queue_kind else ""),
    ]
    return "\n".join(line for line in lines if line)


def congestion_control_of(plan: Plan) -> str:
    """TCP's congestion control, of all nodes or node by node."""
    kinds = set(plan.congestion_control.values())
    if len(kinds) == 1:
        return f"TCP: {kinds.pop()}."
    return f"TCP: {', '.join(f'{node} {kind}' for node, kind in plan.congestion_control.items())}."


def _figure(plans: Sequence[Plan]) -> Figure:
    plan = plans[0]
    places = places_of(plan)
    columns = 1 + max(column for column, _ in places.values())
    last_row = max(row for _, row in places.values())
    top, bottom = -_HEAD_ROWS, last_row + (_FOOT_ROWS if plan.competing else 0) + 0.6
    figure = Figure(figsize=(columns * _COLUMN_INCHES, (bottom - top) * _ROW_INCHES))
    panel = figure.add_axes((0, 0, 1, 1), frameon=False, xticks=[], yticks=[])
    panel.set_xlim(-0.5, columns - 0.5)
    panel.set_ylim(bottom, top)
    for link in plan.links:
        _draw_link(panel, link, places, shared=link.ends == plan.shared_link)
    for link in {link.roles: link for link in plan.links}.values():
        middle = sum(places[end][0] for end in link.ends) / 2
        panel.text(middle, -0.8, settings_of(link), ha="center", va="bottom", fontsize=7)
    for name, place in places.items():
        models = dict.fromkeys(
            one.traffic_by_client[name] for one in plans if name in one.traffic_by_client
        )
        _draw_node(panel, name, list(models), place)
    for number, entry in enumerate(plan.competing):
        _draw_competing(panel, entry, places, last_row + 0.8 + number / 2)
    return figure


def _draw_link(panel: Axes, link: Link, places: Mapping[str, Place], *, shared: bool) -> None:
    (x, y), (other_x, other_y) = (places[end] for end in link.ends)
    panel.plot(
        [x, other_x],
        [y, other_y],
        color=_LOSSY_COLOUR if link.there.loss else _LINK_COLOUR,
        linestyle="--" if link.there.loss else "-",
        linewidth=3 if shared else 1,
    )


def _draw_node(panel: Axes, name: str, models: Sequence[str], place: Place) -> None:
    words = f"{name}: {', '.join(models)}" if models else name
    box = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": "black"}
    panel.text(*place, words, ha="center", va="center", fontsize=7, bbox=box)


def _draw_competing(panel: Axes, entry: Competing, places: Mapping[str, Place], row: float) -> None:
    sender, receiver = places[entry.sender][0], places[entry.receiver][0]
    arrow = {"arrowstyle": "-|>", "color": style.BESIDE, "linewidth": 2}
    panel.annotate("", (receiver, row), (sender, row), arrowprops=arrow)
    words = f"{entry.streams} TCP streams, {entry.congestion_control}"
    panel.text((sender + receiver) / 2, row + 0.15, words, ha="center", va="top", fontsize=7)
