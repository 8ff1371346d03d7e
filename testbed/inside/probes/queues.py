"""Tor's queues at the recorded relays: which circuit had cells on which connection.

`inside.probes.sockets` samples the kernel's queues behind them.
"""

import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from stem.control import EventType
from stem.response.events import CellStatsEvent

from testbed.inside.recording import Record
from testbed.inside.rows import QueueSample
from testbed.inside.tor.process import RunningTor


@contextmanager
def queues_recorded(tors: Collection[RunningTor], record: Record) -> Iterator[None]:
    """Record relays' queues once a second, from their CELL_STATS events (control-spec, 4.1.21).

    A relay keeps a record of each cell until it has reported it, so the events are on only within
    the context.
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
            record.add(sample)

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
