"""Whether processors that take time were busy for as long as the plan's costs say."""

from collections.abc import Iterator

import polars

from testbed.basics.check import Check, none_of
from testbed.plan.model import Plan
from testbed.plan.processor import Processor
from testbed.results.recorded import Recorded

MOST_READ_BYTES = 2**16
"""What one system call of Tor moves at most. Its cost may fall into the next second."""


def checks(plan: Plan, recorded: Recorded) -> Iterator[Check]:
    """Check each processor's busy time against its bytes and calls; none if all are free."""
    if not plan.processors:
        return
    seconds = recorded.tables.processors
    others = [
        node
        for node, processor in plan.processors.items()
        if not is_as_planned(processor, seconds.filter(node=node))
    ]
    yield none_of("processors that were busy for another time than their costs give", others)


def is_as_planned(processor: Processor, seconds: polars.DataFrame) -> bool:
    """Whether the busy time is that of the bytes and calls, but for one call at each end.

    New connections, which aren't counted, can only make it longer.
    """
    busy_s = float(seconds["busy_s"].sum())
    cost_s = processor.cost_s(
        *(int(seconds[name].sum()) for name in ("read_bytes", "written_bytes", "calls"))
    )
    one_call_s = processor.cost_s(MOST_READ_BYTES, MOST_READ_BYTES, 1)
    is_enough = busy_s >= cost_s - one_call_s
    return is_enough and (bool(processor.connection_ns) or busy_s <= cost_s + one_call_s)
