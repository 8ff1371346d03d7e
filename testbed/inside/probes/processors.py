"""Records how busy the processors that take time are, second by second."""

import asyncio
import time

from testbed.inside.lab.network import Lab
from testbed.inside.lab.processors import Counters, read_counters
from testbed.inside.recording import Record
from testbed.inside.rows import ProcessorSecond
from testbed.plan.processor import NS_PER_S

INTERVAL_S = 1.0


async def sample_processors_steadily(
    lab: Lab, start_s: float, end_s: float, record: Record
) -> None:
    """Record each processor that takes time, once a second between two Unix times."""
    nodes = [node for node in lab.plan.processors if lab.plan.is_here(node)]
    last = {node: _read(lab, node) for node in nodes}
    at_s = start_s + INTERVAL_S
    while nodes and at_s <= end_s:
        await asyncio.sleep(max(0.0, at_s - time.time()))
        for node in nodes:
            now = _read(lab, node)
            record.add(_second(node, last[node], now))
            last[node] = now
        at_s += INTERVAL_S


Reading = tuple[float, Counters]
"""A Unix time, and a processor's counters at that time."""


def _read(lab: Lab, node: str) -> Reading:
    return lab.inside(node, lambda: (time.time(), read_counters()))


def _second(node: str, last: Reading, now: Reading) -> ProcessorSecond:
    (began_s, before), (time_s, after) = last, now
    return ProcessorSecond(
        time_s=time_s,
        node=node,
        lasted_s=time_s - began_s,
        busy_s=(after.busy_ns - before.busy_ns) / NS_PER_S,
        waited_s=(after.waited_ns - before.waited_ns) / NS_PER_S,
        read_bytes=after.read_bytes - before.read_bytes,
        written_bytes=after.written_bytes - before.written_bytes,
        calls=after.calls - before.calls,
    )
