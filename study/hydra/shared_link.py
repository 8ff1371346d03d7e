"""What the connections on the shared link have: windows, round trips, losses, bundles and waits.

They explain the paper's numbers (studies/hydra/loss.md and queues.md), and take a run's tables.
"""

from collections.abc import Callable
from dataclasses import replace

from analysis.figures.sweeps import CELL_PAYLOAD_BYTES, SEGMENT_BYTES, cubic_window_segments
from analysis.metrics.metric import Metric
from testbed.results import Run
from testbed.results.link_directions import DirectionCounts, directions
from testbed.results.summarising import distribution
from testbed.results.summary import Distribution

Ends = tuple[str, str]
"""The nodes at the ends of the shared link, the one towards the clients first."""


def _of_shared_link(of: Callable[[Run, Ends], float | None]) -> Callable[[Run], float | None]:
    """A number that a run with tables has if circuits share a link by its plan."""

    def number(run: Run) -> float | None:
        return of(run, run.plan.shared_link) if run.is_whole and run.plan.shared_link else None

    return number


def _sampled(run: Run, ends: Ends, column: str) -> Distribution:
    """What was sampled of its connections at the end that sends towards the clients."""
    towards_clients, sender = ends
    return distribution(run.sockets.filter(node=sender, peer=towards_clients)[column])


def _direction(run: Run, sender: str, receiver: str) -> DirectionCounts:
    """What was sent from one node to the other while measuring."""
    wanted = (sender, receiver)
    return next(
        one for one in directions(run.plan, run.links) if (one.sender, one.receiver) == wanted
    )


def _towards_clients(run: Run, ends: Ends) -> DirectionCounts:
    return _direction(run, *reversed(ends))


def _lost_percent(run: Run, ends: Ends) -> float | None:
    """Of single segments, as the check of a run's losses has it: a bundle is lost as a whole."""
    sent = _towards_clients(run, ends)
    segments = _segments_in_a_bundle(sent)
    return 100 * sent.lost_packets / sent.offered / segments if segments else None


def _expected_window(run: Run, ends: Ends) -> float | None:
    lost_percent, round_trip_ms = _lost_percent(run, ends), _sampled(run, ends, "rtt_ms").mean
    if not lost_percent or not round_trip_ms:
        return None
    return cubic_window_segments(lost_percent / 100, round_trip_ms / 1e3)


def _rate_mb_per_s(run: Run, ends: Ends) -> float | None:
    window, round_trip_ms = (_sampled(run, ends, one).mean for one in ("cwnd_segments", "rtt_ms"))
    return window * SEGMENT_BYTES / round_trip_ms / 1e3 if window and round_trip_ms else None


def _segments_in_a_bundle(sent: DirectionCounts) -> float | None:
    return sent.sent_packets / sent.departures if sent.departures else None


def _from_server(run: Run, ends: Ends) -> DirectionCounts:
    return _direction(run, run.plan.server_of(run.clients_under_test[0]), ends[1])


def _wait_ms(run: Run, ends: Ends) -> float | None:
    total = run.queues.filter(relay=ends[1]).select("waited_ms", "removed_cells").sum()
    waited_ms, cells = total.row(0)
    return waited_ms / cells if cells else None


def _cells_in_flight(run: Run) -> float | None:
    rate_mb_per_s = run.under_test.throughput_mb_per_s.mean
    round_trip_ms = run.under_test.circuit_round_trip_ms.mean
    if rate_mb_per_s is None or round_trip_ms is None:
        return None
    return cells_in_flight(rate_mb_per_s, round_trip_ms)


def cells_in_flight(rate_mb_per_s: float, round_trip_ms: float) -> float:
    """How many cells of a circuit are under way, by Little's law."""
    return 1e3 * rate_mb_per_s * round_trip_ms / CELL_PAYLOAD_BYTES


WINDOW = Metric(
    key="shared_link.window_segments.mean",
    name="congestion window on the shared link",
    unit="segments",
    digits=1,
    better="neither",
    of=_of_shared_link(lambda run, ends: _sampled(run, ends, "cwnd_segments").mean),
)
MEDIAN_WINDOW = replace(
    WINDOW,
    key="shared_link.window_segments.median",
    name="congestion window on the shared link, median",
    digits=0,
    of=_of_shared_link(lambda run, ends: _sampled(run, ends, "cwnd_segments").median),
)
EXPECTED_WINDOW = replace(
    WINDOW,
    key="shared_link.window_segments.expected",
    name="CUBIC's window at this loss and round trip",
    of=_of_shared_link(_expected_window),
)
KERNEL_ROUND_TRIP = replace(
    WINDOW,
    key="shared_link.round_trip_ms",
    name="the kernel's round trip on the shared link",
    unit="ms",
    of=_of_shared_link(lambda run, ends: _sampled(run, ends, "rtt_ms").mean),
)
WINDOW_RATE = replace(
    WINDOW,
    key="shared_link.window_rate_mb_per_s",
    name="what the window carries in a round trip",
    unit="MB/s",
    digits=2,
    of=_of_shared_link(_rate_mb_per_s),
)
LOST = replace(
    WINDOW,
    key="shared_link.lost_percent",
    name="losses a segment",
    unit="%",
    digits=4,
    of=_of_shared_link(_lost_percent),
)
SEGMENTS_IN_A_BUNDLE = replace(
    WINDOW,
    key="shared_link.segments_in_a_bundle",
    name="segments in a bundle",
    unit="",
    digits=2,
    of=_of_shared_link(lambda run, ends: _segments_in_a_bundle(_towards_clients(run, ends))),
)
SERVERS_SEGMENTS_IN_A_BUNDLE = replace(
    SEGMENTS_IN_A_BUNDLE,
    key="server.segments_in_a_bundle",
    name="segments in the server's bundles",
    digits=0,
    of=_of_shared_link(lambda run, ends: _segments_in_a_bundle(_from_server(run, ends))),
)
WAIT = replace(
    WINDOW,
    key="shared_link.wait_ms",
    name="a cell's wait in Tor before the shared link",
    unit="ms",
    digits=0,
    of=_of_shared_link(_wait_ms),
)
CELLS_IN_FLIGHT = replace(
    WINDOW,
    key="cells_in_flight",
    name="a circuit's cells under way",
    unit="cells",
    digits=0,
    of=_cells_in_flight,
)

METRICS = (
    WINDOW,
    MEDIAN_WINDOW,
    EXPECTED_WINDOW,
    KERNEL_ROUND_TRIP,
    WINDOW_RATE,
    LOST,
    SEGMENTS_IN_A_BUNDLE,
    SERVERS_SEGMENTS_IN_A_BUNDLE,
    WAIT,
    CELLS_IN_FLIGHT,
)
