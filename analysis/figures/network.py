"""The network of a scenario: its nodes, links and their settings, from the plan of a run."""

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import style
from analysis.figures import Part
from analysis.plot import Plot
from analysis.runs import Groups
from testbed.asked.topology import ROLES
from testbed.plan.model import Competing, Plan, PlannedLink

PART = Part.SCENARIO
ORDER = 10

CAPTION = (
    "Rate, delay, loss and queue (packets that wait) hold in each direction of every link between"
    " these roles. Dashed links lose packets; the thick one is shared."
)

Point = tuple[float, float]
"""A column and a row; the first row is on top."""

_COLUMN_INCHES, _ROW_INCHES = 1.6, 0.36
_HEAD_ROWS, _FOOT_ROWS = 2.4, 1.0
_LINK_COLOUR, _LOSSY_COLOUR = "#555555", "#CC79A7"


def plots(groups: Groups, _looks: style.Looks) -> Iterator[Plot]:
    """The network of a scenario, with the traffic models of all its runs.

    A drawn network has a map instead (`network_map`).
    """
    plans = [runs[0].plan for runs in groups.values()]
    if plans[0].of_kind("router"):
        return
    scenario = plans[0].scenario
    yield Plot(
        name=f"network-{scenario}",
        title=f"{scenario}: {plans[0].scenario_title}",
        caption=f"{CAPTION} {congestion_control_of(plans[0])}",
        figure=_figure(plans),
        shows=_words(plans[0]),
    )


def _words(plan: Plan) -> str:
    """How many nodes of each role there are, and the settings of the links between roles."""
    nodes = ", ".join(
        f"{role}s: {len(named)}" for role in ROLES if (named := plan.nodes_with(role))
    )
    links = "; ".join(
        f"{' to '.join(link.roles)}{' (shared)' if link.ends == plan.shared_link else ''}: "
        + settings_of(link).replace("\n", ", ")
        for link in {link.roles: link for link in plan.links}.values()
    )
    return f"Nodes: {nodes}. Links: {links}."


def points_of(plan: Plan) -> dict[str, Point]:
    """The points of the nodes that have links: a column for each role, vertically centred."""
    columns = [
        [node.name for node in plan.nodes_with(role) if node.address is not None] for role in ROLES
    ]
    columns = [names for names in columns if names]
    most = max(len(names) for names in columns)
    return {
        name: (column, (row + 0.5) * most / len(names) - 0.5)
        for column, names in enumerate(columns)
        for row, name in enumerate(names)
    }


def settings_of(link: PlannedLink) -> str:
    """A link's settings, one on each line."""
    shape = link.there
    lines = [
        f"{shape.rate_bit_per_s / 1e6:g} Mbit/s" if shape.rate_bit_per_s else "",
        f"{shape.delay_ms:g} ms" if shape.delay_ms else "",
        f"{100 * shape.loss:g} % loss" if shape.loss else "",
        f"queue {shape.queue_packets}" + (f" ({shape.queue_kind})" if shape.queue_kind else ""),
    ]
    return "\n".join(line for line in lines if line)


def congestion_control_of(plan: Plan) -> str:
    """TCP's congestion control: one for all nodes, or node by node."""
    kinds = set(plan.congestion_control.values())
    if len(kinds) == 1:
        return f"TCP: {kinds.pop()}."
    return f"TCP: {', '.join(f'{node} {kind}' for node, kind in plan.congestion_control.items())}."


def _figure(plans: Sequence[Plan]) -> Figure:
    plan = plans[0]
    points = points_of(plan)
    columns = 1 + max(column for column, _ in points.values())
    last_row = max(row for _, row in points.values())
    top, bottom = -_HEAD_ROWS, last_row + (_FOOT_ROWS if plan.competing else 0) + 0.6
    figure = Figure(figsize=(columns * _COLUMN_INCHES, (bottom - top) * _ROW_INCHES))
    panel = figure.add_axes((0, 0, 1, 1), frameon=False, xticks=[], yticks=[])
    panel.set_xlim(-0.5, columns - 0.5)
    panel.set_ylim(bottom, top)
    for link in plan.links:
        _plot_link(panel, link, points, shared=link.ends == plan.shared_link)
    for link in {link.roles: link for link in plan.links}.values():
        middle = sum(points[end][0] for end in link.ends) / 2
        panel.text(middle, -0.8, settings_of(link), ha="center", va="bottom", fontsize=7)
    for name, point in points.items():
        models = dict.fromkeys(
            one.traffic_by_client[name] for one in plans if name in one.traffic_by_client
        )
        _plot_node(panel, name, list(models), point)
    for number, entry in enumerate(plan.competing):
        _plot_competing(panel, entry, points, last_row + 0.8 + number / 2)
    return figure


def _plot_link(
    panel: Axes, link: PlannedLink, points: Mapping[str, Point], *, shared: bool
) -> None:
    (x, y), (other_x, other_y) = (points[end] for end in link.ends)
    panel.plot(
        [x, other_x],
        [y, other_y],
        color=_LOSSY_COLOUR if link.there.loss else _LINK_COLOUR,
        linestyle="--" if link.there.loss else "-",
        linewidth=3 if shared else 1,
    )


def _plot_node(panel: Axes, name: str, models: Sequence[str], point: Point) -> None:
    words = f"{name}: {', '.join(models)}" if models else name
    box = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": "black"}
    panel.text(*point, words, ha="center", va="center", fontsize=7, bbox=box)


def _plot_competing(panel: Axes, entry: Competing, points: Mapping[str, Point], row: float) -> None:
    sender, receiver = points[entry.sender][0], points[entry.receiver][0]
    arrow = {"arrowstyle": "-|>", "color": style.BESIDE, "linewidth": 2}
    panel.annotate("", (receiver, row), (sender, row), arrowprops=arrow)
    words = f"{entry.streams} TCP streams, {entry.congestion_control}"
    panel.text((sender + receiver) / 2, row + 0.15, words, ha="center", va="top", fontsize=7)
