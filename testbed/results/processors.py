"""How busy the processors that take time were: figures and sentences for the summary."""

from collections.abc import Iterator

import polars

from testbed.results.summary import ProcessorSummary

BUSY_PERCENT = 95
"""From this on a note says that a processor limited what its node carried."""


def processor_summaries(seconds: polars.DataFrame) -> tuple[ProcessorSummary, ...]:
    """Each node's figures over the seconds of a run, in the order of the rows."""
    by_node = seconds.group_by("node", maintain_order=True).agg(
        busy_percent=100 * polars.sum("busy_s") / polars.sum("lasted_s"),
        most_busy_percent=100 * (polars.col("busy_s") / polars.col("lasted_s")).max(),
        read_mbit_per_s=8 * polars.sum("read_bytes") / 1e6 / polars.sum("lasted_s"),
    )
    return tuple(ProcessorSummary(**row) for row in by_node.iter_rows(named=True))


def busy_processors(seconds: polars.DataFrame) -> Iterator[str]:
    """A sentence for each node whose processor was busy nearly all the time."""
    for one in processor_summaries(seconds):
        if one.busy_percent >= BUSY_PERCENT:
            yield (
                f"{one.node}'s processor was busy {one.busy_percent:.1f} % of the time: it limited"
                " what the node carried"
            )
