"""The course of a run from second to second, which shows why one variant wins.

One run stands for its group: that with the median of the mean times to last byte.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from analysis import style, whole_networks
from analysis.alternative import counted, span
from analysis.figures import Part
from analysis.metrics.transfers import TIME_TO_LAST_BYTE
from analysis.plot import Plot
from analysis.runs import Groups
from testbed.inside.traffic.models import uploads
from testbed.results import Run

PART = Part.TRAFFIC
ORDER = 20

Numbers = NDArray[np.float64]

CAPTION = (
    "One run of each variant: the one with the median of its runs' mean times to last byte."
    " Delivered: what each client under test received in a second, or handed to its Tor if it"
    " uploads; to others: the same for each client that runs another model. Congestion window,"
    " round trip and segments sent again: for each connection on the shared link, from the kernel"
    " of the end that sends the transfers, every 0.5 s; in a drawn network, from both ends of the"
    " connections between the relays that its scenario watches. Tor's queue: for each circuit in"
    " front of that link, how long the cells that left it in a second had waited and, by Little's"
    " law, how many waited. Processor: of each node that has one that takes time. Competing: what"
    " arrived of each stream beside the circuits. Active"
    " circuits, active links and shared links: only in a drawn network; each direction by itself,"
    " and both together in grey. With more than four lines, the thick one is their mean."
)

MOST_CLEAR_LINES = 4
"""The most lines without their mean plotted over them."""

_CONNECTION = ("port", "peer_port")
_ENDS = ("node", "peer")
_QUEUE = ("connection", "queue")
_PANEL_INCHES = 0.85
_CROWDED_OPACITY = 0.3


@dataclass(frozen=True)
class Line:
    """A quantity of one client, connection or circuit while a run measures.

    Attributes:
        name: the client, connection or circuit.
        under_test: whether it belongs to the test and not to other traffic beside it.
        times_s: times since measuring began, ascending.
        values: the values at these times; NaN where there is none.
    """

    name: str
    under_test: bool
    times_s: Numbers
    values: Numbers


@dataclass(frozen=True)
class Quantity:
    """A row of the figure.

    Attributes:
        label: its axis's label, with the unit.
        lines: reads a run's lines; a run may have none.
    """

    label: str
    lines: Callable[[Run], list[Line]]


Rows = Mapping[str, Mapping[str, Sequence[Line]]]
"""Lines by the quantity's label and by variant."""


def delivered_mb_per_s(run: Run) -> list[Line]:
    """MB (10^6 bytes) that each client under test received, or sent, in the second before."""
    return [line for line in _delivered_mb_per_s(run) if line.under_test]


def delivered_beside_mb_per_s(run: Run) -> list[Line]:
    """MB that each other client received or sent; their rates are of another magnitude."""
    return [line for line in _delivered_mb_per_s(run) if not line.under_test]


def congestion_window_segments(run: Run) -> list[Line]:
    """The congestion window of each watched connection."""
    return _of_connections(run, polars.col("cwnd_segments"))


def kernel_round_trip_ms(run: Run) -> list[Line]:
    """The smoothed round trip of each watched connection."""
    return _of_connections(run, polars.col("rtt_ms"))


def retransmitted_segments(run: Run) -> list[Line]:
    """Segments that each watched connection has retransmitted since its first sample."""
    total = polars.col("retransmitted_segments")
    return _of_connections(run, total - total.first().over(*_ENDS, *_CONNECTION))


def wait_in_tor_ms(run: Run) -> list[Line]:
    """The mean wait of the cells that left a circuit's queue."""
    left = polars.col("removed_cells")
    wait = polars.when(left > 0).then(polars.col("waited_ms") / left)
    return _lines(run, _before_shared_link(run).with_columns(value=wait), _QUEUE)


def cells_in_tor(run: Run) -> list[Line]:
    """The mean number of cells in a circuit's queue since its previous sample.

    By Little's law this is the rate at which they left times their mean wait, so the sum of the
    waits divided by the time (Little, A Proof for the Queuing Formula: L = λW; Operations Research
    9(3), 1961).
    """
    # Tor reports no seconds without cells, so a sample can stand for several seconds.
    elapsed_s = polars.col("time_s").diff().over(_QUEUE).fill_null(1.0)
    waits_s = polars.col("waited_ms") / 1000
    cells = polars.when(elapsed_s > 0).then(waits_s / elapsed_s)
    return _lines(run, _before_shared_link(run).with_columns(value=cells), _QUEUE)


def processor_busy_percent(run: Run) -> list[Line]:
    """The share of each second in which each processor that takes time was busy."""
    busy = 100 * polars.col("busy_s") / polars.col("lasted_s")
    return _lines(run, run.processors.with_columns(value=busy), ["node"])


def active_circuits(run: Run) -> list[Line]:
    """The number of a drawn network's circuits that cells crossed, by the second."""
    if not whole_networks.watches_all_relays(run):
        return []
    return _of_network(run, circuits=polars.col("circuits"))


def active_links(run: Run) -> list[Line]:
    """The number of links between relays with an active circuit, directed and undirected."""
    return _of_network(run, undirected=polars.col("undirected_links"), directed=polars.col("links"))


