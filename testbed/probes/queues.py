"""Tor's queues at the relays that are watched: which circuit had cells on which connection.

The kernel's queues behind them are `probes.sockets`'s.
"""

import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial

from stem.control import EventType
from stem.response.events import CellStatsEvent

from testbed.recording import Rows
from testbed.tor.network import RunningTor


@dataclass(frozen=True)
class QueueSample:
    """A row of queues.parquet: a circuit's cells towards the client in one second.

    Attributes:
        time_s: Unix time at which Tor told of the second that was over.
        relay: whose queue.
        queue: Tor's number of the circuit on the connection, which is `connection`.
        next_queue, next_connection: the same towards the server; null at the exit. The number of a
            circuit is the same at both ends of a connection, so that rows of two relays tell which
            connection joins them.
        removed_cells: that left the queue for the connection.
        waited_ms: of these, the times in the queue, summed up; Tor counts them in steps of 10 ms.
    """

    time_s: float
    relay: str
    queue: str
    connection: str
    next_queue: str | None
    next_connection: str | None
    removed_cells: int
    waited_ms: int


@contextmanager
def queues_recorded(tors: Collection[RunningTor], rows: Rows) -> Iterator[None]:
    """Write down relays' queues once a second, by their CELL_STATS events (control-spec, 4.1.21).

    A relay keeps a record for each cell until it has told of it, so that the events are switched
    on only as long as the context lasts.
    """

    def on_cells(relay: str, event: CellStatsEvent) -> None:
        if event.inbound_connection:
            sample = QueueSample(
                time_s=time.time(),
                relay=relay,
                queue=event.inbound_queue,
                connection=event.inbound_connection,
                next_queue=event.outbound_queue,
                next_connection=event.outbound_connection,
                removed_cells=_sum(event.inbound_removed),
                waited_ms=_sum(event.inbound_time),
            )
            rows.add(asdict(sample))

    with ExitStack() as stack:
        for tor in tors:
            listener = partial(on_cells, tor.node.name)
            tor.controller.set_conf("TestingEnableCellStatsEvent", "1")
            stack.callback(tor.controller.set_conf, "TestingEnableCellStatsEvent", "0")
            tor.controller.add_event_listener(listener, EventType.CELL_STATS)
            stack.callback(tor.controller.remove_event_listener, listener)
        yield


def _sum(by_cell_type: dict[str, int] | None) -> int:
    return sum((by_cell_type or {}).values())
