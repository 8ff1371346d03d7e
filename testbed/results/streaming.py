"""Paced streams as a listener or viewer has them: bytes a second, and stalls.

Their times to first and last byte are computed like those of every transfer.
"""

from dataclasses import dataclass
from itertools import groupby

import polars

ENOUGH = 0.95
"""The share of the model's rate below which a second is short. The server sends in bursts that are
20 to 30 ms apart: server and queue explain one or two bursts fewer in a second, which is no stall.
"""


@dataclass(frozen=True)
class Seconds:
    """One client's seconds of paced streams that can be judged.

    Attributes:
        rates_byte_per_s: what arrived in each second, in order of time.
        stalls_s: the lengths of the stalls, which are consecutive short seconds.
    """

    rates_byte_per_s: tuple[int, ...]
    stalls_s: tuple[int, ...]

    @property
    def short_s(self) -> int:
        """How many of the seconds were short."""
        return sum(self.stalls_s)


def judged_seconds(
    transfers: polars.DataFrame, delivered: polars.DataFrame, client: str, rate_byte_per_s: int
) -> Seconds:
    """Judge a client's seconds.

    A second is judged if it lies wholly between the first and the last byte of one completed,
    measured transfer: the gap between two transfers belongs to the time to first byte, and failed
    transfers are counted as such.

    Args:
        transfers, delivered: the run's tables of these names.
        rate_byte_per_s: the model's.
    """
    began_s = polars.col("start_s") + polars.col("time_to_first_byte_s")
    ended_s = polars.col("start_s") + polars.col("time_to_last_byte_s")
    spans = transfers.filter("measured", "ok", client=client).select(
        began_s=began_s, ended_s=ended_s
    )
    seconds = delivered.filter(client=client).sort("time_s")
    rates: list[int] = []
    stalls: list[int] = []
    for start_s, end_s in spans.iter_rows():
        inside = seconds.filter(
            (polars.col("time_s") - 1.0 >= start_s) & (polars.col("time_s") <= end_s)
        )["received_bytes"].to_list()
        rates += inside
        runs = groupby(inside, key=lambda received: received < ENOUGH * rate_byte_per_s)
        stalls += [len(list(run)) for short, run in runs if short]
    return Seconds(tuple(rates), tuple(stalls))
