"""Tor's queues in front of the shared link: what the relay that sends the downloads over it holds.

The kernel's queues behind them are `probes.sockets`'s.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from stem.control import EventType
from stem.response.events import CellStatsEvent

from testbed.probes.record import Rows
from testbed.tor.network import RunningTor


@dataclass(frozen=True)
class QueueSample:
    """A row of queues.parquet: a circuit's cells towards the client in one second.

    Attributes:
        time_s: Unix time at which Tor told of the second that was over.
        relay: whose queue.
        queue: Tor's number of the circuit on the connection, which is `connection`.
        removed_cells: that left the queue for the connection.
        waited_ms: of these, the times in the queue, summed up; Tor counts them in steps of 10 ms.
    """

    time_s: float
    relay: str
    queue: str
    connection: str
    removed_cells: int
    waited_ms: int


@contextmanager
def queues_recorded(tor: RunningTor, rows: Rows) -> Iterator[None]:
    """Write down a relay's queues once a second, by its CELL_STATS events (control-spec, 4.1.21).

    A relay keeps a record for each cell until it has told of it, so that the events are switched
    on only as long as the context lasts.
    """

    def on_cells(event: CellStatsEvent) -> None:
        if event.inbound_connection:
            sample = QueueSample(
                time_s=time.time(),
                relay=tor.node.name,
                queue=event.inbound_queue,
                connection=event.inbound_connection,
                removed_cells=_sum(event.inbound_removed),
                waited_ms=_sum(event.inbound_time),
            )
            rows.add(asdict(sample))

    tor.controller.set_conf("TestingEnableCellStatsEvent", "1")
    tor.controller.add_event_listener(on_cells, EventType.CELL_STATS)
    try:
        yield
    finally:
        tor.controller.remove_event_listener(on_cells)
        tor.controller.set_conf("TestingEnableCellStatsEvent", "0")


def _sum(by_cell_type: dict[str, int] | None) -> int:
    return sum((by_cell_type or {}).values())
