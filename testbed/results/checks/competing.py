"""Whether all competing streams were open from the first sample to the last."""

from collections.abc import Iterator

import polars

from testbed.basics.check import Check
from testbed.plan.model import LEAST_SAMPLE_INTERVAL_S, Competing, Plan
from testbed.results.recorded import Recorded


def checks(plan: Plan, recorded: Recorded) -> Iterator[Check]:
    """Check each entry of competing streams."""
    for entry in plan.competing:
        yield competing_check(entry, recorded.tables.competing, plan.duration_s)


def competing_check(entry: Competing, samples: polars.DataFrame, duration_s: float) -> Check:
    """Whether all of an entry's streams were open from the first sample to the last.

    By the sender's samples, which begin with measuring. The streams have begun before.

    Args:
        duration_s: of measuring.
    """
    own = samples.filter(polars.col("port").is_in(entry.stream_ports), node=entry.sender)
    counts = own.group_by("time_s").len()["len"]
    fewest = min(counts.to_list(), default=0)
    wanted = round(duration_s / LEAST_SAMPLE_INTERVAL_S)
    return Check(
        name=f"competing streams from {entry.sender} to {entry.receiver}",
        expected=f"{entry.streams} in each of {wanted} samples",
        observed=f"at least {fewest} in each of {len(counts)} samples",
        ok=fewest == entry.streams and len(counts) >= wanted,
    )
