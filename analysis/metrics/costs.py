"""Metrics of what a variant costs."""

from collections.abc import Callable
from dataclasses import replace

from analysis.metrics.metric import Metric
from testbed.results import Run


def _of_busiest_relay(name: str) -> Callable[[Run], float | None]:
    """The largest value over the relays of a run."""
    return lambda run: max(
        (float(getattr(relay, name)) for relay in run.held_by_relays), default=None
    )


def _cpu_s_per_mb(run: Run) -> float | None:
    cost = run.summary.cost
    return cost.cpu_s / cost.delivered_mb if cost.delivered_mb else None


CONNECTIONS = Metric(
    key="relays.connections",
    name="connections of a relay",
    unit="at most",
    digits=0,
    better="less",
    of=_of_busiest_relay("connections"),
)
SOCKETS = replace(
    CONNECTIONS,
    key="relays.sockets",
    name="sockets of a relay",
    of=_of_busiest_relay("sockets"),
)
TOR_MEMORY = Metric(
    key="relays.tor_memory_mb",
    name="memory of a relay's Tor",
    unit="MB",
    digits=1,
    better="less",
    of=_of_busiest_relay("tor_memory_mb"),
)
SOCKET_MEMORY = replace(
    TOR_MEMORY,
    key="relays.socket_memory_mb",
    name="memory of a relay's sockets",
    of=_of_busiest_relay("socket_memory_mb"),
)
WIRE_BYTES = Metric(
    key="wire_bytes_per_byte",
    name="on the wire",
    unit="bytes a byte",
    digits=3,
    better="less",
    of=lambda run: run.wire_bytes_per_byte,
)
CPU = Metric(
    key="cost.cpu_s_per_mb",
    name="processor",
    unit="s a MB",
    digits=3,
    better="less",
    of=_cpu_s_per_mb,
)

COSTS = (CONNECTIONS, SOCKETS, TOR_MEMORY, SOCKET_MEMORY, WIRE_BYTES, CPU)
"""The costs of a variant. Those of relays are of the relay with the most. Processor seconds are the
host's, for the whole run, and say nothing about the network."""
