"""What happened in a run from second to second: why one variant wins. How often is not shown here.

One run stands for its group: the one whose mean time to last byte is the median of the group's.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from analysis import metrics, style, whole_networks
from analysis.figures.drawing import Drawing
from analysis.runs import Group
from testbed.results import Run
from testbed.traffic.models import uploads

Numbers = NDArray[np.float64]

CAPTION = (
    "One run of each variant: that with the median of its runs' mean times to last byte."
    " Delivered: to each client under test, by the second, or handed to its Tor if it uploads;"
    " to others: to each client that runs another model. Congestion window, round trip and segments"
    " sent again: of each connection on the shared link, at the end that sends the transfers, by"
    " its kernel, every 0.5 s; in a drawn network, at both ends of the connections between the"
    " relays that its scenario watches. Tor's queue: of each circuit in front of that link; how"
    " long the cells that left it in a second had waited, and by Little's law how many waited."
    " Competing: what arrived of each stream beside the circuits. Active circuits, active links"
    " and shared links: of a drawn network; each direction by itself, in grey both together."
    " Where there are more than four lines, the thick one is their mean."
)

MOST_CLEAR_LINES = 4
"""Where there are more, their mean is drawn over them."""

_CONNECTION = ("port", "peer_port")
_ENDS = ("node", "peer")
_QUEUE = ("connection", "queue")
_PANEL_INCHES = 0.85
_CROWDED_OPACITY = 0.3


@dataclass(frozen=True)
class Line:
    """Something that changes while a run measures.

    Attributes:
        name: whose it is: a client, a connection, a circuit.
        under_test: whether it belongs to what is tested, not to what runs beside it.
        times_s: since measuring began, ascending.
        values: at these times; NaN where there is none.
    """

    name: str
    under_test: bool
    times_s: Numbers
    values: Numbers


@dataclass(frozen=True)
class Quantity:
    """A row of the figure.

    Attributes:
        label: of its axis, with the unit.
        lines: of a run; none if the run has nothing of the kind.
    """

    label: str
    lines: Callable[[Run], list[Line]]


Rows = Mapping[str, Mapping[str, Sequence[Line]]]
"""By the quantity's label, by variant."""


def delivered_mb_per_s(run: Run) -> list[Line]:
    """What each client under test received, or sent, in the second before, 1 MB = 10^6 bytes."""
    return [line for line in _delivered_mb_per_s(run) if line.under_test]


def delivered_beside_mb_per_s(run: Run) -> list[Line]:
    """The same of the clients that run another model: their rate is of another size."""
    return [line for line in _delivered_mb_per_s(run) if not line.under_test]


def congestion_window_segments(run: Run) -> list[Line]:
    """The congestion window of each connection that is watched."""
    return _of_connections(run, polars.col("cwnd_segments"))


def kernel_round_trip_ms(run: Run) -> list[Line]:
    """The smoothed round trip of each connection that is watched."""
    return _of_connections(run, polars.col("rtt_ms"))


def retransmitted_segments(run: Run) -> list[Line]:
    """What each connection that is watched has sent again since it was seen first."""
    total = polars.col("retransmitted_segments")
    return _of_connections(run, total - total.first().over(*_ENDS, *_CONNECTION))


def wait_in_tor_ms(run: Run) -> list[Line]:
    """How long the cells that left a circuit's queue had waited there, on average."""
    left = polars.col("removed_cells")
    wait = polars.when(left > 0).then(polars.col("waited_ms") / left)
    return _lines(run, _before_shared_link(run).with_columns(value=wait), _QUEUE)


def cells_in_tor(run: Run) -> list[Line]:
    """How many cells waited in a circuit's queue, on average since its sample before.

    Little's law: the rate at which they left times their mean wait, which is the sum of the waits
    by the time (Little, A Proof for the Queuing Formula: L = λW; Operations Research 9(3), 1961).
    """
    # Tor tells of no second without cells, so that a sample can stand for several seconds.
    elapsed_s = polars.col("time_s").diff().over(_QUEUE).fill_null(1.0)
    waits_s = polars.col("waited_ms") / 1000
    cells = polars.when(elapsed_s > 0).then(waits_s / elapsed_s)
    return _lines(run, _before_shared_link(run).with_columns(value=cells), _QUEUE)