def shared_links_percent(run: Run) -> list[Line]:
    """The share of active links that had several circuits, directed and undirected."""
    undirected = polars.col("undirected_shared") / polars.col("undirected_links")
    directed = polars.col("shared") / polars.col("links")
    return _of_network(run, undirected=100 * undirected, directed=100 * directed)


def competing_mb_per_s(run: Run) -> list[Line]:
    """The rate of each competing stream since the previous sample; 1 MB = 10^6 bytes."""
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
    Quantity("processor\nbusy, %", processor_busy_percent),
    Quantity("active\ncircuits", active_circuits),
    Quantity("active\nlinks", active_links),
    Quantity("shared\nlinks, %", shared_links_percent),
)


def _of_network(run: Run, **values: polars.Expr) -> list[Line]:
    """A line over a drawn network's seconds for each value; the undirected one is grey."""
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
    """MB that clients received, or handed to their Tor if they upload."""
    uploading = [name for name, model in run.plan.traffic_by_client.items() if uploads(model)]
    sent = polars.col("client").is_in(uploading)
    moved = polars.when(sent).then("sent_bytes").otherwise("received_bytes")
    table = run.delivered.with_columns(value=moved / 1e6)
    return _lines(run, table, ["client"], run.clients_under_test)


def _of_connections(run: Run, value: polars.Expr) -> list[Line]:
    """A line for each connection of the shared link, at the end that sends the transfers.

    Without a shared link, these are all connections of watched pairs of relays, at both ends.
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
    """A line for each distinct set of `keys`, with the column `value` while the run measured.

    Args:
        under_test: the names under test; None for all.
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


def plots(groups: Groups, looks: style.Looks) -> Iterator[Plot]:
    """One plot, with a column for each variant."""
    runs = {group.variant: representative(runs) for group, runs in groups.items()}
    if rows := _rows(runs):
        one = next(iter(groups))
        yield Plot(
            name=f"over-time-{one.scenario}-{one.traffic}-{one.duration_s:g}s",
            title=f"{one.scenario}, {one.traffic}, from second to second",
            caption=CAPTION,
            figure=_figure(rows, runs, looks, one.duration_s),
            shows=in_words(rows, runs),
        )


def representative(runs: Sequence[Run]) -> Run:
    """The run with the median of the mean times to last byte; of an even number, the lower one."""

    def time_s(run: Run) -> float:
        value = TIME_TO_LAST_BYTE.of(run)
        return math.inf if value is None else value

    return sorted(runs, key=time_s)[(len(runs) - 1) // 2]


def in_words(rows: Rows, runs: Mapping[str, Run]) -> str:
    """What each variant's run has, quantity by quantity."""
    return " ".join(
        f"{variant}, seed {run.summary.seed}: "
        + "; ".join(
            f"{' '.join(label.split())}: {counted(len(lines), 'line')}, {span_of(lines)}"
            for label, by_variant in rows.items()
            if (lines := by_variant[variant])
        )
        + "."
        for variant, run in runs.items()
    )


def span_of(lines: Sequence[Line], unit: str = "") -> str:
    """The mean of all lines' values, the least and the greatest."""
    return span((value for line in lines for value in line.values), unit)


def _rows(runs: Mapping[str, Run]) -> Rows:
    """The quantities that at least one run has."""
    rows = {
        quantity.label: {variant: quantity.lines(run) for variant, run in runs.items()}
        for quantity in QUANTITIES
    }
    return {label: lines for label, lines in rows.items() if any(lines.values())}


def _figure(rows: Rows, runs: Mapping[str, Run], looks: style.Looks, duration_s: float) -> Figure:
    """The panels: a column for each run, and a row with shared axes for each quantity."""
    figure, places = style.grid(len(rows), len(runs), panel_inches=_PANEL_INCHES)
    panels = places.subplots(sharex=True, sharey="row", squeeze=False)
    for row, (label, by_variant) in zip(panels, rows.items(), strict=True):
        for panel, (variant, lines) in zip(row, by_variant.items(), strict=True):
            _plot_lines(panel, lines, looks[variant]["color"])
        row[0].set_ylabel(label)
        style.scale_from_zero(row)
    for panel, (variant, run) in zip(panels[0], runs.items(), strict=True):
        panel.set_title(f"{variant}, seed {run.summary.seed}")
        style.scale_time(panel, duration_s)
    figure.align_ylabels()
    figure.supxlabel("time since measuring began, s", fontsize=8)
    return figure


def _plot_lines(panel: Axes, lines: Sequence[Line], colour: str) -> None:
    crowded = len(lines) > MOST_CLEAR_LINES
    opacity, width = (_CROWDED_OPACITY if crowded else 1), style.THIN_LINE_WIDTH_POINTS
    curves = [(line, opacity, width) for line in lines]
    if crowded:
        curves.append((mean(lines), 1, style.LINE_WIDTH_POINTS))
    for line, alpha, width in curves:
        panel.plot(
            line.times_s,
            line.values,
            label=line.name,
            color=colour if line.under_test else style.BESIDE,
            linewidth=width,
            alpha=alpha,
        )


def mean(lines: Sequence[Line]) -> Line:
    """The mean of all lines' values around each full second that has any.

    It is around a full second, not between two, as reports once a second come some milliseconds
    before or after it.
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
