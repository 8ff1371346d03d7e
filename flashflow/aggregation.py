"""A relay's capacity from what measurers and relay report second by second (4.1).

All counts are bytes in one second.
"""

from collections.abc import Sequence
from statistics import median

from flashflow.parameters import PAPER


def second_total(measured: float, reported: float, ratio: float = PAPER.background_ratio) -> float:
    """Z = x + min(y, x r / (1 - r)): all that a relay forwarded, as far as it is believed.

    Args:
        measured: x, what came back to all measurers.
        reported: y, what the relay says that it forwarded for its clients.
        ratio: r; clients' traffic counts up to this share of the total.
    """
    return measured + min(reported, measured * ratio / (1 - ratio))


def capacity(
    measured: Sequence[Sequence[float]],
    reported: Sequence[float],
    ratio: float = PAPER.background_ratio,
) -> float:
    """The median of the seconds' totals, in bytes per second; for the rest see `second_totals`."""
    return median(second_totals(measured, reported, ratio))


def second_totals(
    measured: Sequence[Sequence[float]],
    reported: Sequence[float],
    ratio: float = PAPER.background_ratio,
) -> list[float]:
    """Each second's total.

    Args:
        measured: for each measurer its seconds.
        reported: the relay's seconds.

    Raises:
        ValueError: somebody has reported more or fewer seconds than the others, or nobody any.
    """
    if not measured or not reported or {len(one) for one in measured} != {len(reported)}:
        raise ValueError("measurers and relay must report the same seconds, and at least one")
    sums = [sum(second) for second in zip(*measured, strict=True)]
    return [second_total(*pair, ratio) for pair in zip(sums, reported, strict=True)]