def active_circuits(run: Run) -> list[Line]:
    """On how many circuits of a drawn network cells crossed, by the second."""
    if not whole_networks.watches_all_relays(run):
        return []
    return _of_network(run, circuits=polars.col("circuits"))


def active_links(run: Run) -> list[Line]:
    """On how many links between relays there was an active circuit, of each way and of both."""
    return _of_network(run, undirected=polars.col("undirected_links"), directed=polars.col("links"))


def shared_links_percent(run: Run) -> list[Line]:
    """How many of the links between relays that were active had several circuits, likewise."""
    undirected = polars.col("undirected_shared") / polars.col("undirected_links")
    directed = polars.col("shared") / polars.col("links")
    return _of_network(run, undirected=100 * undirected, directed=100 * directed)


def competing_mb_per_s(run: Run) -> list[Line]:
    """What arrived of each competing stream since the sample before, 1 MB = 10^6 bytes."""
    streams = [
        (entry.receiver, port) for entry in run.plan.competing for port in entry.stream_ports
    ]
    ends = polars.DataFrame(
        streams, schema={"node": polars.String, "peer_port": polars.Int64}, orient="row"
    )
    rate = polars.col("received_bytes").diff() / 1e6 / polars.col("time_s").diff()
    table = run.competing.join(ends, on=ends.columns, how="semi").sort("time_s")
    return _lines(run, table.with_columns(value=rate.over("peer_port")), ["peer_port"], ())


QUANTITIES = (
    Quantity("delivered,\nMB/s", delivered_mb_per_s),
    Quantity("to others,\nMB/s", delivered_beside_mb_per_s),
    Quantity("congestion\nwindow,\nsegments", congestion_window_segments),
    Quantity("kernel's\nround trip,\nms", kernel_round_trip_ms),
    Quantity("sent again,\nsegments", retransmitted_segments),
    Quantity("wait in\nTor's queue,\nms", wait_in_tor_ms),
    Quantity("waiting in\nTor's queue,\ncells", cells_in_tor),
    Quantity("competing,\nMB/s", competing_mb_per_s),
    Quantity("active\ncircuits", active_circuits),
    Quantity("active\nlinks", active_links),
    Quantity("shared\nlinks, %", shared_links_percent),
)


def _of_network(run: Run, **values: polars.Expr) -> list[Line]:
    """A line of a drawn network's seconds for each value; undirected ones look as if beside."""
    if not whole_networks.is_drawn(run):
        return []
    seconds = whole_networks.links_by_second(run)
    time_s = polars.col("second") + run.measuring_start_s
    lines = (
        seconds.select(of=polars.lit(name), value=value.cast(polars.Float64), time_s=time_s)
        for name, value in values.items()
    )
    return _lines(run, polars.concat(lines), ["of"], values.keys() - {"undirected"})


def _delivered_mb_per_s(run: Run) -> list[Line]:
    """Of clients that upload what they handed to their Tor, of the others what they received."""
    uploading = [name for name, model in run.plan.traffic_by_client.items() if uploads(model)]
    sent = polars.col("client").is_in(uploading)
    moved = polars.when(sent).then("sent_bytes").otherwise("received_bytes")
    table = run.delivered.with_columns(value=moved / 1e6)
    return _lines(run, table, ["client"], run.clients_under_test)


def _of_connections(run: Run, value: polars.Expr) -> list[Line]:
    """Of the shared link at the end that sends what the model under test transfers.

    Where there is none, of all pairs of relays that are watched, at both ends.
    """
    keys: tuple[str, ...] = (*_ENDS, *_CONNECTION)
    samples = run.sockets
    if run.plan.shared_link:
        keys = _CONNECTION
        receiver, sender = run.plan.shared_link
        if uploads(run.plan.traffic):
            receiver, sender = sender, receiver
        samples = samples.filter(node=sender, peer=receiver)
    return _lines(run, samples.with_columns(value=value), keys)


def _before_shared_link(run: Run) -> polars.DataFrame:
    """The queues of the relay that sends over the shared link towards the clients."""
    return run.queues.filter(relay=run.plan.shared_link[1] if run.plan.shared_link else "")


def _lines(
    run: Run,
    table: polars.DataFrame,
    keys: Sequence[str],
    under_test: Collection[str] | None = None,
) -> list[Line]:
    """A line for each different set of `keys`, of the column `value` while the run measured.

    Args:
        under_test: the names that are; None: all.
    """
    since_s = polars.col("time_s") - run.measuring_start_s
    rows = table.select(*keys, "value", since_s=since_s).filter(
        polars.col("since_s").is_between(0, run.summary.duration_s)
    )
    return [
        Line(
            name=" ".join(map(str, key)),
            under_test=under_test is None or key[0] in under_test,
            times_s=one["since_s"].to_numpy(),
            values=one["value"].cast(polars.Float64).fill_null(float("nan")).to_numpy(),
        )
        for key, one in rows.sort("since_s").group_by(keys, maintain_order=True)
    ]


def over_time(groups: Mapping[Group, Sequence[Run]], looks: style.Looks) -> Iterator[Drawing]:
    """A figure for each scenario, traffic model and duration, with a column for each variant.

    Raises:
        TestbedError: a run's plan or a table can't be read.
    """
    for setting in dict.fromkeys((one.scenario, one.traffic, one.duration_s) for one in groups):
        runs = {
            group.variant: representative(runs)
            for group, runs in groups.items()
            if (group.scenario, group.traffic, group.duration_s) == setting
        }
        scenario, traffic, duration_s = setting
        if rows := _rows(runs):
            yield Drawing(
                name=f"over-time-{scenario}-{traffic}-{duration_s:g}s",
                title=f"{scenario}, {traffic}, from second to second",
                caption=CAPTION,
                figure=_figure(rows, runs, looks, duration_s),
            )


def representative(runs: Sequence[Run]) -> Run:
    """The run whose mean time to last byte is the median; the lower one of an even number."""

    def time_s(run: Run) -> float:
        value = metrics.TIME_TO_LAST_BYTE.of(run)
        return math.inf if value is None else value

    return sorted(runs, key=time_s)[(len(runs) - 1) // 2]


def _rows(runs: Mapping[str, Run]) -> Rows:
    """The quantities that any of the runs has."""
    rows = {
        quantity.label: {variant: quantity.lines(run) for variant, run in runs.items()}
        for quantity in QUANTITIES
    }
    return {label: lines for label, lines in rows.items() if any(lines.values())}


def _figure(rows: Rows, runs: Mapping[str, Run], looks: style.Looks, duration_s: float) -> Figure:
    """A column a run, a row a quantity with the same axes for all runs."""
    figure, places = style.grid(len(rows), len(runs), panel_inches=_PANEL_INCHES)
    panels = places.subplots(sharex=True, sharey="row", squeeze=False)
    for row, (label, by_variant) in zip(panels, rows.items(), strict=True):
        for panel, (variant, lines) in zip(row, by_variant.items(), strict=True):
            _draw(panel, lines, looks[variant]["color"])
        row[0].set_ylabel(label)
        style.scale_from_zero(row)
    for panel, (variant, run) in zip(panels[0], runs.items(), strict=True):
        panel.set_title(f"{variant}, seed {run.summary.seed}")
        style.scale_time(panel, duration_s)
    figure.align_ylabels()
    figure.supxlabel("time since measuring began, s", fontsize=8)
    return figure


def _draw(panel: Axes, lines: Sequence[Line], colour: str) -> None:
    crowded = len(lines) > MOST_CLEAR_LINES
    opacity, width = (_CROWDED_OPACITY if crowded else 1), style.THIN_LINE_WIDTH_POINTS
    drawn = [(line, opacity, width) for line in lines]
    if crowded:
        drawn.append((mean(lines), 1, style.LINE_WIDTH_POINTS))
    for line, alpha, width in drawn:
        panel.plot(
            line.times_s,
            line.values,
            label=line.name,
            color=colour if line.under_test else style.BESIDE,
            linewidth=width,
            alpha=alpha,
        )


def mean(lines: Sequence[Line]) -> Line:
    """The mean of all lines' values around each full second at which there are any.

    Around it and not between two: what is told once a second comes now before it and now after it.
    """
    rows = polars.DataFrame(
        {
            "second": np.concatenate([np.rint(line.times_s) for line in lines]),
            "time_s": np.concatenate([line.times_s for line in lines]),
            "value": np.concatenate([line.values for line in lines]),
        }
    )
    means = rows.fill_nan(None).drop_nulls().group_by("second").mean().sort("second")
    times_s, values = means.select("time_s", "value").to_numpy().T
    return Line("mean", all(line.under_test for line in lines), times_s, values)
